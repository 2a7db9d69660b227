//! What stands outside during a trial and must not be reached: listeners, a process, files in memory. Owns making and removing them,
//! and says afterwards which of them were reached. Made by `trial` for each trial anew.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::errand::Errand;

/// Directories that every session has of its own.
pub(crate) const PRIVATE: &[&str] = &["/dev/shm", "/tmp", "/var/tmp"];

#[derive(Debug)]
pub(crate) struct Canaries {
    tcp: TcpListener,
    udp: UdpSocket,
    named: UnixListener,
    path: UnixListener,
    process: Process,
    files: Files,
}

impl Canaries {
    /// Makes all of them, and writes into the errand where they are. Where one cannot be made, none stays.
    pub(crate) fn place(errand: &mut Errand) -> io::Result<Self> {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        let named = UnixListener::bind_addr(&SocketAddr::from_abstract_name(errand.file_name())?)?;
        let path = listen_at(&errand.scratch().socket())?;
        tcp.set_nonblocking(true)?;
        udp.set_nonblocking(true)?;
        named.set_nonblocking(true)?;
        path.set_nonblocking(true)?;
        let mut files = Files(Vec::new());
        for directory in PRIVATE {
            let file = PathBuf::from(directory).join(errand.file_name());
            // Other users write there, too: made anew, and no link is followed.
            let made = fs::File::options().write(true).create_new(true).mode(0o600).open(&file);
            match made {
                Ok(mut made) => {
                    files.0.push(file);
                    made.write_all(errand.token.as_bytes())?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let process = Command::new("/proc/self/exe")
            .args(["stand", &errand.token])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = Process(process);
        (errand.tcp, errand.udp) = (tcp.local_addr()?.port(), udp.local_addr()?.port());
        errand.process = process.0.id();
        Ok(Canaries { tcp, udp, named, path, process, files })
    }

    pub(crate) fn tcp_was_reached(&self) -> Option<String> {
        self.tcp.accept().ok().map(|_| "a listener on the host's loopback was connected to".to_owned())
    }

    pub(crate) fn udp_was_reached(&self) -> Option<String> {
        self.udp.recv(&mut [0; 16]).ok().map(|length| format!("{length} bytes arrived on the host's loopback"))
    }

    pub(crate) fn named_was_reached(&self) -> Option<String> {
        self.named.accept().ok().map(|_| "an abstract socket of the host was connected to".to_owned())
    }

    pub(crate) fn path_was_reached(&self) -> Option<String> {
        self.path.accept().ok().map(|_| "a service's socket of the host was connected to".to_owned())
    }

    pub(crate) fn process_was_ended(&mut self) -> Option<String> {
        // A signal that was sent is delivered before its sender goes on, the end of the process comes a little later.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let ended = self.process.0.try_wait().ok().flatten()?;
        Some(format!("a process of the host was ended: {ended}"))
    }

    /// Takes all of them away.
    pub(crate) fn remove(mut self) -> io::Result<()> {
        let files = self.files.remove();
        self.process.end()?;
        files
    }
}

/// Files, until it is dropped.
#[derive(Debug)]
struct Files(Vec<PathBuf>);

impl Files {
    fn remove(&mut self) -> io::Result<()> {
        let removed: Vec<io::Result<()>> = self.0.drain(..).map(fs::remove_file).collect();
        removed.into_iter().collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if self.remove().is_err() {
            // The run that comes next removes what is left.
        }
    }
}

/// A process, until it is dropped.
#[derive(Debug)]
struct Process(Child);

impl Process {
    fn end(&mut self) -> io::Result<()> {
        if self.0.try_wait()?.is_none() {
            self.0.kill()?;
            self.0.wait()?;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.end().is_err() {
            // It ends with its input.
        }
    }
}

/// Addresses of sockets are at most 107 bytes long: bound through the directory's descriptor where the path is longer.
fn listen_at(path: &std::path::Path) -> io::Result<UnixListener> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = fs::File::open(directory)?;
    UnixListener::bind(through(&directory).join(name))
}

/// A directory by its descriptor.
pub(crate) fn through(directory: &fs::File) -> PathBuf {
    use std::os::fd::AsRawFd as _;
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Variables of the caller that hold the token in every trial.
pub(crate) const SECRET_VARIABLES: &[&str] =
    &["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "DATABASE_PASSWORD"];
pub(crate) const CODE_VARIABLES: &[&str] =
    &["BASH_ENV", "PYTHONSTARTUP", "PERL5OPT", "NODE_OPTIONS", "GIT_SSH_COMMAND"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errand::Walls;

    #[test]
    fn no_canary_stays_where_one_cannot_be_made() {
        let root = std::env::temp_dir().join(format!("cofferdam-verify-canaries-{}", std::process::id()));
        let token = format!("{:032x}", std::process::id());
        let mut errand = Errand {
            check: "A1".to_owned(),
            walls: Walls::Standing,
            switched_off: Vec::new(),
            run: std::process::id(),
            root: root.clone(),
            program: PathBuf::new(),
            token,
            tcp: 0,
            udp: 0,
            process: 0,
            namespaces: Vec::new(),
        };
        fs::create_dir_all(root.join("home/.gnupg")).expect("a directory");
        let last = PathBuf::from("/var/tmp").join(errand.file_name());
        fs::write(&last, "of another user").expect("a file");
        let placed = Canaries::place(&mut errand).map(drop);
        let left: Vec<_> = PRIVATE.iter().map(|at| PathBuf::from(at).join(errand.file_name())).collect();
        let left: Vec<_> = left.into_iter().filter(|path| path.exists()).collect();
        for path in &left {
            fs::remove_file(path).expect("it is ours");
        }
        fs::remove_dir_all(root).expect("it is ours");
        assert_eq!(placed.map_err(|error| error.kind()), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(left, [last], "only what was there before");
    }
}
