//! The table of defaults and maxima (R2.10), which ships as the presets `tool` and `process-tool`.

use cofferdam_policy::{Ceilings, Inputs, Layer, LayerInput, PRESETS, Policy, PolicyError, parse, resolve};

use crate::documents::read;
use crate::{approved, layer, resolved};

/// Preset, setting, its default, its maximum, and the least that is beyond.
const TABLE: &[(&str, &str, &str, &str, &str)] = &[
    ("tool", "limits.cpus", "1", "2", "2.001"),
    ("tool", "limits.memory", "\"512M\"", "\"2G\"", "2147483649"),
    ("tool", "limits.timeout", "\"2m\"", "\"10m\"", "\"601s\""),
    ("tool", "process.max", "100", "500", "501"),
    ("tool", "limits.open_files", "1024", "4096", "4097"),
    ("tool", "limits.output", "\"1M\"", "\"10M\"", "10485761"),
    ("process-tool", "limits.timeout", "\"1m\"", "\"5m\"", "\"301s\""),
    ("process-tool", "limits.output", "\"1M\"", "\"10M\"", "10485761"),
];

/// The value in force as a file would have it, and its origin.
fn in_force(policy: &Policy, setting: &str) -> Option<(String, String)> {
    if setting == "process.max" {
        return policy.process.max.as_ref().map(|max| (max.value.to_string(), max.origin.to_string()));
    }
    let mut limits = policy.scalars_of("limits").map(|limit| (limit.value.to_string(), limit.origin.to_string()));
    limits.find_map(|(text, origin)| Some((text.strip_prefix(&format!("{setting} = "))?.to_owned(), origin)))
}

fn file(preset: &str, setting: &str, value: &str) -> LayerInput {
    layer(Layer::User, &format!("preset = \"{preset}\"\n{setting} = {value}"))
}

/// What the ceiling was and the line of the shipped file that it names.
#[track_caller]
fn refused(result: Result<Policy, PolicyError>) -> (String, String) {
    let error = result.expect_err("beyond the maximum");
    let PolicyError::BeyondCeiling { ceiling, .. } = &error else { panic!("{error}") };
    assert_eq!(ceiling.origin.layer, Layer::BuiltIn, "{error}");
    assert_eq!(error.hint().as_deref(), Some("ask for less, or do without the preset"));
    let text = read(&ceiling.origin.source);
    let line = text.lines().nth(ceiling.origin.line.unwrap() as usize - 1).unwrap();
    (ceiling.value.clone(), line.to_owned())
}

#[test]
fn defaults_and_maxima_of_tools_are_those_of_the_table_and_beyond_is_refused() {
    for (preset, setting, default, most, beyond) in TABLE {
        let alone = resolved(&[layer(Layer::User, &format!("preset = \"{preset}\""))]).unwrap();
        let (value, origin) = in_force(&alone, setting).unwrap();
        assert_eq!(value, *default, "{preset}: {setting}");
        assert!(origin.starts_with(&format!("built-in: profiles/presets/{preset}.toml:")), "{origin}");

        let at_most = resolved(&[file(preset, setting, most)]).unwrap();
        assert_eq!(in_force(&at_most, setting), Some(((*most).to_owned(), "user: user.toml:2".to_owned())));

        let (ceiling, line) = refused(resolved(&[file(preset, setting, beyond)]));
        assert_eq!(ceiling, format!("at most `{setting} = {most}`"));
        let key = setting.rsplit('.').next().unwrap();
        assert_eq!(line, format!("{key} = {most}"), "the origin is the line of the maximum");
    }
}

#[test]
fn every_maximum_that_ships_is_in_the_table_and_above_its_default() {
    for preset in PRESETS {
        let source = format!("profiles/presets/{}.toml", preset.name);
        let parsed = parse(Layer::BuiltIn, &source, &read(&source)).unwrap();
        for most in &parsed.most {
            let text = most.value.to_string();
            let in_table = |row: &&(&str, &str, &str, &str, &str)| {
                row.0 == preset.name && text == format!("{} = {}", row.1, row.3)
            };
            assert!(TABLE.iter().any(|row| in_table(&row)), "{source}: {text}");
            assert!(
                parsed
                    .settings
                    .iter()
                    .any(|setting| text.split(" = ").next() == setting.value.to_string().split(" = ").next()),
                "{source}: {text} has no default, so it would be the default"
            );
        }
    }
}

#[test]
fn a_tool_in_isolation_process_has_that_isolation() {
    let policy = resolved(&[layer(Layer::User, "preset = \"process-tool\"")]).unwrap();
    assert_eq!(policy.isolation.value.to_string(), "process");
}

