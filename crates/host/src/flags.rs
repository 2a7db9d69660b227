//! The flags about the policy, as an order has them. Owns which of them are known, what a path on them means, and the error of a
//! value that is not taken; names and notations are `policy::BY_HAND`'s, the command line is `cli`'s. Called by `preparation` and
//! `cli`.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use cofferdam_policy::{BY_HAND, ByHand, NetworkMode, NoValue, Ruled, Setting};
use cofferdam_wire::order::Given;
use thiserror::Error;

#[derive(Debug, Error)]
#[error("`{flag}` cannot be `{value}`")]
pub struct FlagError {
    pub flag: &'static str,
    pub value: String,
    pub hint: String,
}

impl FlagError {
    pub fn new(flag: &'static str, value: &str, hint: impl Into<String>) -> Self {
        FlagError { flag, value: value.to_owned(), hint: hint.into() }
    }

    /// The value is none of these names.
    pub fn one_of(flag: &'static str, value: &str, names: &[&str]) -> Self {
        FlagError::new(flag, value, format!("it is one of: {}", names.join(", ")))
    }
}

/// The last value of a flag.
pub fn value<'a>(flags: &'a [Given], flag: &str) -> Option<&'a OsStr> {
    flags.iter().rev().find(|given| given.flag == flag).map(|given| given.value.as_os_str())
}

pub(crate) fn settings(flags: &[Given], cwd: &Path) -> Result<Vec<Ruled<Setting>>, FlagError> {
    let known = |given: &Given| {
        let by_hand = BY_HAND.iter().find(|by_hand| by_hand.flag == given.flag);
        by_hand.ok_or_else(|| FlagError::new("flags", &given.flag, "`sandbox run --help` lists them"))
    };
    let known = flags.iter().map(known).collect::<Result<Vec<_>, _>>()?;
    let mode = value(flags, "--network");
    if let Some(host) = value(flags, "--allow-host").filter(|_| mode == Some(OsStr::new("none"))) {
        let hint = format!("`--network {}` reaches no host: leave one of the two out", NetworkMode::None);
        return Err(FlagError::new("--allow-host", &host.to_string_lossy(), hint));
    }
    let setting = |(by_hand, Given { value, .. }): (&&ByHand, &Given)| {
        let given = if by_hand.is_path() { as_typed(cwd, Path::new(value)).into() } else { value.clone() };
        let wrong = |why: NoValue| FlagError::new(by_hand.flag, &value.to_string_lossy(), why.hint());
        by_hand.of_flag(&given).map_err(wrong)
    };
    known.iter().zip(flags).map(setting).collect()
}

/// Paths of flags are meant as the shell means them, relative to the working directory. They stay as they were typed, but for
/// what goes up by `..`: what a link leads them to, and whether it may, is the survey's to say.
fn as_typed(cwd: &Path, path: &Path) -> PathBuf {
    let absolute = cwd.join(path);
    let parts: Vec<Component<'_>> = absolute.components().collect();
    let up = parts.iter().rposition(|part| *part == Component::ParentDir).map_or(0, |last| last + 1);
    let (above, below) = parts.split_at(up);
    match above.iter().collect::<PathBuf>().canonicalize() {
        // Joining with nothing would leave a slash at the end.
        Ok(above) if up > 0 => above.iter().chain(below.iter().map(|part| part.as_os_str())).collect(),
        _ => absolute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_goes_up_is_resolved() {
        let scene = crate::memory::tests::scene("flags");
        for directory in ["a/real", "b"] {
            std::fs::create_dir_all(scene.join(directory)).expect("ours");
        }
        std::os::unix::fs::symlink("a", scene.join("link")).expect("ours");
        let typed = |path: &str| as_typed(&scene.join("b"), Path::new(path)).into_os_string();
        for (path, expected) in [
            ("..", ""),
            ("../link/real", "link/real"),
            ("x", "b/x"),
            ("../link/real/../real", "a/real"),
            ("../none", "none"),
        ] {
            let expected = if expected.is_empty() { scene.clone() } else { scene.join(expected) };
            assert_eq!(typed(path), expected.into_os_string(), "{path}");
        }
        // What is not there goes to where its own words lead.
        assert_eq!(typed("none/../x"), scene.join("b/none/../x").into_os_string());
        std::fs::remove_dir_all(scene).expect("ours");
    }
}
