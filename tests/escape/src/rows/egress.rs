//! Where rows about the network take place: an internet of their own, with a host that is allowed, one that is not, and
//! listeners that count. Owns the stage and the judgement of what was said; the rows are in the files beside it.
//!
//! With the control off, what was refused has to get through: by an edit of the rules, or without a sandbox, where a proxy
//! that checks nothing stands at the proxy's address.

use std::fs;
use std::net::SocketAddr;

use cofferdam_plan::LaunchPlan;
use cofferdam_policy::{Endpoint, NetworkMode, NetworkRule, Origin, Policy, Ruled};
use cofferdam_testkit::World;
use cofferdam_testkit::world::{Answer, Dns, lacks};

use super::launch::is_variant;
use crate::row::{Finding, Off, Trial, Walls};
use crate::talk::{self, PROXY, Talk, Way};

/// Allowed in most rows, with a web server at port 80.
pub(super) const GOOD: &str = "93.184.216.34";
/// Allowed too, and says again what it is told.
pub(super) const ECHO: &str = "93.184.216.35";
/// What no rule allows.
pub(super) const BAD: &str = "93.184.216.36";
/// What a machine keeps to itself.
pub(super) const PRIVATE: &str = "10.0.0.1:80";
const RESOLVER: &str = "93.184.216.1:53";

/// What a connection that was caught and not carried looks like.
pub(super) const SHUT: &[&str] = &["closed", "ECONNREFUSED", "ENETUNREACH", "EHOSTUNREACH", "unknown"];
pub(super) const DENIED: &[&str] = &["403"];
pub(super) const MALFORMED: &[&str] = &["400"];

/// One conversation, and what has to come of it.
pub(super) struct Attempt {
    talk: Talk,
    must: Must,
}

enum Must {
    /// One of these, and with the control off it gets through.
    Fail(&'static [&'static str]),
    /// One of these, whatever is off: more than one control is in its way, or it is only there to be counted.
    End(&'static [&'static str]),
    /// Else a refusal proves nothing.
    Work,
}

impl Attempt {
    pub(super) fn fails(way: Way, parts: Vec<Vec<u8>>, as_one_of: &'static [&'static str]) -> Attempt {
        Attempt { talk: Talk { way, parts }, must: Must::Fail(as_one_of) }
    }

    pub(super) fn ends(way: Way, parts: Vec<Vec<u8>>, as_one_of: &'static [&'static str]) -> Attempt {
        Attempt { talk: Talk { way, parts }, must: Must::End(as_one_of) }
    }

    pub(super) fn works(way: Way, parts: Vec<Vec<u8>>) -> Attempt {
        Attempt { talk: Talk { way, parts }, must: Must::Work }
    }
}