#[test]
fn whoever_asks_and_whoever_chose_the_preset_the_maximum_holds() {
    let environment = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    let chosen = layer(Layer::Org, "preset = \"tool\"");
    let beyond = "limits.memory = \"4G\"";
    for layers in [
        vec![chosen.clone(), layer(Layer::User, beyond)],
        vec![layer(Layer::User, "preset = \"tool\""), layer(Layer::Org, beyond)],
        vec![chosen.clone(), approved(Layer::Project, beyond)],
        vec![chosen.clone(), approved(Layer::ProjectLocal, beyond)],
        vec![layer(Layer::User, beyond), approved(Layer::Project, "preset = \"tool\"")],
    ] {
        refused(resolved(&layers));
    }
    let more = crate::flags(&[("--memory", "4G")]);
    let layers = [chosen.clone()];
    refused(resolve(&Inputs { layers: &layers, flags: &more, ..Inputs::default() }));
    let variables = environment("COFFERDAM_MEMORY", "4G");
    refused(resolve(&Inputs { layers: &layers, environment: &variables, ..Inputs::default() }));
    let tool = crate::flags(&[("--preset", "tool")]);
    refused(resolve(&Inputs { environment: &variables, flags: &tool, ..Inputs::default() }));
    let both = [variables, environment("COFFERDAM_PRESET", "tool")].concat();
    refused(resolve(&Inputs { environment: &both, ..Inputs::default() }));

    // An unapproved project can neither raise a limit nor choose a preset: what it says is held back, not refused.
    let held = resolved(&[chosen, layer(Layer::Project, beyond)]).unwrap();
    assert_eq!(held.limits.memory.unwrap().value, 512 << 20);
    assert_eq!(held.held_back[0].rule, beyond);
    let held = resolved(&[layer(Layer::User, beyond), layer(Layer::Project, "preset = \"tool\"")]).unwrap();
    assert_eq!(held.limits.memory.unwrap().value, 4 << 30);
}

#[test]
fn of_requirements_and_maxima_the_tighter_is_named() {
    let under = |requirements: &str, asked: &str| {
        let ceilings = Ceilings::parse("requirements.toml", requirements).unwrap();
        let layers = [file("tool", "limits.memory", asked)];
        resolve(&Inputs { layers: &layers, requirements: Some(&ceilings), ..Inputs::default() })
    };
    let layer_of = |result: Result<Policy, PolicyError>| match result.expect_err("beyond") {
        PolicyError::BeyondCeiling { ceiling, .. } => ceiling.origin.layer,
        other => panic!("{other}"),
    };
    let (tighter, wider) = ("limits.memory = \"1G\"", "limits.memory = \"8G\"");
    assert_eq!(layer_of(under(tighter, "\"16G\"")), Layer::Requirements);
    assert_eq!(layer_of(under(tighter, "\"2G\"")), Layer::Requirements);
    assert_eq!(layer_of(under(wider, "\"16G\"")), Layer::BuiltIn);
    assert_eq!(layer_of(under("limits.memory = \"2G\"", "\"3G\"")), Layer::Requirements);
    assert!(under(tighter, "\"1G\"").is_ok() && under(wider, "\"2G\"").is_ok());

    let processes = |requirements: &str, asked: &str| {
        let ceilings = Ceilings::parse("requirements.toml", requirements).unwrap();
        let layers = [file("tool", "process.max", asked)];
        resolve(&Inputs { layers: &layers, requirements: Some(&ceilings), ..Inputs::default() })
    };
    assert_eq!(layer_of(processes("process.max = 50", "600")), Layer::Requirements);
    assert_eq!(layer_of(processes("process.max = 5000", "600")), Layer::BuiltIn);

    // The default of a preset is not the user's request: it follows the org's ceiling.
    let ceilings = Ceilings::parse("requirements.toml", "limits.memory = \"256M\"").unwrap();
    let layers = [layer(Layer::User, "preset = \"tool\"")];
    let policy = resolve(&Inputs { layers: &layers, requirements: Some(&ceilings), ..Inputs::default() }).unwrap();
    assert_eq!(policy.limits.memory.unwrap().value, 256 << 20);
}

#[test]
fn of_two_presets_the_tighter_maximum_counts() {
    let ask = |timeout: &str| {
        resolved(&[layer(Layer::User, &format!("preset = [\"tool\", \"process-tool\"]\nlimits.timeout = {timeout}"))])
    };
    assert_eq!(refused(ask("\"6m\"")), ("at most `limits.timeout = \"5m\"`".to_owned(), "timeout = \"5m\"".to_owned()));
    assert!(ask("\"5m\"").is_ok());
}

#[test]
fn maxima_are_for_shipped_presets_and_a_file_that_has_them_is_told_where_they_go() {
    for kind in [Layer::Org, Layer::User, Layer::Project, Layer::ProjectLocal] {
        let error = parse(kind, "p.toml", "debug = true\n[most.limits]\nmemory = \"1G\"").expect_err("not a preset");
        assert!(matches!(error, PolicyError::PresetOnly { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("requirements.toml")));
    }
    for text in ["[most]\ndebug = true", "[most.process]\nallow_fork = true", "[most.limits]\nmemory = 5"] {
        assert!(parse(Layer::BuiltIn, "p.toml", text).is_err(), "{text}");
    }
}
