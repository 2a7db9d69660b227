//! A command line as it may stand in a log: without values that look like secrets, and short. Owns what looks like one;
//! rather takes too much out than too little. Called by `events`.

/// What is left of a value.
const REDACTED: &str = "***";

/// Longest text, in characters.
const MOST: usize = 100;

/// Parts of names whose value nobody should read.
const NAMES: &[&str] =
    &["token", "secret", "passw", "pwd", "passphrase", "apikey", "api-key", "api_key", "access-key", "access_key"];
const MORE_NAMES: &[&str] = &["private-key", "private_key", "credential", "auth", "cookie", "signature", "bearer"];

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

/// A word this long of letters and digits is taken for a key.
const LONG: usize = 32;

/// The first characters of a command, without secrets.
pub(crate) fn command(argv: &[String]) -> String {
    let mut text = String::new();
    let mut hides_next = 0;
    for word in argv.iter().flat_map(|argument| argument.split_whitespace()) {
        let shown = if hides_next > 0 { REDACTED.to_owned() } else { redacted(word) };
        hides_next = if announces(word) { 1 } else { hides_next.max(1) - 1 };
        if is_scheme(word) {
            hides_next = 1;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&shown);
        if text.chars().count() > MOST {
            break;
        }
    }
    text.chars().take(MOST).collect()
}

/// `--token`, `-password`, `Authorization:`: the value is the next word.
fn announces(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    (word.starts_with('-') && !word.contains('=') || word.ends_with(':')) && names_secret(word)
}

/// `Bearer X`, `Basic X`.
fn is_scheme(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

fn names_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    NAMES.iter().chain(MORE_NAMES).any(|part| name.contains(part)) || name.ends_with("key") && name.len() > 3
}

fn redacted(word: &str) -> String {
    if let Some((name, value)) =
        word.split_once(['=', ':']).filter(|(name, value)| names_secret(name) && !value.is_empty())
    {
        let between = &word[name.len()..word.len() - value.len()];
        return format!("{name}{between}{REDACTED}");
    }
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((_, host)) = rest.split('/').next().and_then(|authority| authority.rsplit_once('@'))
    {
        let path = &rest[rest.find('/').unwrap_or(rest.len())..];
        return format!("{scheme}://{REDACTED}@{host}{path}");
    }
    let parts = word.split_inclusive(|c: char| !is_key_character(c));
    parts.map(|part| if looks_like_key(part) { REDACTED } else { part }).collect()
}

fn is_key_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+')
}

fn looks_like_key(part: &str) -> bool {
    let key = part.trim_matches(|c: char| !is_key_character(c));
    let known = PREFIXES.iter().any(|prefix| key.starts_with(prefix) && key.len() >= prefix.len() + 8);
    let has = |test: fn(&char) -> bool| key.chars().any(|c| test(&c));
    known || key.len() >= LONG && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(words: &[&str]) -> String {
        command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_is_shown_and_its_secrets_are_not() {
        for (words, expected) in [
            (&["make", "-j4", "all"][..], "make -j4 all"),
            (&["tool", "--token", "abc", "x"], "tool --token *** x"),
            (&["tool", "--token=abc", "x"], "tool --token=*** x"),
            (&["env", "AWS_SECRET_ACCESS_KEY=abc", "x"], "env AWS_SECRET_ACCESS_KEY=*** x"),
            (&["bash", "-c", "export API_KEY=abc; run"], "bash -c export API_KEY=*** run"),
            (&["curl", "-H", "Authorization: Bearer abc"], "curl -H Authorization: *** ***"),
            (&["curl", "-H", "x: Bearer abc"], "curl -H x: Bearer ***"),
            (&["git", "clone", "https://u:p@host/repo"], "git clone https://***@host/repo"),
            (&["x", "ghp_0123456789abcdef"], "x ***"),
            (&["x", "0123456789abcdef0123456789abcdef"], "x ***"),
            (
                &["cat", "/usr/share/doc/a-long-name-of-a-directory-with-words/x"],
                "cat /usr/share/doc/a-long-name-of-a-directory-with-words/x",
            ),
        ] {
            assert_eq!(shown(words), expected, "{words:?}");
        }
        assert_eq!(shown(&["é".repeat(300).as_str()]).chars().count(), 100);
    }
}
