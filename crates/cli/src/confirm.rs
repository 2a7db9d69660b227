//! A question at a terminal before something is done that may not be wanted. Owns how it is asked and which answers are a yes. Called
//! by `setup`, `trust`, `approve` and the commands about transactions.

use std::io::BufRead as _;

use crate::render::output::print;

/// Everything but a yes is a no, and so is the end of input.
pub(crate) fn is_confirmed(question: &str) -> bool {
    print(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let heard = std::io::stdin().lock().read_line(&mut answer);
    heard.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
