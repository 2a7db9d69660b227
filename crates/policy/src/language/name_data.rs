//! What only large tables can say about a name: its A-labels, and whether names below it can be registered. Owns the two
//! questions and nothing else; the build script leaves it out. Called by `endpoint`.

/// Top-level names that cannot be registered, kept for private use, documentation and tests.
const RESERVED: &[&str] = &["example", "internal", "invalid", "local", "localhost", "test"];

/// A name that is not ASCII, as the DNS has it.
pub(crate) fn to_ascii(name: &str) -> Option<String> {
    idna::domain_to_ascii_strict(name).ok()
}

/// Whether the A-labels of a name decode to what encodes to them again.
pub(crate) fn is_well_formed(name: &str) -> bool {
    let has_encoded = name.split('.').any(|label| label.starts_with("xn--"));
    !has_encoded || idna::domain_to_unicode(name).1.is_ok()
}

/// Whether different owners register names directly below this one: `com`, `co.uk`, `github.io`.
pub(crate) fn is_public_suffix(name: &str) -> bool {
    if RESERVED.contains(&name) {
        return false;
    }
    // The list has names in Unicode.
    let (unicode, _) = idna::domain_to_unicode(name);
    [name, unicode.as_str()].into_iter().any(|name| psl::suffix_str(name) == Some(name))
}
