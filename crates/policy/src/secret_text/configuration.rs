//! A configuration file without its secrets (INI, TOML, YAML, properties, shell). Owns the reading of lines, and which part of
//! one is a value.

use std::borrow::Cow;

use super::names::{
    PUBLIC_KEYS, REDACTED, is_key_character, is_scheme, is_secret_name, may_hold_secret, without_users,
};

/// The text of a configuration file (INI, TOML, YAML, properties, shell) with the values of secret names and everything
/// that looks like a secret replaced; `None` where there was nothing to replace.
pub fn masked(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut state = Inside::Nothing;
    // Of a command that goes on in the next line.
    let mut command = None;
    let without_keys = without_private_keys(text);
    for line in without_keys.split_inclusive('\n') {
        // With its carriage return: behind that no backslash and no quote would be the last of the line.
        let body = line.strip_suffix('\n').unwrap_or(line);
        let body = body.strip_suffix('\r').unwrap_or(body);
        let end = &line[body.len()..];
        if state.goes_on(body) {
            continue;
        }
        if command.is_some() || may_hold_secret(body) {
            let (shown, next) = masked_line(body, &mut command);
            state = next;
            out.push_str(&shown);
            out.push_str(end);
        } else {
            out.push_str(line);
        }
    }
    (out != text).then_some(out)
}

