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

/// Better than the others is enough, where another program is the measure.
const ABOVE: Limit = Limit::AtLeast(1.0);

/// What was measured by each name, and which rounds failed.
type Taken<K> = BTreeMap<K, Outcome>;

#[derive(Debug, Default)]
struct Outcome {
    samples: Samples,
    failures: Vec<String>,
}

impl Outcome {
    /// A failure before any figure is not worth a second attempt, and each that hangs takes half a minute.
    fn is_hopeless(&self) -> bool {
        self.failures.len() >= 2 || (!self.failures.is_empty() && self.samples.is_empty())
    }

    fn note(&self) -> Option<String> {
        let failure = self.failures.first()?;
        Some(if self.samples.is_empty() {
            format!("not measured: {failure}")
        } else {
            format!("{} rounds measured, {} failed: {failure}", self.samples.len(), self.failures.len())
        })
    }
}

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

/// Round 0 counts for no figure: it warms everything up, but its failures count.
fn take<K: Ord>(taken: &mut Taken<K>, what: K, round: usize, measure: impl FnOnce() -> Result<f64, String>) {
    let outcome = taken.entry(what).or_default();
    if outcome.is_hopeless() {
        return;
    }
    match measure() {
        Ok(figure) if round > 0 => outcome.samples.push(figure),
        Ok(_) => {}
        Err(error) => outcome.failures.push(error),
    }
}

/// The median of the rounds that did not fail; not a number where there is none, which meets no target.
fn median<K: Ord>(taken: &Taken<K>, what: &K) -> f64 {
    taken.get(what).filter(|outcome| !outcome.samples.is_empty()).map_or(f64::NAN, |outcome| outcome.samples.median())
}

/// Ours over the base's. Others may fail at times; of ours every round has to succeed.
fn judged<K: Ord>(taken: &Taken<K>, ours: &K, base: &K) -> f64 {
    let sound = taken.get(ours).is_some_and(|outcome| outcome.failures.is_empty());
    if sound { ratio(median(taken, ours), median(taken, base)) } else { f64::NAN }
}

fn report_transparent(report: &mut Report, taken: &Taken<(Measure, Way)>) {
    for measure in Measure::ALL {
        let to_direct = judged(taken, &(measure, Way::Ours), &(measure, Way::Direct));
        let label = format!("{}: ours / direct", measure.label());
        report.judge(&format!("{}_ours_to_direct", measure.name()), &label, to_direct, measure.target());
    }
    for other in [Way::Slirp, Way::PastaTap] {
        // A program without a figure is named below, and is none to be above.
        for measure in Measure::ALL.into_iter().filter(|measure| !median(taken, &(*measure, other)).is_nan()) {
            let value = judged(taken, &(measure, Way::Ours), &(measure, other));
            let name = format!("{}_ours_to_{}", measure.name(), other.name());
            report.judge(&name, &format!("{}: ours / {}", measure.label(), other.label()), value, ABOVE);
        }
    }
    for measure in Measure::ALL {
        let to_bare = judged(taken, &(measure, Way::Ours), &(measure, Way::Bare));
        report.figure(&format!("{}_ours_to_bare_relay", measure.name()), to_bare);
        report.section(&format!("{}, {}: median and ratio to direct", measure.label(), measure.unit()));
        for way in Way::ALL {
            let name = format!("{}_{}", measure.name(), way.name());
            let about = format!("{}, {}", measure.label(), way.label());
            row(report, taken, [&(measure, way), &(measure, Way::Direct)], &name, way.label(), &about);
        }
    }
}

fn report_explicit(report: &mut Report, taken: &Taken<(Traffic, Proxy)>) {
    for traffic in Traffic::ALL {
        let to_direct = judged(taken, &(traffic, Proxy::Ours), &(traffic, Proxy::None));
        let label = format!("proxy, {}: ours / direct", traffic.label());
        report.judge(&format!("proxy_{}_ours_to_direct", traffic.name()), &label, to_direct, traffic.target());
    }
    for traffic in Traffic::ALL {
        report.section(&format!("proxy, {}, {}: median and ratio to direct", traffic.label(), traffic.unit()));
        for proxy in Proxy::ALL {
            let name = format!("proxy_{}_{}", traffic.name(), proxy.name());
            let about = format!("proxy, {}, {}", traffic.label(), proxy.name());
            row(report, taken, [&(traffic, proxy), &(traffic, Proxy::None)], &name, proxy.name(), &about);
        }
    }
}

/// A row of context, and a note about the rounds that failed.
fn row<K: Ord>(report: &mut Report, taken: &Taken<K>, [what, base]: [&K; 2], name: &str, label: &str, about: &str) {
    let (value, to_base) = (median(taken, what), ratio(median(taken, what), median(taken, base)));
    if value.is_nan() {
        report.row(label, "not measured, see below");
    } else {
        report.figure(name, value);
        report.figure(&format!("{name}_to_direct"), to_base);
        report.row(label, &format!("{value:>11.1}   {to_base:>7.3}"));
    }
    if let Some(note) = taken.get(what).and_then(Outcome::note) {
        report.note(&format!("{about}: {note}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_may_fail_at_times_and_ours_never() {
        let mut taken = Taken::new();
        for round in 0..4 {
            take(&mut taken, "sound", round, || Ok(2.0));
            take(&mut taken, "shaky", round, || if round == 2 { Err("no".to_owned()) } else { Ok(1.0) });
        }
        assert!((judged(&taken, &"sound", &"shaky") - 2.0).abs() < 1e-9);
        assert!(judged(&taken, &"shaky", &"sound").is_nan());
        assert_eq!(taken["shaky"].note().as_deref(), Some("2 rounds measured, 1 failed: no"));
        assert_eq!(taken["sound"].note(), None);
    }

    #[test]
    fn what_fails_at_once_is_not_tried_again() {
        let mut taken = Taken::new();
        take(&mut taken, "absent", 0, || Err("not installed".to_owned()));
        take(&mut taken, "absent", 1, || unreachable!("it is hopeless"));
        assert!(judged(&taken, &"absent", &"absent").is_nan());
    }

    #[test]
    fn everybody_comes_first_once() {
        let firsts: Vec<_> = (0..3).filter_map(|round| turned([1, 2, 3], round).next()).collect();
        assert_eq!(firsts, [1, 2, 3]);
    }
}
