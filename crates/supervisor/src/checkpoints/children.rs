//! What the children of a session's commands have used, by which it shows that one of them has ended. Owns the reading of it; what
//! follows from a difference is `checkpoints`'s.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::halt::{numbers, read, unless_gone};

/// A command of the session, and what its children that ended have used: it changes with each of them.
pub(super) type ChildUse = (u32, [u64; 4]);

/// Of every command of the session: a process that pid 1 or a process outside has started. Also how many processes there are.
pub(super) fn used_by_children(processes: BorrowedFd<'_>) -> Result<(Vec<ChildUse>, usize), Errno> {
    let all = numbers(processes, c".")?;
    let mut used = Vec::new();
    for pid in all.iter().copied().filter(|pid| *pid != 1) {
        let Some(stat) = unless_gone(read(processes, &format!("{pid}/stat")))? else { continue };
        used.extend(child_use(pid, &String::from_utf8_lossy(&stat)));
    }
    Ok((used, all.len()))
}

/// By proc(5): after the name in parentheses the parent is the second field; what children that were waited for have used are the
/// faults in the ninth and eleventh and the times in the fourteenth and fifteenth.
fn child_use(pid: u32, stat: &str) -> Option<ChildUse> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let is_command = matches!(number(1)?, 0 | 1);
    is_command.then_some((pid, [number(8)?, number(10)?, number(13)?, number(14)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_of_the_session_are_looked_at_and_their_names_may_be_anything() {
        let of = |parent: u32| format!("7 (a) b) (c) S {parent} 7 7 0 -1 4194304 100 11 1 12 5 6 13 14 20 0 1 0 0");
        assert_eq!(child_use(7, &of(1)), Some((7, [11, 12, 13, 14])));
        assert_eq!(child_use(7, &of(0)), Some((7, [11, 12, 13, 14])));
        assert_eq!(child_use(7, &of(2)), None);
    }
}