/// Private keys are told by how they begin, whatever their name is, in one line or in many.
fn without_private_keys(text: &str) -> Cow<'_, str> {
    const BEGIN: &str = "-----BEGIN ";
    let mut shown = String::new();
    let mut rest = text;
    let mut seen = 0;
    while let Some(at) = rest[seen..].find(BEGIN).map(|at| seen + at) {
        let title = rest[at + BEGIN.len()..].split(['-', '\n']).next().unwrap_or_default();
        if !title.contains("PRIVATE KEY") {
            seen = at + BEGIN.len();
            continue;
        }
        // Without an end all of the file may be the key.
        let end = rest[at..].find("-----END").map_or(rest.len(), |end| at + end + "-----END".len());
        let line = rest[end..].find('\n').map_or(rest.len(), |line| end + line);
        let end = rest[end..line].find("-----").map_or(line, |dashes| end + dashes + "-----".len());
        shown.push_str(&rest[..at]);
        shown.push_str(REDACTED);
        rest = &rest[end..];
        seen = 0;
    }
    if shown.is_empty() {
        return Cow::Borrowed(text);
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// A secret value that goes on over several lines: those that follow are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inside {
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
            Inside::Quoted(close) => match reach(line, Some(close), &[], &SEPARATORS).1 {
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

/// A line as it may be shown, and what of it goes on. `command` is the one that the line before goes on with.
pub(super) fn masked_line(line: &str, command: &mut Option<&'static Command>) -> (String, Inside) {
    let before = command.take();
    let parts = assignment(line).or_else(|| pair(line));
    if let Some((name, between, value)) = parts
        && is_secret_name(name)
    {
        let is_pair = !between.contains(['=', ':']);
        let hidden = Hidden::at(value, if is_pair { Form::Command } else { Form::Word }, &Within::before(name));
        let goes_on = match hidden.goes_on {
            Inside::Nothing if value.ends_with('\\') => Inside::Continued,
            Inside::Nothing if !is_pair && !value.starts_with(['[', '{', '(']) => Inside::Indented(indent(line)),
            other => other,
        };
        // Of what follows only that is kept without which a shell could not read the file.
        let rest = if hidden.is_bare { value } else { &value[hidden.length..] };
        let after = if matches!(goes_on, Inside::Nothing | Inside::Indented(_)) { closing(rest) } else { "" };
        return (format!("{name}{between}{}{after}", hidden.shown), goes_on);
    }
    if let Some((name, between, value)) = parts.filter(|(name, ..)| name.to_ascii_lowercase().ends_with("proxy"))
        && let Some((user, host)) = value.rsplit_once('@')
        && !host.contains('/')
    {
        let start = user.rfind("://").map_or(user.len() - user.trim_start_matches(['"', '\'']).len(), |at| at + 3);
        return (format!("{name}{between}{}{REDACTED}@{host}", &user[..start]), Inside::Nothing);
    }
    let mut shown = String::with_capacity(line.len());
    let mut last = Last { command: before, ..Last::default() };
    let mut rest = line;
    while !rest.is_empty() {
        let start = rest.find(|c| !SEPARATORS.contains(&c)).unwrap_or(rest.len());
        let (gap, words) = rest.split_at(start);
        let word = &words[..words.find(SEPARATORS).unwrap_or(words.len())];
        shown.push_str(gap);
        if gap.contains(';') {
            last.command = None;
        }
        let Some((at, form)) = last.value_in(word, words) else {
            shown.push_str(&redacted_in_file(word));
            last.was(word, None);
            rest = &words[word.len()..];
            continue;
        };
        let before = &line[..line.len() - words.len() + at];
        let within =
            Within { around: reach(&words[..at], last.quote, &[], &[]).1, inner: last.inner(word, at), before };
        let value = Hidden::at(&words[at..], form, &within);
        shown.push_str(&without_users(&words[..at]));
        shown.push_str(value.shown);
        if value.goes_on != Inside::Nothing {
            return (shown, value.goes_on);
        }
        let end = at + value.length;
        last.was(&words[..end], Some(&words[at..end]));
        rest = &words[end..];
    }
    *command = last.command.filter(|_| line.ends_with('\\'));
    (shown, Inside::Nothing)
}

/// The end of a line of a shell that closes what an earlier one opened: brackets, a quote, `fi`.
fn closing(value: &str) -> &str {
    const KEYWORDS: [&str; 7] = ["fi", "done", "esac", "then", "do", "else", "{"];
    let is_closing = |c: char| c.is_whitespace() || matches!(c, ';' | '"' | '\'' | '`' | ')' | '}' | ']');
    let mut at = value.trim_end_matches(is_closing).len();
    let mut keyword = None;
    while let Some(head) = KEYWORDS.iter().find_map(|word| value[..at].strip_suffix(word))
        && head.ends_with([' ', '\t', ';'])
    {
        at = head.trim_end_matches(is_closing).len();
        keyword = Some(at);
    }
    if let Some(at) = keyword.filter(|at| value[*at..].trim_start().starts_with(';')) {
        return &value[at..];
    }
    let at = value.trim_end_matches(is_closing).len();
    let mut open = 0_usize;
    let unmatched = value.char_indices().find(|(place, c)| match c {
        '[' | '{' | '(' => {
            open += 1;
            false
        }
        ']' | '}' | ')' if open > 0 => {
            open -= 1;
            false
        }
        ']' | '}' | ')' => *place >= at,
        _ => false,
    });
    let odd = ['"', '\'', '`'].into_iter().filter(|quote| value.matches(*quote).count() % 2 == 1);
    let quotes = odd.filter_map(|quote| value.rfind(quote)).filter(|place| *place >= at);
    let Some(first) = unmatched.map(|(place, _)| place).into_iter().chain(quotes).min() else { return "" };
    let head = value[at..first].trim_end_matches(|c: char| c.is_whitespace() || c == ';');
    &value[at + head.len()..]
}

/// What ends a word.
const SEPARATORS: [char; 4] = [' ', '\t', ',', ';'];
/// What ends a command of a shell.
const COMMAND_ENDS: [char; 3] = [';', '&', '|'];
const QUOTES: [&str; 5] = ["\"\"\"", "'''", "\"", "'", "`"];

/// A program whose options hold passwords.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Command {
    name: &'static str,
    short: &'static str,
    long: &'static [&'static str],
    /// The value of a short option is part of its word: in the next word stands something else.
    is_attached: bool,
}

const fn command(name: &'static str, short: &'static str, long: &'static [&'static str]) -> Command {
    Command { name, short, long, is_attached: false }
}

const COMMANDS: &[Command] = &[
    command("curl", "uU", &["--user", "--proxy-user"]),
    command("sshpass", "p", &[]),
    // `docker login`, `podman login`, `helm registry login`.
    command("login", "p", &[]),
    command("redis-cli", "a", &[]),
    Command { is_attached: true, ..command("mysql", "p", &[]) },
    Command { is_attached: true, ..command("mysqldump", "p", &[]) },
    Command { is_attached: true, ..command("mysqladmin", "p", &[]) },
    Command { is_attached: true, ..command("mariadb", "p", &[]) },
    Command { is_attached: true, ..command("mariadb-dump", "p", &[]) },
    // What `sshpass` starts.
    command("ssh", "", &[]),
    command("scp", "", &[]),
    command("sftp", "", &[]),
    command("rsync", "", &[]),
];

