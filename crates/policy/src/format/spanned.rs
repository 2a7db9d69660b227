//! A value of a TOML file and where it stands. Owns the mapping from byte offsets to lines and columns;
//! does not know what the values mean. Used by the file formats (`file`, `requirements`, `profile`).

use serde::{Deserialize, Deserializer};

/// A value and the byte offset at which it starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) offset: usize,
}

impl<T: Clone> At<T> {
    /// What `change` makes of the value, in the same place.
    pub(crate) fn map<U>(&self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value.clone()), offset: self.offset }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::<T>::deserialize(deserializer)?;
        let offset = spanned.span().start;
        Ok(At { value: spanned.into_inner(), offset })
    }
}

#[cfg(feature = "schema")]
impl<T: schemars::JsonSchema> schemars::JsonSchema for At<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        T::json_schema(generator)
    }
}

/// Where each line of a text starts.
#[derive(Debug)]
pub(crate) struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    pub(crate) fn new(text: &str) -> Self {
        let after_newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Lines { starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// 1-based line and column, in bytes, of an offset.
    pub(crate) fn position(&self, offset: usize) -> (u32, u32) {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let column = offset - self.starts.get(line - 1).copied().unwrap_or(0) + 1;
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
    }
}
