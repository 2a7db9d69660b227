//! A question at a terminal before something is done that may not be wanted. Owns how it is asked and which answers are a yes. Called
//! by `setup`, `trust`, `approve` and the commands about transactions.

use std::io::{BufRead as _, Write as _};

use cofferdam_kernel::best_effort;

/// Everything but a yes is a no, and so is the end of input. On stderr: that is the terminal where `has_terminal` says so, and output may go
/// elsewhere.
pub(crate) fn is_confirmed(question: &str) -> bool {
    best_effort(
        std::io::stderr().write_all(format!("{question} [y/N] ").as_bytes()),
        "a question that cannot be asked gets no yes",
    );
    let mut answer = String::new();
    let heard = std::io::stdin().lock().read_line(&mut answer);
    heard.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
