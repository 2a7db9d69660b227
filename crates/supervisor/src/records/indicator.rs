//! What a refused act is a sign of: the wall that it goes against, how grave that is, what noticed it, and a description. The
//! table is `profiles/indicators.toml`; owns the look into it, and ends nothing. Used by `log` and `summary`.

use cofferdam_wire::{Level, Wall};
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Indicator {
    pub(crate) source: Source,
    pub(crate) wall: Wall,
    pub(crate) level: Level,
    pub(crate) description: &'static str,
}

/// What noticed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    Filter,
    Gate,
    Kernel,
}

include!(concat!(env!("OUT_DIR"), "/indicators.rs"));

const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

/// Of a call that was refused.
pub(crate) fn of(call: &str, arguments: &[u64; 6]) -> Indicator {
    // The low half, as the kernel reads it.
    if call == "socket" && matches!(arguments[0] & 0xffff_ffff, AF_INET | AF_INET6) {
        return INTERNET_SOCKET;
    }
    CALLS.binary_search_by_key(&call, |(name, _)| name).map_or(OTHER_CALL, |at| CALLS[at].1)
}

#[cfg(test)]
mod tests {
    use cofferdam_plan::seccomp::{Verdict, exists, verdict_of};
    use cofferdam_policy::{Origin, Policy, Ruled, SyscallMode};

    use super::*;

    #[test]
    fn every_critical_call_is_reported_by_the_filter_in_every_mode() {
        let critical: Vec<&str> =
            CALLS.iter().filter(|(_, found)| found.level == Level::Critical).map(|(call, _)| *call).collect();
        let expected = [
            "delete_module",
            "finit_module",
            "init_module",
            "kexec_file_load",
            "kexec_load",
            "open_by_handle_at",
            "pivot_root",
            "setns",
        ];
        assert_eq!(critical, expected, "a call with a harmless caller would end harmless sessions");
        for mode in [SyscallMode::AllowList, SyscallMode::DenyList] {
            for debug in [true, false] {
                let mut policy = Policy::built_in();
                policy.syscalls.mode = Ruled::new(mode, Origin::flag("--test"));
                policy.debug = Ruled::new(debug, Origin::flag("--test"));
                for (call, internet) in critical.iter().flat_map(|call| [(*call, true), (*call, false)]) {
                    let verdict = verdict_of(&policy, internet, call).expect("a filter");
                    assert_eq!(verdict, Some(Verdict::Notify), "{call}, {mode}, debug {debug}");
                }
            }
        }
    }

    #[test]
    fn every_listed_call_exists() {
        for (call, _) in CALLS {
            assert!(exists(call), "{call}");
        }
    }
}