/// A request for a tunnel.
pub(super) fn connect(authority: &str) -> Vec<Vec<u8>> {
    vec![format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").into_bytes()]
}

/// A request for a page, as a proxy gets it.
pub(super) fn get(url: &str) -> Vec<Vec<u8>> {
    let host = url.split('/').nth(2).unwrap_or_default();
    vec![format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes()]
}

/// A request as a server gets it.
pub(super) fn request(method: &str, path: &str, host: &str) -> Vec<Vec<u8>> {
    vec![format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\ncontent-length: 0\r\n\r\n").into_bytes()]
}

pub(super) fn raw(text: &str) -> Vec<Vec<u8>> {
    vec![text.as_bytes().to_vec()]
}

pub(super) fn at(address: &str) -> Way {
    let parsed: Result<SocketAddr, _> = address.parse();
    Way::Address(parsed.unwrap_or_else(|_| panic!("`{address}` is no address with a port")))
}

pub(super) fn name(name: &str) -> Way {
    Way::Name(name.to_owned())
}

fn rule(endpoint: &str) -> NetworkRule {
    let parsed = Endpoint::parse(endpoint).unwrap_or_else(|error| panic!("`{endpoint}`: {error}"));
    NetworkRule::whole(parsed, Origin::flag("--allow-host"))
}

/// A session whose names are the world's, and which reaches these.
pub(crate) fn allow(policy: &mut Policy, hosts: &[&str]) {
    let network = &mut policy.network;
    network.mode = Ruled::new(NetworkMode::Egress, Origin::flag("--network"));
    network.resolvers = RESOLVER.parse().ok().map(|at| Ruled::new(at, Origin::flag("--test"))).into_iter().collect();
    network.queries_per_second.value = 10_000;
    network.allow.extend(hosts.iter().map(|host| rule(host)));
}

/// The host `good.test`, for these requests only.
pub(super) fn allow_requests(policy: &mut Policy, methods: &[&str], paths: &[&str]) {
    allow(policy, &[]);
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    policy.network.allow.push(NetworkRule { methods: owned(methods), paths: owned(paths), ..rule("good.test") });
}

/// Control off: these can be reached as well.
pub(super) fn also_allow(plan: &mut LaunchPlan, hosts: &[&str]) {
    if let Some(egress) = &mut plan.egress {
        egress.network.allow.extend(hosts.iter().map(|host| rule(host)));
    }
}

/// Without nftables where the variant says so.
pub(super) fn arrange(plan: &mut LaunchPlan) {
    if let Some(egress) = &mut plan.egress {
        egress.by_filter = !is_variant("ports");
    }
}

/// A world with the usual hosts. The error is the finding of the row.
pub(super) fn world(trial: &Trial) -> Result<World, Finding> {
    if let Some(reason) = lacks(&["unshare", "nsenter", "ip", "setpriv"]) {
        return Err(Finding::Skipped(reason));
    }
    let world = World::start().map_err(|error| Finding::Broken(format!("no world: {error}")))?;
    world.http(&format!("{GOOD}:80"));
    world.http(&format!("{BAD}:80"));
    for place in [GOOD, ECHO, BAD] {
        world.listener(&format!("{place}:443"));
    }
    world.listener(&format!("{ECHO}:80"));
    if trial.walls == Walls::Open && matches!(trial.row.off, Off::Bare) {
        world.credulous_proxy(PROXY);
    }
    Ok(world)
}

/// Its name server, which knows the usual hosts.
pub(super) fn names(world: &World) -> Dns<'_> {
    let dns = world.dns();
    for (name, address) in [("good.test", GOOD), ("echo.test", ECHO), ("bad.test", BAD)] {
        dns.name(name, Answer::addresses([address]));
    }
    dns
}

/// Says everything in a session inside the world. No server may be dialled at `guarded` but with the control off.
pub(super) fn talks(trial: &Trial, world: &World, attempts: &[Attempt], guarded: &[&str]) -> Finding {
    talks_as(trial, world, attempts, guarded, &[])
}

fn talks_as(
    trial: &Trial,
    world: &World,
    attempts: &[Attempt],
    guarded: &[&str],
    environment: &[(&str, &str)],
) -> Finding {
    trial.scene.list("talks", attempts.iter().map(|attempt| attempt.talk.to_line()));
    let said = trial.answer(&trial.launch_behind(&world.entering(), "talk", environment));
    let Finding::Contained(_) = said else { return said };
    let outcomes = fs::read_to_string(trial.project().join("outcomes")).unwrap_or_default();
    let outcomes: Vec<&str> = outcomes.lines().collect();
    if outcomes.len() != attempts.len() {
        return Finding::Broken(format!("{} outcomes of {} attempts", outcomes.len(), attempts.len()));
    }
    let mut through = Vec::new();
    for (attempt, outcome) in attempts.iter().zip(&outcomes) {
        if let Err(why) = judged(trial.walls, attempt, outcome) {
            let what = format!("{:?} {}", attempt.talk.way, words_of(&attempt.talk));
            let text = format!("{what}: {outcome} ({why})");
            if why == THROUGH && trial.walls == Walls::Standing {
                return Finding::Open(text);
            }
            return Finding::Broken(text);
        }
        through.extend(talk::is_through(outcome).then_some(*outcome));
    }
    for place in guarded {
        let count = world.dials(place).len();
        match (trial.walls, count) {
            (Walls::Standing, 0) | (Walls::Open, 1..) => {}
            (Walls::Standing, count) => return Finding::Open(format!("{count} connections reached {place}")),
            (Walls::Open, 0) => return Finding::Broken(format!("nobody reached {place} with the control off")),
        }
    }
    if trial.walls == Walls::Open {
        return Finding::Open(format!("{} of {} got through", through.len(), attempts.len()));
    }
    let mut words: Vec<&str> = outcomes.iter().map(|outcome| outcome.split(' ').next().unwrap_or_default()).collect();
    words.sort_unstable();
    words.dedup();
    let dials = if guarded.is_empty() { "" } else { ", 0 dials" };
    Finding::Contained(format!("{} attempts: {}{dials}", attempts.len(), words.join(", ")))
}

const THROUGH: &str = "it got through";

fn judged(walls: Walls, attempt: &Attempt, outcome: &str) -> Result<(), &'static str> {
    let is_one_of = |expected: &[&str]| expected.iter().any(|expected| talk::is(outcome, expected));
    match (&attempt.must, walls) {
        (Must::Work, _) | (Must::Fail(_), Walls::Open) if talk::is_through(outcome) => Ok(()),
        (Must::Work, _) => Err("it should work"),
        (Must::Fail(_), Walls::Open) => Err("it is refused with the control off too"),
        (Must::Fail(expected), Walls::Standing) | (Must::End(expected), _) if is_one_of(expected) => Ok(()),
        _ if talk::is_through(outcome) => Err(THROUGH),
        _ => Err("it is refused in another way"),
    }
}

fn words_of(talk: &Talk) -> String {
    let first = talk.parts.first().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    first.lines().next().unwrap_or_default().escape_debug().to_string()
}

/// Once for each way to catch connections, in a world of its own; with the walls open once.
pub(super) fn each_capture(trial: &Trial, make: impl Fn(&World, Dns<'_>) -> Vec<Attempt>, guarded: &[&str]) -> Finding {
    let once = |variant: &str| match world(trial) {
        Err(finding) => finding,
        Ok(world) => {
            let attempts = make(&world, names(&world));
            match talks_as(trial, &world, &attempts, guarded, &[("COFFERDAM_TEST_VARIANT", variant)]) {
                Finding::Contained(how) => Finding::Contained(format!("{variant}: {how}")),
                Finding::Open(how) => Finding::Open(format!("{variant}: {how}")),
                other => other,
            }
        }
    };
    if trial.walls == Walls::Open { once("filter") } else { once("filter").and_then(|| once("ports")) }
}

/// The usual row: a world, something more in it, attempts.
pub(super) fn in_world(trial: &Trial, make: impl Fn(&World, Dns<'_>) -> Vec<Attempt>, guarded: &[&str]) -> Finding {
    match world(trial) {
        Err(finding) => finding,
        Ok(world) => {
            let attempts = make(&world, names(&world));
            talks(trial, &world, &attempts, guarded)
        }
    }
}
