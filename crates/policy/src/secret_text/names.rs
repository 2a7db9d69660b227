//! Which names announce a secret and which words look like one. Owns the lists; rather takes too much for a secret than too
//! little.

use std::borrow::Cow;

/// What is left of a value.
pub const REDACTED: &str = "***";

/// Parts of names whose value is a secret.
const NAMES: &[&str] =
    &["token", "secret", "passw", "pwd", "passphrase", "apikey", "api-key", "api_key", "access-key", "access_key"];
const MORE_NAMES: &[&str] = &["private-key", "private_key", "credential", "auth", "cookie", "signature", "bearer"];
/// Words of a name, between `_`, `-`, `.` or where the case changes, that say the same: `DB_PASS`, `mysqlPw`, `GH_PAT`.
const WORDS: &[&str] = &["pass", "pw", "cred", "creds", "pat", "otp"];
/// Names that end in `pass` and hold none: programs that ask for a password, and ordinary words.
const HARMLESS_ENDS: &[&str] = &["askpass", "bypass", "compass", "surpass", "underpass", "overpass"];
/// Names of configuration files that say the same in other words.
const FILE_NAMES: &[&str] = &["extraheader", "smtppass", "proxy-header"];
/// Names that look like a secret's and are none: tools stop working without their values.
const HARMLESS: &[&str] = &[
    "signingkey",
    "always-auth",
    "auth-type",
    "author",
    "authors",
    "bindkey",
    "cookiefile",
    "credential-provider",
    "global-credential-providers",
    "helper",
    "keyring-provider",
    "npmalwaysauth",
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
    "dckr_pat_",
    "hf_",
    "sk_live_",
    "rk_live_",
];

/// How the second word of an OpenSSH public key begins: the length and the name of its kind.
pub(super) const PUBLIC_KEYS: &[&str] =
    &["AAAAB3NzaC1", "AAAAC3NzaC1", "AAAAE2VjZHNh", "AAAAInNrLWVjZHNh", "AAAAGnNrLXNzaC1"];

/// A word this long of letters and digits is taken for a key.
const LONG: usize = 32;

/// What follows the beginning of a well-known secret is at least as long; and the shortest of them.
const AFTER_PREFIX: usize = 8;
const SHORTEST: usize = {
    let mut shortest = LONG;
    let mut at = 0;
    while at < PREFIXES.len() {
        if PREFIXES[at].len() + AFTER_PREFIX < shortest {
            shortest = PREFIXES[at].len() + AFTER_PREFIX;
        }
        at += 1;
    }
    shortest
};

/// Whether a name announces that its value is a secret. Asked for each word of a line, at each start.
pub fn names_secret(name: &str) -> bool {
    let bytes = name.as_bytes();
    (0..bytes.len()).any(|at| begins_sign(&bytes[at..], OF_NAMES))
        || bytes.len() > 3 && ends_with(bytes, "key")
        || has_secret_word(bytes)
}

fn has_secret_word(name: &[u8]) -> bool {
    let letters = name.iter().rposition(u8::is_ascii_alphabetic).map_or(0, |last| last + 1);
    let plain = &name[..letters];
    if HARMLESS_ENDS.iter().any(|end| ends_with(plain, end)) {
        return false;
    }
    let is_start = |at: usize| match at.checked_sub(1).map(|before| name[before]) {
        Some(before) if before.is_ascii_alphabetic() => before.is_ascii_lowercase() && name[at].is_ascii_uppercase(),
        _ => true,
    };
    ends_with(plain, "pass") || (0..name.len()).any(|at| is_start(at) && begins_sign(&name[at..], OF_WORDS))
}

fn ends_with(name: &[u8], end: &str) -> bool {
    let start = name.len().checked_sub(end.len());
    start.is_some_and(|start| name[start..].eq_ignore_ascii_case(end.as_bytes()))
}

/// One word without what looks like a secret in it: `NAME=value`, the user of an address, a key.
pub fn redacted(word: &str) -> String {
    if let Some((name, value)) =
        word.split_once(['=', ':']).filter(|(name, value)| names_secret(name) && !value.is_empty())
    {
        let between = &word[name.len()..word.len() - value.len()];
        return format!("{name}{between}{REDACTED}");
    }
    without_users(word)
}

/// Without the names and passwords of the addresses in a text, and without keys.
pub(super) fn without_users(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.push_str(&without_keys(before));
        shown.push_str("://");
        rest = after;
        let end = after.find(['/', '?', '#', '"', '\'', '>', '<', ' ', ']']).unwrap_or(after.len());
        let Some((user, host)) = after[..end].rsplit_once('@') else { continue };
        // Over ssh the name alone opens nothing, and without it nothing is reached.
        let is_shown = before.ends_with("ssh") && !user.contains(':');
        shown.push_str(if is_shown { user } else { REDACTED });
        shown.push('@');
        shown.push_str(host);
        rest = &after[end..];
    }
    shown.push_str(&without_keys(&without_bare_users(rest)));
    shown
}

/// Without the names and passwords of addresses that have no scheme, as proxies are written: `user:password@host:8080`.
fn without_bare_users(text: &str) -> Cow<'_, str> {
    let Some(last) = text.rfind('@') else { return Cow::Borrowed(text) };
    let start = text[..last].rfind(['=', '"', '\'', '`', ' ', '\t', ',', ';']).map_or(0, |at| at + 1);
    let is_host = text[last + 1..].starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '[' | '$' | '_'))
        && !text[last + 1..].starts_with("sha256:");
    let has_user = text[start..last].split_once(':').is_some_and(|(user, password)| {
        let is_user = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '%' | '+' | '~' | '\\');
        !user.is_empty() && user.chars().all(is_user) && !password.is_empty() && !password.starts_with('/')
    });
    if !is_host || !has_user {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{REDACTED}{}", &text[..start], &text[last..]))
}