/// Options of one letter without a value, which others are written behind: `curl -su name:password`.
const FLAGS: &str = "sSfLkivgGIjlNqRZnt#0123456";

impl Command {
    fn named(word: &str) -> Option<&'static Command> {
        let name = word.rsplit(['/', '"', '\'', '`', '(', '=', '!', '{', '|', '&']).next().unwrap_or(word);
        COMMANDS.iter().find(|command| command.name == name)
    }

    /// Where in an option the value begins: at its end, if it is the next word.
    fn value_in(&self, word: &str) -> Option<usize> {
        let plain = word.trim_start_matches(['"', '\'']);
        let quotes = word.len() - plain.len();
        if plain.starts_with("--") {
            let (option, value) = plain.split_at(plain.find('=').unwrap_or(plain.len()));
            let is_meant = self.long.contains(&option);
            return is_meant.then_some(quotes + option.len() + usize::from(!value.is_empty()));
        }
        let letters = plain.strip_prefix('-')?;
        let at = letters.find(|c| !FLAGS.contains(c))?;
        let is_meant = letters[at..].starts_with(|c| self.short.contains(c));
        let end = quotes + 1 + at + 1;
        (is_meant && !(self.is_attached && end == word.len())).then_some(end)
    }
}

/// What the last word of a line says about the next.
#[derive(Debug, Default)]
struct Last {
    /// The next is a value: after `--token`, `Authorization:`, `Bearer`, `token =`.
    announces: bool,
    /// The next is one if an `=` stands before it.
    names: bool,
    /// The quote that the next stands in.
    quote: Option<&'static str>,
    /// It is the name of a header.
    is_header: bool,
    /// The quote that the name of a header begins with: the value goes on to that.
    header_quote: Option<&'static str>,
    /// The program whose options these are.
    command: Option<&'static Command>,
}

impl Last {
    /// Where in `words`, which begin with this word, a value begins, and its form.
    fn value_in(&self, word: &str, words: &str) -> Option<(usize, Form)> {
        let at = match word {
            "" | "=" | ":" | "<<<" => None,
            _ if word.chars().all(|c| matches!(c, '<' | '>' | '|' | '&')) => None,
            _ if self.announces => {
                let form = if self.header_quote.is_some() { Form::Header } else { Form::Word };
                return Some((0, form));
            }
            _ if self.names && word.starts_with('=') => Some(1),
            _ if is_path(word.trim_start_matches(['"', '\''])) => None,
            _ if let Some(at) = default_value(word) => return Some((at, Form::Default)),
            _ => {
                let option = || self.command.and_then(|command| command.value_in(word));
                assigned(word).filter(|at| *at < word.len()).or_else(option).filter(|at| *at < word.len())
            }
        };
        at.map(|at| (at, Form::Word)).or_else(|| set_value(words).map(|at| (at, Form::Command)))
    }

    /// The quote that the word with the name begins with, which may be part of a text in other quotes.
    fn inner(&self, word: &str, at: usize) -> Option<&'static str> {
        if at == 0 { self.header_quote } else { quote_at(word) }
    }

    fn was(&mut self, text: &str, value: Option<&str>) {
        let is_sign = matches!(text, "=" | ":" | "<<<");
        let is_header = announces_next(text) && text.trim_end_matches(['"', '\'', '\\']).ends_with(':');
        // `token abc`, `Digest abc`: the first word of a header's value says of what kind the next is.
        let is_kind = self.is_header && value.is_some_and(|value| value.chars().all(|c| c.is_ascii_alphabetic()));
        let is_option = self.command.is_some_and(|command| command.value_in(text) == Some(text.len()));
        self.announces = match text {
            "" => self.announces,
            "=" | ":" | "<<<" => self.announces || self.names,
            _ => {
                is_kind || announces_next(text) || value.is_none() && (is_option || assigned(text) == Some(text.len()))
            }
        };
        self.is_header = is_header;
        self.header_quote = quote_at(text).filter(|_| is_header);
        self.names = !is_sign && value.is_none() && !text.contains('$') && is_secret_name(text);
        self.quote = reach(text, self.quote, &[], &[]).1;
        self.command = match Command::named(text) {
            Some(command) => Some(command),
            None if matches!(text, "|" | "||" | "&" | "&&") => None,
            None => self.command,
        };
    }
}

fn quote_at(word: &str) -> Option<&'static str> {
    let plain = word.trim_start_matches('\\');
    ["\"", "'"].into_iter().find(|quote| plain.starts_with(*quote))
}

