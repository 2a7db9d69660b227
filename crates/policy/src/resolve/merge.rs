//! What each setting changes in a policy. Owns the rule "scalars: the later wins; lists: they add up"
//! and the policy that layers start from; does not decide whether a setting may count (`layers`, `tighten`) and checks no
//! ceilings. Called by `layers`.

use crate::builtin::{DEFAULT_PRESET, Preset, known_places};
use crate::language::path::PathExpr;
use crate::types::files::{Access, FileRule, Hold, Stand};
use crate::types::origin::Ruled;
use crate::types::policy::{Mode, Policy};
use crate::types::setting::Setting;

impl Policy {
    /// The policy of a user who has written none: the shipped lists and the `default` preset.
    pub fn built_in() -> Policy {
        let mut policy = Policy::preset();
        policy.add_known();
        policy
    }

    /// The same without what depends on what other layers say.
    pub(crate) fn preset() -> Policy {
        let mut policy = Policy::lists_only();
        for setting in Preset::named(DEFAULT_PRESET).into_iter().flat_map(Preset::settings) {
            policy.apply(setting);
        }
        policy
    }

    /// What dynamic mode gives without a question. A preset says more about the same place: that it can be written to.
    pub(crate) fn add_known(&mut self) {
        if self.mode.value != Mode::Dynamic {
            return;
        }
        let given: Vec<PathExpr> =
            self.files.iter().filter(|rule| Preset::gave(rule)).map(|rule| rule.path.clone()).collect();
        self.files.extend(known_places().filter(|rule| !given.iter().any(|path| path.is_same_place(&rule.path))));
    }

    /// A preset replaces what an earlier preset said about the same place, so `cargo` can open a cache that
    /// `default` only overlays: both are built in, and within a layer the stricter rule would win.
    pub(crate) fn apply_preset(&mut self, preset: &'static Preset) {
        for setting in preset.settings() {
            if let Setting::File { path, .. } = &setting.value {
                self.files.retain(|rule| !(Preset::gave(rule) && rule.path.is_same_place(path)));
            }
            self.apply(setting);
        }
    }

    pub(crate) fn apply(&mut self, setting: Ruled<Setting>) {
        let origin = setting.origin;
        match setting.value {
            Setting::Scalar(scalar) => self.set(scalar, origin),
            // Presets are applied before the layers, see `layers::resolve`.
            Setting::Preset(name) => self.presets.push(Ruled::new(name, origin)),
            Setting::File { access, path, optional, reason } => {
                // A stand-in needs a name: a glob has none.
                let nameable = access == Access::Protect && !path.is_glob();
                let hold = if nameable { Hold::Directory } else { Hold::Nothing };
                let stand = Stand::Refuse;
                let rule = FileRule {
                    path,
                    access,
                    stand,
                    hold,
                    only_missing: false,
                    optional,
                    is_final: false,
                    reason,
                    origin,
                };
                self.files.push(rule);
            }
            Setting::Hook(argv) => self.unknown.hook = Some(Ruled::new(argv, origin)),
            Setting::AlertHook(argv) => self.response.hook = Some(Ruled::new(argv, origin)),
            Setting::Executables(names) => {
                self.process.executables.extend(names.into_iter().map(|name| Ruled::new(name, origin.clone())));
            }
            Setting::NetworkPart(part) => self.network.apply(part, origin),
            Setting::SyscallAllow(call) => self.syscalls.allow.push(Ruled::new(call, origin)),
            Setting::SyscallDeny(call) => self.syscalls.deny.push(Ruled::new(call, origin)),
            Setting::EnvPass(name) => self.env.pass.push(Ruled::new(name, origin)),
            Setting::EnvBlock(name) => self.env.block.push(Ruled::new(name.into(), origin)),
            Setting::EnvSet(name, value) => {
                self.env.set.retain(|entry| entry.value.0 != name);
                self.env.set.push(Ruled::new((name, value), origin));
            }
        }
    }
}
