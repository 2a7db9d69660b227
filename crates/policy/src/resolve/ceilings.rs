//! Holding a merged policy to the org's requirements and to the maxima of presets. Owns each comparison and its message; it cuts
//! nothing off a request (that is an error), and the file is `format::requirements`'. Called by `layers` last.
//!
//! A built-in value follows the ceiling silently; what a layer asked for and goes beyond is refused with both origins.

use std::borrow::Cow;
use std::fmt::Display;

use crate::builtin::{DEFAULT_PRESET, Preset};
use crate::language::path::{Base, PathExpr, Places, is_at_or_below, name_matches_ignoring_case};
use crate::types::ceilings::Ceilings;
use crate::types::error::PolicyError;
use crate::types::files::{Access, FileRule, Hold, Stand};
use crate::types::network::NetworkMode;
use crate::types::network::NetworkRule;
use crate::types::network_part::NetworkPart;
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::Policy;
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;

impl Ceilings {
    /// Refuses what was asked for beyond a ceiling, and lets built-in values follow the ceilings.
    pub(crate) fn hold(&self, policy: &mut Policy, places: Option<&Places>) -> Result<(), PolicyError> {
        self.hold_presets(policy)?;
        self.hold_scalars(policy)?;
        self.hold_hosts(policy)?;
        self.hold_environment(policy)?;
        self.hold_writes(policy, places)?;
        self.deny_for_good(policy, places)
    }

    /// Lowers these to the maxima of a preset: of two about the same setting the tighter counts, so that it is the one named.
    pub(crate) fn lower_to(&mut self, preset: &Preset) {
        for most in preset.most() {
            let is_kept = |now: &Ruled<Scalar>| now.value.is_within(&most.value);
            if !self.most.iter().any(is_kept) {
                self.most.retain(|now| !most.value.is_within(&now.value));
                self.most.push(most);
            }
        }
    }

    pub(crate) fn allows_preset(&self, name: &str) -> bool {
        name == DEFAULT_PRESET
            || self.presets.as_ref().is_none_or(|allowed| allowed.value.iter().any(|one| one == name))
    }

    fn hold_presets(&self, policy: &Policy) -> Result<(), PolicyError> {
        let refused = policy.presets.iter().find(|preset| !self.allows_preset(&preset.value));
        if let (Some(preset), Some(ceiling)) = (refused, &self.presets) {
            let request = Setting::Preset(preset.value.clone());
            let allowed = format!("presets {}", ceiling.value.join(", "));
            return beyond(&request, &preset.origin, allowed, &ceiling.origin);
        }
        Ok(())
    }

    fn hold_hosts(&self, policy: &mut Policy) -> Result<(), PolicyError> {
        let asks = |rule: &NetworkRule| Setting::NetworkPart(NetworkPart::Allow(rule.into()));
        if let Some(first) = self.hosts_within.first() {
            let within =
                |rule: &&NetworkRule| self.hosts_within.iter().any(|ceiling| ceiling.value.allows_all(&rule.endpoint));
            if let Some(rule) = policy.network.allow.iter().find(|rule| !within(rule)) {
                let all: Vec<String> = self.hosts_within.iter().map(|ceiling| ceiling.value.to_string()).collect();
                let ceiling = format!("hosts within {} only", all.join(", "));
                return beyond(&asks(rule), &rule.origin, ceiling, &first.origin);
            }
        }
        for Ruled { value: deny, origin } in self.deny_hosts.iter().filter(|deny| deny.value.is_whole()) {
            let lifts =
                |rule: &&NetworkRule| rule.origin.layer != Layer::BuiltIn && deny.endpoint.denies_all(&rule.endpoint);
            if let Some(rule) = policy.network.allow.iter().find(lifts) {
                return beyond(&asks(rule), &rule.origin, format!("`{}` is denied", deny.endpoint), origin);
            }
        }
        for deny in &self.deny_hosts {
            policy.network.apply(NetworkPart::Deny(deny.value.clone()), deny.origin.clone());
        }
        policy.network.within.clone_from(&self.hosts_within);
        Ok(())
    }

    fn hold_scalars(&self, policy: &mut Policy) -> Result<(), PolicyError> {
        for most in &self.most {
            match policy.same(&most.value) {
                Some(asked) if fits(&asked.value, &most.value) => {}
                Some(asked) if asked.origin.layer != Layer::BuiltIn || !follows(&most.value) => {
                    return beyond(&asked.value, &asked.origin, ceiling_text(&most.value), &most.origin);
                }
                Some(_) | None => policy.set(most.value.clone(), most.origin.clone()),
            }
            // No layer chose it, so the operator could still be asked about hosts; where there may be no network, there is no question.
            if most.value == Scalar::Network(NetworkMode::None) {
                policy.set(most.value.clone(), most.origin.clone());
            }
        }
        Ok(())
    }

