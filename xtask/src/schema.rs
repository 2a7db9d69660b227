//! `cargo xtask schema`: the JSON Schema of policy files, for editors. Owns where the committed copy lies and whether it is
//! still true; what it says comes from the types of `policy`. Called by people and, with `--check`, by `.ci/run`.

use std::fs;

use crate::problems::Problems;
use crate::workspace::Workspace;

const SCHEMA: &str = "docs/policy.schema.json";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail when the committed file is not what the types say
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(workspace: &Workspace, args: &Args) -> Result<String, Problems> {
    let schema = cofferdam_policy::json_schema();
    if !args.check {
        fs::write(workspace.root.join(SCHEMA), schema)
            .map_err(|e| Problems::one(format!("cannot write {SCHEMA}: {e}")))?;
        return Ok(format!("schema: {SCHEMA} written"));
    }
    if workspace.read(SCHEMA)? == schema {
        Ok(format!("schema: {SCHEMA} is what the types say"))
    } else {
        Err(Problems::one(format!("{SCHEMA} is not what the types say: run `cargo xtask schema` and commit it")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    /// The fields of a table as they are written in a policy file: `files.read`, `limits.cpu`.
    fn fields(schema: &Value, table: &Value, prefix: &str, found: &mut Vec<String>) {
        for (name, field) in table["properties"].as_object().expect("a table has properties") {
            let definition = field["$ref"].as_str().and_then(|to| to.strip_prefix("#/$defs/"));
            match definition.map(|name| &schema["$defs"][name]).filter(|inner| inner["properties"].is_object()) {
                Some(inner) => fields(schema, inner, &format!("{prefix}{name}."), found),
                None => found.push(format!("{prefix}{name}")),
            }
        }
    }

    #[test]
    fn the_policy_guide_names_every_field_of_the_schema() {
        // From the environment: the tests also run from a copy of the sources in another place.
        let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo and nextest");
        let path = std::path::Path::new(&root).join("../docs/guides/policy.md");
        let guide = std::fs::read_to_string(path).expect("the guide");
        let schema: Value = serde_json::from_str(&cofferdam_policy::json_schema()).expect("JSON");
        let mut found = Vec::new();
        fields(&schema, &schema, "", &mut found);
        assert!(found.len() > 30, "{found:?}");
        for field in found {
            assert!(guide.contains(&format!("`{field}`")), "`{field}` is not in the guide");
        }
    }
}
