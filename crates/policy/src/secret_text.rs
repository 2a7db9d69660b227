//! Secrets in text: which names announce one, which words look like one, and a configuration file without them. Owns the
//! lists and the reading of lines; rather takes too much out than too little. Called by `gate::masked`
//! and `launcher::redact`.

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
    without_users(word)
}

/// Without the names and passwords of the addresses in a text, and without keys.
fn without_users(text: &str) -> String {
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
    shown.push_str(&without_keys(rest));
    shown
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
        if may_hold_secret(body) {
            let (shown, next) = masked_line(body);
            state = next;
            out.push_str(&shown);
            out.push_str(end);
        } else {
            out.push_str(line);
        }
    }
    (out != text).then_some(out)
}

/// Whatever has to be replaced has one of these in its line, in any case, or an `@`, or a long word.
const SIGNS: [&[&str]; 5] = [NAMES, MORE_NAMES, FILE_NAMES, PREFIXES, &["key", "basic"]];

/// For each first letter of a sign, the second ones as bits; of letters their five lowest bits, which have no case.
const BEGINNINGS: [u32; 32] = {
    let mut beginnings = [0; 32];
    let mut list = 0;
    while list < SIGNS.len() {
        let mut at = 0;
        while at < SIGNS[list].len() {
            let sign = SIGNS[list][at].as_bytes();
            beginnings[(sign[0] & 31) as usize] |= 1 << (sign[1] & 31);
            at += 1;
        }
        list += 1;
    }
    beginnings
};

/// Whether anything of a line may have to be replaced: most lines of a file have nothing, and each start reads some files.
fn may_hold_secret(line: &str) -> bool {
    let bytes = line.as_bytes();
    let has_sign = bytes.windows(2).enumerate().any(|(at, pair)| {
        let begins = |sign: &&str| {
            bytes[at..].get(..sign.len()).is_some_and(|there| there.eq_ignore_ascii_case(sign.as_bytes()))
        };
        BEGINNINGS[usize::from(pair[0] & 31)] & 1 << (pair[1] & 31) != 0 && SIGNS.iter().copied().flatten().any(begins)
    });
    // The user of an address stands before an `@`.
    has_sign
        || bytes.contains(&b'@')
        || bytes.split(|byte| !is_key_character(char::from(*byte))).any(|word| word.len() >= LONG)
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
            Inside::Quoted(close) => match reach(line, Some(close), None, &SEPARATORS).1 {
                Some(still) => (true, Inside::Quoted(still)),
                None if line.ends_with('\\') => (true, Inside::Continued),
                None => (true, Inside::Nothing),
            },
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
    if let Some((name, between, value)) = assignment(line).or_else(|| pair(line))
        && is_secret_name(name)
    {
        let is_pair = !between.contains(['=', ':']);
        let hidden = Hidden::at(value, if is_pair { Form::Command } else { Form::Word }, None);
        let goes_on = match hidden.goes_on {
            Inside::Nothing if value.ends_with('\\') => Inside::Continued,
            Inside::Nothing if !is_pair && !value.starts_with(['[', '{', '(']) => Inside::Indented(indent(line)),
            other => other,
        };
        return (format!("{name}{between}{}", hidden.shown), goes_on);
    }
    let mut shown = String::with_capacity(line.len());
    let mut last = Last::default();
    let mut rest = line;
    while !rest.is_empty() {
        let start = rest.find(|c| !SEPARATORS.contains(&c)).unwrap_or(rest.len());
        let (gap, words) = rest.split_at(start);
        let word = &words[..words.find(SEPARATORS).unwrap_or(words.len())];
        shown.push_str(gap);
        let Some((at, form)) = last.value_in(word, words) else {
            shown.push_str(&redacted_in_file(word));
            last.was(word, false);
            rest = &words[word.len()..];
            continue;
        };
        let value = Hidden::at(&words[at..], form, last.quote);
        shown.push_str(&without_users(&words[..at]));
        shown.push_str(value.shown);
        if value.goes_on != Inside::Nothing {
            return (shown, value.goes_on);
        }
        let end = at + value.length;
        last.was(&words[..end], true);
        rest = &words[end..];
    }
    (shown, Inside::Nothing)
}

/// What ends a word.
const SEPARATORS: [char; 4] = [' ', '\t', ',', ';'];
/// What ends a command of a shell.
const COMMAND_ENDS: [char; 3] = [';', '&', '|'];
const QUOTES: [&str; 5] = ["\"\"\"", "'''", "\"", "'", "`"];

/// What the last word of a line says about the next.
#[derive(Debug, Default)]
struct Last {
    /// The next is a value: after `--token`, `Authorization:`, `Bearer`, `token =`.
    announces: bool,
    /// The next is one if an `=` stands before it.
    names: bool,
    /// The quote that the next stands in.
    quote: Option<&'static str>,
}

