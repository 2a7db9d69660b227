//! Fresh homes to walk in: of the test user at the place of its own home, or of the caller below theirs. Owns making and removing them,
//! with what a person has there (the sandbox, a Rust toolchain, the registries' settings, a key, another project). Called by the walks.

use std::cell::Cell;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::account::{User, choose_user};
use crate::problems::Problems;
use crate::shipped;
use crate::workspace::read;

/// What nothing but the user may read.
pub(crate) const SECRET: &str = "a-key-that-stays-outside";
pub(crate) const OTHER: &str = "of-another-project";
/// Where those are.
const SECRET_FILE: &str = ".ssh/id_x";
const OTHER_FILE: &str = "other/notes.txt";

/// Of the directory that holds the homes; the rest is the process that made it.
const HOMES: &str = "cofferdam-journeys-";

/// Files and variables in which a company names its registries and certificates.
const FILES: [&str; 4] = [".npmrc", ".config/pip/pip.conf", ".pip/pip.conf", ".cargo/config.toml"];
const VARIABLES: [&str; 13] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "GOPROXY",
    "GONOSUMDB",
    "GOSUMDB",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
];
const PREFIXES: [&str; 3] = ["npm_config_registry", "CARGO_REGISTR", "CARGO_SOURCE_"];

#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) user: User,
    /// The homes are mounted at the place of the user's own.
    is_mounted: bool,
    dir: PathBuf,
    sandbox: PathBuf,
    count: Cell<usize>,
}

impl Ground {
    pub(crate) fn set_up(name: Option<&str>, sandbox: &Path) -> Result<Self, Problems> {
        let own = rustix::process::getuid().as_raw();
        let user = choose_user(&read(Path::new("/etc/passwd"))?, own, name)?;
        let is_mounted = user.uid != own;
        let beside = user.home.parent().filter(|_| is_mounted).unwrap_or(&user.home);
        remove_left_behind(beside);
        let dir = beside.join(format!("{HOMES}{}", std::process::id()));
        doing("make", &dir, fs::create_dir(&dir))?;
        Ok(Ground { user, is_mounted, dir, sandbox: sandbox.to_owned(), count: Cell::new(0) })
    }

    /// Programs that are not the sandbox's, for the user.
    pub(crate) fn tools(&self) -> PathBuf {
        self.dir.join("tools")
    }

    /// From npm, once; why not, where it fails.
    pub(crate) fn install_srt(&self, home: &Home<'_>) -> Result<Option<String>, Problems> {
        let tools = self.tools();
        if !tools.is_dir() {
            self.make(&tools)?;
        }
        let prefix = tools.display();
        let script =
            format!("npm install -g --prefix {prefix} --no-audit --no-fund --silent @anthropic-ai/sandbox-runtime");
        Ok(home.outside(&script).err().map(|problems| format!("srt: {}", problems.to_string().trim())))
    }

    /// A directory of the user's.
    fn make(&self, at: &Path) -> Result<(), Problems> {
        doing("make", at, fs::create_dir(at))?;
        if self.is_mounted {
            doing("give away", at, std::os::unix::fs::chown(at, Some(self.user.uid), Some(self.user.gid)))?;
        }
        Ok(())
    }

    pub(crate) fn home(&self) -> Result<Home<'_>, Problems> {
        self.count.set(self.count.get() + 1);
        let at = self.dir.join(self.count.get().to_string());
        self.make(&at)?;
        let home = Home { ground: self, at };
        home.furnish()?;
        Ok(home)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        remove(&self.dir);
    }
}

#[derive(Debug)]
pub(crate) struct Home<'a> {
    ground: &'a Ground,
    /// Where it lies on the disk.
    at: PathBuf,
}

