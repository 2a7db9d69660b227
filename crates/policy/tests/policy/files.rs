//! The policy file: what it accepts, what it refuses and how it says so.

use std::time::Duration;

use cofferdam_policy::{ALWAYS_DENIED, Access, Layer, PolicyError, Setting, parse, parse_size, parse_time};

fn parsed(text: &str) -> Vec<(String, Option<u32>)> {
    let file = parse(Layer::User, "p.toml", text).unwrap();
    file.settings.iter().map(|setting| (setting.value.to_string(), setting.origin.line)).collect()
}

fn refused(text: &str) -> PolicyError {
    parse(Layer::User, "p.toml", text).expect_err(text)
}

#[test]
fn every_setting_keeps_its_line() {
    let text = "version = 1\ndebug = false\n\n[files]\nwrite = [\n  \"/opt\",\n  { path = \"~/x\", optional = true, \
                reason = \"why\" },\n]\n[limits]\ntimeout = \"10m\"\nfile_size = \"1G\"\n";
    let expected = [
        ("debug = false", 2),
        ("files.write = \"/opt\"", 6),
        ("files.write = \"~/x\"", 7),
        ("limits.timeout = \"10m\"", 10),
        ("limits.file_size = \"1G\"", 11),
    ];
    assert_eq!(parsed(text), expected.map(|(rule, line)| (rule.to_owned(), Some(line))));
}

#[test]
fn a_table_entry_keeps_its_reason() {
    let file = parse(Layer::User, "p", "[files]\nread = [{ path = \"/a\", optional = true, reason = \"r\" }]").unwrap();
    let Setting::File { access, optional, reason, .. } = &file.settings[0].value else { panic!("a file rule") };
    assert_eq!((*access, *optional, reason.as_ref()), (Access::Read, true, "r"));
}

#[test]
fn a_preset_is_one_name_or_a_list() {
    assert_eq!(parsed("preset = \"cargo\"").len(), 1);
    assert_eq!(parsed("preset = [\"cargo\", \"node\"]").len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_position_and_suggestion() {
    let error = refused("debug = true\n[files]\nwrit = []\n");
    let PolicyError::Syntax { file, line, column, .. } = &error else { panic!("{error:?}") };
    assert_eq!((file.as_str(), *line, *column), ("p.toml", 3, 1));
    assert_eq!(error.hint().as_deref(), Some("did you mean `write`?"));
    for text in ["unknown = 1", "[files]\nread = [{ path = \"a\", mode = \"x\" }]", "[env]\nkeep = []", "[surprise]"] {
        assert!(matches!(refused(text), PolicyError::Syntax { .. }), "{text}");
    }
}

#[test]
fn values_without_meaning_are_refused() {
    for text in [
        "version = 2",
        "isolation = \"strong\"",
        "project = \"deny\"",
        "project = \"protect\"",
        "[files]\nwrite = [\"/a/*\"]",
        "[files]\nread = [\"../x\"]",
        "[files]\nread = [\"\"]",
        "[files]\nread = [{ optional = true }]",
        "[process]\nmax = 0",
        "[process]\nmax = -1",
        "[process]\nexecutables = []",
        "[process]\nexecutables = [\"\"]",
        "[limits]\ntimeout = \"soon\"",
        "[limits]\ntimeout = 0",
        "[limits]\ntimeout = \"99999999999999999999d\"",
        "[limits]\nfile_size = -5",
        "[env]\npass = [\"A=B\"]",
        "[env]\nset = { \"\" = \"x\" }",
        "[env]\nset = { A = \"x\\u0000\" }",
        "allow_isolation_none = true",
    ] {
        refused(text);
    }
}

#[test]
fn approval_of_no_isolation_counts_in_the_org_layer_only() {
    for layer in [Layer::User, Layer::Project, Layer::ProjectLocal] {
        let error = parse(layer, "p", "allow_isolation_none = true").expect_err("not org");
        assert!(matches!(error, PolicyError::OrgOnly { .. }));
    }
    assert!(parse(Layer::Org, "p", "allow_isolation_none = true").is_ok());
    for layer in [Layer::User, Layer::Project, Layer::ProjectLocal] {
        let error = parse(layer, "p", "allow_network_host = true").expect_err("not org");
        assert!(matches!(error, PolicyError::OrgOnly { .. }), "{error:?}");
    }
    assert!(parse(Layer::Org, "p", "allow_network_host = true").is_ok());
}

#[test]
fn always_denied_calls_cannot_be_allowed() {
    assert!(ALWAYS_DENIED.is_sorted());
    for call in ALWAYS_DENIED {
        let error = refused(&format!("[syscalls]\nallow = [\"{call}\"]"));
        assert!(matches!(error, PolicyError::AlwaysDenied { .. }), "{call}");
    }
    assert_eq!(parsed("[syscalls]\nallow = [\"personality\"]\ndeny = [\"mount\"]").len(), 2);
}

#[test]
fn amounts_have_units() {
    assert_eq!(parse_time("90"), Some(Duration::from_secs(90)));
    assert_eq!(parse_time("2h"), Some(Duration::from_hours(2)));
    assert_eq!(parse_size("10M"), Some(10 << 20));
    assert_eq!(parse_size("1GiB"), Some(1 << 30));
    for text in ["", "m", "+5", "1.5h", "5 m", "0", "36601d", "18446744073709551615"] {
        assert_eq!(parse_time(text), None, "{text}");
    }
    assert_eq!(parse_size("99999999999T"), None);
}

#[test]
fn a_value_that_is_set_does_not_show_in_messages() {
    assert_eq!(parsed("[env]\nset = { A = \"hunter2\" }")[0].0, "env.set.A = ...");
}

#[cfg(feature = "schema")]
#[test]
fn the_schema_names_every_table() {
    let schema = cofferdam_policy::json_schema();
    for key in ["files", "process", "network", "limits", "syscalls", "env", "max_violations", "write"] {
        assert!(schema.contains(&format!("\"{key}\"")), "{key}");
    }
}
