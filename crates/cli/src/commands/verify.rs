//! `sandbox verify`: becomes the program `sandbox-verify`, which lies beside this one. Owns finding and judging it, as with the program
//! of the egress process (decision 0047); what is verified, and every flag of it, is that program's.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_kernel::Errno;
use cofferdam_supervisor::is_trusted;
use thiserror::Error;

use crate::args::VerifyArgs;
use crate::environment::program_beside;

pub(crate) const PROGRAM: &str = "sandbox-verify";

/// Why nothing was verified.
#[derive(Debug, Error)]
pub(crate) enum VerifyError {
    #[error("cannot execute `{path}`")]
    Missing { path: PathBuf, source: std::io::Error },
    #[error("`{path}` belongs to another user, or other users can write to it")]
    NotTrusted { path: PathBuf },
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode, VerifyError> {
    let path = program_beside(PROGRAM).ok_or_else(|| missing(PROGRAM.into(), Errno::NOENT))?;
    match is_trusted(&path) {
        Ok(true) => {}
        Ok(false) => return Err(VerifyError::NotTrusted { path }),
        Err(errno) => return Err(missing(path, errno)),
    }
    // Returns only where it failed.
    let source = std::process::Command::new(&path).args(&args.words).exec();
    Err(VerifyError::Missing { path, source })
}

fn missing(path: PathBuf, errno: Errno) -> VerifyError {
    VerifyError::Missing { path, source: errno.into() }
}
