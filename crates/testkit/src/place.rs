//! A directory with a home and a project in it, made for one test and removed with it. Owns where such directories lie:
//! in the user's real home, because the sandbox has a `/tmp` and a `/var/tmp` of its own.

use std::fs;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The paths of a scene, as both the test and the process that launches know them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    root: PathBuf,
}

impl Place {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Place { root: root.into() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The home directory that the sandbox's user seems to have.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub fn project(&self) -> PathBuf {
        self.home().join("project")
    }

    /// Outside home and project: what the sandbox must not change.
    pub fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    pub fn probe(&self) -> PathBuf {
        self.root.join("probe")
    }

    pub fn report(&self) -> PathBuf {
        self.root.join("report.json")
    }

    /// A name that belongs to this scene alone, for things outside it.
    pub fn name(&self) -> String {
        let last = self.root.file_name().unwrap_or_default().to_string_lossy();
        format!("cofferdam-test-{last}")
    }

    /// Writes a file below the scene, making its directories.
    pub fn write(&self, path: impl AsRef<Path>, text: &str) -> PathBuf {
        let path = self.root.join(path);
        let written = make_parent(&path).and_then(|()| fs::write(&path, text));
        assert!(written.is_ok(), "cannot write {}: {written:?}", path.display());
        path
    }

    /// Writes lines to a file of the project, for a probe to read.
    pub fn list(&self, name: &str, lines: impl IntoIterator<Item = String>) {
        let lines: Vec<String> = lines.into_iter().collect();
        self.write(self.project().join(name), &lines.join("\n"));
    }

    pub fn directory(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = self.root.join(path);
        let made = fs::create_dir_all(&path);
        assert!(made.is_ok(), "cannot make {}: {made:?}", path.display());
        path
    }

    pub fn link(&self, path: impl AsRef<Path>, to: impl AsRef<Path>) -> PathBuf {
        let path = self.root.join(path);
        let made = make_parent(&path).and_then(|()| std::os::unix::fs::symlink(to, &path));
        assert!(made.is_ok(), "cannot link {}: {made:?}", path.display());
        path
    }
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// A place that is removed at the end.
#[derive(Debug)]
pub struct Scene(Place);

impl Scene {
    pub fn new() -> io::Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from).canonicalize()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = home.join(".cache/cofferdam-test").join(format!("{}-{number}", std::process::id()));
        for directory in ["home/project", "outside"] {
            fs::create_dir_all(root.join(directory))?;
        }
        Ok(Scene(Place::at(root)))
    }

    /// Removes everything; what cannot be removed is an error, because a test left it.
    pub fn remove(self) -> io::Result<()> {
        let root = self.root.clone();
        std::mem::forget(self);
        remove_tree(&root)
    }
}

/// Directories without permissions (stand-ins, overlay work directories) are opened up first.
fn remove_tree(root: &Path) -> io::Result<()> {
    let metadata = root.symlink_metadata()?;
    if !metadata.is_dir() {
        return fs::remove_file(root);
    }
    if metadata.permissions().mode() & 0o700 != 0o700 {
        fs::set_permissions(root, fs::Permissions::from_mode(0o700))?;
    }
    for entry in fs::read_dir(root)? {
        remove_tree(&entry?.path())?;
    }
    fs::remove_dir(root)
}

impl Deref for Scene {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Err(error) = remove_tree(&self.0.root) {
            eprintln!("{} stays: {error}", self.0.root.display());
        }
    }
}
