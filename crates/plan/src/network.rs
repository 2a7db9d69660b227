//! The network of a session as the plan has it: what the egress process is started with, and where TLS ends in it. Owns the choice
//! of mechanism; verdicts about hosts are policy's and the egress process'. Called by `plan()` and `environment`.

pub(crate) mod egress;
pub(crate) mod terminates;
