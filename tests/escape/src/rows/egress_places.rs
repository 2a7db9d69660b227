//! Rows about where a connection ends: names that lead to private places, addresses that mean others, ports, relays.

use cofferdam_policy::Policy;
use cofferdam_testkit::World;
use cofferdam_testkit::world::{Answer, Dns};

use super::egress::{
    Attempt, BAD, DENIED, ECHO, GOOD, PRIVATE, SHUT, allow, also_allow, arrange, at, connect, each_capture, get,
    in_world, name, raw, request,
};
use crate::row::{Finding, Off, ROW, Row, Trial};
use crate::talk::{Way, hello};

const SAY: &str = "SSH-2.0-hello\r\n";

pub(crate) static G01: Row = Row {
    what: "direct connections and lookups, past any proxy",
    control: "an own network namespace in which everything leads to the broker",
    policy: |policy, _| allow(policy, &["good.test"]),
    arrange,
    run: |trial| {
        let bad = format!("{BAD}:80");
        let guarded = [PRIVATE, &bad, "[2606:2800:220:1::1]:80"];
        let make = |world: &World, _: Dns<'_>| {
            listen(world, &[PRIVATE, "[2606:2800:220:1::1]:80"]);
            let mut attempts: Vec<Attempt> =
                guarded.iter().map(|place| Attempt::fails(at(place), request("GET", "/", "x.test"), SHUT)).collect();
            attempts.push(Attempt::fails(Way::Lookup("bad.test".to_owned()), raw(""), &["nxdomain"]));
            attempts.push(Attempt::works(name("good.test:80"), get("http://good.test/")));
            attempts
        };
        each_capture(trial, make, &guarded)
    },
    ..ROW
};

fn listen(world: &World, places: &[&str]) {
    for place in places {
        world.listener(place);
    }
}

pub(crate) static G02: Row = Row {
    what: "an empty list of hosts taken for everything",
    control: "nothing listed is nothing allowed",
    policy: |policy, _| allow(policy, &[]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            vec![
                Attempt::fails(Way::Proxy, connect("good.test:443"), DENIED),
                Attempt::fails(Way::Proxy, get("http://good.test/"), DENIED),
                Attempt::fails(Way::Lookup("good.test".to_owned()), raw(""), &["nxdomain"]),
            ]
        };
        in_world(trial, make, &[&format!("{GOOD}:443")])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["good.test"])),
    ..ROW
};

pub(crate) static G03: Row = Row {
    what: "a name that leads elsewhere the second time",
    control: "resolved once for each connection; what was checked is what is dialled",
    policy: |policy, _| allow(policy, &["rebind.test"]),
    arrange,
    run: |trial| {
        let make = |world: &World, dns: Dns<'_>| {
            listen(world, &["10.0.0.1:443"]);
            let turns = ["10.0.0.1", ECHO].map(|address| Answer::addresses([address]).ttl(0));
            dns.turns("rebind.test", turns.to_vec());
            let either: &[&str] = &["403", "closed", "200", "echo"];
            let proxied = (0..24).map(|_| Attempt::ends(Way::Proxy, connect("rebind.test:443"), either));
            let greeting = || vec![hello(Some("rebind.test"))];
            let direct = (0..24).map(|_| Attempt::ends(name("rebind.test:443"), greeting(), either));
            proxied.chain(direct).collect()
        };
        each_capture(trial, make, &["10.0.0.1:443"])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["10.0.0.1"])),
    ..ROW
};

pub(crate) static G04: Row = Row {
    what: "a public address of one family, a private one of the other",
    control: "one bad address refuses all",
    policy: |policy, _| allow(policy, &["both.test", "other.test"]),
    run: |trial| {
        let make = |_: &World, dns: Dns<'_>| {
            dns.name("both.test", Answer::addresses([ECHO, "fd00::1"]));
            dns.name("other.test", Answer::addresses([ECHO, "10.0.0.1"]));
            vec![
                Attempt::fails(Way::Proxy, connect("both.test:80"), DENIED),
                Attempt::fails(Way::Proxy, connect("other.test:443"), DENIED),
                Attempt::fails(name("both.test:443"), vec![hello(Some("both.test"))], SHUT),
            ]
        };
        in_world(trial, make, &[&format!("{ECHO}:443")])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["[fd00::1]", "10.0.0.1"])),
    ..ROW
};