    fn hold_environment(&self, policy: &mut Policy) -> Result<(), PolicyError> {
        for ceiling in &self.never_pass {
            let names_it = |pass: &&Ruled<String>| name_matches_ignoring_case(&ceiling.value, &pass.value);
            if let Some(pass) = policy.env.pass.iter().find(names_it) {
                let request = Setting::EnvPass(pass.value.clone());
                return beyond(&request, &pass.origin, format!("never `{}`", ceiling.value), &ceiling.origin);
            }
            // A wider glob in `pass` may still match: a block beats it.
            policy.env.block.push(Ruled::new(ceiling.value.clone().into(), ceiling.origin.clone()));
        }
        Ok(())
    }

    fn hold_writes(&self, policy: &mut Policy, places: Option<&Places>) -> Result<(), PolicyError> {
        let Some(first) = self.write_within.first() else { return Ok(()) };
        let within = |path: &PathExpr| self.write_within.iter().any(|root| lies_within(path, &root.value, places));
        let roots: Vec<&str> = self.write_within.iter().map(|root| root.value.as_str()).collect();
        let ceiling = format!("writing within {} only", roots.join(", "));

        let project = PathExpr::project();
        if policy.project.value > Access::Read && !within(&project) {
            if policy.project.origin.layer != Layer::BuiltIn {
                let request = Scalar::Project(policy.project.value);
                return beyond(&request, &policy.project.origin, ceiling, &first.origin);
            }
            policy.project = Ruled::new(Access::Read, first.origin.clone());
        }
        let outside = |rule: &FileRule| rule.access > Access::Read && !within(&rule.path);
        policy.files.retain(|rule| !(Preset::gave_by(rule, DEFAULT_PRESET) && outside(rule)));
        if let Some(rule) = policy.files.iter().find(|rule| outside(rule)) {
            return beyond(&rule_text(rule), &rule.origin, ceiling, &first.origin);
        }
        policy.write_within.clone_from(&self.write_within);
        Ok(())
    }

    fn deny_for_good(&self, policy: &mut Policy, places: Option<&Places>) -> Result<(), PolicyError> {
        for Ruled { value: (path, _), origin } in &self.deny {
            let lifts = |rule: &&FileRule| {
                rule.access > Access::Protect
                    && rule.origin.layer != Layer::BuiltIn
                    && lies_within(&rule.path, path, places)
            };
            if let Some(rule) = policy.files.iter().find(lifts) {
                return beyond(&rule_text(rule), &rule.origin, format!("`{path}` is denied"), origin);
            }
        }
        policy.files.extend(self.deny.iter().map(|deny| FileRule {
            path: deny.value.0.clone(),
            access: Access::Deny,
            stand: Stand::Refuse,
            hold: Hold::Nothing,
            only_missing: false,
            optional: true,
            is_final: true,
            reason: Cow::Owned(deny.value.1.clone()),
            origin: deny.origin.clone(),
        }));
        Ok(())
    }
}

/// A ceiling about the mode is the mode itself: neither contains the other.
fn fits(asked: &Scalar, most: &Scalar) -> bool {
    if matches!(most, Scalar::Mode(_)) { asked == most } else { asked.is_within(most) }
}

/// Whether a built-in value beyond the ceiling follows it. Of these a preset is chosen for the value it has.
fn follows(most: &Scalar) -> bool {
    !matches!(most, Scalar::Isolation(_) | Scalar::Network(_) | Scalar::SyscallMode(_))
}

fn ceiling_text(most: &Scalar) -> String {
    match most {
        Scalar::Isolation(level) => format!("at least `{level}`"),
        Scalar::Transaction(least) => format!("at least `{least}`"),
        Scalar::AuditKeep(_) => format!("at least `{}`", most.amount()),
        Scalar::Network(mode) => format!("at most `{mode}`"),
        Scalar::Debug(_) => "no debugging".to_owned(),
        Scalar::SyscallMode(mode) => format!("`{mode}` only"),
        Scalar::Mode(mode) => format!("mode `{mode}`"),
        Scalar::UnknownVerdict(verdict) => format!("at most `{verdict}`"),
        limit => format!("at most `{limit}`"),
    }
}

/// Whether `path` lies at or below `root`: as written, or else as both expand on this host. No by default.
fn lies_within(path: &PathExpr, root: &PathExpr, places: Option<&Places>) -> bool {
    if !root.is_one_path() {
        return path.is_same_place(root);
    }
    let everything = root.base == Base::Root && root.rest.as_os_str().is_empty();
    if everything || path.base == root.base && is_at_or_below(&path.rest, &root.rest) {
        return true;
    }
    let Some(places) = places else { return false };
    let (paths, roots) = (path.expand(places), root.expand(places));
    !paths.is_empty() && paths.iter().all(|path| roots.iter().any(|root| is_at_or_below(path, root)))
}

fn rule_text(rule: &FileRule) -> String {
    format!("files.{} = {:?}", rule.access, rule.path.as_str())
}

fn beyond<T>(
    request: &impl Display,
    origin: &Origin,
    ceiling: String,
    ceiling_origin: &Origin,
) -> Result<T, PolicyError> {
    Err(PolicyError::BeyondCeiling {
        request: request.to_string(),
        origin: origin.clone(),
        ceiling: Box::new(Ruled::new(ceiling, ceiling_origin.clone())),
    })
}