impl Last {
    /// Where in `words`, which begin with this word, a value begins, and its form.
    fn value_in(&self, word: &str, words: &str) -> Option<(usize, Form)> {
        let at = match word {
            "" | "=" | ":" => None,
            _ if self.announces => Some(0),
            _ if self.names && word.starts_with('=') => Some(1),
            _ if is_path(word.trim_start_matches(['"', '\''])) => None,
            _ => assigned(word).filter(|at| *at < word.len()),
        };
        at.map(|at| (at, Form::Word)).or_else(|| set_value(words).map(|at| (at, Form::Command)))
    }

    fn was(&mut self, text: &str, has_value: bool) {
        let is_sign = matches!(text, "=" | ":");
        self.announces = match text {
            "" => self.announces,
            "=" | ":" => self.announces || self.names,
            _ => announces_next(text) || !has_value && assigned(text) == Some(text.len()),
        };
        self.names = !is_sign && !has_value && !text.contains('$') && is_secret_name(text);
        self.quote = reach(text, self.quote, None, &[]).1;
    }
}

/// How far a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Word,
    /// To the end of a shell's command.
    Command,
}

impl Form {
    fn ends(self) -> &'static [char] {
        match self {
            Form::Word => &SEPARATORS,
            Form::Command => &COMMAND_ENDS,
        }
    }

    /// A shell takes bare stars among the words of a command for a pattern.
    fn stand_in(self) -> &'static str {
        match self {
            Form::Word => REDACTED,
            Form::Command => "\"***\"",
        }
    }
}

/// A value that is not shown, and what stands for it.
struct Hidden {
    length: usize,
    shown: &'static str,
    goes_on: Inside,
}

impl Hidden {
    /// At the beginning of a text, which may stand in quotes: a text in other quotes, something in brackets, or bare words.
    fn at(text: &str, form: Form, around: Option<&'static str>) -> Hidden {
        let plain = text.strip_prefix('$').unwrap_or(text);
        let is_around = around.is_some_and(|around| plain.starts_with(around));
        if let Some(quote) = QUOTES.into_iter().find(|quote| plain.starts_with(*quote) && !is_around) {
            let (length, still) = reach(text, None, around, form.ends());
            let shown = if quote.starts_with('\'') { "'***'" } else { "\"***\"" };
            return Hidden { length, shown, goes_on: still.map_or(Inside::Nothing, Inside::Quoted) };
        }
        if plain.starts_with(['[', '{', '(']) {
            let (length, open) = balanced(text);
            let goes_on = if open > 0 { Inside::Brackets(open) } else { Inside::Nothing };
            return Hidden { length, shown: "\"***\"", goes_on };
        }
        let word = text.find(SEPARATORS).unwrap_or(text.len());
        let (length, still) = match form {
            Form::Word => (word - around.filter(|quote| text[..word].ends_with(*quote)).map_or(0, str::len), None),
            Form::Command => reach(text, None, around, form.ends()),
        };
        let goes_on = match still {
            Some(quote) => Inside::Quoted(quote),
            None if length == text.len() && text.ends_with('\\') => Inside::Continued,
            None => Inside::Nothing,
        };
        Hidden { length: if length == 0 { word } else { length }, shown: form.stand_in(), goes_on }
    }
}

/// How far a text goes until the quote around it or one of these characters outside of quotes, and the quote that is open
/// at its end. A backslash takes the next character along, also where a shell would not have it so.
fn reach(
    text: &str,
    mut open: Option<&'static str>,
    around: Option<&str>,
    ends: &[char],
) -> (usize, Option<&'static str>) {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let here = &text[at..];
        let quote = match open {
            Some(open) => Some(open).filter(|open| here.starts_with(*open)),
            None if ends.contains(&next) || around.is_some_and(|around| here.starts_with(around)) => return (at, None),
            None => QUOTES.into_iter().find(|quote| here.starts_with(*quote)),
        };
        at += match quote {
            Some(quote) => {
                open = if open.is_some() { None } else { Some(quote) };
                quote.len()
            }
            None if next == '\\' => 1 + here[1..].chars().next().map_or(0, char::len_utf8),
            None => next.len_utf8(),
        };
    }
    (text.len(), open)
}

/// How far the brackets at the beginning of a text go, and how many are still open at its end.
fn balanced(text: &str) -> (usize, usize) {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        let now = brackets(c.encode_utf8(&mut [0; 4]), open);
        if now == 0 && open > 0 {
            return (at + 1, 0);
        }
        open = now;
    }
    (text.len(), open)
}

