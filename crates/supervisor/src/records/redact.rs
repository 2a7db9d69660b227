//! A command line as it may stand in a log: without values that look like secrets, and short. What looks like one is `policy`'s.
//! Called by `log`.

use cofferdam_policy::secret_text::{REDACTED, is_scheme, names_secret, redacted};

/// Longest text, in characters.
const MOST: usize = 100;

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
