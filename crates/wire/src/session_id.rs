//! What a session is called: `<cell>-<uuid7>`. The cell says where it was placed; the UUID keeps the ids of all machines apart, and within
//! a cell they sort by start. Owns the parts of an id; `supervisor` makes ids, `supervisor` and `cli` show them.

/// The cell of a session that an operator started on this machine: no scheduler placed it.
pub const LOCAL_CELL: &str = "local";

/// What is shown to the operator instead of the whole id, and what the operator types: its last group, 48 random bits. The beginning
/// is the time, in which two sessions hardly differ.
#[must_use]
pub fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_group_stands_for_an_id() {
        assert_eq!(short("local-019a8f3c-2d10-7c3e-8a51-6b1f0e92d7c4"), "6b1f0e92d7c4");
        assert_eq!(short("last"), "last");
    }
}