/// How far a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Word,
    /// To the end of a shell's command.
    Command,
    /// To the quote around it.
    Header,
    /// To the bracket of a shell's `${name:-value}`.
    Default,
}

impl Form {
    fn ends(self) -> &'static [char] {
        match self {
            Form::Word => &SEPARATORS,
            Form::Command => &COMMAND_ENDS,
            Form::Header | Form::Default => &[],
        }
    }

    /// A shell takes bare stars among the words of a command for a pattern.
    fn stand_in(self) -> &'static str {
        match self {
            Form::Word | Form::Header | Form::Default => REDACTED,
            Form::Command => "\"***\"",
        }
    }
}

/// What a value stands in.
struct Within<'a> {
    /// The quote of the shell or file.
    around: Option<&'static str>,
    /// The quote of a text in that.
    inner: Option<&'static str>,
    /// The line before the value.
    before: &'a str,
}

impl<'a> Within<'a> {
    fn before(before: &'a str) -> Self {
        Within { around: None, inner: None, before }
    }
}

/// A value that is not shown, and what stands for it.
struct Hidden {
    length: usize,
    shown: &'static str,
    goes_on: Inside,
    is_bare: bool,
}

impl Hidden {
    /// At the beginning of a text, which may stand in quotes: a text in other quotes, something in brackets, or bare words.
    fn at(text: &str, form: Form, within: &Within<'_>) -> Hidden {
        let closers: Vec<&str> = [within.around, within.inner].into_iter().flatten().collect();
        let plain = text.strip_prefix('$').unwrap_or(text);
        let is_closed = closers.iter().any(|closer| plain.starts_with(closer));
        let is_whole = matches!(form, Form::Word | Form::Command);
        if let Some(quote) = QUOTES.into_iter().find(|quote| is_whole && plain.starts_with(*quote) && !is_closed) {
            let (length, still) = reach(text, None, &closers, form.ends());
            let shown = if quote.starts_with('\'') { "'***'" } else { "\"***\"" };
            let kept = closing(&text[..length]);
            let is_kept = still.is_none() && kept.chars().all(|c| matches!(c, ')' | '}' | ']'));
            let length = length - if is_kept { kept.len() } else { 0 };
            let goes_on = still.map_or(Inside::Nothing, Inside::Quoted);
            return Hidden { length, shown, goes_on, is_bare: false };
        }
        if is_whole && plain.starts_with(['[', '{', '(']) {
            let (length, open) = balanced(text);
            let goes_on = if open > 0 { Inside::Brackets(open) } else { Inside::Nothing };
            return Hidden { length, shown: "\"***\"", goes_on, is_bare: false };
        }
        let (length, still) = bare(text, form, &closers, within.before);
        let goes_on = match still {
            Some(quote) => Inside::Quoted(quote),
            None if length == text.len() && text.ends_with('\\') => Inside::Continued,
            None => Inside::Nothing,
        };
        Hidden { length, shown: form.stand_in(), goes_on, is_bare: true }
    }
}

/// How far a value without quotes of its own goes, and the quote that is open at its end. What closes something that was
/// opened before it is no part of it.
fn bare(text: &str, form: Form, closers: &[&str], before: &str) -> (usize, Option<&'static str>) {
    let word = text.find(SEPARATORS).unwrap_or(text.len());
    let (length, still) = match form {
        Form::Word => match reach(text, None, closers, form.ends()) {
            (length, None) => (length, None),
            // A quote that nothing closes in this line is none.
            _ => (closers.iter().filter_map(|closer| text[..word].find(closer)).min().unwrap_or(word), None),
        },
        Form::Command => reach(text, None, closers, form.ends()),
        Form::Header => match closers.iter().filter_map(|closer| unescaped(text, closer)).min() {
            Some(length) => (length, None),
            None => (text.len(), closers.last().and_then(|last| QUOTES.into_iter().find(|quote| quote == last))),
        },
        Form::Default => {
            let end = closed(text, '{', '}');
            (end.unwrap_or(text.len()), None)
        }
    };
    let in_brackets = brackets_of(before, '(', ')') > 0;
    let length = closed(&text[..length], '(', ')').filter(|_| in_brackets).unwrap_or(length);
    let kept = if still.is_none() && form == Form::Word { closing(&text[..length]).len() } else { 0 };
    match length - kept {
        0 => (word, still),
        length => (length, still),
    }
}

