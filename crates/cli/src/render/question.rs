//! An open question as an operator reads it. Owns the words of its parts, escaped; how they are laid out is the caller's. Called
//! by `questions` and `inbox`.

use std::fmt::Write as _;

use cofferdam_gate::{shown, shown_short, shown_words};
use cofferdam_kernel::timing;
use cofferdam_wire::protocol::FsRequest;
use cofferdam_wire::{Op, Program};

pub(crate) fn verb(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::List => "list",
        Op::Exec => "execute",
        Op::Write => "write",
        Op::Create => "create",
        Op::Connect => "connect to",
        Op::Sign => "sign with",
    }
}

/// The path in full. Bytes that are no text were replaced on the wire, and come besides.
pub(crate) fn path(question: &FsRequest) -> String {
    let bytes = question.path_bytes.as_deref().and_then(from_hex);
    let mut text = shown(bytes.as_deref().unwrap_or(question.path.as_bytes()));
    if question.is_dir {
        text.push('/');
    }
    text
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).ok());
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

/// The program and its parents, nearest first.
pub(crate) fn who(question: &FsRequest) -> String {
    let program = &question.asker.program;
    let mut text = format!("{} (pid {})", command_line(program), program.pid);
    for parent in &question.asker.parents {
        write!(text, " < {}", shown_short(name(parent).as_bytes(), 40)).unwrap_or_default();
    }
    text
}

fn command_line(program: &Program) -> String {
    let words = shown_words(program.argv.iter().map(String::as_str));
    let exe = shown(program.exe.as_bytes());
    if program.argv.first().is_some_and(|first| *first == program.exe) { words } else { format!("{exe}: {words}") }
}

fn name(program: &Program) -> &str {
    program.exe.rsplit('/').next().unwrap_or(&program.exe)
}

pub(crate) fn seconds_left(question: &FsRequest) -> Option<u64> {
    question.until.map(timing::seconds_left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_told_as_they_are() {
        assert_eq!(from_hex("2fff"), Some(vec![0x2f, 0xff]));
        assert_eq!(from_hex("2"), Some(vec![2]));
        assert_eq!(from_hex("zz"), None);
    }
}
