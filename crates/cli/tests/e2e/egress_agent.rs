//! The user's ssh-agent from inside: commits are signed and pushed with a key that never enters the session, each signature
//! by permission. A real agent, a real sshd, in an internet of the test's own.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::internet::{ALLOWED, Internet};
use crate::support::Ran;

/// A running ssh-agent that holds one key; ended when dropped.
struct Agent {
    socket: PathBuf,
    process: u32,
}

impl Agent {
    fn start(internet: &Internet, key: &std::path::Path) -> Agent {
        // Not where the session can see: it lies in the home, which is not the project.
        let socket = internet.place.home.join("agent.sock");
        let started = Command::new("ssh-agent").arg("-a").arg(&socket).output().expect("ssh-agent starts");
        let told = String::from_utf8_lossy(&started.stdout).into_owned();
        let number = told.split("SSH_AGENT_PID=").nth(1).and_then(|rest| rest.split(';').next()).unwrap_or_default();
        let agent = Agent { socket, process: number.parse().expect("it tells its number") };
        let added = Command::new("ssh-add")
            .arg("-q")
            .arg(key)
            .env("SSH_AUTH_SOCK", &agent.socket)
            .stderr(Stdio::null())
            .status();
        assert!(added.expect("ssh-add starts").success());
        agent
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(Command::new("kill").arg(self.process.to_string()).status());
    }
}

/// A repository in the project that signs commits with the agent's key and pushes over ssh.
struct Pushing {
    /// First: it has to be gone before its directory is.
    agent: Agent,
    internet: Internet,
    bare: PathBuf,
    /// The private key, as the test knows it.
    secret: String,
}

impl Pushing {
    fn set_up() -> Option<Pushing> {
        let internet = Internet::with(&["git", "ssh", "sshd", "ssh-agent", "ssh-add", "ssh-keygen"])?;
        let bare = internet.world.repository("signed.git");
        let ssh = internet.world.ssh(&format!("{ALLOWED}:2222"));
        let secret = std::fs::read_to_string(&ssh.key).expect("the world made a key");
        let public = std::fs::read_to_string(ssh.key.with_extension("pub")).expect("and its other half");
        let agent = Agent::start(&internet, &ssh.key);
        internet.place.write("known_hosts", &format!("[allowed.test]:2222 {}\n", ssh.host_key));
        internet.place.write("signers", &format!("t@t.test {public}"));
        let remote = format!("ssh://{}@allowed.test:2222{}", ssh.user, bare.display());
        let here = internet.place.project.display();
        let set_up = format!(
            "cd {here} && git init -q -b main && git config user.name t && git config user.email t@t.test \
             && git config gpg.format ssh && git config user.signingkey '{}' \
             && git config gpg.ssh.allowedSignersFile {here}/signers && git remote add origin {remote} \
             && git config core.sshCommand 'ssh -F /dev/null -o UserKnownHostsFile={here}/known_hosts -o BatchMode=yes'",
            public.trim()
        );
        let made = internet.command("bash").args(["-c", &set_up]).status().expect("bash starts");
        assert!(made.success());
        Some(Pushing { agent, internet, bare, secret })
    }

    fn run(&self, flags: &[&str], script: &str) -> Ran {
        let mut command = self.internet.command(crate::support::binary());
        command.env("SSH_AUTH_SOCK", &self.agent.socket);
        command.args(["run", "--allow-host", "allowed.test:2222"]).args(flags).args(["--", "bash", "-c", script]);
        crate::support::finish(&mut command, b"")
    }

    fn pushed(&self) -> String {
        let mut git = self.internet.command("git");
        git.args(["-c", "safe.directory=*", "-C"]).arg(&self.bare).args(["log", "--format=%s", "signed"]);
        String::from_utf8_lossy(&git.output().expect("git starts").stdout).trim().to_owned()
    }
}

#[test]
fn commits_are_signed_and_pushed_with_a_key_that_stays_outside() {
    let Some(pushing) = Pushing::set_up() else { return };
    let script =
        "set -e; git commit -q --allow-empty -S -m signed; git verify-commit HEAD; git push -q origin HEAD:signed";
    pushing.run(&["--ssh-agent", "allow"], script).ok();
    assert!(pushing.pushed().lines().any(|line| line == "signed"), "{}", pushing.pushed());

    // Neither the agent's socket nor the key is there, and the agent does nothing but list and sign.
    let socket = pushing.agent.socket.display();
    let script = format!(
        "SSH_AUTH_SOCK={socket} ssh-add -l 2>/dev/null && echo reached; ssh-add -D 2>/dev/null && echo emptied; ssh-add -x </dev/null 2>/dev/null && echo locked
         grep -rls 'OPENSSH PRIVATE KEY' /run /tmp . ; ssh-add -l | wc -l"
    );
    for mode in ["dynamic", "static"] {
        assert_eq!(pushing.run(&["--ssh-agent", "allow", "--mode", mode], &script).ok(), "1\n", "{mode}");
    }
    let line = pushing.secret.lines().nth(1).expect("a key has lines").to_owned();
    let found =
        format!("grep -a -l -s '{}' /proc/[0-9]*/environ /proc/self/mem /run/user/*/* 2>/dev/null; true", &line[..32]);
    assert_eq!(pushing.run(&["--ssh-agent", "allow"], &found).ok(), "");

    // The control: without leave there is no agent, and nothing is signed.
    let ran = pushing.run(&[], "git commit -q --allow-empty -S -m unsigned");
    assert_ne!(ran.code, 0);
    let ran =
        pushing.run(&["--ssh-agent", "ask", "--on-unknown", "deny"], "git commit -q --allow-empty -S -m unsigned");
    assert_ne!(ran.code, 0);
    let log = pushing.internet.place.read("home:.local/state/cofferdam/audit/00000001.ndjson").unwrap_or_default();
    assert!(log.contains("\"op\":\"sign\"") && log.contains("`git` signature"), "{log}");
}