fn without_keys(word: &str) -> Cow<'_, str> {
    if word.len() < SHORTEST {
        return Cow::Borrowed(word);
    }
    let parts = word.split_inclusive(|c: char| !is_key_character(c));
    let shown = parts.map(|part| {
        let key = part.trim_end_matches(|c: char| !is_key_character(c));
        if looks_like_key(key) { format!("{REDACTED}{}", &part[key.len()..]) } else { part.to_owned() }
    });
    Cow::Owned(shown.collect())
}

pub(super) fn is_key_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '+')
}

fn looks_like_key(key: &str) -> bool {
    let known = PREFIXES.iter().any(|prefix| key.starts_with(prefix) && key.len() >= prefix.len() + AFTER_PREFIX);
    let has = |test: fn(&char) -> bool| key.chars().any(|c| test(&c));
    known || key.len() >= LONG && has(char::is_ascii_digit) && has(char::is_ascii_alphabetic)
}

/// `Bearer X`, `Basic X`.
pub fn is_scheme(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', '\\']);
    word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic")
}

/// Whatever has to be replaced has one of these in its line, in any case, or an `@`, or a long word.
const SIGNS: [&[&str]; 7] = [
    NAMES,
    MORE_NAMES,
    FILE_NAMES,
    PREFIXES,
    WORDS,
    &["key", "basic"],
    &["curl", "mysql", "mariadb", "login", "redis"],
];

/// How many there are: their number is a bit of [`FIRST_LETTERS`].
const COUNT: usize = {
    let (mut count, mut list) = (0, 0);
    while list < SIGNS.len() {
        count += SIGNS[list].len();
        list += 1;
    }
    assert!(count <= 64);
    count
};

const FLAT: [&[u8]; COUNT] = {
    let mut flat: [&[u8]; COUNT] = [b""; COUNT];
    let (mut number, mut list) = (0, 0);
    while list < SIGNS.len() {
        let mut at = 0;
        while at < SIGNS[list].len() {
            flat[number] = SIGNS[list][at].as_bytes();
            number += 1;
            at += 1;
        }
        list += 1;
    }
    flat
};

/// For the first three letters, which signs have this one there, or are shorter; of letters the five lowest bits, which have
/// no case.
static FIRST_LETTERS: [[u64; 32]; 3] = {
    let mut letters = [[0; 32]; 3];
    let mut number = 0;
    while number < COUNT {
        let mut place = 0;
        while place < 3 {
            if place < FLAT[number].len() {
                letters[place][(FLAT[number][place] & 31) as usize] |= 1 << number;
            } else {
                let mut any = 0;
                while any < 32 {
                    letters[place][any] |= 1 << number;
                    any += 1;
                }
            }
            place += 1;
        }
        number += 1;
    }
    letters
};

/// Those of the first two lists.
const OF_NAMES: u64 = (1 << (NAMES.len() + MORE_NAMES.len())) - 1;

/// Those that count only as whole words, see [`has_secret_word`].
const OF_WORDS: u64 = {
    let before = NAMES.len() + MORE_NAMES.len() + FILE_NAMES.len() + PREFIXES.len();
    ((1 << WORDS.len()) - 1) << before
};

/// Whether one of `among` begins here, in any case.
fn begins_sign(text: &[u8], among: u64) -> bool {
    let letter = |place: usize| FIRST_LETTERS[place][text.get(place).map_or(0, |byte| usize::from(byte & 31))];
    let mut signs = letter(0) & letter(1) & letter(2) & among;
    while signs != 0 {
        let sign = FLAT[signs.trailing_zeros() as usize];
        let is_word = signs & signs.wrapping_neg() & OF_WORDS != 0;
        if let Some((there, after)) = text.split_at_checked(sign.len())
            && there.eq_ignore_ascii_case(sign)
            && !(is_word && goes_on(there, after))
        {
            return true;
        }
        signs &= signs - 1;
    }
    false
}

/// Whether the word that ends with `there` goes on behind it: `PATH` is not the word `PAT`.
fn goes_on(there: &[u8], after: &[u8]) -> bool {
    let is_lower = there.last().is_some_and(u8::is_ascii_lowercase);
    after.first().is_some_and(|next| next.is_ascii_alphabetic() && !(is_lower && next.is_ascii_uppercase()))
}

/// Whether anything of a line may have to be replaced: most lines of a file have nothing, and each start reads some files.
pub(super) fn may_hold_secret(line: &str) -> bool {
    let bytes = line.as_bytes();
    let mut word = 0;
    bytes.iter().enumerate().any(|(at, byte)| {
        word = if is_key_character(char::from(*byte)) { word + 1 } else { 0 };
        // The user of an address stands before an `@`.
        *byte == b'@' || word >= LONG || begins_sign(&bytes[at..], u64::MAX)
    })
}

/// By the last part of `//host/:_authToken`, `registries.mine.token`, `"token"`.
pub(super) fn is_secret_name(name: &str) -> bool {
    let last = name.rsplit(['.', ':', '/', ' ', '\t']).next().unwrap_or(name);
    let last = last.trim_matches(['"', '\'', '-', ' ', '{', '[', '(']);
    let is_in = |names: &[&str]| names.iter().any(|name| last.eq_ignore_ascii_case(name));
    !is_in(HARMLESS) && (names_secret(last) || is_in(FILE_NAMES))
}
