//! A connection to the loopback where nothing listens inside, while a service of this machine listens at that port outside. Owns
//! the guess which port was meant: from the command line and the variables, and only for the operator, at the end; the
//! workload learns nothing of what listens here. Called by `denials` for a command that failed.

use std::path::Path;

use cofferdam_host::preparation::Prepared;
use cofferdam_kernel::file::read_text;
use cofferdam_policy::Isolation;
use cofferdam_wire::Unrouted;

/// Where clients connect to without being told.
const USUAL: [(&str, u16); 8] = [
    ("psql", 5432),
    ("pg_dump", 5432),
    ("createdb", 5432),
    ("mysql", 3306),
    ("mariadb", 3306),
    ("redis-cli", 6379),
    ("mongosh", 27017),
    ("docker", 2375),
];

pub(crate) fn line(prepared: &Prepared, unrouted: Unrouted) -> Option<String> {
    let policy = &prepared.known.policy;
    if unrouted.refused == 0 || policy.isolation.value != Isolation::Full {
        return None;
    }
    let listened = listened_to();
    let is_given = |port: &u16| policy.network.host_ports.iter().any(|given| given.value == *port);
    let command = &prepared.plan.command;
    let port = meant(&command.argv, &command.environment)
        .into_iter()
        .find(|port| listened.contains(port) && !is_given(port))?;
    Some(format!("port {port} of this machine is not the session's; to reach it: --host-port {port}"))
}

/// Ports that the command line or a variable names, and those of programs that it names.
fn meant(argv: &[String], environment: &[(String, String)]) -> Vec<u16> {
    let separators = |c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c);
    let words = || argv.iter().flat_map(|argument| argument.split(separators));
    let variables = environment.iter().filter(|(name, _)| name.ends_with("PORT")).map(|(_, value)| value.as_str());
    let numbers = words().chain(variables).filter_map(|word| word.trim_start_matches("-p").parse().ok());
    let usual = words().filter_map(|word| USUAL.iter().find(|(program, _)| *program == word).map(|(_, port)| *port));
    numbers.chain(usual).filter(|port| *port != 0).collect()
}

/// Of this machine's loopback, as the kernel lists them.
fn listened_to() -> Vec<u16> {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
    let texts = tables.iter().filter_map(|table| read_text(Path::new(table), 1 << 22).ok());
    texts.flat_map(|text| text.lines().filter_map(listening).collect::<Vec<u16>>()).collect()
}

fn listening(line: &str) -> Option<u16> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next()?, fields.nth(1)?);
    let (address, port) = local.rsplit_once(':')?;
    let of_loopback = ["0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"];
    let is_reached = of_loopback.contains(&address) || address.bytes().all(|byte| byte == b'0');
    (state == LISTEN && is_reached).then(|| u16::from_str_radix(port, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::{listening, meant};

    #[test]
    fn ports_are_read_from_the_command_line_and_from_the_kernels_table() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let variables = [("PGPORT".to_owned(), "5433".to_owned()), ("N".to_owned(), "7".to_owned())];
        assert_eq!(meant(&words("curl http://127.0.0.1:8080/x"), &[]), [8080]);
        assert_eq!(meant(&words("psql -h localhost"), &variables), [5433, 5432]);
        assert_eq!(meant(&words("psql -p5434"), &[]), [5434, 5432]);
        let line =
            |local: &str, state: &str| format!("   0: {local} 00000000:0000 {state} 00000000:00000000 00:0 0 0 0 1");
        assert_eq!(listening(&line("0100007F:1538", "0A")), Some(5432));
        assert_eq!(listening(&line("00000000:1538", "0A")), Some(5432));
        assert_eq!(listening(&line("0100007F:1538", "01")), None, "a connection");
        assert_eq!(listening(&line("0500000A:1538", "0A")), None, "another address of the machine");
        assert_eq!(listening("  sl  local_address rem_address   st"), None);
    }
}
