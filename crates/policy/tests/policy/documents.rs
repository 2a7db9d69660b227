//! Examples in documents parse: what a reader copies must work. A block that is marked `toml` is a policy file; one whose
//! first line names `requirements.toml` holds ceilings.

use std::path::PathBuf;

use cofferdam_policy::{Ceilings, Inputs, Layer, parse, resolve};

use crate::{layer, resolved};

const DOCUMENTS: &[&str] =
    &["README.md", "docs/guides/policy.md", "docs/guides/credentials.md", "docs/guides/troubleshooting.md"];

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

/// The numbers that R4.2 names.
#[test]
fn the_guide_has_a_ready_policy_for_an_unattended_build() {
    let guide = read("docs/guides/policy.md");
    let (_, after) = guide.split_once("A build without a user at the terminal:").unwrap();
    let policy = resolved(&[layer(Layer::User, &toml_blocks(after)[0])]).unwrap();
    let limits = policy.limits;
    assert_eq!(limits.cpu_seconds.unwrap().value, 300);
    assert_eq!(limits.timeout.unwrap().value.as_secs(), 600);
    assert_eq!(limits.memory.unwrap().value, 512 << 20);
    assert_eq!(policy.process.max.unwrap().value, 25);
    assert!(limits.open_files.is_some() && limits.storage.is_some());
    assert!(limits.tmp_size.is_some() && limits.output.is_some() && limits.file_size.is_some());
}

#[test]
fn the_guide_shows_the_message_of_a_refusal_as_it_is() {
    let flags = crate::flags(&[("--preset", "tool"), ("--memory", "4G")]);
    let error = resolve(&Inputs { flags: &flags, ..Inputs::default() }).expect_err("beyond");
    assert!(read("docs/guides/policy.md").contains(&format!("error: {error}\n")), "{error}");
}
