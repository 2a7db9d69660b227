//! Which package registries a user's configuration names. Owns reading that out of the files and variables of npm, yarn, pip, uv,
//! cargo and go, as data; keeps hosts alone, so that no token gets any further. Called by `setup`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cofferdam_host::Surroundings;
use cofferdam_host::policy_files::text::read;
use cofferdam_policy::{Host, parse_authority, with_port};

/// A registry that some configuration names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Registry {
    pub(super) client: &'static str,
    /// As `HOST:PORT`.
    pub(super) place: String,
    /// The file or the variable.
    pub(super) source: String,
    pub(super) from: From,
    /// Whether a secret stands beside it.
    pub(super) has_token: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum From {
    File,
    Variable,
    /// Comes with a repository.
    Project,
}

/// In the home: the client, the file, and the variable that says where else it lies.
const FILES: &[(&str, &str, Option<&str>)] = &[
    ("npm", ".npmrc", Some("NPM_CONFIG_USERCONFIG")),
    ("yarn", ".yarnrc", None),
    ("yarn", ".yarnrc.yml", None),
    ("pip", ".config/pip/pip.conf", Some("PIP_CONFIG_FILE")),
    ("pip", ".pip/pip.conf", None),
    ("uv", ".config/uv/uv.toml", Some("UV_CONFIG_FILE")),
    ("cargo", ".cargo/config.toml", None),
    ("cargo", ".cargo/config", None),
    ("go", ".config/go/env", Some("GOENV")),
];

/// In the project's directory.
const PROJECT_FILES: &[(&str, &str)] = &[
    ("npm", ".npmrc"),
    ("yarn", ".yarnrc"),
    ("yarn", ".yarnrc.yml"),
    ("uv", "uv.toml"),
    ("cargo", ".cargo/config.toml"),
    ("cargo", ".cargo/config"),
];

const VARIABLES: &[(&str, &str)] = &[
    ("npm", "npm_config_registry"),
    ("npm", "NPM_CONFIG_REGISTRY"),
    ("pip", "PIP_INDEX_URL"),
    ("pip", "PIP_EXTRA_INDEX_URL"),
    ("uv", "UV_INDEX_URL"),
    ("uv", "UV_DEFAULT_INDEX"),
    ("uv", "UV_EXTRA_INDEX_URL"),
    ("go", "GOPROXY"),
];

/// Keys that name a registry, in lower case with `-`. Of npm also `@scope:registry`.
const KEYS: &[&str] = &[
    "registry",
    "npmregistryserver",
    "index-url",
    "extra-index-url",
    "default-index",
    "find-links",
    "index",
    "url",
    "goproxy",
];

/// What the configuration names, and the files that could not be read.
pub(super) fn look(around: &Surroundings, environment: &[(String, String)]) -> (Vec<Registry>, Vec<String>) {
    let (mut found, mut unread) = (BTreeSet::new(), Vec::new());
    let value = |name: &str| environment.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
    let mut read_one = |client, path: PathBuf, source: String, from| match read(&path) {
        Ok(Some(text)) => found.extend(named_in(client, &text, &source, from)),
        Ok(None) => {}
        Err(error) => unread.push(error.to_string()),
    };
    let project = around.project.as_deref().filter(|project| *project != Path::new(&around.home));
    // Also where a variable of the user's, or a link, leads there.
    let is_of_project =
        |path: &Path| project.is_some_and(|project| path.canonicalize().is_ok_and(|real| real.starts_with(project)));
    for (client, file, variable) in FILES {
        let moved = variable.and_then(value).filter(|path| path.starts_with('/')).map(PathBuf::from);
        let source = moved.as_ref().map_or_else(|| format!("~/{file}"), |path| path.display().to_string());
        let path = moved.unwrap_or_else(|| around.home.join(file));
        let from = if is_of_project(&path) { From::Project } else { From::File };
        read_one(*client, path, source, from);
    }
    read_one("pip", PathBuf::from("/etc/pip.conf"), "/etc/pip.conf".to_owned(), From::File);
    for (client, file) in PROJECT_FILES.iter().filter(|_| project.is_some()) {
        let path = project.unwrap_or(&around.home).join(file);
        read_one(*client, path, format!("./{file}"), From::Project);
    }
    for (client, name) in VARIABLES {
        let urls = value(name).into_iter().flat_map(urls);
        found.extend(urls.filter_map(|url| {
            let (place, has_token) = place_of(url)?;
            Some(Registry { client, place, source: format!("${name}"), from: From::Variable, has_token })
        }));
    }
    (found.into_iter().collect(), unread)
}

fn named_in(client: &'static str, text: &str, source: &str, from: From) -> Vec<Registry> {
    const TOKENS: [&str; 4] = ["_authtoken", "_password", "_auth", "token"];
    let lower = text.to_ascii_lowercase();
    let beside = TOKENS.iter().any(|word| lower.contains(word));
    let named = match toml::from_str::<toml::Table>(text) {
        Ok(table) if matches!(client, "cargo" | "uv") => in_table(&table),
        _ => in_lines(text),
    };
    let registry = |url: String| {
        let (place, has_token) = place_of(&url)?;
        Some(Registry { client, place, source: source.to_owned(), from, has_token: has_token || beside })
    };
    named.into_iter().filter_map(registry).collect()
}

