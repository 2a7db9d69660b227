//! What a command line usually reaches: a hint for the operator who is asked, and the hosts that one answer can be about.
//! Owns the reading of simple command lines; the table of programs is `profiles/commands.toml`. Called by `supervisor` for questions
//! about hosts and by `cli` when a command failed.

use crate::builtin::{CommandHosts, UsualHosts, commands};
use crate::language::endpoint::{Endpoint, Ports, Target};
use crate::language::host::{Host, parse_authority};

/// Programs that only start another one.
const STARTERS: &[&str] = &["env", "exec", "command", "nice", "time", "nohup", "sudo"];
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh"];
/// More than a person types.
const MOST_WORDS: usize = 256;
/// More hosts than fit into a sentence.
const MOST_LISTED: usize = 8;

/// What a command line usually reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// In words of the table, such as `npm install`.
    pub what: String,
    /// None of them where the program decides, as `git pull` does.
    pub hosts: Vec<Endpoint>,
    /// That allows all of them, and what else the program needs.
    pub preset: Option<&'static str>,
}

impl Prediction {
    pub fn of(argv: &[String]) -> Option<Prediction> {
        let mut found = in_command(argv).into_iter();
        let mut first = found.next()?.prediction;
        for other in found {
            first.add(other.prediction);
        }
        Some(first)
    }

    fn add(&mut self, other: Prediction) {
        if !self.what.split(", ").any(|known| known == other.what) {
            self.what = format!("{}, {}", self.what, other.what);
        }
        self.preset = self.preset.filter(|_| self.preset == other.preset);
        for host in other.hosts {
            if !self.hosts.contains(&host) {
                self.hosts.push(host);
            }
        }
    }

    /// What is said beside a question about a host.
    pub fn hint(&self, host: &Host, port: u16) -> Option<String> {
        if self.hosts.is_empty() {
            return None;
        }
        // A host of the table is for the web; on which port a program logs in, its settings may say.
        let is_usual =
            |usual: &Endpoint| usual.target.covers(host) && (usual.ports != Ports::Web || usual.allows(host, port));
        if self.hosts.iter().any(is_usual) {
            return Some(format!("expected of `{}`", self.what));
        }
        Some(format!("not expected of `{}`, which reaches {}", self.what, self.listed()))
    }

    /// Its hosts, for a sentence.
    pub fn listed(&self) -> String {
        let names: Vec<String> = self.hosts.iter().take(MOST_LISTED).map(Endpoint::to_string).collect();
        let more = self.hosts.len() - names.len();
        let names = names.join(", ");
        if more == 0 { names } else { format!("{names} and {more} more") }
    }
}

/// A command that the table knows.
struct Found {
    known: &'static CommandHosts,
    prediction: Prediction,
}

/// The known commands of a command line, which may be a script for a shell.
fn in_command(argv: &[String]) -> Vec<Found> {
    let words: Vec<&str> = argv.iter().take(MOST_WORDS).map(String::as_str).collect();
    let Some(script) = script_of(&words) else { return found(&words).into_iter().collect() };
    let commands = script.split([';', '|', '&', '\n', '(', ')']);
    commands.filter_map(|command| found(&command.split_whitespace().take(MOST_WORDS).collect::<Vec<_>>())).collect()
}

fn found(words: &[&str]) -> Option<Found> {
    let (program, arguments) = program_of(words)?;
    let word = arguments.iter().find(|word| !word.starts_with(['-', '+'])).copied().unwrap_or("");
    let counts = |known: &&CommandHosts| {
        known.programs.contains(&program) && (known.words.is_empty() || known.words.contains(&word))
    };
    let known = commands().iter().find(counts)?;
    let what = if known.words.is_empty() || word.is_empty() { program.to_owned() } else { format!("{program} {word}") };
    let hosts = match known.hosts {
        UsualHosts::These(_) | UsualHosts::Preset(_) => known.fixed(),
        UsualHosts::Arguments if program == "ssh" => login_host(arguments).into_iter().collect(),
        UsualHosts::Arguments => {
            // `Accept: text/html` is no place to log in at.
            let mut urls = arguments.iter().filter(|word| word.contains("://"));
            let url = urls.find_map(|word| host_in(word));
            url.or_else(|| arguments.iter().find_map(|word| host_in(word))).into_iter().collect()
        }
    };
    let preset = if let UsualHosts::Preset(name) = known.hosts { Some(name) } else { None };
    Some(Found { known, prediction: Prediction { what, hosts, preset } })
}

/// The hosts of a program, which one answer can be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGroup {
    /// What the program is called by, such as `pip install`.
    pub name: String,
    /// Each on the port that was asked about.
    pub hosts: Vec<Endpoint>,
}

