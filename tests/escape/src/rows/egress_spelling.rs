//! Rows about how a host is written: numbers in other notations, names that look like others, what surrounds them.

use cofferdam_testkit::World;
use cofferdam_testkit::world::{Answer, Dns};

use super::egress::{Attempt, BAD, DENIED, ECHO, MALFORMED, PRIVATE, allow, also_allow, connect, get, in_world, raw};
use crate::row::{Finding, Off, ROW, Row};
use crate::talk::{Way, socks};

pub(crate) static G08: Row = Row {
    what: "addresses in decimal, octal, hexadecimal and short",
    control: "four decimal numbers, or no address",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |world: &World, _: Dns<'_>| {
            world.listener(PRIVATE);
            let written = ["167772161", "012.0.0.1", "0xa.0.0.1", "0x0a000001", "10.1", "10.0.1"];
            let mut attempts: Vec<Attempt> = Vec::new();
            for address in written {
                attempts.push(Attempt::fails(Way::Proxy, connect(&format!("{address}:80")), MALFORMED));
            }
            attempts.push(Attempt::fails(Way::Proxy, get("http://0xa000001/"), MALFORMED));
            attempts
        };
        in_world(trial, make, &[PRIVATE])
    },
    ..ROW
};

pub(crate) static G11: Row = Row {
    what: "a zero byte in a name",
    control: "letters, digits and hyphens",
    policy: |policy, _| allow(policy, &["**.good.test"]),
    run: |trial| {
        let refused = &["socks 1", "socks 2", "socks 4", "socks 8", "closed"];
        let make = |_: &World, _: Dns<'_>| {
            vec![
                Attempt::fails(Way::Proxy, socks(1, b"bad.test\0.good.test", 443), refused),
                Attempt::fails(Way::Proxy, socks(1, b"10.0.0.1\0.good.test", 80), refused),
                Attempt::works(Way::Proxy, socks(1, b"good.test", 443)),
            ]
        };
        let with_private = |world: &World, dns: Dns<'_>| {
            world.listener(PRIVATE);
            make(world, dns)
        };
        in_world(trial, with_private, &[&format!("{BAD}:443"), PRIVATE])
    },
    ..ROW
};

pub(crate) static G12: Row = Row {
    what: "brackets, capitals and a dot at the end",
    control: "one spelling before anything is compared",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let mut attempts: Vec<Attempt> = ["bad.test.", "BAD.test", "bad.TEST."]
                .iter()
                .map(|host| Attempt::fails(Way::Proxy, connect(&format!("{host}:443")), DENIED))
                .collect();
            for host in ["[bad.test]", "[good.test]", "good.test..", "[93.184.216.36]"] {
                attempts.push(Attempt::ends(Way::Proxy, connect(&format!("{host}:443")), MALFORMED));
            }
            for host in ["good.test.", "GOOD.test"] {
                attempts.push(Attempt::works(Way::Proxy, connect(&format!("{host}:443"))));
            }
            attempts
        };
        in_world(trial, make, &[&format!("{BAD}:443")])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["bad.test"])),
    ..ROW
};

pub(crate) static G13: Row = Row {
    what: "names that begin or end like one that is allowed",
    control: "names are compared label by label",
    policy: |policy, _| allow(policy, &["good.test", "*.below.test"]),
    run: |trial| {
        let make = |_: &World, dns: Dns<'_>| {
            let others = ["evilgood.test", "good.test.evil.test", "below.test", "evilbelow.test", "sub.good.test"];
            for other in others {
                dns.name(other, Answer::addresses([BAD]));
            }
            dns.name("a.below.test", Answer::addresses([ECHO]));
            let refused = others.iter().map(|host| Attempt::fails(Way::Proxy, connect(&format!("{host}:443")), DENIED));
            let mut attempts: Vec<Attempt> = refused.collect();
            attempts.push(Attempt::works(Way::Proxy, connect("a.below.test:443")));
            attempts
        };
        in_world(trial, make, &[&format!("{BAD}:443")])
    },
    off: Off::Edit(|plan, _| {
        let others = ["evilgood.test", "good.test.evil.test", "below.test", "evilbelow.test", "sub.good.test"];
        also_allow(plan, &others);
    }),
    ..ROW
};

pub(crate) static G14: Row = Row {
    what: "a user's name before the host",
    control: "refused, not skipped",
    policy: |policy, _| allow(policy, &["good.test", "bad.test"]),
    run: |trial| {
        let make = |world: &World, _: Dns<'_>| {
            world.listener(PRIVATE);
            vec![
                Attempt::fails(Way::Proxy, get("http://good.test@10.0.0.1/"), MALFORMED),
                Attempt::fails(Way::Proxy, get("http://good.test:80@10.0.0.1:80/"), MALFORMED),
                Attempt::fails(Way::Proxy, connect("good.test@bad.test:443"), MALFORMED),
                Attempt::fails(Way::Proxy, connect("good.test:443@bad.test:443"), MALFORMED),
            ]
        };
        in_world(trial, make, &[PRIVATE, &format!("{BAD}:443")])
    },
    ..ROW
};

pub(crate) static G15: Row = Row {
    what: "a name that looks like another",
    control: "names are compared as they are looked up",
    policy: |policy, _| allow(policy, &["paypal.test"]),
    run: |trial| {
        // With a Cyrillic a, as it is looked up.
        let alike = "xn--pypal-4ve.test";
        let make = |_: &World, dns: Dns<'_>| {
            dns.name(alike, Answer::addresses([BAD]));
            vec![
                Attempt::fails(Way::Proxy, connect("xn--pypal-4ve.test:443"), DENIED),
                Attempt::ends(Way::Proxy, connect("p\u{430}ypal.test:443"), MALFORMED),
                Attempt::ends(
                    Way::Proxy,
                    socks(1, "p\u{430}ypal.test".as_bytes(), 443),
                    &["socks 1", "socks 8", "closed"],
                ),
            ]
        };
        let found = in_world(trial, make, &[&format!("{BAD}:443")]);
        found.and_then(|| match super::records::lines_with(&trial.scene, alike) {
            0 => Finding::Broken("no record shows the name as it is looked up".to_owned()),
            _ => Finding::Contained("recorded in punycode".to_owned()),
        })
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["xn--pypal-4ve.test"])),
    ..ROW
};

pub(crate) static G16: Row = Row {
    what: "an address with the name of an interface",
    control: "refused",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |world: &World, _: Dns<'_>| {
            world.listener("[::1]:80");
            vec![
                Attempt::fails(Way::Proxy, connect("[::1%25lo]:80"), MALFORMED),
                Attempt::fails(Way::Proxy, connect("[::1%lo]:80"), MALFORMED),
                Attempt::fails(Way::Proxy, raw("GET http://[::1%25lo]/ HTTP/1.1\r\nHost: [::1]\r\n\r\n"), MALFORMED),
            ]
        };
        in_world(trial, make, &["[::1]:80"])
    },
    ..ROW
};
