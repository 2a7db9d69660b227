//! JSON with comments, YAML and TOML as one kind of value. Owns the choice by name and content; knows no format.
//! Called by `import`.

use std::path::Path;

use serde_json::Value;

use super::yaml;

pub(super) fn parse(file: &Path, text: &str) -> Result<Value, String> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let value = match extension {
        "toml" => toml::from_str::<toml::Table>(text)
            .map_err(|error| error.to_string())
            .and_then(|table| serde_json::to_value(table).map_err(|error| error.to_string())),
        "yaml" | "yml" => yaml::parse(text),
        _ => serde_json::from_str(&without_comments(text)).or_else(|error| {
            // A file without a telling name may be YAML, which JSON is nearly a part of.
            if extension == "json" { Err(error.to_string()) } else { yaml::parse(text) }
        }),
    }?;
    if value.is_object() { Ok(value) } else { Err("it is no table of settings".to_owned()) }
}

/// JSON as editors let people write it: `//` comments and a comma before a closing bracket are taken out.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
            }
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '/' if !in_string && chars.peek() == Some(&'/') => while chars.next_if(|c| *c != '\n').is_some() {},
            ']' | '}' if !in_string => {
                let kept = out.trim_end().trim_end_matches(',').len();
                if out.trim_end().ends_with(',') {
                    out.truncate(kept);
                }
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}
