//! The list of checks, once. Owns the order in which they are reported; each file holds those of one boundary.

mod calls;
mod files;
mod kernel_files;
mod limits;
mod processes;
mod session;
mod sockets;

use crate::spec::Spec;

pub(crate) fn all() -> impl Iterator<Item = &'static Spec> {
    let parts = [files::ALL, processes::ALL, sockets::ALL, calls::ALL, kernel_files::ALL, limits::ALL, session::ALL];
    parts.into_iter().flatten()
}

pub(crate) fn find(id: &str) -> Option<&'static Spec> {
    all().find(|spec| spec.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_check_has_an_id_of_its_own_and_says_what_it_is() {
        let ids: BTreeSet<&str> = all().map(|spec| spec.id).collect();
        assert_eq!(ids.len(), all().count());
        for spec in all() {
            let words = [spec.id, spec.title, spec.group, spec.wall, spec.probe];
            assert!(words.iter().all(|word| !word.is_empty()), "{spec:?}");
        }
    }
}
