//! Rows about what is said once a host was named: TLS that names another, requests that two readers read differently,
//! methods and paths, lookups that carry data, requests that never end.

use std::time::Duration;

use cofferdam_testkit::World;
use cofferdam_testkit::world::{Answer, Dns};

use super::egress::{
    Attempt, DENIED, ECHO, GOOD, MALFORMED, SHUT, allow, allow_requests, also_allow, connect, get, in_world, name,
    names, raw, request, talks, world,
};
use crate::row::{Finding, Off, ROW, Row, Trial, Walls};
use crate::talk::{Way, hello, socks};

pub(crate) static G19: Row = Row {
    what: "a request whose address and Host differ",
    control: "refused",
    policy: |policy, _| allow(policy, &["echo.test", "good.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let differ = |host: &str| raw(&format!("GET http://echo.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            vec![
                Attempt::fails(Way::Proxy, differ("good.test"), MALFORMED),
                Attempt::fails(Way::Proxy, differ("echo.test:81"), MALFORMED),
                Attempt::fails(Way::Proxy, differ("echo.test\r\nHost: good.test"), MALFORMED),
                Attempt::fails(name("good.test:80"), request("GET", "/", "bad.test"), MALFORMED),
                Attempt::works(name("good.test:80"), request("GET", "/", "good.test")),
            ]
        };
        in_world(trial, make, &[&format!("{ECHO}:80")])
    },
    ..ROW
};

pub(crate) static G20: Row = Row {
    what: "TLS that names another host, or none",
    control: "the greeting is read before anything is sent on",
    policy: |policy, _| allow(policy, &["echo.test", "echo.test:8443"]),
    run: |trial| {
        let make = |world: &World, _: Dns<'_>| {
            world.listener(&format!("{ECHO}:8443"));
            let tunnelled = |greeting| [connect("echo.test:443"), vec![greeting]].concat();
            vec![
                Attempt::fails(name("echo.test:443"), vec![hello(Some("bad.test"))], SHUT),
                Attempt::fails(name("echo.test:443"), vec![hello(None)], SHUT),
                Attempt::fails(name("echo.test:8443"), vec![hello(Some("bad.test"))], SHUT),
                Attempt::fails(Way::Proxy, tunnelled(hello(Some("bad.test"))), SHUT),
                Attempt::fails(Way::Proxy, tunnelled(hello(None)), SHUT),
                Attempt::works(name("echo.test:443"), vec![hello(Some("echo.test"))]),
                Attempt::works(Way::Proxy, tunnelled(hello(Some("echo.test")))),
            ]
        };
        in_world(trial, make, &[])
    },
    ..ROW
};

pub(crate) static G21: Row = Row {
    what: "something else than TLS at the port of TLS",
    control: "only TLS is carried there",
    policy: |policy, _| allow(policy, &["echo.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let say = |text: &str| [connect("echo.test:443"), raw(text)].concat();
            vec![
                Attempt::fails(Way::Proxy, say("SSH-2.0-x\r\n"), SHUT),
                Attempt::fails(Way::Proxy, say("GET / HTTP/1.1\r\nHost: echo.test\r\n\r\n"), SHUT),
                Attempt::fails(name("echo.test:443"), raw("SSH-2.0-x\r\n"), SHUT),
            ]
        };
        in_world(trial, make, &[])
    },
    ..ROW
};

pub(crate) static G22: Row = Row {
    what: "a redirect to a private place",
    control: "handed to the program; following it is a new request",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |world: &World, _: Dns<'_>| {
            world.listener("10.0.0.1:443");
            vec![
                Attempt::works(Way::Proxy, get("http://good.test/redirect?to=http%3A%2F%2F10.0.0.1%3A443%2F")),
                Attempt::fails(Way::Proxy, connect("10.0.0.1:443"), DENIED),
            ]
        };
        in_world(trial, make, &["10.0.0.1:443"])
    },
    off: Off::Edit(|plan, _| also_allow(plan, &["10.0.0.1"])),
    ..ROW
};