impl Home<'_> {
    fn furnish(&self) -> Result<(), Problems> {
        let programs = [Some(self.ground.sandbox.clone()), shipped::beside(&self.ground.sandbox)];
        for program in programs.into_iter().flatten() {
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let bytes =
                fs::read(&program).map_err(|e| Problems::one(format!("cannot read {}: {e}", program.display())))?;
            self.write(&format!(".local/bin/{name}"), &bytes)?;
        }
        self.outside("chmod 755 ~/.local/bin/*; cp /etc/skel/.??* ~/ 2>/dev/null; mkdir -p ~/app")?;
        for file in FILES {
            if let Some(bytes) = caller_home().and_then(|home| fs::read(home.join(file)).ok()) {
                self.write(file, &bytes)?;
            }
        }
        self.write(SECRET_FILE, SECRET.as_bytes())?;
        self.outside("chmod 700 ~/.ssh; chmod 600 ~/.ssh/id_x")?;
        self.write(OTHER_FILE, OTHER.as_bytes())
    }

    /// The caller's Rust toolchain, as rustup installs one. Its files are linked, not copied.
    pub(crate) fn install_rust(&self) -> Result<(), Problems> {
        let cargo_home = caller_directory("CARGO_HOME", ".cargo");
        let Some(rustup) = cargo_home.map(|home| home.join("bin/rustup")).filter(|path| path.is_file()) else {
            // One of the distribution is in its place already.
            return Ok(());
        };
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
        let sysroot = sysroot.map_err(|e| Problems::one(format!("cannot run rustc: {e}")))?;
        let sysroot = fs::canonicalize(String::from_utf8_lossy(&sysroot.stdout).trim());
        let sysroot = sysroot.map_err(|e| Problems::one(format!("no toolchain: {e}")))?;
        let name = sysroot.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let settings = format!("version = \"12\"\ndefault_toolchain = \"{name}\"\nprofile = \"minimal\"\n");
        self.write(".rustup/settings.toml", settings.as_bytes())?;
        self.outside(&format!("mkdir -p ~/.rustup/toolchains/{name} ~/.rustup/update-hashes ~/.cargo/bin"))?;
        let toolchain = self.at.join(".rustup/toolchains").join(name);
        for part in ["bin", "lib", "libexec", "etc"].map(|part| sysroot.join(part)).iter().filter(|part| part.is_dir())
        {
            copy(part, &toolchain)?;
        }
        copy(&rustup, &self.at.join(".cargo/bin"))?;
        self.outside("cd ~/.cargo/bin && for name in cargo rustc rustdoc; do ln -s rustup $name; done")
    }

    /// A file of the user's, with its directories.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Problems> {
        let script = "cd ~ && mkdir -p \"$(dirname \"$1\")\" && cat > \"$1\"";
        let mut command = self.command(&["sh", "-c", script, "sh", name], Terminal::None);
        let failed = |e: std::io::Error| Problems::one(format!("cannot write {name} in a home: {e}"));
        let mut child = command.stdin(Stdio::piped()).spawn().map_err(failed)?;
        child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(bytes)).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(Problems::one(format!("cannot write {name} in a home: {status}"))) }
    }

    pub(crate) fn user(&self) -> &User {
        &self.ground.user
    }

    /// Where its project lies, as programs in it see that.
    pub(crate) fn project(&self) -> String {
        self.seen_at().join("app").display().to_string()
    }

    fn seen_at(&self) -> &Path {
        if self.ground.is_mounted { &self.ground.user.home } else { &self.at }
    }

    /// A shell script in the project, outside of any sandbox; its output is not looked at.
    pub(crate) fn outside(&self, script: &str) -> Result<(), Problems> {
        self.outside_argv(&["sh", "-c", script])
    }

    /// A program with its arguments, as above.
    pub(crate) fn outside_argv(&self, argv: &[&str]) -> Result<(), Problems> {
        let said = argv.last().copied().unwrap_or_default();
        let output = self.command(argv, Terminal::None).stdin(Stdio::null()).output();
        let output = output.map_err(|e| Problems::one(format!("cannot run `{said}`: {e}")))?;
        let why = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(())
        } else {
            Err(Problems::one(format!("`{said}` outside: {}: {}", output.status, why.trim())))
        }
    }

    /// A program in the project, as the user, with the environment of a login.
    pub(crate) fn command(&self, argv: &[&str], terminal: Terminal) -> Command {
        let home = self.seen_at();
        let mut words: Vec<String> = match terminal {
            Terminal::Own => ["setsid", "--ctty", "--wait"].map(str::to_owned).to_vec(),
            Terminal::None => ["setsid", "--wait"].map(str::to_owned).to_vec(),
        };
        let mut script = "cd \"$2/app\" 2>/dev/null || cd \"$2\"; shift 2; exec \"$@\"".to_owned();
        let (uid, gid) = (self.ground.user.uid, self.ground.user.gid);
        if self.ground.is_mounted {
            words.extend(["unshare", "--mount", "--propagation", "private"].map(str::to_owned));
            // Its own place is what programs take a home to be.
            script = format!("mount --bind \"$1\" \"$2\" || exit 125; {script}")
                .replace("exec \"$@\"", &format!("exec setpriv --reuid={uid} --regid={gid} --clear-groups \"$@\""));
        }
        words.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
        words.extend([self.at.display().to_string(), home.display().to_string()]);
        words.extend(argv.iter().map(|word| (*word).to_owned()));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/").env_clear().envs(registry_variables());
        let home = home.display().to_string();
        command.env("PATH", format!("{home}/.local/bin:{home}/.cargo/bin:/usr/local/bin:/usr/bin:/bin"));
        let name = self.ground.user.name.as_str();
        let rest = [
            ("LANG", "C.UTF-8"),
            ("TERM", "xterm-256color"),
            ("SHELL", "/bin/bash"),
            ("USER", name),
            ("LOGNAME", name),
        ];
        command.envs(rest).env("HOME", home);
        command
    }
}

