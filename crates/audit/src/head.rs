//! The file `head`: sequence and hash of the last record, and the sequence of the last checkpoint. It is written after the
//! record, in place, so that a tail that was cut off is found; it proves nothing by itself. Used by `journal` and `verify`.

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::hex;
use crate::line::Hash;

/// Two numbers of twenty digits, a hash, two spaces and a newline.
const LENGTH: usize = 107;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) sequence: u64,
    pub(crate) hash: Hash,
    /// Sequence of the last checkpoint; 0 before the first.
    pub(crate) checkpoint: u64,
}

impl Head {
    pub(crate) fn text(&self) -> String {
        format!("{:020} {} {:020}\n", self.sequence, hex::encode(&self.hash), self.checkpoint)
    }

    /// `None` for anything that [`Head::text`] would not have written.
    pub(crate) fn parse(text: &str) -> Option<Head> {
        let mut fields = text.strip_suffix('\n')?.split(' ');
        let (sequence, hash, checkpoint) = (fields.next()?, fields.next()?, fields.next()?);
        let head =
            Head { sequence: sequence.parse().ok()?, hash: hex::decode(hash)?, checkpoint: checkpoint.parse().ok()? };
        (head.text() == text).then_some(head)
    }

    pub(crate) fn read(file: impl AsFd) -> Result<Option<Head>, Errno> {
        let mut buffer = [0; LENGTH + 1];
        let length = rustix::io::pread(file, &mut buffer, 0)?;
        Ok(str::from_utf8(&buffer[..length]).ok().and_then(Head::parse))
    }

    pub(crate) fn write(&self, file: impl AsFd) -> Result<(), Errno> {
        let text = self.text();
        let written = rustix::io::pwrite(file, text.as_bytes(), 0)?;
        if written == text.len() { Ok(()) } else { Err(Errno::NOSPC) }
    }
}
