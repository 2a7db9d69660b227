//! From everything that was said to one policy. Owns the order of layers and the treatment of unapproved project
//! policies; single settings are applied by `merge`, ceilings held by `ceilings`. Called by the edge, once per run.
//!
//! Order, weakest first: shipped lists, `default` preset, named presets, org, user, project, project.local,
//! environment, files named for this run, flags. Scalars: the later wins. Lists add up. Ceilings (requirements, maxima of presets) are checked
//! last and cut nothing off.

use std::borrow::Cow;

use crate::builtin::{DEFAULT_PRESET, PRESETS, Preset};
use crate::format::by_hand;
use crate::format::file;
use crate::language::path::Places;
use crate::resolve::tighten::{Effect, effect};
use crate::types::ceilings::Ceilings;
use crate::types::error::{PolicyError, did_you_mean};
use crate::types::files::Access;
use crate::types::origin::{Layer, Origin, Ruled};
use crate::types::policy::{HeldBack, Isolation, Mode, OnUnknown, Policy};
use crate::types::scalar::Scalar;
use crate::types::setting::Setting;
use crate::types::validate::check;

/// One policy file, as the caller read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerInput {
    pub layer: Layer,
    /// The name under which the user knows the file.
    pub source: String,
    pub text: String,
    /// For a project's files: whether this very content was approved. Other layers are the user's or the org's own.
    pub trusted: bool,
}

/// Everything that was said.
#[derive(Debug, Clone, Copy, Default)]
pub struct Inputs<'a> {
    pub layers: &'a [LayerInput],
    /// The caller's environment; only `COFFERDAM_*` is looked at.
    pub environment: &'a [(String, String)],
    /// What the flags say, see [`crate::BY_HAND`].
    pub flags: &'a [Ruled<Setting>],
    pub requirements: Option<&'a Ceilings>,
    /// Lets ceilings compare paths of different notation. Without it, a path that is not plainly within is refused.
    pub places: Option<&'a Places>,
    /// Without them the policy is what the layers say, and for no run.
    pub circumstances: Option<Circumstances>,
}

/// What a run finds around it that changes what its policy means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether the operator can be asked where no layer says how: at a terminal.
    pub can_ask: bool,
}

/// A setting, and whether it may widen.
#[derive(Clone)]
struct Said {
    setting: Ruled<Setting>,
    trusted: bool,
}

pub fn resolve(inputs: &Inputs<'_>) -> Result<Policy, PolicyError> {
    let said = collect(inputs)?;
    let mut policy = Policy::preset();
    apply_presets(&mut policy, &said)?;
    let trusted_only = unless_all_trusted(&policy, &said);
    apply_settings(&mut policy, said);
    if can_follow_the_list(&policy) {
        if trusted_only.is_some_and(|trusted_only| !can_follow_the_list(&trusted_only)) {
            policy.network.stay(&policy.unknown.verdict.origin);
        }
        policy.network.follow_the_list();
    }
    require_approval_of_none(&policy)?;
    if let Some(ceilings) = ceilings_in_force(inputs.requirements, &policy) {
        ceilings.hold(&mut policy, inputs.places)?;
    }
    policy.add_known();
    if let Some(circumstances) = inputs.circumstances {
        apply_circumstances(&mut policy, circumstances);
    }
    Ok(policy)
}

fn apply_circumstances(policy: &mut Policy, circumstances: Circumstances) {
    let unknown = &mut policy.unknown;
    let is_chosen = unknown.verdict.origin.layer != Layer::BuiltIn || unknown.hook.is_some();
    if unknown.verdict.value == OnUnknown::Ask && !is_chosen && !circumstances.can_ask {
        let origin = Origin { layer: Layer::BuiltIn, source: "no terminal to ask at".into(), line: None };
        unknown.verdict = Ruled::new(OnUnknown::Deny, origin);
    }
    // Where unknown paths are asked about, unknown hosts are, too, unless a mode was chosen.
    let asks = policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::Ask;
    if asks && policy.isolation.value == Isolation::Full {
        policy.network.ask_about_hosts();
    }
    policy.hide_secret_files();
}

/// The policy without what unapproved files say, where they say anything: what is stricter alone can be wider together with
/// something else.
fn unless_all_trusted(presets: &Policy, said: &[Said]) -> Option<Policy> {
    if said.iter().all(|one| one.trusted) {
        return None;
    }
    let mut policy = presets.clone();
    apply_settings(&mut policy, said.iter().filter(|one| one.trusted).cloned().collect());
    Some(policy)
}

/// A list of hosts says which ones only where others are refused or asked about, and where something can hold to it. Elsewhere a
/// layer has to choose the network in so many words.
fn can_follow_the_list(policy: &Policy) -> bool {
    let lets_others_through =
        policy.mode.value == Mode::Dynamic && policy.unknown.verdict.value == OnUnknown::AllowAndLog;
    policy.isolation.value == Isolation::Full && !lets_others_through
}

fn collect(inputs: &Inputs<'_>) -> Result<Vec<Said>, PolicyError> {
    let mut files: Vec<&LayerInput> = inputs.layers.iter().collect();
    files.sort_by_key(|input| input.layer);
    // What the operator named for this run comes after the variables that are there anyway.
    let (named, lasting): (Vec<_>, Vec<_>) = files.into_iter().partition(|input| input.layer == Layer::Flag);
    let mut said = Vec::new();
    add_files(&lasting, &mut said)?;
    add_by_hand(by_hand::of_variables(inputs.environment)?, &mut said)?;
    add_files(&named, &mut said)?;
    add_by_hand(by_hand::with_implied(inputs.flags.to_vec()), &mut said)?;
    Ok(said)
}

