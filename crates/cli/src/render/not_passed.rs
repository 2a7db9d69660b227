//! Variables that were set outside and did not come along. Owns which names are worth a word: a program can want them, and no
//! rule says that they hold secrets or load code. Called by `denials` for a command that failed.

use cofferdam_host::preparation::Prepared;

use crate::environment::environment;

/// It holds a password often enough to stay out, and is what a server that fails wanted most often: its name is told.
const ADDRESS: &str = "DATABASE_URL";

/// Named one by one.
const MOST_NAMED: usize = 5;

/// Of desktops, terminals, logins and this command: beginnings of names that nearly every session has outside.
const OF_SURROUNDINGS: [&str; 46] = [
    "ALACRITTY_",
    "COFFERDAM",
    "DBUS_",
    "DESKTOP_",
    "DISPLAY",
    "GDM",
    "GHOSTTY_",
    "GNOME_",
    "GPG_",
    "GTK_",
    "HIST",
    "ICEAUTHORITY",
    "IM_CONFIG_",
    "INVOCATION_ID",
    "ITERM_",
    "JOURNAL_STREAM",
    "KDE_",
    "KITTY_",
    "KONSOLE_",
    "LESS",
    "LOGIN",
    "LS_",
    "MAIL",
    "MANAGERPID",
    "MEMORY_PRESSURE_",
    "MOTD_",
    "NOTIFY_SOCKET",
    "PROMPT",
    "PS1",
    "QT_",
    "SESSION_MANAGER",
    "SSH_",
    "STY",
    "SUDO_",
    "SYSTEMD_",
    "TERM",
    "TMUX",
    "USERNAME",
    "VTE_",
    "WAYLAND_",
    "WEZTERM_",
    "WINDOW",
    "WSL",
    "WT_",
    "XAUTHORITY",
    "XDG_",
];

pub(crate) fn line(prepared: &Prepared) -> Option<String> {
    let env = &prepared.known.policy.env;
    let inside = &prepared.plan.command.environment;
    let names = environment().into_iter().map(|(name, _)| name);
    let is_plain = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_wanted = |name: &String| {
        !inside.iter().any(|(passed, _)| passed == name)
            && !env.lets_through(name)
            && (env.blocked_by(name).is_none() || name == ADDRESS)
            && name != "_"
            && !OF_SURROUNDINGS.iter().any(|begin| name.starts_with(begin))
    };
    told(names.filter(is_plain).filter(is_wanted).collect())
}

fn told(mut names: Vec<String>) -> Option<String> {
    names.sort();
    let first = names.first()?.clone();
    let more = names.len().saturating_sub(MOST_NAMED);
    names.truncate(MOST_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("not passed: {}{more}; to pass one: --env {first}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::told;

    #[test]
    fn it_is_one_line_however_many_there_are() {
        assert_eq!(told(Vec::new()), None);
        let line = told(vec!["PORT_A".to_owned(), "DATABASE_URL".to_owned()]);
        assert_eq!(line.as_deref(), Some("not passed: DATABASE_URL, PORT_A; to pass one: --env DATABASE_URL"));
        let line = told((0..40).map(|n| format!("V{n:02}")).collect());
        assert_eq!(line.as_deref(), Some("not passed: V00, V01, V02, V03, V04 and 35 more; to pass one: --env V00"));
    }
}
