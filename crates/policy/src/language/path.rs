//! The path language of policies: `/abs`, `~/in/home`, `./in/project` (or plain `in/project`), `{git}/hooks`, `${CARGO_HOME:-~/.cargo}/x`.
//! Owns parsing, expansion and component-wise matching, on values only; resolving a path on a real
//! file system is `host::survey`'s work, on descriptors. Called by the parser and by `plan`.

use std::borrow::Cow;
use std::fmt;
use std::path::{Component, Path, PathBuf};

use serde::{Serialize, Serializer};
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    #[error("a path must not be empty")]
    Empty,
    #[error("`{0}` contains `..`: name the directory itself")]
    Traversal(String),
    #[error("`{0}` contains a NUL byte")]
    Nul(String),
    #[error("`{0}`: `*` is allowed in the last component only")]
    GlobNotLast(String),
    #[error("`{0}`: `**` stands for any directory of the project: write `./**/NAME`")]
    DepthOutsideProject(String),
    #[error("`{0}`: cannot parse the variable; write `${{NAME:-default}}/rest`")]
    Variable(String),
    #[error("`{0}`: the home of another user cannot be named with `~`")]
    OtherHome(String),
}

/// What the first part of a path is relative to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Base {
    Root,
    Home,
    Project,
    /// Every git directory that belongs to the project: `.git`, and for a linked worktree the real one too.
    Git,
    /// An environment variable that holds an absolute path, with a fallback.
    Variable {
        name: String,
        default: Box<PathExpr>,
    },
}

/// A parsed policy path. Only the last component may hold `*`; `./**/` before the rest means any directory of the project.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathExpr {
    pub base: Base,
    /// Components below the base, normalised, without a leading slash; may be empty.
    pub rest: Cow<'static, Path>,
    /// Whether `*` in the last component is a wildcard. A literal path may contain `*` as a plain character.
    glob: bool,
    /// Whether `rest` stands in any directory at or below the base.
    deep: bool,
    /// Patterns of names that the glob leaves out, with spaces between them; only the shipped lists have any.
    except: Cow<'static, str>,
    text: Cow<'static, str>,
}

/// What the build script writes into the program. Its tables have numbers for pointers: those would be put right at every
/// start, and each page that holds one copied.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shipped {
    /// All strings, one after the other.
    pub(crate) text: &'static str,
    /// What stands for variables that are not set.
    pub(crate) defaults: &'static [StaticPath],
}

/// A string of the shipped text: where it begins, and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece(pub(crate) u32, pub(crate) u32);

impl Piece {
    pub(crate) fn of(self, shipped: Shipped) -> &'static str {
        let begin = self.0 as usize;
        &shipped.text[begin..begin + self.1 as usize]
    }
}

/// [`PathExpr`] as the build script writes it into the program.
#[derive(Debug)]
pub(crate) struct StaticPath {
    pub(crate) base: StaticBase,
    pub(crate) rest: Piece,
    pub(crate) glob: bool,
    pub(crate) deep: bool,
    pub(crate) except: Piece,
    pub(crate) text: Piece,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum StaticBase {
    Root,
    Home,
    Project,
    Git,
    /// `default` is a place in [`Shipped::defaults`].
    Variable {
        name: Piece,
        default: u32,
    },
}

/// The places that bases stand for on this host.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub home: PathBuf,
    /// Where the password database and the environment name different homes, the other one: what is closed in one is
    /// closed in both, what is given is given in `home` alone.
    pub other_home: Option<PathBuf>,
    pub project: Option<PathBuf>,
    pub git_dirs: Vec<PathBuf>,
    /// Only the variables that path expressions name.
    pub variables: Vec<(String, PathBuf)>,
}

impl Places {
    pub fn homes(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.home.as_path()).chain(self.other_home.as_deref())
    }

    /// Whether a path is a home or lies above one: nothing gives such a directory as a whole.
    pub fn holds_a_home(&self, path: &Path) -> bool {
        self.homes().any(|home| home.starts_with(path))
    }
}