impl HostGroup {
    /// The group that a host belongs to: of the command that was started, where that has it, or the first of the table. None where
    /// there is no other host in it. Of the table only whole names: what lies below one is the workload's to choose.
    pub fn around(host: &Host, port: u16, argv: &[String]) -> Option<HostGroup> {
        let named = |known: &CommandHosts| {
            let names = known.fixed().into_iter().filter(|usual| matches!(usual.target, Target::Host(_)));
            names.collect::<Vec<_>>()
        };
        let has = |known: &&'static CommandHosts| named(known).iter().any(|endpoint| endpoint.allows(host, port));
        let started = in_command(argv).into_iter().map(|found| found.known).find(has);
        let known = started.or_else(|| commands().iter().find(has))?;
        let hosts = named(known).into_iter().filter(|usual| usual.ports.allow(port) && usual.at.is_empty());
        let hosts: Vec<Endpoint> = hosts.map(|usual| Endpoint { ports: Ports::One(port), ..usual }).collect();
        (hosts.len() > 1).then(|| HostGroup { name: known.name(), hosts })
    }
}

/// The program itself, and what it is told.
fn program_of<'a>(mut words: &'a [&'a str]) -> Option<(&'a str, &'a [&'a str])> {
    loop {
        let (first, rest) = words.split_first()?;
        let name = first.rsplit('/').next().unwrap_or(first);
        let is_assignment = first.split_once('=').is_some_and(|(name, _)| !name.contains('/'));
        words = match rest {
            _ if is_assignment || STARTERS.contains(&name) => rest,
            [_duration, rest @ ..] if name == "timeout" => rest,
            ["-m", rest @ ..] if name.starts_with("python") => rest,
            _ => return Some((name, rest)),
        };
    }
}

/// What a shell is told to run.
fn script_of<'a>(words: &'a [&'a str]) -> Option<&'a str> {
    let (program, arguments) = program_of(words)?;
    let at =
        arguments.iter().position(|word| word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))?;
    arguments.get(at + 1).copied().filter(|_| SHELLS.contains(&program))
}

/// `https://host/`, `user@host:path`.
fn host_in(word: &str) -> Option<Endpoint> {
    let word = word.trim_matches(['\'', '"']);
    let (authority, usual) = match word.split_once("://") {
        Some(("http", rest)) => (rest, 80),
        Some(("https", rest)) => (rest, 443),
        Some(("ssh" | "git+ssh" | "sftp", rest)) => (rest, 22),
        Some(_) => return None,
        None => (word.split_once(':').map(|(before, _)| before).filter(|before| !before.contains('/'))?, 22),
    };
    endpoint(authority.split(['/', '?', '#']).next()?, usual)
}

/// The first word that is neither an option nor an option's.
fn login_host(arguments: &[&str]) -> Option<Endpoint> {
    const WITH_VALUE: &str = "bcDEeFIiJLlmOopQRSWw";
    let mut words = arguments.iter();
    loop {
        let word = words.next()?;
        match word.strip_prefix('-') {
            Some(option) if option.len() == 1 && WITH_VALUE.contains(option) => drop(words.next()),
            Some(_) => {}
            None => return host_in(word).or_else(|| endpoint(word, 22)),
        }
    }
}

