//! File names as a careless file system sees them. Owns folding of case and removal of characters that do not show;
//! it is for refusing (deny, protect), never for granting; and which characters those are. Called by `decide`, and by
//! whoever shows text.

use std::borrow::Cow;

/// Two names with the same fold may name the same file on a case-insensitive or normalising file system, and look
/// the same to a reader: `.GIT`, `.git` and `.g<ZERO WIDTH JOINER>it`.
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.is_ascii() {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(name.to_ascii_lowercase());
        }
        return Cow::Borrowed(name);
    }
    // Upper case first: it joins letters that lower case keeps apart (LATIN SMALL LETTER LONG S becomes S).
    let visible = name.chars().filter(|c| !is_ignorable(*c));
    Cow::Owned(visible.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect())
}

/// Whether a character would draw on a screen, or hide on it, instead of being seen.
pub fn is_unseen(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_ignorable(c)
}

/// Unicode's `Default_Ignorable_Code_Point`.
fn is_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}