impl PathExpr {
    pub fn parse(text: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(PathError::Empty);
        }
        if text.contains('\0') {
            return Err(PathError::Nul(text.replace('\0', "\\0")));
        }
        let (base, rest) = split_base(text)?;
        let mut rest = normalise(rest, text)?;
        let below = rest.strip_prefix("**").ok().filter(|below| !below.as_os_str().is_empty()).map(Path::to_path_buf);
        let deep = below.is_some();
        if deep && base != Base::Project {
            return Err(PathError::DepthOutsideProject(text.to_owned()));
        }
        rest = below.unwrap_or(rest);
        let has_star = |name: &std::ffi::OsStr| name.as_encoded_bytes().contains(&b'*');
        let glob = rest.file_name().is_some_and(has_star);
        if rest.parent().is_some_and(|above| has_star(above.as_os_str())) {
            return Err(PathError::GlobNotLast(text.to_owned()));
        }
        Ok(PathExpr { base, rest: Cow::Owned(rest), glob, deep, except: NO_NAMES, text: Cow::Owned(text.to_owned()) })
    }

    /// The same without names that match one of these patterns; `None` where it is no glob, and so has nothing to leave out.
    pub fn leaving_out(self, patterns: &[String]) -> Option<Self> {
        let fits = self.glob && patterns.iter().all(|name| !name.is_empty() && !name.contains([' ', '/']));
        fits.then(|| PathExpr { except: Cow::Owned(patterns.join(" ")), ..self })
    }

    /// An absolute path that is meant literally (from a flag, already made absolute by the caller): no `~`, no glob.
    pub fn literal(path: &Path) -> Result<Self, PathError> {
        let text = path.to_string_lossy().into_owned();
        if path.as_os_str().is_empty() {
            return Err(PathError::Empty);
        }
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            return Err(PathError::Nul(text.replace('\0', "\\0")));
        }
        let mut rest = PathBuf::new();
        for component in path.components() {
            match component {
                Component::Normal(name) => rest.push(name),
                Component::ParentDir => return Err(PathError::Traversal(text)),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        let (rest, text) = (Cow::Owned(rest), Cow::Owned(text));
        Ok(PathExpr { base: Base::Root, rest, glob: false, deep: false, except: NO_NAMES, text })
    }

    /// The expression that a person would write for an absolute path: `./in/project`, `~/in/home`, else the path itself.
    /// `None` where no expression means just this path (a `*` in a name, bytes that are no text).
    pub fn for_path(path: &Path, places: &Places) -> Option<Self> {
        let below = |base: &Path| path.strip_prefix(base).ok();
        let has_home = places.home.parent().is_some();
        let text = if let Some(rest) = places.project.as_deref().and_then(below) {
            Path::new(".").join(rest)
        } else if let Some(rest) = below(&places.home).filter(|_| has_home) {
            Path::new("~").join(rest)
        } else {
            path.to_path_buf()
        };
        let expression = PathExpr::parse(text.to_str()?).ok()?;
        (expression.is_one_path() && expression.expand(places) == [path]).then_some(expression)
    }

    /// The project directory itself.
    pub fn project() -> Self {
        let (rest, text) = (Cow::Borrowed(Path::new("")), Cow::Borrowed("."));
        PathExpr { base: Base::Project, rest, glob: false, deep: false, except: NO_NAMES, text }
    }

    /// An expression that the build script has parsed already: nothing is checked again at start.
    pub(crate) fn from_static(path: &StaticPath, shipped: Shipped) -> Self {
        let base = match path.base {
            StaticBase::Root => Base::Root,
            StaticBase::Home => Base::Home,
            StaticBase::Project => Base::Project,
            StaticBase::Git => Base::Git,
            StaticBase::Variable { name, default } => Base::Variable {
                name: name.of(shipped).to_owned(),
                default: Box::new(PathExpr::from_static(&shipped.defaults[default as usize], shipped)),
            },
        };
        let (rest, text) = (Path::new(path.rest.of(shipped)), path.text.of(shipped));
        let except = Cow::Borrowed(path.except.of(shipped));
        let (glob, deep) = (path.glob, path.deep);
        PathExpr { base, rest: Cow::Borrowed(rest), glob, deep, except, text: Cow::Borrowed(text) }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn is_glob(&self) -> bool {
        self.glob
    }

    /// Whether it is about any directory at or below its base.
    pub fn is_deep(&self) -> bool {
        self.deep
    }

    /// Whether it stands for the path that is written, and for no other.
    pub fn is_one_path(&self) -> bool {
        !self.glob && !self.deep
    }

    /// How many of its last names stand in any directory; none where it is about the place that is written.
    pub fn tail(&self) -> usize {
        if self.deep { self.rest.components().count() } else { 0 }
    }

    /// Patterns of names that a glob leaves out, with spaces between them.
    pub fn except(&self) -> &Cow<'static, str> {
        &self.except
    }

    /// Whether both stand for the same places on every host.
    pub fn is_same_place(&self, other: &PathExpr) -> bool {
        let shape = |path: &PathExpr| (path.glob, path.deep);
        self.base == other.base && self.rest == other.rest && shape(self) == shape(other) && self.except == other.except
    }

    /// The absolute paths this stands for; of one about any directory, the place in its base. Empty where the base does not
    /// exist on this host (no project, no git).
    pub fn expand(&self, places: &Places) -> Vec<PathBuf> {
        match &self.base {
            Base::Root => vec![self.below(Path::new("/"))],
            Base::Home => vec![self.below(&places.home)],
            Base::Project => places.project.iter().map(|p| self.below(p)).collect(),
            Base::Git => places.git_dirs.iter().map(|p| self.below(p)).collect(),
            Base::Variable { name, default } => match places.variables.iter().find(|(n, v)| n == name && is_plain(v)) {
                Some((_, value)) => vec![self.below(value)],
                None => default.expand(places).iter().map(|p| self.below(p)).collect(),
            },
        }
    }

    /// All of it at once: `Path::join` would copy the base and then make room.
    fn below(&self, base: &Path) -> PathBuf {
        let mut path = PathBuf::with_capacity(base.as_os_str().len() + 1 + self.rest.as_os_str().len());
        path.push(base);
        if !self.rest.as_os_str().is_empty() {
            path.push(&self.rest);
        }
        path
    }

    /// The same in every home. What a variable moved in the one home lies in the other where it lies by default.
    pub fn expand_in_homes(&self, places: &Places) -> Vec<PathBuf> {
        let mut paths = self.expand(places);
        paths.extend(places.other_home.as_ref().and_then(|other| match &self.base {
            Base::Home => Some(self.below(other)),
            Base::Variable { default, .. } if default.base == Base::Home => Some(self.below(&default.below(other))),
            _ => None,
        }));
        paths
    }

    /// The variable that decides this path, if any: the host survey must look it up.
    pub fn variable(&self) -> Option<&str> {
        match &self.base {
            Base::Variable { name, .. } => Some(name),
            _ => None,
        }
    }
}