impl Drop for Home<'_> {
    fn drop(&mut self) {
        remove(&self.at);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    /// The one that stdin is.
    Own,
    None,
}

fn registry_variables() -> Vec<(String, String)> {
    let is_wanted = |name: &str| VARIABLES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    std::env::vars().filter(|(name, _)| is_wanted(name)).collect()
}

fn caller_home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

fn caller_directory(variable: &str, below_home: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).or_else(|| Some(caller_home()?.join(below_home)))
}

/// Links where the file system allows: a toolchain is a gigabyte.
fn copy(from: &Path, to: &Path) -> Result<(), Problems> {
    let linked = Command::new("cp").arg("-al").arg(from).arg(to).stderr(Stdio::null()).status();
    if linked.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    let copied = copied.map_err(|e| Problems::one(format!("cannot run cp: {e}")))?;
    if copied.success() { Ok(()) } else { Err(Problems::one(format!("cannot copy {}", from.display()))) }
}

fn doing<T>(what: &str, path: &Path, result: std::io::Result<T>) -> Result<T, Problems> {
    result.map_err(|e| Problems::one(format!("cannot {what} {}: {e}", path.display())))
}

/// Of runs that were ended by a signal.
fn remove_left_behind(beside: &Path) {
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = name.to_str().and_then(|name| name.strip_prefix(HOMES)) else { continue };
        if process.parse::<u32>().is_ok() && !Path::new("/proc").join(process).exists() {
            remove(&entry.path());
        }
    }
}

/// overlayfs leaves directories of mode 000 behind when a session was killed, and go makes its modules read-only.
fn remove(directory: &Path) {
    // Of directories alone: files of the toolchain are links to the caller's.
    let script = "find \"$1\" -type d ! -perm -u+rwx -exec chmod u+rwx {} \\; 2>/dev/null; rm -rf \"$1\"";
    let removed = Command::new("sh").args(["-c", script, "sh"]).arg(directory).status();
    if !removed.is_ok_and(|status| status.success()) {
        eprintln!("cannot remove {}", directory.display());
    }
}
