//! Secrets in text: which names announce one, which words look like one, and a configuration file without them. Owns the
//! lists and the reading of lines; rather takes too much out than too little. Called by the audit log and by `plan`.

/// What is left of a value.
pub const REDACTED: &str = "***";

/// Parts of names whose value is a secret.
const NAMES: &[&str] =
    &["token", "secret", "passw", "pwd", "passphrase", "apikey", "api-key", "api_key", "access-key", "access_key"];
const MORE_NAMES: &[&str] = &["private-key", "private_key", "credential", "auth", "cookie", "signature", "bearer"];
/// Names of configuration files that say the same in other words.
const FILE_NAMES: &[&str] = &["extraheader", "smtppass", "proxy-header"];
/// Names that look like a secret's and are none: tools stop working without their values.
const HARMLESS: &[&str] = &[
    "signingkey",
    "always-auth",
    "auth-type",
    "author",
    "authors",
    "cookiefile",
    "credential-provider",
    "global-credential-providers",
    "helper",
    "keyring-provider",
];

/// How well-known secrets begin.
const PREFIXES: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xox",
    "AKIA",
    "ASIA",
    "eyJ",
    "AIza",
    "npm_",
    "pypi-",
];

/// How the second word of an OpenSSH public key begins: the length and the name of its kind.
const PUBLIC_KEYS: &[&str] = &["AAAAB3NzaC1", "AAAAC3NzaC1", "AAAAE2VjZHNh", "AAAAInNrLWVjZHNh", "AAAAGnNrLXNzaC1"];

/// A word this long of letters and digits is taken for a key.
const LONG: usize = 32;

/// Whether a name announces that its value is a secret.
pub fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().chain(MORE_NAMES).any(|part| name.contains(part)) || name.ends_with("key") && name.len() > 3
}

/// One word without what looks like a secret in it: `NAME=value`, the user of an address, a key.
pub fn redacted(word: &str) -> String {
    if let Some((name, value)) =
        word.split_once(['=', ':']).filter(|(name, value)| names_secret(name) && !value.is_empty())
    {
        let between = &word[name.len()..word.len() - value.len()];
        return format!("{name}{between}{REDACTED}");
    }
    if let Some(shown) = without_user(word) {
        return shown;
    }
    without_keys(word)
}

/// An address without the name and password in it.
fn without_user(word: &str) -> Option<String> {
    let (scheme, rest) = word.split_once("://")?;
    let end = rest.find(['/', '?', '#', '"', '\'', '>', '<', ' ', ']']).unwrap_or(rest.len());
    let (user, host) = rest[..end].rsplit_once('@')?;
    // Over ssh the name alone opens nothing, and without it nothing is reached.
    if scheme.ends_with("ssh") && !user.contains(':') {
        return Some(format!("{}{}", &word[..word.len() - rest.len() + end], redacted_tail(&rest[end..])));
    }
    Some(format!("{scheme}://{REDACTED}@{host}{}", redacted_tail(&rest[end..])))
}

/// What follows an address may hold the next one.
fn redacted_tail(rest: &str) -> String {
    without_user(rest).unwrap_or_else(|| without_keys(rest))
}

fn without_keys(word: &str) -> String {
    let parts = word.split_inclusive(|c: char| !is_key_character(c));
    let shown = parts.map(|part| {
        let key = part.trim_end_matches(|c: char| !is_key_character(c));
        if looks_like_key(key) { format!("{REDACTED}{}", &part[key.len()..]) } else { part.to_owned() }
    });
    shown.collect()
}

fn is_key_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+')
}

fn looks_like_key(key: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| key.starts_with(prefix) && key.len() >= prefix.len() + 8);
    let has = |test: fn(&char) -> bool| key.chars().any(|c| test(&c));
    known || key.len() >= LONG && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

/// `Bearer X`, `Basic X`.
pub fn is_scheme(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

/// The text of a configuration file (INI, TOML, YAML, properties, shell) with the values of secret names and everything
/// that looks like a secret replaced; `None` where there was nothing to replace.
pub fn masked(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut state = Inside::Nothing;
    for line in text.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix('\n') {
            Some(body) => (body, "\n"),
            None => (line, ""),
        };
        if state.goes_on(body) {
            continue;
        }
        let (shown, next) = masked_line(body);
        state = next;
        out.push_str(&shown);
        out.push_str(end);
    }
    (out != text).then_some(out)
}

