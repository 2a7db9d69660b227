//! File names as a careless file system sees them. Owns folding of case, composition and characters that do not show;
//! it is for refusing (deny, protect), never for granting; and which characters those are. Called by `decide` and by
//! modules that show text.

use std::borrow::Cow;

use icu_normalizer::DecomposingNormalizerBorrowed;

use crate::language::path::wildcard;

/// Two names with the same fold may name the same file on a case-insensitive or normalising file system, and look
/// the same to a reader: `.GIT`, `.git` and `.g<ZERO WIDTH JOINER>it`.
pub fn folded(name: &str) -> Cow<'_, str> {
    if name.is_ascii() {
        if name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Cow::Owned(name.to_ascii_lowercase());
        }
        return Cow::Borrowed(name);
    }
    Cow::Owned(folded_chars(name).collect())
}

fn folded_chars(name: &str) -> impl Iterator<Item = char> {
    let visible = name.chars().filter(|c| !is_ignorable(*c));
    // Upper case first: it joins letters that lower case keeps apart (LATIN SMALL LETTER LONG S becomes S).
    let lower = visible.flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    DecomposingNormalizerBorrowed::new_nfd().normalize_iter(lower)
}

/// The fold of a name or a whole path, byte by byte and without a copy. What is no text stands for itself.
fn folded_bytes(name: &[u8]) -> impl Iterator<Item = u8> {
    name.utf8_chunks().flat_map(|chunk| {
        let text = folded_chars(chunk.valid()).flat_map(|c| {
            let mut bytes = [0; 4];
            let length = c.encode_utf8(&mut bytes).len();
            bytes.into_iter().take(length)
        });
        text.chain(chunk.invalid().iter().copied())
    })
}

/// Whether two names, or two whole paths, have the same fold.
pub fn folds_alike(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b) || !(a.is_ascii() && b.is_ascii()) && folded_bytes(a).eq(folded_bytes(b))
}

/// FNV-1a over the fold of `name`, going on from the hash of what comes before it: names that fold alike have one hash.
pub fn fold_hash(before: u64, name: &[u8]) -> u64 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    if name.is_ascii() {
        return name.iter().fold(before, |hash, byte| add(hash, byte.to_ascii_lowercase()));
    }
    folded_bytes(name).fold(before, add)
}

/// The hash of nothing.
pub(crate) const EMPTY_HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// Whether the fold of `name` matches the fold of `pattern`.
pub(crate) fn folded_matches(pattern: &[u8], name: &[u8]) -> bool {
    if pattern.is_ascii() && name.is_ascii() {
        return wildcard(pattern, name, |a, b| a.eq_ignore_ascii_case(&b));
    }
    let (pattern, name): (Vec<u8>, Vec<u8>) = (folded_bytes(pattern).collect(), folded_bytes(name).collect());
    wildcard(&pattern, &name, |a, b| a == b)
}

/// Whether `path` is `ancestor` or lies below it when both are folded, component by component. Both absolute.
pub fn folds_at_or_below(path: &[u8], ancestor: &[u8]) -> bool {
    let ancestor = ancestor.strip_suffix(b"/").unwrap_or(ancestor);
    if path.is_ascii() && ancestor.is_ascii() {
        let Some((same, rest)) = path.split_at_checked(ancestor.len()) else { return false };
        return (rest.is_empty() || rest[0] == b'/') && same.eq_ignore_ascii_case(ancestor);
    }
    let mut names = path.split(|byte| *byte == b'/');
    ancestor.split(|byte| *byte == b'/').all(|above| names.next().is_some_and(|name| folds_alike(above, name)))
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
