//! The user's inotify instances: a session takes one for its keeper, and most machines give a user 128. Owns raising that
//! limit for as long as a crowd needs more, and setting it back. Called by `runs` and `orders`.

use std::fs;
use std::io::{Error, Result};

const LIMIT: &str = "/proc/sys/fs/inotify/max_user_instances";

/// What other programs of the user may hold meanwhile, and instances that the kernel has yet to free.
const OTHERS: usize = 64;

/// The limit as it was, where it was raised.
#[derive(Debug)]
pub(crate) struct Raised(Option<String>);

impl Raised {
    pub(crate) fn for_sessions(count: usize) -> Result<Raised> {
        let before = fs::read_to_string(LIMIT)?;
        let wanted = count + OTHERS;
        if before.trim().parse::<usize>().is_ok_and(|limit| limit >= wanted) {
            return Ok(Raised(None));
        }
        fs::write(LIMIT, wanted.to_string()).map_err(|e| {
            Error::new(e.kind(), format!("{count} sessions at once need fs.inotify.max_user_instances={wanted}: {e}"))
        })?;
        println!("fs.inotify.max_user_instances: {} raised to {wanted} for {count} sessions at once", before.trim());
        Ok(Raised(Some(before)))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let Some(before) = &self.0 else { return };
        if let Err(error) = fs::write(LIMIT, before) {
            eprintln!("cannot set fs.inotify.max_user_instances back to {}: {error}", before.trim());
        }
    }
}
