//! A question at a terminal before something is done that may not be wanted. Owns how it is asked and which answers are a yes. Called
//! by `setup`, `trust`, `approve` and the commands about transactions.

use std::io::BufRead as _;

use crate::render::output::say_text;

/// Everything but a yes is a no, and so is the end of input. On stderr: that is the terminal where `has_terminal` says so, and output may go
/// elsewhere.
pub(crate) fn is_confirmed(question: &str) -> bool {
    say_text(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let heard = std::io::stdin().lock().read_line(&mut answer);
    heard.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
