//! What will be enforced, as facts: per layer whether it is installed and by which mechanism.
//! Built by `plan`, printed by `explain` and `--json`; a layer that is missing is listed as missing, never left out.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerState {
    Enforced,
    /// Installed, with less than the layer could do.
    Reduced,
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PostureLine {
    pub layer: &'static str,
    pub state: LayerState,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Posture(pub Vec<PostureLine>);

impl Posture {
    pub(crate) fn enforced(&mut self, layer: &'static str, by: impl Into<String>) {
        self.0.push(PostureLine { layer, state: LayerState::Enforced, by: by.into() });
    }

    pub(crate) fn reduced(&mut self, layer: &'static str, by: impl Into<String>) {
        self.0.push(PostureLine { layer, state: LayerState::Reduced, by: by.into() });
    }

    pub(crate) fn missing(&mut self, layer: &'static str, why: impl Into<String>) {
        self.0.push(PostureLine { layer, state: LayerState::Missing, by: why.into() });
    }
}
