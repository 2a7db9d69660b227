//! An authority and its certificates, made by the `openssl` command when a test wants them. Owns the files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub(crate) struct Authority {
    directory: PathBuf,
    issued: usize,
}

#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn make(directory: &Path) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let authority = Authority { directory: directory.to_owned(), issued: 0 };
        authority.openssl(
            "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 2 -subj /CN=cofferdam-test \
             -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign \
             -keyout authority.key -out authority.pem",
            &[],
        )?;
        Ok(authority)
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("authority.pem")
    }

    /// For names and addresses.
    pub(crate) fn issue(&mut self, names: &[&str]) -> io::Result<Certificate> {
        self.issued += 1;
        let (key, chain) = (format!("{}.key", self.issued), format!("{}.pem", self.issued));
        let kind = |name: &&str| if name.parse::<std::net::IpAddr>().is_ok() { "IP" } else { "DNS" };
        let names: Vec<String> = names.iter().map(|name| format!("{}:{name}", kind(name))).collect();
        self.openssl(
            "req -x509 -nodes -newkey ec -pkeyopt ec_paramgen_curve:P-256 -days 2 -subj /CN=server \
             -CA authority.pem -CAkey authority.key -addext basicConstraints=critical,CA:FALSE",
            &["-addext", &format!("subjectAltName={}", names.join(",")), "-keyout", &key, "-out", &chain],
        )?;
        Ok(Certificate { chain: self.directory.join(chain), key: self.directory.join(key) })
    }

    fn openssl(&self, words: &str, more: &[&str]) -> io::Result<()> {
        let mut command = Command::new("openssl");
        let output = command.args(words.split_whitespace()).args(more).current_dir(&self.directory).output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("openssl: {}", String::from_utf8_lossy(&output.stderr))))
    }
}
