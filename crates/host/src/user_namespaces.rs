//! Which switch of this host keeps user namespaces away from this user. Owns reading the switches; what to do about them is the
//! caller's to say. Called by `doctor` and where a namespace could not be made.

/// What the kernel's settings say, the first that applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// None may be made on this host.
    Limit,
    /// A kernel of Debian: only root may make one.
    UnprivilegedClone,
    /// Only programs with a profile may use one.
    AppArmor,
    /// This process runs under this AppArmor profile, which says what it may do.
    Profile(String),
    /// No switch that is known: a container's filter, or a kernel without them.
    Unknown,
}

pub fn obstacle() -> Obstacle {
    if setting("user/max_user_namespaces").as_deref() == Some("0") {
        Obstacle::Limit
    } else if setting("kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        Obstacle::UnprivilegedClone
    } else if apparmor_restriction().as_deref() == Some("1") {
        Obstacle::AppArmor
    } else {
        apparmor_profile().map_or(Obstacle::Unknown, Obstacle::Profile)
    }
}

/// The AppArmor profile that confines this process, where one does.
pub fn apparmor_profile() -> Option<String> {
    confining(&std::fs::read_to_string("/proc/self/attr/apparmor/current").ok()?)
}

/// `NAME (MODE)`, or `unconfined`. A profile in one of these modes refuses nothing.
fn confining(label: &str) -> Option<String> {
    let (name, mode) = label.trim_end().rsplit_once(" (")?;
    (!matches!(mode, "unconfined)" | "complain)")).then(|| name.to_owned())
}

/// AppArmor's switch, where the kernel has it.
pub fn apparmor_restriction() -> Option<String> {
    setting("kernel/apparmor_restrict_unprivileged_userns")
}

fn setting(name: &str) -> Option<String> {
    // Files of procfs have no size, and only the kernel puts anything there.
    std::fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::confining;

    #[test]
    fn a_label_confines_when_its_profile_is_enforced() {
        assert_eq!(confining("a shell (of mine) (enforce)\n").as_deref(), Some("a shell (of mine)"));
        assert_eq!(confining("unconfined\n"), None);
        assert_eq!(confining("cofferdam (unconfined)\n"), None);
        assert_eq!(confining("tried (complain)\n"), None);
    }
}
