//! `cargo xtask bench egress`: how much of loopback's speed is left through the sandbox's egress, beside slirp4netns, pasta
//! and, for its explicit proxy, squid. Owns the rounds and the targets; the ways to the servers are `ways`', the web server
//! and its proxies are `proxies`'.

mod ground;
mod proxies;
mod running;
mod ways;

use std::collections::BTreeMap;

use crate::bench::egress::ground::Ground;
use crate::bench::egress::proxies::{Proxies, Proxy, Traffic};
use crate::bench::egress::ways::{Measure, Way, Ways};
use crate::bench::report::{Limit, Report};
use crate::bench::stage::Stage;
use crate::bench::statistics::{Samples, ratio};
use crate::problems::Problems;

/// Better than the others is enough, where somebody else is the measure.
const ABOVE: Limit = Limit::AtLeast(1.0);

/// What was measured by each name, or why it was not: the first failure ends the attempts.
type Taken<K> = BTreeMap<K, Result<Samples, String>>;

pub(crate) fn measure(stage: &Stage, load: &std::path::Path, rounds: usize) -> Result<Report, Problems> {
    let mut report = Report::new("egress", rounds, stage.machine());
    let ground = Ground::set_up(stage, load)?;
    let ways = Ways::open(&ground);
    let proxies = Proxies::start(&ground);

    let mut transparent: Taken<(Measure, Way)> = Taken::new();
    let mut explicit: Taken<(Traffic, Proxy)> = Taken::new();
    for round in 0..=rounds {
        eprintln!("bench egress: round {round} of {rounds}");
        for measure in Measure::ALL {
            for way in turned(Way::ALL, round) {
                take(&mut transparent, (measure, way), round, || ways.measure(way, measure));
            }
        }
        for traffic in Traffic::ALL {
            for proxy in turned(Proxy::ALL, round) {
                take(&mut explicit, (traffic, proxy), round, || proxies.measure(proxy, traffic));
            }
        }
    }
    report_transparent(&mut report, &transparent);
    report_explicit(&mut report, &explicit);
    Ok(report)
}

/// Another one comes first in each round.
fn turned<T: Copy, const N: usize>(all: [T; N], round: usize) -> impl Iterator<Item = T> {
    (0..N).map(move |turn| all[(turn + round) % N])
}

/// Round 0 is nobody's figure: it warms everything up, but its failures count.
fn take<K: Ord + Copy>(taken: &mut Taken<K>, what: K, round: usize, measure: impl FnOnce() -> Result<f64, String>) {
    if let Ok(samples) = taken.entry(what).or_insert_with(|| Ok(Samples::default())) {
        match measure() {
            Ok(figure) if round > 0 => samples.push(figure),
            Ok(_) => {}
            Err(error) => {
                taken.insert(what, Err(error));
            }
        }
    }
}

/// Not a number where one of both is missing, which meets no target.
fn against<K: Ord>(taken: &Taken<K>, what: &K, base: &K) -> f64 {
    match (taken.get(what), taken.get(base)) {
        (Some(Ok(what)), Some(Ok(base))) => ratio(what.median(), base.median()),
        _ => f64::NAN,
    }
}

fn report_transparent(report: &mut Report, taken: &Taken<(Measure, Way)>) {
    for measure in Measure::ALL {
        let to_direct = against(taken, &(measure, Way::Ours), &(measure, Way::Direct));
        let label = format!("{}: ours / direct", measure.label());
        report.judge(&format!("{}_ours_to_direct", measure.name()), &label, to_direct, measure.target());
    }
    for other in [Way::Slirp, Way::PastaTap] {
        for measure in Measure::ALL {
            if let Some(Err(error)) = taken.get(&(measure, other)) {
                report.note(&format!("{}, {}: {error}", measure.label(), other.label()));
                continue;
            }
            let value = against(taken, &(measure, Way::Ours), &(measure, other));
            let name = format!("{}_ours_to_{}", measure.name(), other.name());
            report.judge(&name, &format!("{}: ours / {}", measure.label(), other.label()), value, ABOVE);
        }
    }
    for measure in Measure::ALL {
        report.section(&format!("{}, {}: median and ratio to direct", measure.label(), measure.unit()));
        for way in Way::ALL {
            let name = format!("{}_{}", measure.name(), way.name());
            row(report, taken, &(measure, way), &(measure, Way::Direct), &name, way.label());
        }
    }
    for measure in Measure::ALL {
        for way in [Way::Ours, Way::PastaForward] {
            if let Some(Err(error)) = taken.get(&(measure, way)) {
                report.note(&format!("{}, {}: {error}", measure.label(), way.label()));
            }
        }
    }
}

fn report_explicit(report: &mut Report, taken: &Taken<(Traffic, Proxy)>) {
    for traffic in Traffic::ALL {
        let to_direct = against(taken, &(traffic, Proxy::Ours), &(traffic, Proxy::None));
        let label = format!("proxy, {}: ours / direct", traffic.label());
        report.judge(&format!("proxy_{}_ours_to_direct", traffic.name()), &label, to_direct, traffic.target());
    }
    for traffic in Traffic::ALL {
        report.section(&format!("proxy, {}, {}: median and ratio to direct", traffic.label(), traffic.unit()));
        for proxy in Proxy::ALL {
            let name = format!("proxy_{}_{}", traffic.name(), proxy.name());
            row(report, taken, &(traffic, proxy), &(traffic, Proxy::None), &name, proxy.name());
            if let Some(Err(error)) = taken.get(&(traffic, proxy)) {
                report.note(&format!("proxy, {}, {}: {error}", traffic.label(), proxy.name()));
            }
        }
    }
}

fn row<K: Ord>(report: &mut Report, taken: &Taken<K>, what: &K, base: &K, name: &str, label: &str) {
    if let Some(Ok(samples)) = taken.get(what) {
        let value = against(taken, what, base);
        report.figure(name, samples.median());
        report.figure(&format!("{name}_to_direct"), value);
        report.row(label, &format!("{:>11.1}   {value:>7.3}", samples.median()));
    } else {
        report.row(label, "not measured, see below");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_ends_the_attempts_and_meets_no_target() {
        let mut taken = Taken::new();
        for round in 0..3 {
            take(&mut taken, "a", round, || Ok(2.0));
            take(&mut taken, "b", round, || if round == 1 { Err("no".to_owned()) } else { Ok(1.0) });
        }
        assert_eq!(taken["a"], Ok([2.0, 2.0].into_iter().collect()));
        assert_eq!(taken["b"], Err("no".to_owned()));
        assert!(against(&taken, &"b", &"a").is_nan());
        assert!((against(&taken, &"a", &"a") - 1.0).abs() < 1e-9);
    }

    #[test]
    fn everybody_comes_first_once() {
        let firsts: Vec<_> = (0..3).filter_map(|round| turned([1, 2, 3], round).next()).collect();
        assert_eq!(firsts, [1, 2, 3]);
    }
}
