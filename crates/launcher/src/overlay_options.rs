//! Reads back which options the kernel gave the overlays of a session. Owns the comparison with the plan's and the way the kernel
//! tells them: one that is its default is not shown. Called by `apply`, once the new root stands; a difference ends the launch.

use std::path::PathBuf;

use cofferdam_kernel::proc::Proc;
use cofferdam_plan::OVERLAY_OPTIONS;
use rustix::io::Errno;

use crate::report::{About as _, StepError};

/// No more of the table is read.
const MOST_BYTES: usize = 16 << 20;

/// An overlay, by the number of its mount.
pub(crate) struct MadeOverlay {
    pub(crate) mount: u64,
    pub(crate) over: PathBuf,
}

/// What the kernel does where an option is not given; `None` where it does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Defaults {
    redirect_dir: Option<&'static str>,
    metacopy: Option<&'static str>,
    index: Option<&'static str>,
}

impl Defaults {
    /// Before the root is changed: the host's /sys is needed.
    pub(crate) fn read() -> Self {
        let is_on = |name: &str| {
            let read = std::fs::read_to_string(format!("/sys/module/overlay/parameters/{name}"));
            read.ok().map(|value| value.trim() == "Y")
        };
        let word = |is_on: bool| if is_on { "on" } else { "off" };
        let redirect_dir = match (is_on("redirect_dir"), is_on("redirect_always_follow")) {
            (Some(true), _) => Some("on"),
            (Some(false), Some(true)) => Some("follow"),
            (Some(false), Some(false)) => Some("nofollow"),
            _ => None,
        };
        Defaults { redirect_dir, metacopy: is_on("metacopy").map(word), index: is_on("index").map(word) }
    }

    /// Numbers of inodes are a matter of layers on several file systems, and not told where there is one.
    fn of(self, option: &str) -> Option<&'static str> {
        match option {
            "redirect_dir" => self.redirect_dir,
            "metacopy" => self.metacopy,
            "index" => self.index,
            _ => None,
        }
    }
}

pub(crate) fn check(made: &[MadeOverlay], defaults: Defaults) -> Result<(), StepError> {
    if made.is_empty() {
        return Ok(());
    }
    let about = || "the table of mounts".to_owned();
    let table = Proc::open().and_then(|proc| proc.read_whole("self/mountinfo", MOST_BYTES));
    let table = table.map_err(|_| Errno::IO).and_then(|table| table.ok_or(Errno::FBIG)).about(about)?;
    let table = String::from_utf8_lossy(&table);
    for overlay in made {
        if let Some(difference) = difference(options_of(&table, overlay.mount), defaults) {
            let text = format!("an overlay on {}, which the kernel made {difference}", overlay.over.display());
            return Err(StepError::new(text, Errno::INVAL));
        }
    }
    Ok(())
}

/// Those of the file system: a line is `number ... - type source options`. Of a mount that is not listed there are none, which
/// differs from every plan.
fn options_of(table: &str, mount: u64) -> &str {
    let number = mount.to_string();
    let line = table.lines().find(|line| line.split(' ').next() == Some(&number));
    let options = line.and_then(|line| line.split_once(" - ")).and_then(|(_, rest)| rest.splitn(3, ' ').nth(2));
    options.unwrap_or_default()
}

/// The first option that is not as planned.
fn difference(options: &str, defaults: Defaults) -> Option<String> {
    for (option, wanted) in OVERLAY_OPTIONS {
        let shown = options.split(',').find_map(|one| match one.split_once('=') {
            // As newer kernels have it.
            Some(("fsync", "volatile")) => (*option == "volatile").then_some(""),
            Some((name, value)) => (name == *option).then_some(value),
            None => (one == *option).then_some(""),
        });
        if wanted.is_empty() && shown.is_none() {
            return Some(format!("without {option}"));
        }
        if let Some(value) = shown.or_else(|| defaults.of(option)).filter(|value| value != wanted) {
            return Some(format!("with {option}={value} instead of {wanted}"));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                         310 30 0:60 / /p rw,nosuid - overlay none rw,lowerdir=/x,userxattr,volatile,redirect_dir=nofollow\n";
    const USUAL: Defaults = Defaults { redirect_dir: Some("follow"), metacopy: Some("off"), index: Some("off") };

    #[test]
    fn what_the_kernel_made_of_an_overlay_is_compared_with_the_plan() {
        let options = options_of(TABLE, 310);
        assert_eq!(difference(options, USUAL), None);
        assert_eq!(
            difference(options, Defaults::default()),
            None,
            "what is not told was accepted when it was asked for"
        );
        let told = |options: &str, defaults| difference(options, defaults).unwrap_or_default();
        assert_eq!(told("rw,userxattr,redirect_dir=nofollow", USUAL), "without volatile");
        assert_eq!(told("rw,volatile,redirect_dir=nofollow", USUAL), "without userxattr");
        assert_eq!(told("userxattr,volatile", USUAL), "with redirect_dir=follow instead of nofollow");
        assert_eq!(difference("rw,userxattr,redirect_dir=nofollow,fsync=volatile", USUAL), None);
        assert_eq!(told("rw,userxattr,redirect_dir=nofollow,fsync=strict", USUAL), "without volatile");
        let usual = "userxattr,volatile,redirect_dir=nofollow";
        assert_eq!(told(&format!("{usual},metacopy=on"), USUAL), "with metacopy=on instead of off");
        assert_eq!(told(usual, Defaults { index: Some("on"), ..USUAL }), "with index=on instead of off");
        assert_eq!(told(&format!("{usual},xino=auto"), USUAL), "with xino=auto instead of off");
    }

    #[test]
    fn an_overlay_that_is_not_listed_is_not_as_planned() {
        for mount in [31, 3, 30] {
            assert_eq!(difference(options_of(TABLE, mount), USUAL).as_deref(), Some("without userxattr"), "{mount}");
        }
    }
}
