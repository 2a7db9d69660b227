//! Finds in a Markdown document what a reader would type, and what the text shows after it. Owns what counts as a command; the
//! tests of `documented` use it. A block that is indented by four blanks, or in a fence without a language or called `sh`, is a shell's:
//! with `$ ` prompts the other lines are output, without them each line is a command, unless the block begins with a message of ours.

/// What a message of ours begins with.
const MESSAGES: [&str; 3] = ["sandbox: ", "error: ", "hint: "];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// Of the document, from 1 on.
    pub(super) number: usize,
    /// The text of the last heading.
    pub(super) section: String,
    /// The command without the remark behind it, or the first line of a message.
    pub(super) text: String,
    pub(super) remark: Option<String>,
    pub(super) is_message: bool,
    /// The output that the document shows.
    pub(super) shown: Vec<String>,
}

/// The commands and messages of a document, in its order.
pub(super) fn lines(document: &str) -> Vec<Line> {
    let mut found = Vec::new();
    let mut section = String::new();
    let mut block: Vec<(usize, &str)> = Vec::new();
    let mut fence: Option<bool> = None;
    for (index, line) in document.lines().enumerate() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            end(&mut block, &section, &mut found);
            fence = if fence.is_some() { None } else { Some(matches!(language, "" | "sh" | "console")) };
            continue;
        }
        let code = match fence {
            Some(is_shell) => is_shell.then_some(line),
            None => line.strip_prefix("    "),
        };
        match code {
            Some(code) => block.push((index + 1, code)),
            None if line.is_empty() => {}
            None => {
                end(&mut block, &section, &mut found);
                if fence.is_none() && line.starts_with('#') {
                    section = String::from(line.trim_start_matches('#').trim());
                }
            }
        }
    }
    end(&mut block, &section, &mut found);
    found
}

fn end(block: &mut Vec<(usize, &str)>, section: &str, found: &mut Vec<Line>) {
    let block = std::mem::take(block);
    let Some((first, beginning)) = block.first().copied() else { return };
    let line = |number, text: &str, remark, is_message| {
        let (section, text) = (section.to_owned(), text.to_owned());
        Line { number, section, text, remark, is_message, shown: Vec::new() }
    };
    if MESSAGES.iter().any(|message| beginning.starts_with(message)) {
        let shown = block.iter().map(|(_, line)| (*line).to_owned()).collect();
        found.push(Line { shown, ..line(first, beginning, None, true) });
        return;
    }
    let has_prompts = beginning.starts_with("$ ");
    for (number, text) in block {
        let command = if has_prompts { text.strip_prefix("$ ") } else { Some(text) };
        if let Some(command) = command {
            let (command, remark) = without_remark(command);
            found.push(line(number, command, remark, false));
        } else if let Some(last) = found.last_mut() {
            last.shown.push(text.to_owned());
        }
    }
}

/// A remark is set off by two blanks.
fn without_remark(line: &str) -> (&str, Option<String>) {
    match line.split_once("  #") {
        Some((command, remark)) => (command.trim_end(), Some(remark.trim().to_owned())),
        None => (line.trim_end(), None),
    }
}

#[test]
fn documented_lines_are_found_in_blocks_of_either_kind() {
    let text = "# One\n\n    a b  # why\n\n    c 'x # y'\n\ntext `d`\n```toml\n    e = 1\n```\n## Two\n```sh\nf\n```\n    $ g\n    out\n    sandbox: h  # i\n";
    let found = lines(text);
    let of: Vec<(usize, &str, &str, bool)> =
        found.iter().map(|line| (line.number, line.section.as_str(), line.text.as_str(), line.is_message)).collect();
    let expected =
        [(3, "One", "a b", false), (5, "One", "c 'x # y'", false), (13, "Two", "f", false), (15, "Two", "g", false)];
    assert_eq!(of, expected);
    assert_eq!(found[0].remark.as_deref(), Some("why"));
    assert_eq!(found[3].shown, ["out", "sandbox: h  # i"]);
    let message = lines("    sandbox: h  # i\n    more\n");
    assert!(matches!(&message[..], [one] if one.is_message && one.shown == ["sandbox: h  # i", "more"]), "{message:?}");
}