fn add_files(files: &[&LayerInput], said: &mut Vec<Said>) -> Result<(), PolicyError> {
    for input in files {
        let trusted = input.trusted || !input.layer.is_untrusted();
        let parsed = file::parse(input.layer, &input.source, &input.text)?;
        said.extend(parsed.settings.into_iter().map(|setting| Said { setting, trusted }));
    }
    Ok(())
}

fn add_by_hand(settings: Vec<Ruled<Setting>>, said: &mut Vec<Said>) -> Result<(), PolicyError> {
    for setting in settings {
        check(&setting)?;
        said.push(Said { setting, trusted: true });
    }
    Ok(())
}

/// Presets go below every layer, whichever names them: a preset is what the user starts from, not what overrides them.
fn apply_presets(policy: &mut Policy, said: &[Said]) -> Result<(), PolicyError> {
    for Said { setting, trusted } in said {
        let Setting::Preset(name) = &setting.value else { continue };
        let Some(preset) = Preset::named(name) else {
            let hint = did_you_mean(name, PRESETS.iter().map(|preset| preset.name)).or_else(|| Some(preset_list()));
            return Err(PolicyError::UnknownPreset { name: name.clone(), origin: setting.origin.clone(), hint });
        };
        // An agent's directory holds its login, and its key is the user's: a project gets neither, approved or not.
        if setting.origin.layer.is_untrusted() && preset.is_for_owners() {
            let setting_name = format!("preset = {name:?}");
            return Err(PolicyError::NotForProjects { setting: setting_name, origin: setting.origin.clone() });
        }
        let again = policy.presets.iter().any(|applied| applied.value == *name);
        if !trusted || again {
            continue;
        }
        if name != DEFAULT_PRESET {
            policy.apply_preset(preset);
        }
        policy.presets.push(Ruled::new(name.clone(), setting.origin.clone()));
    }
    Ok(())
}

fn preset_list() -> String {
    let names: Vec<&str> = PRESETS.iter().map(|preset| preset.name).collect();
    format!("presets are: {}", names.join(", "))
}

fn apply_settings(policy: &mut Policy, said: Vec<Said>) {
    let mut narrowings = Vec::new();
    let asks = |said: &Said| matches!(said.setting.value, Setting::Scalar(Scalar::Transaction(on)) if on.is_on());
    let keeps_work = policy.transaction.value.is_on() || said.iter().any(|said| said.trusted && asks(said));
    for Said { setting, trusted } in said {
        match &setting.value {
            // A transaction writes nothing either, and keeps the work for the operator: an overlay is thrown away.
            Setting::Scalar(Scalar::Project(Access::Overlay)) if !trusted && keeps_work => hold_back(policy, setting),
            Setting::Preset(_) if trusted => {}
            Setting::Executables(names) if !trusted => {
                narrowings.push(Ruled::new(names.clone(), setting.origin));
            }
            _ if trusted => policy.apply(setting),
            _ => match effect(&setting.value, policy) {
                Effect::Stricter => apply_unapproved(policy, setting),
                Effect::Same => {}
                Effect::Wider => hold_back(policy, setting),
            },
        }
    }
    for narrowing in narrowings {
        narrow_executables(policy, narrowing);
    }
}

/// What is said about the project's directory competes with rules about the same path, by layer: there it stays where it was.
fn apply_unapproved(policy: &mut Policy, mut setting: Ruled<Setting>) {
    if matches!(setting.value, Setting::Scalar(Scalar::Project(_))) {
        setting.origin.layer = policy.project.origin.layer;
    }
    policy.apply(setting);
}

fn hold_back(policy: &mut Policy, setting: Ruled<Setting>) {
    policy.held_back.push(HeldBack { rule: setting.value.to_string(), origin: setting.origin });
}

/// An unapproved list can only take programs away. It comes after the trusted lists have added up, because an empty
/// list means "all" and adding to a narrowed one would widen it. It cannot be the only one: what is listed is given to the
/// session with its libraries, wherever it lies.
fn narrow_executables(policy: &mut Policy, narrowing: Ruled<Vec<String>>) {
    let Ruled { value: names, origin } = narrowing;
    let allowed = &mut policy.process.executables;
    let (known, beyond): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| allowed.iter().any(|one| one.value == *name));
    if !known.is_empty() {
        allowed.retain(|one| known.contains(&one.value));
    }
    if !beyond.is_empty() {
        hold_back(policy, Ruled::new(Setting::Executables(beyond), origin));
    }
}

/// The org's requirements and the maxima of every preset that counts, whichever layer named it.
fn ceilings_in_force<'a>(requirements: Option<&'a Ceilings>, policy: &Policy) -> Option<Cow<'a, Ceilings>> {
    let mut ceilings = requirements.map(Cow::Borrowed);
    let named = policy.presets.iter().map(|preset| preset.value.as_str());
    for preset in std::iter::once(DEFAULT_PRESET).chain(named).filter_map(Preset::named) {
        if preset.has_maxima() {
            ceilings.get_or_insert_default().to_mut().lower_to(preset);
        }
    }
    ceilings
}

fn require_approval_of_none(policy: &Policy) -> Result<(), PolicyError> {
    if policy.isolation.value == Isolation::None && policy.none_approved.is_none() {
        return Err(PolicyError::NoneNotApproved { origin: policy.isolation.origin.clone() });
    }
    Ok(())
}
