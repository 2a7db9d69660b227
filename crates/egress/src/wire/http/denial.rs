//! The answer to a request that is not carried: which rule decided, and what would change it.
//! Owns the form of that answer, safe to show on a terminal; rule and remedy are the decision's words. Called by
//! `connections`.

use cofferdam_policy::is_unseen;

/// The longest rule, reason or remedy that is shown.
const TEXT_MAX: usize = 600;

/// A whole response. `rule` names the rule and its layer, `why` says what it met, `remedy` is the smallest change that
/// would allow the request. Each becomes one line without control characters, whatever the request had put into it.
///
/// A client that sent HEAD expects no body: give it `close`, so that the body is not taken for the next response.
pub(crate) fn denial(status: u16, rule: &str, why: &str, remedy: &str, close: bool) -> Vec<u8> {
    let mut body = format!("sandbox: denied by {}\n", shown(rule));
    for (label, text) in [("why", why), ("to allow", remedy)] {
        if !text.is_empty() {
            body.extend(["  ", label, ": ", &shown(text), "\n"]);
        }
    }
    // A client that asked for a tunnel shows headers at best, and no body.
    let told = |name: &str, text: &str| match in_header(text) {
        text if text.is_empty() => String::new(),
        text => format!("{name}: {text}\r\n"),
    };
    let told = told("x-cofferdam-why", why) + &told("x-cofferdam-remedy", remedy);
    let connection = if close { "connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status} {}\r\nx-cofferdam-denied: {}\r\n{told}content-type: text/plain; charset=utf-8\r\n\
         content-length: {}\r\ncache-control: no-store\r\n{connection}\r\n{body}",
        reason(status),
        in_header(rule),
        body.len(),
    )
    .into_bytes()
}

/// One line for people: control and formatting characters become question marks.
fn shown(text: &str) -> String {
    text.chars().take(TEXT_MAX).map(|c| if is_unseen(c) { '?' } else { c }).collect()
}

/// A header value: printable ASCII only.
fn in_header(text: &str) -> String {
    let shown: String =
        text.chars().take(TEXT_MAX).map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    shown.trim().to_owned()
}

fn reason(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        403 => "Forbidden",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Denied",
    }
}
