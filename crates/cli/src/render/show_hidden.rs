//! What would show a hidden path. Owns the rule that no hint proposes a directory of private keys: of what lies in one, only a
//! file that holds none. Called by `denials`.

use std::path::{Path, PathBuf};

use crate::render::output::flag_path;

/// Directories whose files are keys, wherever they lie.
const OF_KEYS: [&str; 6] = [".ssh", ".gnupg", ".password-store", "keyrings", ".age", ".minisign"];

/// The remedy with its separator; nothing where no flag should be proposed. `named` are paths of the command line.
pub(crate) fn remedy(path: &Path, rule: &Path, named: &[PathBuf]) -> String {
    if !OF_KEYS.iter().any(|name| rule.iter().any(|part| part == *name)) {
        return format!("; show it with --ro {}", flag_path(rule));
    }
    let mut found = [path].into_iter().chain(named.iter().map(PathBuf::as_path).filter(|one| one.starts_with(path)));
    match found.find(|one| holds_no_key(one)) {
        Some(file) => format!("; show this file with --ro {}", flag_path(file)),
        None if rule.ends_with(".ssh") => "; for signatures: --ssh-agent ask".to_owned(),
        None => String::new(),
    }
}

fn holds_no_key(path: &Path) -> bool {
    let is_in_ssh = path.parent().is_some_and(|parent| parent.ends_with(".ssh"));
    let is_listed = ["known_hosts", "config"].iter().any(|name| path.ends_with(name));
    is_in_ssh && (is_listed || path.extension().is_some_and(|extension| extension == "pub"))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::remedy;

    #[test]
    fn no_directory_of_private_keys_is_proposed() {
        let ssh = Path::new("/h/.ssh");
        for (path, named, expected) in [
            ("/h/.ssh", None, "; for signatures: --ssh-agent ask"),
            ("/h/.ssh/id_ed25519", None, "; for signatures: --ssh-agent ask"),
            ("/h/.ssh/id_ed25519.pub", None, "; show this file with --ro /h/.ssh/id_ed25519.pub"),
            ("/h/.ssh", Some("/h/.ssh/known_hosts"), "; show this file with --ro /h/.ssh/known_hosts"),
            ("/h/.ssh", Some("/h/.ssh/id_rsa"), "; for signatures: --ssh-agent ask"),
            ("/h/.ssh", Some("/h/.ssh/keys/x/config"), "; for signatures: --ssh-agent ask"),
        ] {
            let named: Vec<PathBuf> = named.into_iter().map(PathBuf::from).collect();
            assert_eq!(remedy(Path::new(path), ssh, &named), expected, "{path} {named:?}");
        }
        assert_eq!(remedy(Path::new("/h/.gnupg/x.pub"), Path::new("/h/.gnupg"), &[]), "");
        let aws = Path::new("/h/.aws");
        assert_eq!(remedy(aws, aws, &[]), "; show it with --ro /h/.aws");
    }
}