/// Of a word of a file: a name before `=` counts by the rules of files.
fn redacted_in_file(word: &str) -> String {
    let plain = word.trim_start_matches(['"', '\'']);
    if is_path(plain) || PUBLIC_KEYS.iter().any(|start| plain.starts_with(start)) {
        return word.to_owned();
    }
    match word.split_once(['=', ':']) {
        Some((name, _)) if names_secret(name) && !is_secret_name(name) => without_users(word),
        _ => redacted(word),
    }
}

fn is_path(word: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| word.starts_with(start)) && !word.starts_with("//")
}

/// `--token`, `Authorization:`, `Bearer`: the value is the next word.
fn announces_next(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    let is_option = word.starts_with('-') && !word.contains('=');
    is_scheme(word) || (is_option || word.ends_with(':')) && is_secret_name(word.trim_end_matches(['"', '\'', ':']))
}

/// Where in a word the value of a secret name begins: `token=abc`, `https://host/?a=b&token=abc`.
fn assigned(word: &str) -> Option<usize> {
    let mut start = 0;
    let mut signs = word.match_indices('=').map(|(at, _)| at);
    signs.find(|at| is_secret_name(&word[std::mem::replace(&mut start, at + 1)..*at])).map(|at| at + 1)
}

/// `name = value`, `name: value`, `export name=value`: the three parts of the line, which together are all of it.
fn assignment(line: &str) -> Option<(&str, &str, &str)> {
    let at = line.find('=').or_else(|| {
        let at = line.find(':')?;
        line[at + 1..].starts_with([' ', '\t']).then_some(at).or_else(|| (at + 1 == line.len()).then_some(at))
    })?;
    let name = line[..at].trim_end();
    let value = line[at + 1..].trim_start();
    let plain = name.trim_start().trim_start_matches("export ").trim_start_matches("- ");
    // A command is no name.
    let is_name = !plain.is_empty() && !plain.trim().contains(char::is_whitespace) && !plain.starts_with('#');
    is_name.then(|| (name, &line[name.len()..line.len() - value.len()], value))
}

/// `name value`, as in yarn's `"//host/:_authToken" "abc"`: the three parts of a line of two words. A shell's command with
/// an option, a file or a variable is none.
fn pair(line: &str) -> Option<(&str, &str, &str)> {
    let start = indent(line);
    let end = start + line[start..].find([' ', '\t'])?;
    let (name, value) = (&line[..end], line[end..].trim_start());
    let plain = name[start..].trim_matches(['"', '\'']);
    let is_name = plain.chars().all(|c| is_key_character(c) || matches!(c, '.' | ':' | '/' | '@'));
    let is_key = name[start..].starts_with(['"', '\'', '_']) || plain.contains(':');
    let inner = value.trim_start_matches(['"', '\'']);
    let is_value = !inner.starts_with(['$', '(', ')', '{', '}', '|', '&', '<', '>', ';', '#', '=', '\\'])
        && (is_key || !inner.starts_with('-') && !is_path(inner));
    let after = value[reach(value, None, None, &SEPARATORS).0..].trim_start();
    let is_all = !value.is_empty() && (after.is_empty() || after.starts_with('#'));
    (is_name && is_value && is_all).then(|| (name, &line[end..line.len() - value.len()], value))
}

/// Where the value begins in fish's `set -gx token abc`, csh's `setenv token abc`, `npm config set token abc`.
fn set_value(words: &str) -> Option<usize> {
    let first = words.trim_start_matches(['"', '\'', '`', '(', '{']);
    let mut rest = first.strip_prefix("setenv").or_else(|| first.strip_prefix("set"))?;
    loop {
        let after = rest.trim_start_matches([' ', '\t']);
        if after.len() == rest.len() {
            return None;
        }
        let (word, next) = after.split_at(after.find([' ', '\t', ';']).unwrap_or(after.len()));
        rest = next;
        if word.starts_with('-') {
            continue;
        }
        let value = rest.trim_start_matches([' ', '\t']);
        let has_value = value.len() < rest.len() && !value.is_empty() && !value.starts_with([';', '&', '|', '#', '=']);
        let is_name = !word.contains(['$', '=']) && is_secret_name(word);
        return (has_value && is_name).then(|| words.len() - value.len());
    }
}

/// By the last part of `//host/:_authToken`, `registries.mine.token`, `"token"`.
fn is_secret_name(name: &str) -> bool {
    let last = name.rsplit(['.', ':', '/', ' ', '\t']).next().unwrap_or(name);
    let last = last.trim_matches(['"', '\'', '-', ' ', '{', '[', '(']).to_ascii_lowercase();
    !HARMLESS.contains(&last.as_str()) && (names_secret(&last) || FILE_NAMES.contains(&last.as_str()))
}

#[cfg(test)]
mod tests;
