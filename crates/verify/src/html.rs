//! The report as one self-contained page. Owns its layout and that no text of a check is markup. Called by `options`.

use std::fmt::Write as _;

use crate::report::Report;
use crate::text::{name_of, name_of_control, summary};

fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            other => shown.push(other),
        }
    }
    shown
}

/// The whole page.
pub fn page(report: &Report) -> String {
    let mut text = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sandbox verify</title></head><body>\n",
    );
    let mut line = |line: String| writeln!(text, "{line}").unwrap_or_default();
    line(format!("<h1>sandbox verify</h1><p>{}</p>", escaped(&summary(report))));
    line(format!("<p>{} on {}</p>", escaped(&report.generated), escaped(&report.host.kernel)));
    line("<table><tr><th>id<th>check<th>result<th>evidence<th>control</tr>".to_owned());
    for check in &report.checks {
        let why = check.why.as_deref().unwrap_or_default();
        line(format!(
            "<tr><td>{}<td>{}<td>{} {}<td>{}<td>{} ({})</tr>",
            escaped(&check.id),
            escaped(&check.title),
            name_of(check.result),
            escaped(why),
            escaped(&check.evidence),
            escaped(&check.control.what),
            name_of_control(check.control.result),
        ));
    }
    line("</table></body></html>".to_owned());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn text_of_a_check_is_no_markup() {
        let page = page(&sample());
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
    }
}
