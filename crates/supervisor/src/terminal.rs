//! The session's standard streams outside: the relay of a terminal, output that is limited or carried, input that is carried,
//! and how long the end waits for a reader. The sandbox's own side is `launcher`'s.

pub(crate) mod drain;
pub(crate) mod input;
pub(crate) mod output;
pub(crate) mod relay;
pub(crate) mod standard_streams;
pub(crate) mod stream_writer;
