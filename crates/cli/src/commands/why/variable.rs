//! What `sandbox why` says about a variable: whether the caller's comes along, by which rule, and the smallest change. Owns the wording;
//! the verdict is `policy`'s.

use cofferdam_policy::path::name_matches;
use cofferdam_policy::{EnvMode, Policy};

pub(super) fn about(name: &str, policy: &Policy, environment: &[(String, String)]) -> Vec<String> {
    let env = &policy.env;
    let is_set = environment.iter().any(|(set, _)| set == name);
    let unset = if is_set { "" } else { " (it is not set here)" };
    if let Some(credential) = policy.network.credentials.iter().find(|one| one.value.variable == name) {
        let host = format!("{}:{}", credential.value.host, credential.value.port);
        return vec![format!("{name} is a placeholder inside: its value is put in at {host} [{}]", credential.origin)];
    }
    if let Some(rule) = env.set.iter().find(|rule| rule.value.0 == name) {
        return vec![format!("{name} has a value of its own inside [{}]", rule.origin)];
    }
    if env.lets_through(name) {
        let named = env.pass.iter().find(|glob| glob.value == name || name_matches(&glob.value, name));
        let clean = env.clean.iter().find(|glob| name_matches(&glob.value, name));
        let by = match (named, clean) {
            (Some(rule), _) => &rule.origin,
            (None, Some(rule)) if env.mode.value == EnvMode::Clean => &rule.origin,
            _ => &env.mode.origin,
        };
        return vec![
            format!("{name} is passed{unset} [{by}]"),
            format!("to drop it: `env.block = [{name:?}]` in a policy file"),
        ];
    }
    let why = match env.blocked_by(name) {
        Some(origin) => format!("{name} is not passed{unset}: variables of such names may hold secrets [{origin}]"),
        None => format!(
            "{name} is not passed{unset}: env.mode is `{}`, and no rule names it [{}]",
            env.mode.value, env.mode.origin
        ),
    };
    vec![why, format!("to pass it: --env {name}, or `env.pass = [{name:?}]` in a policy file")]
}
