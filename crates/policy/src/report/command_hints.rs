//! What a command line usually reaches: a hint for the operator who is asked, never a rule. Owns the table of programs and the
//! reading of simple command lines. Called by `supervisor` for questions about hosts and by `cli` when a command failed.

use crate::language::endpoint::{Endpoint, Ports};
use crate::language::host::{Host, parse_authority};

/// Programs that reach hosts, and which of their first words say so; where empty, all do.
struct Known {
    programs: &'static [&'static str],
    words: &'static [&'static str],
    hosts: Hosts,
}

enum Hosts {
    /// As a policy would list them.
    These(&'static [&'static str]),
    /// Those that its arguments name.
    Arguments,
}

const NPM: Hosts = Hosts::These(&["registry.npmjs.org"]);
const PYPI: Hosts = Hosts::These(&["pypi.org", "files.pythonhosted.org"]);
const MAVEN: Hosts = Hosts::These(&["repo.maven.apache.org", "repo1.maven.org"]);

const TABLE: &[Known] = &[
    Known {
        programs: &["npm", "pnpm", "bun"],
        words: &["install", "i", "ci", "add", "update", "upgrade", "create", "exec", "x", "dlx", "audit", "publish"],
        hosts: NPM,
    },
    Known { programs: &["npx", "pnpx", "bunx"], words: &[], hosts: NPM },
    Known {
        programs: &["yarn"],
        words: &["", "install", "add", "up", "upgrade", "create", "dlx"],
        hosts: Hosts::These(&["registry.yarnpkg.com", "registry.npmjs.org"]),
    },
    Known {
        programs: &["pip", "pip3", "pipx", "uv", "poetry", "pdm"],
        words: &["install", "download", "sync", "add", "lock", "update", "wheel"],
        hosts: PYPI,
    },
    Known { programs: &["uvx"], words: &[], hosts: PYPI },
    Known {
        programs: &["cargo"],
        words: &["add", "build", "check", "clippy", "doc", "fetch", "install", "run", "search", "test", "update"],
        hosts: Hosts::These(&["index.crates.io", "static.crates.io", "crates.io"]),
    },
    Known { programs: &["rustup"], words: &[], hosts: Hosts::These(&["static.rust-lang.org"]) },
    Known {
        programs: &["go"],
        words: &["build", "get", "install", "mod", "run", "test"],
        hosts: Hosts::These(&["proxy.golang.org", "sum.golang.org"]),
    },
    Known {
        programs: &["gem", "bundle", "bundler"],
        words: &["", "install", "update", "add"],
        hosts: Hosts::These(&["**.rubygems.org"]),
    },
    Known { programs: &["mvn", "mvnw", "gradle", "gradlew"], words: &[], hosts: MAVEN },
    Known { programs: &["gh"], words: &[], hosts: Hosts::These(&["**.github.com"]) },
    Known {
        programs: &["git"],
        words: &["clone", "fetch", "pull", "push", "ls-remote", "submodule"],
        hosts: Hosts::Arguments,
    },
    Known { programs: &["curl", "wget", "ssh", "scp", "rsync"], words: &[], hosts: Hosts::Arguments },
];

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
}

impl Prediction {
    pub fn of(argv: &[String]) -> Option<Prediction> {
        let words: Vec<&str> = argv.iter().take(MOST_WORDS).map(String::as_str).collect();
        if let Some(script) = script_of(&words) {
            let commands = script.split([';', '|', '&', '\n', '(', ')']);
            let mut found = commands.filter_map(|command| {
                let words: Vec<&str> = command.split_whitespace().take(MOST_WORDS).collect();
                Self::of_words(&words)
            });
            let mut first = found.next()?;
            for other in found {
                first.add(other);
            }
            return Some(first);
        }
        Self::of_words(&words)
    }

    fn of_words(words: &[&str]) -> Option<Prediction> {
        let (program, arguments) = program_of(words)?;
        let word = arguments.iter().find(|word| !word.starts_with(['-', '+'])).copied().unwrap_or("");
        let counts = |known: &&Known| {
            known.programs.contains(&program) && (known.words.is_empty() || known.words.contains(&word))
        };
        let known = TABLE.iter().find(counts)?;
        let what =
            if known.words.is_empty() || word.is_empty() { program.to_owned() } else { format!("{program} {word}") };
        let hosts = match known.hosts {
            Hosts::These(names) => names.iter().filter_map(|name| Endpoint::parse(name).ok()).collect(),
            Hosts::Arguments if program == "ssh" => login_host(arguments).into_iter().collect(),
            Hosts::Arguments => {
                // `Accept: text/html` is no place to log in at.
                let mut urls = arguments.iter().filter(|word| word.contains("://"));
                let url = urls.find_map(|word| host_in(word));
                url.or_else(|| arguments.iter().find_map(|word| host_in(word))).into_iter().collect()
            }
        };
        Some(Prediction { what, hosts })
    }

    fn add(&mut self, other: Prediction) {
        if !self.what.split(", ").any(|known| known == other.what) {
            self.what = format!("{}, {}", self.what, other.what);
        }
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
    fn every_host_of_the_table_is_one_of_the_registries() {
        for known in TABLE {
            let Hosts::These(names) = known.hosts else { continue };
            for name in names {
                let is_listed = Endpoint::parse(name)
                    .is_ok_and(|endpoint| registries().any(|listed| listed.target.covers_all(&endpoint.target)));
                assert!(is_listed, "{name}");
            }
        }
    }
}