/// `key = value`, `key: value` and `key value`, as the formats that are no TOML have it; pip continues a value on lines that are
/// indented.
fn in_lines(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_named = false;
    for line in text.lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
        let split = line.split_once('=').or_else(|| line.split_once(": ")).or_else(|| line.trim().split_once(' '));
        let (key, value) = match split {
            Some((key, value)) if !key.contains("://") => (Some(key), value),
            _ => (None, line),
        };
        match key {
            Some(key) => is_named = is_key(key),
            None => is_named = is_named && line.starts_with([' ', '\t']),
        }
        if is_named {
            found.extend(urls(value).map(str::to_owned));
        }
    }
    found
}

fn is_key(key: &str) -> bool {
    let key = key.trim().trim_matches('"').to_ascii_lowercase().replace('_', "-");
    KEYS.contains(&key.as_str()) || key.starts_with('@') && key.ends_with(":registry")
}

fn in_table(table: &toml::Table) -> Vec<String> {
    fn texts(value: &toml::Value, is_named: bool, found: &mut Vec<String>) {
        match value {
            toml::Value::String(text) if is_named => found.extend(urls(text).map(str::to_owned)),
            toml::Value::Array(list) => list.iter().for_each(|value| texts(value, is_named, found)),
            toml::Value::Table(table) => table.iter().for_each(|(key, value)| texts(value, is_key(key), found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    table.iter().for_each(|(key, value)| texts(value, is_key(key), &mut found));
    found
}

/// Every address of the web in a value: go separates them by `,` and `|`, pip by white space.
fn urls(value: &str) -> impl Iterator<Item = &str> {
    value.split([',', '|', ' ', '\t', '"', '\'']).filter(|part| part.contains("://"))
}

/// `HOST:PORT` of an address, and whether a user or password stands in it. A host in a variable is none.
fn place_of(url: &str) -> Option<(String, bool)> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme.rsplit('+').next()? {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let (user, authority) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
    let (host, port) = parse_authority(authority, Some(port)).ok()?;
    matches!(host, Host::Name(_)).then(|| (with_port(&host, port), user.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(client: &'static str, source: &str, text: &str) -> Vec<(String, bool)> {
        named_in(client, text, source, From::File).into_iter().map(|one| (one.place, one.has_token)).collect()
    }

    #[test]
    fn hosts_are_read_of_each_format_and_tokens_stay_behind() {
        let one = |place: &str, has_token| vec![(place.to_owned(), has_token)];
        for (client, source, text, expected) in [
            (
                "npm",
                "~/.npmrc",
                "registry=https://npm.corp.test/a/\n//npm.corp.test/:_authToken=s3cret\n",
                one("npm.corp.test:443", true),
            ),
            (
                "npm",
                "~/.npmrc",
                "@corp:registry = \"http://npm.corp.test:8080\"\n; registry=https://no.test\n",
                one("npm.corp.test:8080", false),
            ),
            (
                "pip",
                "~/.config/pip/pip.conf",
                "[global]\nindex-url = https://u:s3cret@pip.corp.test/simple\n",
                one("pip.corp.test:443", true),
            ),
            (
                "pip",
                "~/.config/pip/pip.conf",
                "[global]\nextra-index-url =\n    https://pip.corp.test/simple\n[x]\nproxy = http://no.test\n",
                one("pip.corp.test:443", false),
            ),
            (
                "cargo",
                "~/.cargo/config.toml",
                "[registries.corp]\nindex = \"sparse+https://crates.corp.test/index/\"\n",
                one("crates.corp.test:443", false),
            ),
            (
                "cargo",
                "~/.cargo/config.toml",
                "[source]\nm = { registry = \"https://crates.corp.test/\" }\n[http]\nproxy = \"http://no.test\"\n",
                one("crates.corp.test:443", false),
            ),
            (
                "go",
                "~/.config/go/env",
                "GOPROXY=https://go.corp.test,direct\nGOSUMDB=off\n",
                one("go.corp.test:443", false),
            ),
            (
                "yarn",
                "~/.yarnrc.yml",
                "npmRegistryServer: \"https://npm.corp.test\"\n",
                one("npm.corp.test:443", false),
            ),
            ("yarn", "~/.yarnrc", "registry \"https://npm.corp.test\"\n", one("npm.corp.test:443", false)),
            (
                "uv",
                "~/.config/uv/uv.toml",
                "[[index]]\nurl = \"https://pip.corp.test/simple\"\n",
                one("pip.corp.test:443", false),
            ),
            ("npm", "~/.npmrc", "registry=https://${HOST}/\n", Vec::new()),
        ] {
            assert_eq!(places(client, source, text), expected, "{text}");
        }
    }
}
