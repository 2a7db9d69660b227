//! A session: started here, or adopted from another process. Owns the supervisor as a child where it was started here.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::sync::{Mutex, PoisonError};

use cofferdam_wire::QuestionId;
use cofferdam_wire::Verdict;
use cofferdam_wire::exec::{ExecId, ExecRequest};
use cofferdam_wire::order::Order;
use cofferdam_wire::protocol::{Command, Event, FsRequest, SessionStatus};
use serde_json::Value;
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::task::spawn_blocking;

use crate::ClientError;
use crate::connection::{Connection, call, next};
use crate::exec::Exec;

#[derive(Debug)]
pub struct Session {
    id: String,
    directory: PathBuf,
    /// Of one that was started here.
    own: Option<Own>,
}

/// Supervisors of sessions that were dropped and live on: collected when they have ended, at the next start or drop of another.
static LEFT: Mutex<Vec<Child>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Own {
    supervisor: Supervisor,
    /// Where it says how the session went; closed, it is gone.
    order: BufReader<UnixStream>,
}

/// A child that is collected, whatever becomes of the call that holds it.
#[derive(Debug)]
struct Supervisor(Option<Child>);

impl Supervisor {
    fn wait(mut self) -> Result<(), std::io::Error> {
        self.0.take().map_or(Ok(()), |mut child| child.wait().map(drop))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        collect(self.0.take());
    }
}

impl Session {
    /// Starts a supervisor: `program` is the `sandbox` command. Returns once the walls stand, and the order's exec is a program.
    pub async fn start(program: impl AsRef<Path>, order: &Order) -> Result<Session, ClientError> {
        let document = order.document().map_err(|why| ClientError::Order { why })?;
        let program = program.as_ref().to_owned();
        // Starting a process and handing over megabytes may take its time.
        let started = spawn_blocking(move || begin(&program, &document)).await.map_err(std::io::Error::other)?;
        let (supervisor, stream) = started?;
        collect(None);
        let mut order = BufReader::new(UnixStream::from_std(stream)?);
        let answer = next(&mut order).await;
        let failed = match answer {
            Ok(Event::Started { session, directory }) => {
                return Ok(Session { id: session, directory, own: Some(Own { supervisor, order }) });
            }
            Ok(Event::Report { report }) => ClientError::NotStarted { report },
            Ok(Event::Refused { message }) => ClientError::Refused { message },
            Ok(_) => ClientError::Ended,
            Err(error) => error,
        };
        drop(order);
        spawn_blocking(move || supervisor.wait()).await.map_err(std::io::Error::other)??;
        Err(failed)
    }

    /// One that another process started, by its directory in the state of its user (`sessions/ID`).
    pub async fn adopt(directory: impl AsRef<Path>) -> Result<Session, ClientError> {
        let directory = directory.as_ref().to_owned();
        let status = status(&directory).await?;
        Ok(Session { id: status.session, directory, own: None })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The process that supervises it, where it was started here.
    pub fn supervisor(&self) -> Option<u32> {
        self.own.as_ref()?.supervisor.0.as_ref().map(Child::id)
    }

    pub async fn exec(&self, request: ExecRequest) -> Result<Exec, ClientError> {
        let started = |event| match event {
            Event::Exec { exec } => Some(exec),
            _ => None,
        };
        let mut connection = Connection::open(&self.directory).await?;
        let id = connection.ask(&Command::Exec { request }, started).await?;
        Ok(Exec { directory: self.directory.clone(), id })
    }

    /// One that runs already, or has ended and is remembered: that of the order has the number 1.
    pub fn known_exec(&self, id: ExecId) -> Exec {
        Exec { directory: self.directory.clone(), id }
    }

    pub async fn status(&self) -> Result<SessionStatus, ClientError> {
        status(&self.directory).await
    }

    /// Open questions and those to come.
    pub async fn questions(&self) -> Result<Questions, ClientError> {
        Ok(Questions(Connection::open(&self.directory).await?))
    }

    pub async fn answer(&self, id: QuestionId, verdict: Verdict) -> Result<(), ClientError> {
        call(&self.directory, &Command::of(id, verdict)).await
    }

    /// Ends it and everything in it.
    pub async fn kill(&self) -> Result<(), ClientError> {
        call(&self.directory, &Command::Kill {}).await
    }

    /// Until it has ended, and its output was read or the time for that is over: how it went, as `sandbox run --json` says it, where it
    /// was started here.
    pub async fn wait(self) -> Result<Option<Value>, ClientError> {
        let Some(Own { supervisor, mut order }) = self.own else {
            let mut connection = match Connection::open(&self.directory).await {
                Err(ClientError::Ended) => return Ok(None),
                other => other?,
            };
            return loop {
                match connection.hear().await {
                    Ok(Event::End {}) | Err(ClientError::Ended) => break Ok(None),
                    Ok(_) => {}
                    Err(error) => break Err(error),
                }
            };
        };
        let report = loop {
            match next(&mut order).await {
                Ok(Event::Report { report }) => break Some(report),
                Ok(_) => {}
                Err(ClientError::Ended) => break None,
                Err(error) => return Err(error),
            }
        };
        spawn_blocking(move || supervisor.wait()).await.map_err(std::io::Error::other)??;
        Ok(report)
    }
}

fn collect(another: Option<Child>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(another);
    left.retain_mut(|supervisor| matches!(supervisor.try_wait(), Ok(None)));
}

/// Questions of a session, one after the other. A question that changed comes again; one that was answered does not.
#[derive(Debug)]
pub struct Questions(Connection);

impl Questions {
    /// The next one; none when the session has ended.
    pub async fn next(&mut self) -> Result<Option<FsRequest>, ClientError> {
        loop {
            match self.0.hear().await {
                Ok(Event::FsRequest(request)) => return Ok(Some(*request)),
                Ok(Event::End {}) | Err(ClientError::Ended) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn begin(program: &Path, document: &[u8]) -> Result<(Supervisor, StdStream), std::io::Error> {
    let (ours, theirs) = StdStream::pair()?;
    let mut command = Program::new(program);
    command.args(["supervise", "--order-fd", "0"]).stdin(Stdio::from(OwnedFd::from(theirs)));
    let supervisor = Supervisor(Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?));
    // This process's copy of their end.
    drop(command);
    match (&ours).write_all(document) {
        // What it has to say comes first.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    ours.set_nonblocking(true)?;
    Ok((supervisor, ours))
}

async fn status(directory: &Path) -> Result<SessionStatus, ClientError> {
    let told = |event| match event {
        Event::Session(status) => Some(*status),
        _ => None,
    };
    Connection::open(directory).await?.ask(&Command::Status {}, told).await
}
