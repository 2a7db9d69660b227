//! Words of a command line: which name a launcher or an interpreter, where an interpreter's options end, and what a shell's text
//! consists of. Owns the lists of programs and how their options are read; looks at no file. Called by `subject`.

/// They execute the program that is named after their own options.
const LAUNCHERS: &[&str] = &[
    "chrt", "env", "ionice", "linux32", "linux64", "nice", "nohup", "prlimit", "setarch", "setpriv", "setsid",
    "stdbuf", "taskset", "time", "timeout", "unshare",
];

/// Words of a shell that stand before a command.
const BEFORE_COMMANDS: &[&str] =
    &["!", "builtin", "command", "do", "elif", "else", "eval", "exec", "if", "then", "time", "until", "while", "{"];

const SHELLS: &[&str] = &["ash", "bash", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh"];

/// A longer text is looked at up to here.
const MOST_TEXT: usize = 4 << 10;
const MOST_COMMANDS: usize = 16;

/// How the options of an interpreter are read, by their letters.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// What follows is the program itself, or its name in a library.
    program: &'static str,
    /// A value follows: the rest of the word, or the next word.
    value: &'static str,
    /// The rest of the word is a value.
    joined: &'static str,
}

const fn options(program: &'static str, value: &'static str, joined: &'static str) -> Options {
    Options { program, value, joined }
}

/// Options of a whole word, of any of them.
const PROGRAM_WORDS: &[&str] =
    &["--command", "--eval", "--module", "--print", "-Command", "-EncodedCommand", "-command", "-eval"];
const VALUE_WORDS: &[&str] = &[
    "--check-hash-based-pycs",
    "--class-path",
    "--import",
    "--init-file",
    "--loader",
    "--module-path",
    "--rcfile",
    "--require",
    "-ExecutionPolicy",
    "-classpath",
    "-cp",
];

/// `python3.11` is `python`.
fn is_one_of(list: &[&str], name: &str) -> bool {
    list.contains(&name) || list.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

pub(super) fn is_launcher(name: &str) -> bool {
    LAUNCHERS.contains(&name)
}

pub(super) fn is_interpreter(name: &str) -> bool {
    is_one_of(SHELLS, name) || options_of(name).is_some()
}

fn options_of(name: &str) -> Option<Options> {
    let is = |list: &[&str]| is_one_of(list, name);
    Some(match () {
        () if is(&["python", "pypy"]) => options("cm", "WXQ", ""),
        () if is(&["perl"]) => options("eE", "I", "mMxdDFiCl0"),
        () if is(&["ruby"]) => options("e", "ICEr", "FTWxiK0"),
        () if is(&["node", "nodejs", "bun"]) => options("ep", "rC", ""),
        () if is(&["php"]) => options("rERB", "cdtSz", ""),
        () if is(&["lua", "luajit"]) => options("", "el", "jO"),
        () if is(&["elixir", "Rscript"]) => options("e", "", ""),
        () if is(&["deno", "erl", "java", "pwsh", "tclsh"]) => options("", "", ""),
        () if is(&["awk", "gawk", "mawk"]) => options("", "vF", ""),
        () => return None,
    })
}

/// What an interpreter is given to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given<'a> {
    /// A file, which is the first of these words that is one.
    Files(Vec<&'a str>),
    /// A shell's text.
    Text(&'a str),
    /// Its program in words, or on its input.
    Nothing,
}

/// What the interpreter of this name is given by these arguments.
pub(super) fn given<'a>(name: &str, arguments: &'a [String]) -> Given<'a> {
    let mut words = arguments.iter().map(String::as_str);
    if is_one_of(SHELLS, name) {
        return given_to_shell(words);
    }
    // Its operands are data.
    if is_one_of(&["awk", "gawk", "mawk"], name) {
        return words.find(|word| matches!(*word, "-f" | "--file")).map_or(Given::Nothing, |_| files(words));
    }
    let Some(options) = options_of(name) else { return Given::Nothing };
    loop {
        let rest = words.clone();
        match words.next() {
            None | Some("-") => return Given::Nothing,
            Some("--") => return files(words),
            Some(word) if PROGRAM_WORDS.contains(&word) => return Given::Nothing,
            Some(word) if VALUE_WORDS.contains(&word) => drop(words.next()),
            Some(word) => match word.strip_prefix('-') {
                None => return files(rest),
                Some(letters) => match options.read(letters) {
                    Letters::Program => return Given::Nothing,
                    Letters::ValueFollows => drop(words.next()),
                    Letters::Flags => {}
                },
            },
        }
    }
}

