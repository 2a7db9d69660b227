//! Promises of the policy crate, kept in one binary so that they link once. Owns tables and properties over the public
//! API; needs no root, and of the file system only the documents whose examples it parses. Run by `cargo test -p cofferdam-policy`.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod built_in;
mod ceilings;
mod decide;
mod diff;
mod documents;
mod export;
mod files;
mod hosts;
mod layers;
mod learn;
mod limits;
mod maxima;
mod network;
mod paths;
mod properties;

use cofferdam_policy::{BY_HAND, Inputs, Layer, LayerInput, Places, Policy, PolicyError, Ruled, Setting, resolve};

fn layer(layer: Layer, text: &str) -> LayerInput {
    LayerInput { layer, source: format!("{layer}.toml"), text: text.to_owned(), trusted: false }
}

fn approved(kind: Layer, text: &str) -> LayerInput {
    LayerInput { trusted: true, ..layer(kind, text) }
}

fn resolved(layers: &[LayerInput]) -> Result<Policy, PolicyError> {
    resolve(&Inputs { layers, ..Inputs::default() })
}

/// As they stand on the command line.
fn flags(given: &[(&str, &str)]) -> Vec<Ruled<Setting>> {
    let by_hand = |flag: &str| BY_HAND.iter().find(|by_hand| by_hand.flag == flag).unwrap();
    given.iter().map(|(flag, value)| by_hand(flag).of_flag(value.as_ref()).unwrap()).collect()
}

fn places() -> Places {
    Places {
        other_home: None,
        home: "/home/u".into(),
        project: Some("/home/u/p".into()),
        git_dirs: vec!["/home/u/p/.git".into()],
        variables: Vec::new(),
    }
}
