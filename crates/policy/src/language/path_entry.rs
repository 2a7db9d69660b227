//! A path with its remarks, as a list in a policy file has it. Owns that notation for writing; reading it is
//! `format::values`'. Called by `types::network_part` and `format::draft`.

/// A path as a list of a file has it.
pub(crate) fn path_entry(path: &str, optional: bool, reason: &str, quote: fn(&str) -> String) -> String {
    if !optional && reason.is_empty() {
        return quote(path);
    }
    let mut fields = vec![format!("path = {}", quote(path))];
    if optional {
        fields.push("optional = true".to_owned());
    }
    if !reason.is_empty() {
        fields.push(format!("reason = {}", quote(reason)));
    }
    format!("{{ {} }}", fields.join(", "))
}