pub(crate) static G23: Row = Row {
    what: "requests of which two readers see two lengths",
    control: "what is not written strictly is refused, and the connection ends",
    policy: |policy, _| allow(policy, &["echo.test", "chunks.test", "good.test"]),
    run: |trial| {
        let make = |world: &World, dns: Dns<'_>| {
            // A body is read as it goes on, so this host is dialled.
            world.listener("93.184.216.40:80");
            dns.name("chunks.test", Answer::addresses(["93.184.216.40"]));
            let start = "POST http://echo.test/ HTTP/1.1\r\nHost: echo.test\r\n";
            let with = |headers: &str| raw(&format!("{start}{headers}\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"));
            let mut attempts: Vec<Attempt> = [
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
                "Transfer-Encoding: chunked\r\nContent-Length: 5",
                "Content-Length: 5\r\nContent-Length: 6",
                "Content-Length: 5, 5",
                "Content-Length: +5",
                "Content-Length: 0x5",
                "Transfer-Encoding: chunked, identity",
                "Transfer-Encoding: xchunked",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                "Transfer-Encoding : chunked",
                "Transfer-Encoding:\r\n chunked",
                "X: y\nTransfer-Encoding: chunked",
                "X: y\rTransfer-Encoding: chunked",
                "X: \0y",
                " Transfer-Encoding: chunked",
            ]
            .iter()
            .map(|headers| Attempt::fails(Way::Proxy, with(headers), MALFORMED))
            .collect();
            let chunks = |body: &str| {
                raw(&format!("{}Transfer-Encoding: chunked\r\n\r\n{body}", start.replace("echo", "chunks")))
            };
            for body in [
                "5;a=b\nhello\r\n0\r\n\r\n",
                "10000000000000005\r\nhello",
                "5\r\nhello0\r\n\r\n",
                "-5\r\nhello",
                "0\r\nX\r\n\r\n",
            ] {
                attempts.push(Attempt::fails(Way::Proxy, chunks(body), MALFORMED));
            }
            attempts.push(Attempt::fails(
                Way::Proxy,
                raw("GET http://echo.test/ HTTP/1.1\nHost: echo.test\n\n"),
                MALFORMED,
            ));
            attempts.push(Attempt::works(Way::Proxy, get("http://good.test/")));
            attempts
        };
        in_world(trial, make, &[&format!("{ECHO}:80")])
    },
    ..ROW
};

pub(crate) static G24: Row = Row {
    what: "headers that are for the proxy alone",
    control: "taken off before a request is sent on",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: hop_by_hop,
    ..ROW
};

fn hop_by_hop(trial: &Trial) -> Finding {
    let world = match world(trial) {
        Ok(world) => world,
        Err(finding) => return finding,
    };
    names(&world);
    let own = ["proxy-connection", "proxy-authorization", "keep-alive", "te", "x-mine", "x-other"];
    let headers = "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic c2VjcmV0\r\nKeep-Alive: timeout=5\r\n\
                   TE: trailers\r\nConnection: X-Mine, keep-alive\r\nConnection: x-other\r\nX-Mine: 1\r\nX-Other: 2\r\nX-Kept: 3";
    let text = format!("GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\n{headers}\r\n\r\n");
    let said = talks(trial, &world, &[Attempt::works(Way::Proxy, raw(&text))], &[]);
    if matches!(said, Finding::Broken(_) | Finding::Skipped(_)) {
        return said;
    }
    let seen = world.until(1, |world| world.requests(&format!("{GOOD}:80")));
    let head = seen[0].head.to_ascii_lowercase();
    let left: Vec<&str> = own.into_iter().filter(|name| head.contains(&format!("\r\n{name}:"))).collect();
    match (left.is_empty(), head.contains("x-kept: 3")) {
        (_, false) => Finding::Broken(format!("the server saw {head}")),
        (true, true) => Finding::Contained(format!("{} headers were taken off", own.len())),
        (false, true) => Finding::Open(format!("the server saw {}", left.join(", "))),
    }
}

