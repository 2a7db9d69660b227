//! What a session is called: `<cell>-<uuid7>`, so that ids of many machines never meet and sort by start. Owns how people name one in
//! fewer letters; ids are made by `supervisor`.

/// The cell of a session that no fleet placed.
pub const LOCAL_CELL: &str = "local";

/// What a person types instead of the whole id: its last group, 48 random bits. The beginning is the time, and says little.
#[must_use]
pub fn short(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

/// Whether a person who says `name` can mean this session: by the beginning of its id or by the end.
#[must_use]
pub fn can_mean(name: &str, id: &str) -> bool {
    id.starts_with(name) || id.ends_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_named_by_either_end_of_its_id() {
        let id = "local-019a8f3c-2d10-7c3e-8a51-6b1f0e92d7c4";
        assert_eq!(short(id), "6b1f0e92d7c4");
        for (name, meant) in [("local-019a", true), (short(id), true), ("d7c4", true), (id, true), ("7c3e", false)] {
            assert_eq!(can_mean(name, id), meant, "{name}");
        }
    }
}