/// Without the name of the user who logs in there.
fn endpoint(authority: &str, usual: u16) -> Option<Endpoint> {
    let (host, port) = parse_authority(authority.rsplit('@').next()?, Some(usual)).ok()?;
    Some(Endpoint::of(&host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::registries;

    fn predicted(line: &str) -> Option<(String, String)> {
        let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Prediction::of(&argv).map(|found| (found.listed(), found.what))
    }

    fn shell(script: &str) -> Option<Prediction> {
        Prediction::of(&["bash".to_owned(), "-ec".to_owned(), script.to_owned()])
    }

    fn hint(script: &str, host: &str) -> Option<String> {
        shell(script)?.hint(&Host::parse(host).ok()?, 443)
    }

    #[test]
    fn commands_that_fetch_are_known_and_others_are_not() {
        let table = [
            ("npm install", "npm install", "registry.npmjs.org"),
            ("npm --silent ci", "npm ci", "registry.npmjs.org"),
            ("/usr/bin/npm i left-pad", "npm i", "registry.npmjs.org"),
            ("env A=b timeout 5 pip3 install x", "pip3 install", "pypi.org, files.pythonhosted.org"),
            ("python3.11 -m pip install x", "pip install", "pypi.org, files.pythonhosted.org"),
            ("cargo +nightly build", "cargo build", "index.crates.io, static.crates.io, crates.io"),
            ("git clone https://x.example/a.git", "git clone", "x.example:443"),
            ("git push git@x.example:a/b.git", "git push", "x.example:22"),
            ("git pull", "git pull", ""),
            ("curl -sS http://me:secret@x.example:8080/a?b", "curl", "x.example:8080"),
            ("curl -H Accept:text/html https://x.example", "curl", "x.example:443"),
            ("curl -o page.html https://x.example/a:b", "curl", "x.example:443"),
            ("ssh -p 2222 -i ~/key me@x.example uptime", "ssh", "x.example:22"),
        ];
        for (line, what, hosts) in table {
            assert_eq!(predicted(line), Some((hosts.to_owned(), what.to_owned())), "{line}");
        }
        for line in ["", "npm test", "cargo fmt", "git commit -m x", "make install", "env", "timeout", "A=b"] {
            assert_eq!(predicted(line), None, "{line}");
        }
    }

    #[test]
    fn scripts_are_read_command_by_command() {
        let found = shell("cd x && npm ci; A=b pip install -r r.txt").map(|found| (found.listed(), found.what));
        let hosts = "registry.npmjs.org, pypi.org, files.pythonhosted.org";
        assert_eq!(found, Some((hosts.to_owned(), "npm ci, pip install".to_owned())));
        assert_eq!(shell("echo npm install"), None);
    }

    #[test]
    fn what_is_usual_and_what_is_not_is_said() {
        assert_eq!(hint("npm ci", "registry.npmjs.org").as_deref(), Some("expected of `npm ci`"));
        let unusual = "not expected of `npm ci`, which reaches registry.npmjs.org";
        assert_eq!(hint("npm ci", "evil.example").as_deref(), Some(unusual));
        assert_eq!(hint("git pull", "x.example"), None);
        let host = Host::parse("registry.npmjs.org").expect("a name");
        let at_port = |script, port| shell(script).and_then(|found| found.hint(&host, port));
        assert_eq!(at_port("npm ci", 22).as_deref(), Some(unusual));
        assert_eq!(at_port("ssh -p 2222 registry.npmjs.org", 2222).as_deref(), Some("expected of `ssh`"));
    }

    #[test]
    fn a_long_script_makes_no_long_sentence() {
        let commands = |n| format!("npm ci; pip install x; curl https://h{n}.example");
        let script = (0..2000).map(commands).collect::<Vec<_>>().join("; ");
        let told = hint(&script, "evil.example").expect("it is known");
        assert!(
            told.starts_with("not expected of `npm ci, pip install, curl`, which reaches registry.npmjs.org, pypi")
        );
        assert!(told.ends_with(" and 1995 more") && told.len() < 400, "{told}");
    }

    #[test]
    fn a_group_is_all_hosts_of_the_program_and_has_the_host_in_it() {
        let around = |host: &str, port, line: &str| {
            let argv: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let group = HostGroup::around(&Host::parse(host).expect("a name"), port, &argv)?;
            let hosts: Vec<String> = group.hosts.iter().map(Endpoint::to_string).collect();
            Some(format!("{}: {}", group.name, hosts.join(", ")))
        };
        let pip = Some("pip install: pypi.org:443, files.pythonhosted.org:443".to_owned());
        assert_eq!(around("pypi.org", 443, "bash"), pip);
        assert_eq!(around("files.pythonhosted.org", 443, "make"), pip);
        let go = Some("go build: proxy.golang.org:80, sum.golang.org:80".to_owned());
        assert_eq!(around("sum.golang.org", 80, "go build"), go);
        // The command that was started decides between two that have the host.
        assert_eq!(around("registry.npmjs.org", 443, "npm ci"), None, "nothing else is in it");
        let yarn = Some("yarn install: registry.yarnpkg.com:443, registry.npmjs.org:443".to_owned());
        assert_eq!(around("registry.npmjs.org", 443, "yarn add x"), yarn);
        assert!(
            around("api.anthropic.com", 443, "bash")
                .is_some_and(|text| text.starts_with("claude: api.anthropic.com:443, "))
        );
        assert!(around("api.anthropic.com", 443, "aider").is_some_and(|text| text.starts_with("aider: ")));
        // Names below a pattern of the table are the workload's to choose.
        assert_eq!(around("index.rubygems.org", 443, "bundle install"), None);
        assert_eq!(around("api.github.com", 443, "gh pr list"), None);
        for (host, port) in
            [("pypi.org", 22), ("evil.pypi.org", 443), ("pypi.org.evil.example", 443), ("other.test", 443)]
        {
            assert_eq!(around(host, port, "pip install x"), None, "{host}:{port}");
        }
    }

    #[test]
    fn every_host_of_the_table_is_one_of_the_registries() {
        for known in commands() {
            let UsualHosts::These(names) = known.hosts else { continue };
            for name in names {
                let is_listed = Endpoint::parse(name)
                    .is_ok_and(|endpoint| registries().any(|listed| listed.target.covers_all(&endpoint.target)));
                assert!(is_listed, "{name}");
            }
        }
    }
}