/// A secret value that goes on over several lines: those that follow are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Inside {
    Nothing,
    /// Until this closes it.
    Quoted(&'static str),
    /// Until as many brackets are closed as were opened.
    Brackets(usize),
    /// While lines end in a backslash.
    Continued,
    /// While lines are indented by more than this (YAML's blocks, continued values of INI files).
    Indented(usize),
}

impl Inside {
    /// Whether this line is part of the value, which may end with it.
    fn goes_on(&mut self, line: &str) -> bool {
        let (belongs, next) = match std::mem::replace(self, Inside::Nothing) {
            Inside::Nothing => (false, Inside::Nothing),
            Inside::Quoted(close) if line.contains(close) => (true, Inside::Nothing),
            Inside::Quoted(close) => (true, Inside::Quoted(close)),
            Inside::Brackets(open) => match brackets(line, open) {
                0 => (true, Inside::Nothing),
                still => (true, Inside::Brackets(still)),
            },
            Inside::Continued if line.ends_with('\\') => (true, Inside::Continued),
            Inside::Continued => (true, Inside::Nothing),
            Inside::Indented(by) if line.trim().is_empty() || indent(line) > by => (true, Inside::Indented(by)),
            Inside::Indented(_) => (false, Inside::Nothing),
        };
        *self = next;
        belongs
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn brackets(text: &str, open: usize) -> usize {
    text.chars().fold(open, |open, c| match c {
        '[' | '{' | '(' => open + 1,
        ']' | '}' | ')' => open.saturating_sub(1),
        _ => open,
    })
}

/// A line as it may be shown, and what of it goes on.
fn masked_line(line: &str) -> (String, Inside) {
    if let Some((name, between, value)) = assignment(line)
        && is_secret_name(name)
    {
        let (shown, goes_on) = in_place_of(value, indent(line));
        return (format!("{name}{between}{shown}"), goes_on);
    }
    let mut hides_next = false;
    let mut shown = String::with_capacity(line.len());
    for part in line.split_inclusive([' ', '\t', ',', ';']) {
        let word = part.trim_end_matches([' ', '\t', ',', ';']);
        let rest = &part[word.len()..];
        if hides_next && !word.is_empty() {
            shown.push_str(REDACTED);
        } else {
            shown.push_str(&redacted_in_file(word));
        }
        hides_next = if word.is_empty() { hides_next } else { announces_next(word) };
        shown.push_str(rest);
    }
    (shown, Inside::Nothing)
}

/// Of a word of a file: a name before `=` counts by the rules of files.
fn redacted_in_file(word: &str) -> String {
    let plain = word.trim_start_matches(['"', '\'']);
    let is_path = ["/", "./", "../", "~/"].iter().any(|start| plain.starts_with(start)) && !plain.starts_with("//");
    if is_path || PUBLIC_KEYS.iter().any(|start| plain.starts_with(start)) {
        return word.to_owned();
    }
    match word.split_once(['=', ':']) {
        Some((name, _)) if names_secret(name) && !is_secret_name(name) => redacted_tail(word),
        _ => redacted(word),
    }
}

/// `--token`, `Authorization:`, `Bearer`: the value is the next word.
fn announces_next(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    let is_option = word.starts_with('-') && !word.contains('=');
    is_scheme(word) || (is_option || word.ends_with(':')) && names_secret(word)
}

/// `name = value`, `name: value`, `export name=value`: the three parts of the line, which together are all of it.
fn assignment(line: &str) -> Option<(&str, &str, &str)> {
    let at = line.find('=').or_else(|| {
        let at = line.find(':')?;
        line[at + 1..].starts_with([' ', '\t']).then_some(at).or_else(|| (at + 1 == line.len()).then_some(at))
    })?;
    let name = line[..at].trim_end();
    let value = line[at + 1..].trim_start();
    let plain = name.trim_start().trim_start_matches("export ").trim_start_matches("set -gx ");
    // A command is no name.
    let is_name = !plain.is_empty() && !plain.trim().contains(char::is_whitespace) && !plain.starts_with('#');
    is_name.then(|| (name, &line[name.len()..line.len() - value.len()], value))
}

/// By the last part of `//host/:_authToken`, `registries.mine.token`, `"token"`.
fn is_secret_name(name: &str) -> bool {
    let last = name.rsplit(['.', ':', '/', ' ', '\t']).next().unwrap_or(name);
    let last = last.trim_matches(['"', '\'', '-', ' ']).to_ascii_lowercase();
    !HARMLESS.contains(&last.as_str()) && (names_secret(&last) || FILE_NAMES.contains(&last.as_str()))
}

/// Stands in for a value, in the same kind of quotes.
fn in_place_of(value: &str, indent: usize) -> (String, Inside) {
    for (quotes, close) in [("\"\"\"", "\"\"\""), ("'''", "'''"), ("\"", "\""), ("'", "'")] {
        let Some(rest) = value.strip_prefix(quotes) else { continue };
        let goes_on = if rest.contains(close) { continues(rest, indent) } else { Inside::Quoted(close) };
        let quote = &close[..1];
        return (format!("{quote}{REDACTED}{quote}"), goes_on);
    }
    match (value.chars().next(), brackets(value, 0)) {
        (Some('[' | '{' | '('), open) if open > 0 => (format!("\"{REDACTED}\""), Inside::Brackets(open)),
        (Some('[' | '{' | '('), _) => (format!("\"{REDACTED}\""), Inside::Nothing),
        _ => (REDACTED.to_owned(), continues(value, indent)),
    }
}

fn continues(value: &str, indent: usize) -> Inside {
    if value.ends_with('\\') { Inside::Continued } else { Inside::Indented(indent) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        masked(text).unwrap_or_else(|| text.to_owned())
    }

    #[test]
    fn public_keys_paths_and_names_of_ssh_are_kept() {
        for text in [
            "\tsigningkey = ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0jK7Yx5QeT2vD8mUuZPqWc1f3hG6sN4bXoLrEa9kVt t@t.test\n",
            "\turl = ssh://git@host.example:2222/srv/team/project.git\n",
            "\thooksPath = /nix/store/0q5y9l3v1m8k2x7c4b6n0a9s8d7f6g5h-hooks/share\n",
        ] {
            assert_eq!(shown(text), text);
        }
        let with_password = "url = ssh://git:abc@host.example/x\n";
        assert_eq!(shown(with_password), "url = ssh://***@host.example/x\n");
    }

    #[test]
    fn values_of_secret_names_are_masked_and_the_rest_is_kept() {
        for (text, expected) in [
            (
                "//registry.example/:_authToken=abc\nregistry=https://r.example\n",
                "//registry.example/:_authToken=***\nregistry=https://r.example\n",
            ),
            (
                "[http]\n\textraheader = Authorization: Basic abc\n[user]\n\tname = n\n",
                "[http]\n\textraheader = ***\n[user]\n\tname = n\n",
            ),
            (
                "[url \"https://u:tok@h.example/\"]\n\tinsteadOf = https://h.example/\n",
                "[url \"https://***@h.example/\"]\n\tinsteadOf = https://h.example/\n",
            ),
            (
                "[registries.mine]\nindex = \"sparse+https://h/\"\ntoken = \"Bearer abc\"\n",
                "[registries.mine]\nindex = \"sparse+https://h/\"\ntoken = \"***\"\n",
            ),
            (
                "[global]\nindex-url = https://u:p@h.example/simple\n",
                "[global]\nindex-url = https://***@h.example/simple\n",
            ),
            ("export GITHUB_TOKEN=abc\nexport EDITOR=vi\n", "export GITHUB_TOKEN=***\nexport EDITOR=vi\n"),
            ("password: abc\nuser: me\n", "password: ***\nuser: me\n"),
            ("[user]\n\tsigningkey = ABCDEF\n", "[user]\n\tsigningkey = ABCDEF\n"),
            ("alias x='curl -H \"Authorization: Bearer abc\" h'\n", "alias x='curl -H \"Authorization: *** *** h'\n"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert_eq!(masked("[user]\n\tname = n\n"), None);
        assert_eq!(masked(""), None);
    }

    #[test]
    fn values_of_several_lines_are_masked_whole() {
        for text in [
            "token = \"\"\"\nCANARY\n\"\"\"\nname = 1\n",
            "token = [\n \"CANARY\",\n]\nname = 1\n",
            "token=a\\\nCANARY\nname = 1\n",
            "password: |\n  CANARY\n  CANARY\nname = 1\n",
            "password =\n  x\nname = 1\n",
            "export TOKEN='a\nCANARY'\nname = 1\n",
        ] {
            let shown = shown(text);
            assert!(!shown.contains("CANARY"), "{text} -> {shown}");
            assert!(shown.contains("name = 1"), "{text} -> {shown}");
        }
    }

    #[test]
    fn known_forms_of_secrets_are_masked_under_any_name() {
        for secret in ["ghp_0123456789abcdef", "npm_0123456789abcdef", "0123456789abcdef0123456789abcdef"] {
            for text in [format!("x = {secret}\n"), format!("x = \"{secret}\"\n"), format!("run {secret} y\n")] {
                assert!(!shown(&text).contains(secret), "{text}");
            }
        }
    }
}