pub(crate) static G25: Row = Row {
    what: "Upgrade and TRACE",
    control: "refused",
    policy: |policy, _| allow(policy, &["echo.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let refused: &[&str] = &["405"];
            let upgrade = |to: &str| {
                let headers = format!("Host: echo.test\r\nConnection: Upgrade\r\nUpgrade: {to}");
                raw(&format!("GET http://echo.test/ HTTP/1.1\r\n{headers}\r\n\r\n"))
            };
            let method = |method: &str| raw(&format!("{method} http://echo.test/ HTTP/1.1\r\nHost: echo.test\r\n\r\n"));
            vec![
                Attempt::fails(Way::Proxy, upgrade("websocket"), refused),
                Attempt::fails(Way::Proxy, upgrade("TLS/1.0"), refused),
                Attempt::fails(Way::Proxy, upgrade("h2c, websocket"), refused),
                Attempt::fails(Way::Proxy, method("TRACE"), refused),
                Attempt::fails(Way::Proxy, method("TRACK"), refused),
            ]
        };
        in_world(trial, make, &[&format!("{ECHO}:80")])
    },
    ..ROW
};

pub(crate) static G26: Row = Row {
    what: "SOCKS for datagrams and for listening",
    control: "CONNECT only",
    policy: |policy, _| allow(policy, &["good.test"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            vec![
                Attempt::fails(Way::Proxy, socks(3, b"good.test", 443), &["socks 7"]),
                Attempt::fails(Way::Proxy, socks(2, b"good.test", 443), &["socks 7"]),
                Attempt::works(Way::Proxy, socks(1, b"good.test", 443)),
            ]
        };
        in_world(trial, make, &[])
    },
    ..ROW
};

pub(crate) static G27: Row = Row {
    what: "lookups that carry data",
    control: "names outside the policy never leave; nor do names that look like data",
    policy: |policy, _| allow(policy, &["**.good.test"]),
    run: tunnelled_lookups,
    off: Off::Edit(|plan, _| also_allow(plan, &["**.evil.test"])),
    ..ROW
};

fn tunnelled_lookups(trial: &Trial) -> Finding {
    let world = match world(trial) {
        Ok(world) => world,
        Err(finding) => return finding,
    };
    let dns = names(&world);
    dns.name("data.evil.test", Answer::addresses([GOOD])).name("more.evil.test", Answer::addresses([GOOD]));
    let missing: &[&str] = &["nxdomain"];
    let label = "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi";
    let data = format!("{label}.{label}.good.test");
    let attempts = [
        Attempt::fails(Way::Lookup("data.evil.test".to_owned()), raw(""), missing),
        Attempt::fails(Way::LookupByStream("more.evil.test".to_owned()), raw(""), missing),
        Attempt::ends(Way::Proxy, connect("data.unlisted.test:443"), DENIED),
        Attempt::ends(Way::Proxy, socks(1, b"data.unlisted.test", 443), &["socks 2"]),
        Attempt::ends(Way::Lookup(data.clone()), raw(""), missing),
        Attempt::ends(Way::Proxy, connect(&format!("{data}:443")), DENIED),
        Attempt::ends(Way::Proxy, socks(1, data.as_bytes(), 443), &["socks 2"]),
        Attempt::works(Way::Lookup("good.test".to_owned()), raw("")),
    ];
    let said = talks(trial, &world, &attempts, &[]);
    if matches!(said, Finding::Broken(_) | Finding::Skipped(_)) {
        return said;
    }
    let left: usize = ["unlisted.test", &data].iter().map(|name| world.queries(name).len()).sum();
    let evil = world.queries("evil.test").len();
    match (trial.walls, left + evil) {
        (_, _) if left > 0 => Finding::Open(format!("{left} lookups left")),
        (Walls::Standing, 0) => said.and_then(|| Finding::Contained("0 lookups left".to_owned())),
        (_, count) => Finding::Open(format!("{count} lookups left")),
    }
}

