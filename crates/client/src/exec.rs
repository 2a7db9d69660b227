//! A command in a session: what it wrote, from any offset that is kept, what it reads, how it ended.

use std::path::PathBuf;

use cofferdam_wire::exec::{ExecEnd, ExecId, OutputStream};
use cofferdam_wire::protocol::{Command, Event, MOST_CHUNK_BYTES};

use crate::ClientError;
use crate::connection::{Connection, call};

/// Can be used by many threads at once.
#[derive(Debug, Clone)]
pub struct Exec {
    pub(crate) directory: PathBuf,
    pub(crate) id: ExecId,
}

/// A part of what a command wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    Data {
        data: Vec<u8>,
        /// The command has ended, and nothing came after this so far.
        ended: bool,
    },
    /// Not kept any more; what comes from this offset on is.
    Gone { first_kept: u64 },
}

impl Exec {
    pub fn id(&self) -> ExecId {
        self.id
    }

    /// What was written from an offset on: as much as there is at once, or the next that comes.
    pub async fn chunk(&self, stream: OutputStream, from: u64, follow: bool) -> Result<Chunk, ClientError> {
        let mut connection = Connection::open(&self.directory).await?;
        self.chunk_over(&mut connection, stream, from, follow).await
    }

    async fn chunk_over(
        &self,
        connection: &mut Connection,
        stream: OutputStream,
        from: u64,
        follow: bool,
    ) -> Result<Chunk, ClientError> {
        let read = |event| match event {
            Event::Output { data, ended, .. } => Some(Chunk::Data { data, ended }),
            Event::Gone { first_kept, .. } => Some(Chunk::Gone { first_kept }),
            _ => None,
        };
        connection.ask(&Command::Output { exec: self.id, stream, from, follow }, read).await
    }

    /// All that a stream has from its beginning until the command has ended; what is gone is left out.
    pub async fn all(&self, stream: OutputStream) -> Result<Vec<u8>, ClientError> {
        let mut connection = Connection::open(&self.directory).await?;
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            match self.chunk_over(&mut connection, stream, from, true).await? {
                Chunk::Gone { first_kept } => from = first_kept,
                Chunk::Data { data, ended } => {
                    from += data.len() as u64;
                    all.extend_from_slice(&data);
                    if ended {
                        return Ok(all);
                    }
                }
            }
        }
    }

    /// For its stdin, where the request said that there will be something. Returns once the command's pipe has it.
    pub async fn write(&self, data: &[u8], end: bool) -> Result<(), ClientError> {
        let mut connection = Connection::open(&self.directory).await?;
        let done = |event| matches!(event, Event::Done { .. }).then_some(());
        let mut pieces = data.chunks(MOST_CHUNK_BYTES).peekable();
        if pieces.peek().is_none() && end {
            return connection.ask(&Command::Input { exec: self.id, data: Vec::new(), end }, done).await;
        }
        while let Some(piece) = pieces.next() {
            let end = end && pieces.peek().is_none();
            connection.ask(&Command::Input { exec: self.id, data: piece.to_vec(), end }, done).await?;
        }
        Ok(())
    }

    /// To its process group.
    pub async fn signal(&self, signal: i32) -> Result<(), ClientError> {
        call(&self.directory, &Command::Signal { exec: self.id, signal }).await
    }

    pub async fn wait(&self) -> Result<ExecEnd, ClientError> {
        let ended = |event| match event {
            Event::ExecEnd { end, .. } => Some(end),
            _ => None,
        };
        Connection::open(&self.directory).await?.ask(&Command::Wait { exec: self.id }, ended).await
    }
}