/// Where this stands for the first time without a backslash before it.
fn unescaped(text: &str, closer: &str) -> Option<usize> {
    text.match_indices(closer).map(|(at, _)| at).find(|at| !text[..*at].ends_with('\\'))
}

fn brackets_of(text: &str, opening: char, close: char) -> usize {
    text.chars().fold(0, |open: usize, c| match c {
        _ if c == opening => open + 1,
        _ if c == close => open.saturating_sub(1),
        _ => open,
    })
}

/// Where a bracket closes that was opened before this text.
fn closed(text: &str, opening: char, close: char) -> Option<usize> {
    let mut open = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            _ if c == opening => open += 1,
            _ if c == close && open == 0 => return Some(at),
            _ if c == close => open -= 1,
            _ => {}
        }
    }
    None
}

/// How far a text goes until a quote around it or one of these characters outside of quotes, and the quote that is open
/// at its end. A backslash takes the next character along, also where a shell would not have it so.
fn reach(text: &str, mut open: Option<&'static str>, closers: &[&str], ends: &[char]) -> (usize, Option<&'static str>) {
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let here = &text[at..];
        let quote = match open {
            Some(open) => Some(open).filter(|open| here.starts_with(*open)),
            None if ends.contains(&next) || closers.iter().any(|closer| here.starts_with(closer)) => return (at, None),
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

/// Of a word of a file that is no value of a secret name.
fn redacted_in_file(word: &str) -> String {
    let plain = word.trim_start_matches(['"', '\'']);
    if is_path(plain) || PUBLIC_KEYS.iter().any(|start| plain.starts_with(start)) {
        return word.to_owned();
    }
    without_users(word)
}

fn is_path(word: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| word.starts_with(start)) && !word.starts_with("//")
}

/// `--token`, `Authorization:`, `Bearer`: the value is the next word.
fn announces_next(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', '\\']);
    let is_option = word.starts_with('-') && !word.contains('=');
    is_scheme(word) || (is_option || word.ends_with(':')) && is_secret_name(word.trim_end_matches(['"', '\'', ':']))
}

/// Where in a word the value of a secret name begins: `token=abc`, `https://host/?a=b&token=abc`.
fn assigned(word: &str) -> Option<usize> {
    let mut start = 0;
    let mut signs = word.match_indices('=').map(|(at, _)| at);
    let is_meant = |name: &str, at: usize| is_secret_name(name) && !is_of_variables(name, &word[at + 1..]);
    let by_sign = signs.find(|at| is_meant(&word[std::mem::replace(&mut start, at + 1)..*at], *at));
    let by_colon = || word.find(['=', ':']).filter(|at| at + 1 < word.len() && is_meant(&word[..*at], *at));
    by_sign.or_else(by_colon).map(|at| at + 1)
}

/// In `"$key=$value"` the name is what a variable holds, and the value too.
fn is_of_variables(name: &str, value: &str) -> bool {
    let is_variable = |text: &str| {
        let plain = text.trim_start_matches(['"', '\'', '`']);
        plain.starts_with('$') && !plain.starts_with("$(") && !plain.starts_with("$'")
    };
    is_variable(name) && is_variable(value)
}

/// Where a value begins that a shell takes where a variable has none: `${TOKEN:-abc}`, `${TOKEN=abc}`.
fn default_value(word: &str) -> Option<usize> {
    let mut starts = word.match_indices("${").map(|(at, _)| at + 2);
    starts.find_map(|start| {
        let rest = &word[start..];
        let name = &rest[..rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())];
        let after = &rest[name.len()..];
        let value = after.strip_prefix(':').unwrap_or(after).strip_prefix(['-', '=', '+', '?'])?;
        (!value.is_empty() && !value.starts_with('}') && is_secret_name(name)).then(|| word.len() - value.len())
    })
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
    // A shell's `(TOKEN=a command)`: the value ends with the word.
    let is_in_brackets =
        line[name.len()..line.len() - value.len()] == *"=" && plain.trim_start_matches('$').starts_with('(');
    // A command is no name.
    let is_name = !plain.is_empty()
        && !plain.trim().contains(char::is_whitespace)
        && !plain.starts_with('#')
        && !is_in_brackets
        && !is_of_variables(plain, value);
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
    let after = value[reach(value, None, &[], &SEPARATORS).0..].trim_start();
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