pub(crate) static G05: Row = Row {
    what: "an alias of a private name",
    control: "the addresses at the end of the chain are judged",
    policy: |policy, _| allow(policy, &["alias.test"]),
    run: |trial| {
        let make = |world: &World, dns: Dns<'_>| {
            listen(world, &["10.0.0.1:443"]);
            dns.name("alias.test", Answer::alias("between.test"));
            dns.name("between.test", Answer::alias("intern.corp.test"));
            dns.name("intern.corp.test", Answer::addresses(["10.0.0.1"]));
            vec![
                Attempt::fails(Way::Proxy, connect("alias.test:443"), DENIED),
                Attempt::fails(name("alias.test:443"), vec![hello(Some("alias.test"))], SHUT),
            ]
        };
        in_world(trial, make, &["10.0.0.1:443"])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["10.0.0.1"])),
    ..ROW
};

/// Names that lead to these addresses are allowed; the names and the addresses themselves are tried.
fn leading_to(trial: &Trial, addresses: &[&str]) -> Finding {
    let listeners: Vec<String> = addresses.iter().map(|address| with_port(dialled(address))).collect();
    let guarded: Vec<&str> = listeners.iter().map(String::as_str).collect();
    let make = |world: &World, dns: Dns<'_>| {
        let mut attempts = Vec::new();
        for (index, address) in addresses.iter().enumerate() {
            let leads = format!("n{index}.lead.test");
            dns.name(&leads, Answer::addresses([address]));
            attempts.push(Attempt::fails(Way::Proxy, connect(&format!("{leads}:80")), DENIED));
            attempts.push(Attempt::fails(Way::Proxy, connect(&with_port(address)), DENIED));
        }
        let mut once = guarded.clone();
        once.sort_unstable();
        once.dedup();
        listen(world, &once);
        attempts
    };
    in_world(trial, make, &guarded)
}

fn with_port(address: &str) -> String {
    if address.contains(':') { format!("[{address}]:80") } else { format!("{address}:80") }
}

/// Where the kernel goes.
fn dialled(address: &str) -> &str {
    match address {
        "0.0.0.0" => "127.0.0.1",
        "::" => "::1",
        other => other.strip_prefix("::ffff:").unwrap_or(other),
    }
}

fn names_that_lead(policy: &mut Policy) {
    allow(policy, &["*.lead.test"]);
}

pub(crate) static G06: Row = Row {
    what: "IPv4 written inside IPv6",
    control: "what is inside is judged as well",
    policy: |policy, _| names_that_lead(policy),
    run: |trial| {
        let nested = ["::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::1", "2001:0:a00:1::f5ff:fffe"];
        leading_to(trial, &nested)
    },
    ..ROW
};

pub(crate) static G07: Row = Row {
    what: "addresses that mean this machine",
    control: "unspecified addresses are never dialled",
    policy: |policy, _| names_that_lead(policy),
    run: |trial| leading_to(trial, &["0.0.0.0", "::"]),
    ..ROW
};

pub(crate) static G09: Row = Row {
    what: "services that hand out a machine's credentials",
    control: "metadata addresses are refused",
    policy: |policy, _| names_that_lead(policy),
    run: |trial| leading_to(trial, METADATA),
    off: Off::Edit(|plan, _| {
        let listed: Vec<String> = METADATA.iter().map(|address| with_port(address)).collect();
        also_allow(plan, &listed.iter().map(String::as_str).collect::<Vec<_>>());
    }),
    ..ROW
};

const METADATA: &[&str] = &[
    "169.254.169.254",
    "169.254.170.2",
    "169.254.170.23",
    "fd00:ec2::254",
    "fd20:ce::254",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
];

/// What a trusted rule can list.
const UNUSUAL: &[&str] = &["100.64.0.1", "fd00::1", "169.254.1.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", OWN];
const OWN: &str = "93.184.216.99";

