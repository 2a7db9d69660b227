//! Examples in documents parse: what a reader copies must work. A block that is marked `toml` is a policy file; one whose
//! first line names `requirements.toml` holds ceilings.

use std::path::PathBuf;

use cofferdam_policy::{Ceilings, Layer, parse};

const DOCUMENTS: &[&str] = &["README.md", "docs/guides/policy.md", "docs/guides/troubleshooting.md"];

/// From the environment: the tests also run from a copy of the sources in another place.
pub(crate) fn read(document: &str) -> String {
    let root = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../..");
    std::fs::read_to_string(root.join(document)).unwrap()
}

fn toml_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```toml" {
            let block: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "```").collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

fn layer_of(block: &str) -> Layer {
    if block.lines().next().is_some_and(|line| line.contains("/etc/cofferdam")) { Layer::Org } else { Layer::User }
}

#[test]
fn every_example_in_the_documents_parses() {
    for document in DOCUMENTS {
        let blocks = toml_blocks(&read(document));
        assert!(!blocks.is_empty(), "{document} has no example");
        for block in blocks {
            let is_ceiling = block.lines().next().is_some_and(|line| line.contains("requirements.toml"));
            let error = if is_ceiling {
                Ceilings::parse(document, &block).err()
            } else {
                parse(layer_of(&block), document, &block).err()
            };
            assert_eq!(error, None, "{document}:\n{block}");
        }
    }
}
