//! The invariants of a tool's sandbox that are about its network and privileges, each by its number. What they rest on is
//! shown more widely elsewhere: in `egress_names`, `egress_questions` and the escape suite.

use cofferdam_testkit::world::Answer;

use crate::internet::{ALLOWED, Internet, OTHER, PRIVATE};
use crate::screen::Screen;
use crate::support::Place;

const GET: &str = "curl -sS -o /dev/null -w '%{http_code}\\n' --max-time 10";

/// None of these is dialled, whatever name of an allowed host leads there.
fn never_dialled(addresses: &[&str]) {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    let bound = |address: &str| if address.contains(':') { format!("[{address}]:80") } else { format!("{address}:80") };
    let dns = internet.world.dns_at("9.9.9.9:5353");
    internet.place.write("home:.config/cofferdam/config.toml", "network.resolvers = [\"9.9.9.9:5353\"]\n");
    let names: Vec<String> = (0..addresses.len()).map(|number| format!("name-{number}.test")).collect();
    let mut flags = Vec::new();
    for (address, name) in addresses.iter().zip(&names) {
        internet.world.listener(&bound(address));
        dns.name(name, Answer::addresses([address]));
        flags.extend(["--allow-host", name]);
    }
    let script: Vec<String> = names.iter().map(|name| format!("{GET} http://{name}/\n")).collect();
    assert_eq!(internet.run(&flags, &script.concat()).out, "403\n".repeat(names.len()));
    for address in addresses {
        assert!(internet.world.dials(&bound(address)).is_empty(), "{address}");
    }
    // The control: once its address is listed, too, the first of them is dialled.
    let listed = bound(addresses[0]);
    let flags = ["--allow-host", &names[0], "--allow-host", &listed];
    internet.run(&flags, &format!("{GET} http://{}/", names[0]));
    assert_eq!(internet.world.dials(&listed).len(), 1, "{listed}");
}

#[test]
fn inv_s2_there_is_no_network_by_default() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    // Where no layer says a word, what is asked for is refused by name; the process that refuses has no network either, see
    // `no_network`. By the proxy, by address and by name:
    let gets =
        format!("{GET} http://{ALLOWED}/; unset http_proxy; {GET} http://{ALLOWED}/; {GET} http://allowed.test/");
    let ran = internet.run(&[], &format!("{gets}; exit 7")).code(7);
    assert!(ran.out.starts_with("403\n") && !ran.out.contains("200"), "{}", ran.out);
    ran.says(&[&format!("no network here; to allow it: --allow-host {ALLOWED}:80")]);
    internet.assert_untouched(&format!("{ALLOWED}:80"), "allowed.test");
    let ran = internet.run(&["--network", "none"], &format!("{GET} http://{ALLOWED}/")).code(7);
    ran.says(&["there is none inside but an own loopback"]);
    internet.assert_untouched(&format!("{ALLOWED}:80"), "allowed.test");
    assert_eq!(
        internet.run(&["--allow-host", &format!("{ALLOWED}:80")], &format!("{GET} http://{ALLOWED}/")).ok(),
        "200\n"
    );
}

#[test]
fn inv_s3_private_ranges_are_not_dialled() {
    never_dialled(&["10.0.0.7", "172.16.0.7", "192.168.0.7", "127.0.0.7", "100.64.0.7", "fd00::7", "::1"]);
}

#[test]
fn inv_s4_metadata_services_are_not_dialled() {
    never_dialled(&["169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254"]);
}

#[test]
fn inv_s5_no_capability_is_left() {
    let out = Place::new().inside("grep Cap /proc/self/status | tr -s '\\t ' ' '").ok();
    let expected = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(|set| format!("{set}: 0000000000000000\n"));
    assert_eq!(out, expected.concat());
}

#[test]
fn inv_s7_a_session_without_a_network_gets_a_host_by_an_answer_alone() {
    let Some(screen) = Screen::open(&["curl"]) else { return };
    // Nothing outside is there: the answer is what is looked at.
    let get = format!("{GET} http://needed.test/; echo code-$?");
    screen.line(&format!("sandbox run -- bash -c '{}'", get.replace('\'', "")));
    let shown = screen.wait_for("press a key");
    assert!(shown.contains("needed.test:80") && shown.contains("expected of `curl`"), "{shown}");
    screen.capture("prompt-host");
    screen.keys(&["n"]);
    screen.wait_for("403");
    screen.prompt();
    screen.line(&format!("sandbox run --network none -- bash -c '{}'", get.replace('\'', "")));
    let shown = screen.wait_for("code-6");
    assert!(!shown.contains("press a key"), "{shown}");
}

#[test]
fn inv_s8_the_address_is_judged_and_not_the_name_alone() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.world.listener(&format!("{PRIVATE}:80"));
    let script = format!("for n in 1 2 3 4; do {GET} http://turns.test/; done; {GET} http://private.test/");
    let ran = internet.run(&["--allow-host", "turns.test", "--allow-host", "private.test"], &script);
    assert!(ran.out.ends_with("403\n"), "{}", ran.out);
    assert!(internet.world.dials(&format!("{PRIVATE}:80")).is_empty());
}

#[test]
fn inv_s9_a_redirect_is_judged_again() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.world.listener(&format!("{PRIVATE}:80"));
    for to in [format!("http://{PRIVATE}/"), "http://private.test/".to_owned(), "http://other.test/".to_owned()] {
        let flags = ["--allow-host", "allowed.test", "--allow-host", "private.test"];
        let ran = internet.run(&flags, &format!("{GET} -L 'http://allowed.test/redirect?to={to}'"));
        assert_eq!(ran.out, "403\n", "{to}");
    }
    assert!(internet.world.dials(&format!("{PRIVATE}:80")).is_empty());
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
}