#[test]
fn each_signature_can_be_a_question() {
    let Some(pushing) = Pushing::set_up() else { return };
    let internet = &pushing.internet;
    for (answer, expected) in [("approve", 0), ("deny", 1)] {
        let mut command = internet.command(crate::support::binary());
        command.env("SSH_AUTH_SOCK", &pushing.agent.socket).args([
            "run",
            "--ssh-agent",
            "ask",
            "--on-unknown",
            "ask",
            "--",
        ]);
        command.args(["bash", "-c", "echo up; git commit -q --allow-empty -S -m asked"]);
        let running = internet.place.begin_session(command);
        let question = crate::support::wait_for("a question", || {
            Some(internet.sandbox(&["questions"]).ok()).filter(|text| text.contains("sign with"))
        });
        assert!(question.contains("sign with SHA256:") && question.contains("`git` signature"), "{question}");
        assert!(question.contains("ssh-keygen"), "{question}");
        let id = question.split_whitespace().next().unwrap_or_default();
        internet.sandbox(&[answer, id]).ok();
        let (code, out) = running.end();
        assert_eq!(i32::from(code != 0), expected, "{out}");
    }
}

/// The usual set-up: the signing key is named by its public file, and hosts are known by `known_hosts`.
#[test]
fn with_the_agent_what_is_public_of_ssh_is_shown_and_private_keys_are_not() {
    let Some(pushing) = Pushing::set_up() else { return };
    let place = &pushing.internet.place;
    let public = place.read("signers").expect("it was written").replace("t@t.test ", "");
    place.write("home:.ssh/id_ed25519.pub", &public);
    place.write("home:.ssh/id_ed25519", &pushing.secret);
    place.write("home:.ssh/known_hosts", "host.test ssh-ed25519 AAAA\n");
    place.write("home:.ssh/config", "Host *\n");
    place.host("git config user.signingkey ~/.ssh/id_ed25519.pub").ok();
    let signed = "git commit -q --allow-empty -S -m signed && git log -1 --format=%G?";
    let ran = pushing.run(&["--ssh-agent", "allow"], signed);
    assert_eq!((ran.code, ran.out.trim()), (0, "G"), "{}", ran.err);
    let read = "cat ~/.ssh/known_hosts ~/.ssh/config; cat ~/.ssh/id_ed25519";
    let ran = pushing.run(&["--ssh-agent", "allow"], read);
    assert!(ran.out.contains("host.test") && ran.out.contains("Host *"), "{} {}", ran.out, ran.err);
    assert!(!ran.out.contains("PRIVATE"), "{}", ran.out);
    let written = pushing.run(&["--ssh-agent", "allow"], "echo x >> ~/.ssh/known_hosts");
    assert_ne!(written.code, 0);
    // The controls: without the agent they are hidden, and where the directory is denied in so many words.
    assert_eq!(pushing.run(&[], "cat ~/.ssh/known_hosts").out, "");
    let blacklist = place.home.join(".ssh").display().to_string();
    assert_eq!(pushing.run(&["--ssh-agent", "allow", "--blacklist", &blacklist], "cat ~/.ssh/known_hosts").out, "");
    place.write("home:.config/cofferdam/config.toml", "[files]\ndeny = [\"~/.s*\"]\n");
    assert_eq!(pushing.run(&["--ssh-agent", "allow"], "cat ~/.ssh/known_hosts").out, "");
}

/// A link of a dotfile manager leads to where sessions write, and then to what they choose.
#[test]
fn with_the_agent_nothing_of_ssh_is_shown_through_a_link() {
    let Some(pushing) = Pushing::set_up() else { return };
    let place = &pushing.internet.place;
    place.write("home:.ssh/id_ed25519", "THE-KEY");
    place.write("home:.ssh/plain.pub", "public");
    place.write("home:.ssh/tree.pub/inner", "THE-TREE");
    place.write("home:dotfiles/config", "Host *\n");
    place
        .host("cd ~/.ssh && ln -s ../dotfiles/config config && ln -s id_ed25519 key.pub && ln -s ../clients dir.pub")
        .ok();
    place.write("home:clients/payroll", "THE-SALARY");
    place.host("ln -sf ../.ssh/id_ed25519 ~/dotfiles/config").ok();
    let read = "cat ~/.ssh/plain.pub ~/.ssh/config ~/.ssh/key.pub ~/.ssh/id_ed25519 ~/.ssh/dir.pub/payroll ~/.ssh/tree.pub/inner";
    for mode in ["dynamic", "static"] {
        let ran = pushing.run(&["--ssh-agent", "allow", "--mode", mode], read);
        assert_eq!(ran.out, "public", "{mode}: {}", ran.err);
    }
}
