//! Real servers in a world: OpenSSH, git repositories, PostgreSQL. Owns how they are set up and as whom they run: as the
//! caller, and where that is root as the test user, because PostgreSQL refuses root and sshd wants more of the machine.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::path::PathBuf;

use super::{Account, Order, Program, Ready, World, parsed};

const USER: &str = "cofferdam-test";

/// A server for `ssh`, `scp` and git, for one key.
#[derive(Debug)]
pub struct Ssh {
    pub address: SocketAddr,
    /// Who may log in.
    pub user: String,
    /// The private key that may.
    pub key: PathBuf,
    /// `ssh-ed25519 ...`, for a line of `known_hosts`.
    pub host_key: String,
}

/// A database for the user `tester`, without a password.
#[derive(Debug)]
pub struct Postgres {
    pub address: SocketAddr,
}

impl World {
    pub(super) fn program(&self, words: &[&str], ready: Ready) -> Program {
        let argv = words.iter().map(|word| (*word).to_owned()).collect();
        Program { argv, directory: self.given.clone(), user: self.account, ready }
    }

    #[track_caller]
    fn shell(&self, script: &str) -> String {
        let reply = self.order(&Order::Program(self.program(&["sh", "-ec", script], Ready::Ended)));
        reply.unwrap_or_else(|error| panic!("{error}"))
    }

    pub(super) fn repositories(&self) -> PathBuf {
        self.given.clone()
    }

    /// A bare repository with one commit of one file, `README`. Served by every web server as `/git/NAME`, and by ssh under
    /// the path that this returns.
    #[track_caller]
    pub fn repository(&self, name: &str) -> PathBuf {
        self.shell(&format!(
            "export GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@example.test GIT_COMMITTER_NAME=t \
             GIT_COMMITTER_EMAIL=t@example.test
             git init -q -b main work-{name}; cd work-{name}
             echo '{name}' > README; git add README; git commit -qm first
             cd ..; git clone -q --bare work-{name} {name}; rm -rf work-{name}
             git -C {name} config http.receivepack true"
        ));
        self.given.join(name)
    }

    #[track_caller]
    pub fn ssh(&self, bind: &str) -> Ssh {
        let bind = parsed(bind);
        let directory = self.given.join("ssh");
        self.shell("mkdir ssh; ssh-keygen -qt ed25519 -N '' -f ssh/host; ssh-keygen -qt ed25519 -N '' -f ssh/key");
        let shown = directory.display();
        let host_key = self.shell("cut -d' ' -f1,2 ssh/host.pub").trim().to_owned();
        let options = [
            format!("ListenAddress={bind}"),
            format!("HostKey={shown}/host"),
            format!("AuthorizedKeysFile={shown}/key.pub"),
            "PidFile=none".to_owned(),
            "UsePAM=no".to_owned(),
            "StrictModes=no".to_owned(),
            "PasswordAuthentication=no".to_owned(),
            "KbdInteractiveAuthentication=no".to_owned(),
            "AcceptEnv=GIT_PROTOCOL".to_owned(),
            "Subsystem=sftp internal-sftp".to_owned(),
            "LogLevel=FATAL".to_owned(),
        ];
        let mut words = vec!["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null"];
        words.extend(options.iter().flat_map(|option| ["-o", option]));
        let address = self.started(&Order::Program(self.program(&words, Ready::Accepts(bind))));
        let user = self.shell("id -un").trim().to_owned();
        Ssh { address, user, key: directory.join("key"), host_key }
    }

    #[track_caller]
    pub fn postgres(&self, bind: &str) -> Postgres {
        let bind = parsed(bind);
        let programs = postgres_programs().unwrap_or_else(|| panic!("PostgreSQL is not installed"));
        let programs = programs.display();
        self.shell(&format!(
            "{programs}/initdb -D postgres -A trust -U tester --no-sync
             echo 'host all all all trust' >> postgres/pg_hba.conf"
        ));
        let data = self.given.join("postgres").display().to_string();
        let (server, port) = (format!("{programs}/postgres"), bind.port().to_string());
        let (address, quiet) = (format!("listen_addresses={}", bind.ip()), "unix_socket_directories=");
        let words = [
            &server,
            "-D",
            &data,
            "-p",
            &port,
            "-c",
            &address,
            "-c",
            quiet,
            "-c",
            "fsync=off",
            "-c",
            "log_min_messages=fatal",
        ];
        Postgres { address: self.started(&Order::Program(self.program(&words, Ready::Accepts(bind)))) }
    }
}

/// The programs of the newest version that is installed.
pub(super) fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten().map(|entry| entry.path().join("bin"));
    versions.filter(|place| place.join("initdb").is_file()).max()
}

/// Who runs programs for root.
pub(super) fn account() -> Option<Account> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let fields: Vec<&str> = users.lines().map(|line| line.split(':').collect()).find(|f: &Vec<_>| f[0] == USER)?;
    Some(Account { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
}

/// A directory for such a user: not below a home, which may be closed to it.
pub(super) fn give(name: &str, account: Option<Account>) -> io::Result<PathBuf> {
    let directory = std::env::temp_dir().join(name);
    fs::create_dir(&directory)?;
    if let Some(account) = account {
        chown(&directory, Some(account.uid), Some(account.gid))?;
    }
    Ok(directory)
}

/// Servers lie where only root's shell looks.
pub(super) fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}