pub(crate) static G10: Row = Row {
    what: "carrier-grade NAT, private, link-local, multicast, the host's own addresses",
    control: "only what is public is dialled",
    policy: |policy, _| names_that_lead(policy),
    run: |trial| {
        let make = |world: &World, dns: Dns<'_>| {
            if let Err(error) = world.own_address(OWN) {
                panic!("no address of its own: {error}");
            }
            let mut attempts = Vec::new();
            for (index, address) in UNUSUAL.iter().enumerate() {
                world.listener(&with_port(address));
                dns.name(&format!("n{index}.lead.test"), Answer::addresses([address]));
                attempts.push(Attempt::fails(Way::Proxy, connect(&format!("n{index}.lead.test:80")), DENIED));
                attempts.push(Attempt::fails(Way::Proxy, connect(&with_port(address)), DENIED));
            }
            for never in ["224.0.0.1", "255.255.255.255", "ff02::1", "fe80::1", "127.0.0.1", "::1"] {
                attempts.push(Attempt::ends(Way::Proxy, connect(&with_port(never)), DENIED));
            }
            attempts
        };
        let listeners: Vec<String> = UNUSUAL.iter().map(|address| with_port(address)).collect();
        in_world(trial, make, &listeners.iter().map(String::as_str).collect::<Vec<_>>())
    },
    off: Off::Edit(|plan, _| {
        let listed: Vec<String> = UNUSUAL.iter().map(|address| with_port(address)).collect();
        also_allow(plan, &listed.iter().map(String::as_str).collect::<Vec<_>>());
    }),
    ..ROW
};

pub(crate) static G17: Row = Row {
    what: "another port of a host that is allowed",
    control: "a rule is about a host and its ports",
    policy: |policy, _| allow(policy, &["good.test:443"]),
    run: |trial| {
        let ssh = format!("{GOOD}:22");
        let make = |world: &World, _: Dns<'_>| {
            world.banner(&ssh, SAY);
            vec![
                Attempt::fails(Way::Proxy, connect("good.test:22"), DENIED),
                Attempt::fails(name("good.test:22"), raw(SAY), SHUT),
                Attempt::ends(Way::Proxy, connect("good.test:80"), DENIED),
                Attempt::works(Way::Proxy, connect("good.test:443")),
            ]
        };
        in_world(trial, make, &[&ssh])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["good.test:22"])),
    ..ROW
};

pub(crate) static G18: Row = Row {
    what: "an address instead of a name",
    control: "a rule about a name is not about its addresses",
    policy: |policy, _| allow(policy, &["good.test"]),
    arrange,
    run: |trial| {
        let tls = format!("{GOOD}:443");
        let make = |_: &World, _: Dns<'_>| {
            vec![
                Attempt::fails(Way::Proxy, connect(&tls), DENIED),
                Attempt::fails(Way::Proxy, get(&format!("http://{GOOD}/")), DENIED),
                Attempt::fails(at(&tls), vec![hello(Some("good.test"))], SHUT),
            ]
        };
        each_capture(trial, make, &[&tls])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &[GOOD])),
    ..ROW
};

pub(crate) static G29: Row = Row {
    what: "a relay inside",
    control: "the verdict is about where a connection goes, not about who makes it",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            vec![
                Attempt::fails(Way::Relay, connect("bad.test:443"), DENIED),
                Attempt::fails(Way::Relay, get("http://bad.test/"), DENIED),
                Attempt::works(Way::Relay, connect("good.test:443")),
            ]
        };
        in_world(trial, make, &[&format!("{BAD}:443")])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["bad.test"])),
    ..ROW
};

pub(crate) static G31: Row = Row {
    what: "another proxy behind ours, which checks no addresses",
    control: "no proxy of the environment is used; every address is checked before it is dialled",
    policy: |policy, _| allow(policy, &["lead.test"]),
    environment: &[("http_proxy", "http://10.0.0.9:3128"), ("https_proxy", "http://10.0.0.9:3128")],
    run: |trial| {
        let make = |world: &World, dns: Dns<'_>| {
            listen(world, &["10.0.0.1:443"]);
            world.credulous_proxy("10.0.0.9:3128");
            dns.name("lead.test", Answer::addresses(["10.0.0.1"]));
            vec![
                Attempt::fails(Way::Proxy, connect("lead.test:443"), DENIED),
                Attempt::ends(at("10.0.0.9:3128"), connect("lead.test:443"), &["closed", "405"]),
            ]
        };
        in_world(trial, make, &["10.0.0.1:443"])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["10.0.0.1"])),
    ..ROW
};
