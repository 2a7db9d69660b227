//! Client: sessions from a program with many threads and an async runtime. Starts a supervisor process with an order, and talks to
//! it and to those of others over their control sockets. Every call has a connection of its own, so that calls need no lock and a
//! `Session` can be shared. Is never a supervisor itself: that is a process with one thread. Used by programs outside this workspace and by the tests.
//!
//! ```no_run
//! # async fn example(order: cofferdam_client::Order) -> Result<(), cofferdam_client::ClientError> {
//! use cofferdam_client::{ExecRequest, OutputStream, Session};
//! let session = Session::start("/usr/bin/sandbox", &order).await?;
//! let exec = session.exec(ExecRequest { argv: vec!["make".to_owned()], ..ExecRequest::default() }).await?;
//! let written = exec.all(OutputStream::Stdout).await?;
//! println!("{} bytes, {:?}", written.len(), exec.wait().await?);
//! session.kill().await?;
//! session.wait().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod connection;
mod exec;
mod session;

pub use cofferdam_wire::exec::{ExecEnd, ExecId, ExecLimits, ExecRequest, ExecStatus, OutputStream};
pub use cofferdam_wire::order::{Chosen, Given, KEPT_BYTES, Lifetime, ORDER_VERSION, Order};
pub use cofferdam_wire::protocol::{FsRequest, SessionStatus};
pub use cofferdam_wire::{Keep, QuestionId, Reach, Verdict};
pub use exec::{Chunk, Exec};
pub use session::{Questions, Session};

/// Why a call was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the order cannot be written: {why}")]
    Order { why: String },
    /// With the object of `sandbox run --json`.
    #[error("the session did not start: {why}", why = report["error"]["message"].as_str().unwrap_or("no reason was given"))]
    NotStarted { report: serde_json::Value },
    #[error("the supervisor refused: {message}")]
    Refused { message: String },
    #[error("the session has ended")]
    Ended,
    #[error("cannot talk to the supervisor")]
    Io(#[from] std::io::Error),
}