/// An option that is not known here may have a value, which is seldom a file: so words that are none are passed over.
fn files<'a>(words: impl Iterator<Item = &'a str>) -> Given<'a> {
    Given::Files(words.filter(|word| !word.starts_with('-')).collect())
}

/// Letters of shells have no value in the same word, and those after `-c` may still be options.
fn given_to_shell<'a>(mut words: impl Iterator<Item = &'a str> + Clone) -> Given<'a> {
    let mut is_text = false;
    loop {
        let rest = words.clone();
        let operands = match words.next() {
            None | Some("-") => return Given::Nothing,
            Some("--") => words.clone(),
            Some("--command") => {
                is_text = true;
                continue;
            }
            Some(word) if VALUE_WORDS.contains(&word) => {
                words.next();
                continue;
            }
            Some(word) if word.starts_with("--") => continue,
            Some(word) if word.starts_with(['-', '+']) => {
                is_text |= word.contains('c');
                if word.contains('s') && !is_text {
                    return Given::Nothing;
                }
                if word.contains(['o', 'O']) {
                    words.next();
                }
                continue;
            }
            Some(_) => rest,
        };
        return if is_text { operands.clone().next().map_or(Given::Nothing, Given::Text) } else { files(operands) };
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Letters {
    Program,
    ValueFollows,
    Flags,
}

impl Options {
    /// The letters after one `-`.
    fn read(&self, letters: &str) -> Letters {
        if letters.starts_with('-') {
            return Letters::Flags;
        }
        for (at, letter) in letters.char_indices() {
            if self.program.contains(letter) {
                return Letters::Program;
            }
            if self.value.contains(letter) {
                let is_last = at + letter.len_utf8() == letters.len();
                return if is_last { Letters::ValueFollows } else { Letters::Flags };
            }
            if self.joined.contains(letter) {
                return Letters::Flags;
            }
        }
        Letters::Flags
    }
}

/// The commands of a shell's text, each without what stands before it. Nothing is expanded, and a file that is written to is a word. None
/// where something is read from elsewhere: what follows may be data.
pub(super) fn commands(text: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let (mut quote, mut before) = (None, ' ');
    let mut characters = text.char_indices().take_while(|(at, _)| *at < MOST_TEXT).map(|(_, character)| character);
    while let Some(character) = characters.next() {
        let is_of_redirection = character == '&' && before == '>';
        before = character;
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(characters.next()),
            (None, '<') => return Vec::new(),
            (None, ' ' | '\t' | '>' | '&' | '\n' | ';' | '|' | '(' | ')' | '`') => {
                let Some(last) = commands.last_mut() else { break };
                last.extend(word.take());
                let is_end = !matches!(character, ' ' | '\t' | '>') && !is_of_redirection;
                if is_end && !last.is_empty() {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(character),
        }
    }
    if let Some(last) = commands.last_mut() {
        last.extend(word);
    }
    commands.truncate(MOST_COMMANDS);
    for words in &mut commands {
        let is_before = |word: &&String| BEFORE_COMMANDS.contains(&word.as_str()) || is_assignment(word);
        let skipped = words.iter().take_while(is_before).count();
        words.drain(..skipped);
    }
    commands.retain(|words| !words.is_empty());
    commands
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shells_text_is_its_commands() {
        let cases: [(&str, &[&[&str]]); 9] = [
            ("cat <<E\n./x\nE\n./y", &[]),
            ("./x.sh", &[&["./x.sh"]]),
            ("cd 'a b' && A=1 exec ./x \"$@\"", &[&["cd", "a b"], &["./x", "$@"]]),
            ("ls|./x;y", &[&["ls"], &["./x"], &["y"]]),
            ("if ! ./x; then y; fi", &[&["./x"], &["y"], &["fi"]]),
            ("./x >out 2>&1 &", &[&["./x", "out", "2", "1"]]),
            ("A=$(./x)", &[&["./x"]]),
            ("./a\\ b 'open", &[&["./a b", "open"]]),
            (" ;; ", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(commands(text), expected, "{text}");
        }
        assert_eq!(commands(&"x;".repeat(100)).len(), MOST_COMMANDS);
        assert!(commands(&"x".repeat(1 << 20))[0][0].len() <= MOST_TEXT);
    }
}
