//! `sandbox supervise --order-fd N`: one session as its order says it, in a process of its own. Owns reading the order, standing where it
//! was given, and the last word to its client; the session is `supervisor`'s. Started by `run --detach` and other clients, typed
//! by no person.

use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_host::names::Name;
use cofferdam_host::preparation::prepare_start;
use cofferdam_kernel::process;
use cofferdam_kernel::timing::time_until;
use cofferdam_supervisor::{Options, Ordered};
use cofferdam_wire::order::{MOST_ORDER_BYTES, Order};
use cofferdam_wire::protocol::{Event, line};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::termios::isatty;
use serde_json::Value;

use crate::args::run::SuperviseArgs;
use crate::commands::run::{RunError, options};
use crate::failure::Failure;
use crate::failure::not_run::recorded;
use crate::render::exit::OUR_FAILURE;
use crate::render::output::{escaped, say};
use crate::render::report;
use crate::render::session_end::{code_of, waiting_counts};

/// For a client that does not read.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) fn supervise(args: &SuperviseArgs) -> ExitCode {
    let (client, order) = match taken(args.order_fd) {
        Ok(taken) => taken,
        Err(why) => {
            say!("error: no order: {}", escaped(&why));
            return ExitCode::from(OUR_FAILURE);
        }
    };
    let argv = order.exec.as_ref().map(|exec| exec.argv.clone()).unwrap_or_default();
    let (report, code) = match carry_out(order, &client) {
        Ok(ended) => ended,
        Err(error) => {
            let failure = Failure::from(error);
            (recorded(&failure, &argv), failure.code())
        }
    };
    tell(&client, &Event::Report { report });
    ExitCode::from(code)
}

fn carry_out(order: Order, client: &Rc<OwnedFd>) -> Result<(Value, u8), RunError> {
    let ordered = Ordered {
        client: Rc::clone(client),
        exec: order.exec.clone(),
        lifetime: order.lifetime,
        kept_bytes: order.kept_bytes,
    };
    let name = order.chosen.name.clone();
    let prepared = prepare_start(order, false)?;
    let name = name.map(|name| Name::claim(&prepared.around.state, &name)).transpose()?;
    let options = Options { name: name.as_ref().map(Name::text), ordered: Some(ordered), ..options(&prepared)? };
    let outcome = cofferdam_supervisor::run(&prepared.plan, &options)?;
    let code = code_of(&outcome);
    Ok((report::ended(&prepared, &outcome, code, waiting_counts(&outcome).as_ref()), code))
}

/// The order, and this process where and as it was given: in its directory, with its variables and no others, away from the
/// terminal of who gave it, and with no descriptor of theirs.
fn taken(number: i32) -> Result<(Rc<OwnedFd>, Order), String> {
    let client = process::inherited(number).map_err(|errno| format!("descriptor {number}: {errno}"))?;
    process::keep_only(&[client.as_fd()])
        .and_then(|()| leave_streams())
        .map_err(|errno| format!("descriptors: {errno}"))?;
    let order = read(&client).and_then(|document| Order::parse(&document));
    let order = order.inspect_err(|why| tell(&client, &Event::Refused { message: format!("the order: {why}") }))?;
    match rustix::process::setsid() {
        // It leads one already.
        Ok(_) | Err(Errno::PERM) => {}
        Err(errno) => return Err(format!("a session of its own: {errno}")),
    }
    let cwd = order.cwd.as_deref().ok_or("no directory")?;
    rustix::process::chdir(cwd).map_err(|errno| format!("`{}`: {errno}", cwd.display())).inspect_err(|why| {
        tell(&client, &Event::Refused { message: format!("cannot enter {why}") });
    })?;
    process::replace_environment(&order.environment);
    Ok((Rc::new(client), order))
}

/// Whatever they were: a session with an order has no terminal, and no stream but those of its execs.
fn leave_streams() -> Result<(), Errno> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    if isatty(rustix::stdio::stderr()) { rustix::stdio::dup2_stderr(&null) } else { Ok(()) }
}

fn read(client: &OwnedFd) -> Result<Vec<u8>, String> {
    let mut document = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match rustix::io::read(client, buffer.as_mut_slice()) {
            Ok(0) => return Err("it has no end".to_owned()),
            Ok(count) => document.extend_from_slice(&buffer[..count]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
        if document.last() == Some(&b'\n') {
            return Ok(document);
        }
        if document.len() > MOST_ORDER_BYTES {
            return Err(format!("it is longer than {MOST_ORDER_BYTES} bytes"));
        }
    }
}

/// A client that is gone, or reads nothing, misses it.
fn tell(client: &OwnedFd, event: &Event) {
    let (line, until) = (line(event), Instant::now() + PATIENCE);
    let mut left = line.as_slice();
    while !left.is_empty() && Instant::now() < until {
        match rustix::net::send(client, left, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => left = &left[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut fds = [PollFd::new(client, PollFlags::OUT)];
                if poll(&mut fds, Some(&time_until(until))).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