fn split_base(text: &str) -> Result<(Base, &str), PathError> {
    if let Some(rest) = text.strip_prefix("${") {
        let (inside, rest) = rest.split_once('}').ok_or_else(|| PathError::Variable(text.to_owned()))?;
        let (name, default) = inside.split_once(":-").ok_or_else(|| PathError::Variable(text.to_owned()))?;
        let name_is_plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !name_is_plain || default.contains(['$', '*', '{']) || !starts_component(rest) {
            return Err(PathError::Variable(text.to_owned()));
        }
        let default = Box::new(PathExpr::parse(default)?);
        return Ok((Base::Variable { name: name.to_owned(), default }, rest));
    }
    if let Some(rest) = text.strip_prefix("{git}").filter(|rest| starts_component(rest)) {
        return Ok((Base::Git, rest));
    }
    if text == "~" {
        return Ok((Base::Home, ""));
    }
    if let Some(rest) = text.strip_prefix("~/") {
        return Ok((Base::Home, rest));
    }
    if text.starts_with('~') {
        return Err(PathError::OtherHome(text.to_owned()));
    }
    if text.starts_with('/') {
        return Ok((Base::Root, text));
    }
    Ok((Base::Project, text))
}

/// `${NAME:-default}x` would glue a name onto the base.
fn starts_component(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// A variable that holds a relative path or `..` counts as unset, as the XDG specification asks.
fn is_plain(value: &Path) -> bool {
    value.is_absolute() && !value.components().any(|c| matches!(c, Component::ParentDir))
}

fn normalise(rest: &str, whole: &str) -> Result<PathBuf, PathError> {
    let mut out = PathBuf::new();
    for component in Path::new(rest).components() {
        match component {
            Component::Normal(name) => out.push(name),
            Component::ParentDir => return Err(PathError::Traversal(whole.to_owned())),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Ok(out)
}

impl fmt::Display for PathExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for PathExpr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Whether `path` is `ancestor` or lies below it, compared by component (`/ws-evil` is not below `/ws`). Both absolute
/// and normalised, as everything that `PathExpr::expand` or the kernel returns: `Path::starts_with` parses both each
/// time, and a launch compares thousands.
pub fn is_at_or_below(path: &Path, ancestor: &Path) -> bool {
    let (path, ancestor) = (path.as_os_str().as_encoded_bytes(), ancestor.as_os_str().as_encoded_bytes());
    match path.strip_prefix(ancestor) {
        Some(rest) => rest.is_empty() || rest[0] == b'/' || ancestor.is_empty() || ancestor == b"/",
        None => false,
    }
}

/// Order in which a directory comes directly before everything below it: `/a`, `/a/b`, `/a-b`.
pub fn tree_order(a: &Path, b: &Path) -> std::cmp::Ordering {
    let rank = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    let (a, b) = (a.as_os_str().as_encoded_bytes(), b.as_os_str().as_encoded_bytes());
    a.iter().map(rank).cmp(b.iter().map(rank))
}

const NO_NAMES: Cow<'static, str> = Cow::Borrowed("");

/// Whether a glob with these exceptions leaves a name out.
pub(crate) fn is_left_out(except: &str, name: &[u8]) -> bool {
    let leaves_out = |pattern: &str| wildcard(pattern.as_bytes(), name, |a, b| a == b);
    !except.is_empty() && except.split(' ').any(leaves_out)
}

/// `*` matches any run of bytes within one file name.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    wildcard(pattern.as_bytes(), name.as_bytes(), |a, b| a == b)
}

/// [`name_matches`] where ASCII letters match in both cases.
pub fn name_matches_ignoring_case(pattern: &str, name: &str) -> bool {
    wildcard(pattern.as_bytes(), name.as_bytes(), |a, b| a.eq_ignore_ascii_case(&b))
}

/// Greedy matching that on a mismatch lets the last `*` swallow one byte more; no recursion, no allocation.
pub(crate) fn wildcard(pattern: &[u8], name: &[u8], same: impl Fn(u8, u8) -> bool) -> bool {
    // Most patterns of a long list fail at their first or last byte: that is all a launch pays for them.
    if let (Some(&first), Some(&last), Some(&head), Some(&tail)) =
        (pattern.first(), pattern.last(), name.first(), name.last())
        && ((first != b'*' && !same(first, head)) || (last != b'*' && !same(last, tail)))
    {
        return false;
    }
    let (mut at_pattern, mut at_name) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while let Some(&byte) = name.get(at_name) {
        match pattern.get(at_pattern) {
            Some(b'*') => {
                retry = Some((at_pattern + 1, at_name));
                at_pattern += 1;
            }
            Some(&wanted) if same(wanted, byte) => {
                at_pattern += 1;
                at_name += 1;
            }
            _ => {
                let Some((after_star, swallowed)) = retry else { return false };
                retry = Some((after_star, swallowed + 1));
                at_pattern = after_star;
                at_name = swallowed + 1;
            }
        }
    }
    pattern[at_pattern..].iter().all(|byte| *byte == b'*')
}
