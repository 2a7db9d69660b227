use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(10);

#[test]
fn a_name_keeps_its_address() {
    let now = Instant::now();
    let mut names = Names::new(4, TTL);
    let first = names.address_of("a.example", now).expect("room");
    assert_eq!(first, Ipv4Addr::new(198, 18, 1, 0));
    assert_eq!(names.address_of("b.example", now), Some(Ipv4Addr::new(198, 18, 1, 1)));
    assert_eq!(names.address_of("a.example", now + TTL * 9), Some(first));
    assert_eq!(names.name_of(first, now), Some("a.example"));
    assert_eq!(names.name_of(Ipv4Addr::new(198, 18, 0, 1), now), None);
    assert_eq!(names.name_of(Ipv4Addr::new(10, 0, 0, 1), now), None);
    assert_eq!(names.name_of(Ipv4Addr::new(198, 20, 0, 0), now), None);
}

#[test]
fn a_full_table_gives_way_only_after_the_ttl() {
    let now = Instant::now();
    let mut names = Names::new(2, TTL);
    let a = names.address_of("a", now).expect("room");
    let b = names.address_of("b", now).expect("room");
    assert_eq!(names.address_of("c", now + TTL), None, "both may still be held");
    assert_eq!(names.name_of(a, now + TTL), Some("a"), "which is a use");
    let c = names.address_of("c", now + TTL * 2).expect("b is old");
    assert!(c != a && c != b, "a freed address is not given out at once");
    assert_eq!(names.name_of(b, now + TTL * 2), None);
    assert_eq!(names.name_of(a, now + TTL * 2), Some("a"));
}

#[test]
fn a_clock_that_steps_back_does_not_age_a_name() {
    let now = Instant::now();
    let mut names = Names::new(1, TTL);
    let address = names.address_of("a", now + TTL).expect("room");
    assert_eq!(names.name_of(address, now), Some("a"));
    assert_eq!(names.address_of("b", now + TTL * 2), None);
}

#[test]
fn the_turn_comes_round_and_skips_what_is_held() {
    let start = Instant::now();
    let mut names = Names::new(2, Duration::ZERO);
    let mut now = start;
    let kept = names.address_of("kept", now).expect("room");
    for index in 0..END + 10 {
        now += Duration::from_millis(1);
        let got = names.address_of(&format!("n{index}"), now).expect("everything is old at once");
        let offset = u32::from(got).checked_sub(NETWORK).expect("an address of the network");
        assert!(got != kept && (FIRST..END).contains(&offset));
        now += Duration::from_millis(1);
        assert_eq!(names.name_of(kept, now), Some("kept"));
    }
}

#[test]
fn the_largest_table_can_be_filled() {
    let now = Instant::now();
    let mut names = Names::new(usize::MAX, TTL);
    let given: HashSet<Ipv4Addr> =
        (0..NAMES_MAX).map(|index| names.address_of(&index.to_string(), now).expect("room")).collect();
    assert_eq!((given.len(), names.address_of("more", now)), (NAMES_MAX, None));
}

proptest! {
    /// Against a model that remembers every answer: within its ttl an address means one name.
    #[test]
    fn an_address_means_one_name_while_an_answer_is_valid(
        cap in 1_usize..6,
        steps in proptest::collection::vec((0_u8..12, 0_u64..8, any::<bool>()), 1..200),
    ) {
        let mut now = Instant::now();
        let mut names = Names::new(cap, TTL);
        let mut answers: HashMap<Ipv4Addr, (String, Instant)> = HashMap::new();
        for (which, seconds, look_up) in steps {
            now += Duration::from_secs(seconds);
            if look_up {
                let name = format!("host{which}.example");
                if let Some(address) = names.address_of(&name, now) {
                    if let Some((held, until)) = answers.get(&address) {
                        prop_assert!(*held == name || *until < now, "{address} was {held}'s");
                    }
                    prop_assert_eq!(names.address_of(&name, now), Some(address));
                    prop_assert_eq!(names.name_of(address, now), Some(name.as_str()));
                    answers.insert(address, (name, now + TTL));
                } else {
                    prop_assert_eq!(names.by_name.len(), cap);
                }
            }
            for (address, (name, until)) in &answers {
                if now <= *until {
                    // A look without a use, so that the model does not keep everything fresh.
                    let offset = u32::from(*address) - NETWORK;
                    prop_assert_eq!(names.by_address.get(&offset).map(|entry| &entry.name), Some(name));
                }
            }
            prop_assert!(names.by_name.len() <= cap);
            prop_assert_eq!(names.by_name.len(), names.by_address.len());
            prop_assert_eq!(names.by_use.len(), names.by_address.len());
            for (name, offset) in &names.by_name {
                prop_assert_eq!(&names.by_address[offset].name, name);
            }
        }
    }
}