pub(crate) static G28: Row = Row {
    what: "requests that never end",
    control: "a time limit for the head of a request",
    policy: |policy, _| {
        allow(policy, &["good.test"]);
        policy.network.header_timeout.value = Duration::from_secs(1);
    },
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let halves = ["GET http://good.test/ HTTP/1.1\r\nX: y", "GET ", "CONNECT good.test:443 HTTP/1.1\r\n"];
            let ended: &[&str] = if trial.walls == Walls::Standing { &["408"] } else { &["silence"] };
            let mut attempts: Vec<Attempt> = Vec::new();
            for _ in 0..10 {
                attempts.extend(halves.iter().map(|half| Attempt::ends(Way::Proxy, raw(half), ended)));
            }
            let closed: &[&str] = if trial.walls == Walls::Standing { &["closed"] } else { &["silence"] };
            attempts.push(Attempt::ends(Way::Proxy, vec![vec![5]], closed));
            attempts.push(Attempt::ends(name("good.test:443"), vec![vec![0x16, 3]], closed));
            attempts
        };
        in_world(trial, make, &[])
    },
    off: Off::Edit(|plan, _| {
        if let Some(egress) = &mut plan.egress {
            egress.network.header_timeout.value = Duration::from_hours(1);
        }
    }),
    ..ROW
};

/// Control off: every request may be made.
const EVERY_REQUEST: Off = Off::Edit(|plan, _| also_allow(plan, &["good.test"]));

pub(crate) static G30: Row = Row {
    what: "a host that is allowed as a way out for data",
    control: "rules about methods and paths",
    policy: |policy, _| allow_requests(policy, &["GET"], &["/read/**"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let greeted: &[&str] = if trial.walls == Walls::Standing { &["closed", "data"] } else { &["echo"] };
            let asked = |method: &str, path: &str| {
                raw(&format!(
                    "{method} http://good.test{path} HTTP/1.1\r\nHost: good.test\r\ncontent-length: 0\r\n\r\n"
                ))
            };
            vec![
                Attempt::fails(Way::Proxy, asked("POST", "/read/x"), DENIED),
                Attempt::fails(Way::Proxy, asked("PUT", "/read/x"), DENIED),
                Attempt::fails(Way::Proxy, asked("GET", "/write/x"), DENIED),
                Attempt::fails(name("good.test:80"), request("POST", "/read/x", "good.test"), DENIED),
                Attempt::fails(name("good.test:80"), request("GET", "/write/x", "good.test"), DENIED),
                // TLS is not passed on, where the egress process could not see the request: it ends here.
                Attempt::ends(name("good.test:443"), vec![hello(Some("good.test"))], greeted),
                Attempt::works(Way::Proxy, asked("GET", "/read/x")),
                Attempt::works(name("good.test:80"), request("GET", "/read/x", "good.test")),
            ]
        };
        in_world(trial, make, &[])
    },
    off: EVERY_REQUEST,
    ..ROW
};

pub(crate) static G32: Row = Row {
    what: "paths that two readers read differently",
    control: "what can be read in two ways is refused where rules are about paths",
    policy: |policy, _| allow_requests(policy, &[], &["/read/**"]),
    run: |trial| {
        let make = |_: &World, _: Dns<'_>| {
            let mut attempts: Vec<Attempt> = [
                "/read/../write",
                "/read/%2e%2e/write",
                "/read/.%2e/write",
                "/read/..%2fwrite",
                "/read/%2e%2e%2fwrite",
                "/read//../write",
                "/read/./../write",
                "/read/..;/write",
                "/read/%252e%252e/write",
                "/read\\..\\write",
                "/read/%5c..%5cwrite",
                "/%72ead/../write",
                "//read/x",
            ]
            .iter()
            .map(|path| Attempt::fails(name("good.test:80"), request("GET", path, "good.test"), DENIED))
            .collect();
            attempts.push(Attempt::works(name("good.test:80"), request("GET", "/read/x?to=/../y", "good.test")));
            attempts
        };
        in_world(trial, make, &[])
    },
    off: EVERY_REQUEST,
    ..ROW
};
