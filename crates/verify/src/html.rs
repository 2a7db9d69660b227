//! A report as one HTML page that needs nothing else: no script, no request, no file beside it. Owns the order of what is told,
//! and that a reader can check the signature with the page alone; decides nothing, all of it stands in the report. Called for
//! `sandbox verify --html FILE`.

mod checks;
mod text;
mod verdict;

use std::fmt::{self, Display, Formatter};

use crate::report::Report;
use crate::signing;
use text::{Word, markup};

/// The browser is told to run and fetch nothing: a second wall behind the escapes.
const HEAD: &str = "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<meta name=\"referrer\" content=\"no-referrer\">
";
const STYLE: &str = include_str!("html/style.css");

/// Takes the report out of this page where no browser is at hand.
const TAKE_OUT: &str = r#"python3 -c 'import html, re, sys
page = sys.stdin.read()
print(html.unescape(re.search("<pre id=.report.[^>]*>(.*?)</pre>", page, re.S)[1]))' < PAGE.html > report.json"#;

pub(crate) fn page(report: &Report) -> String {
    Page(report).to_string()
}

struct Page<'a>(&'a Report);

impl Display for Page<'_> {
    fn fmt(&self, to: &mut Formatter<'_>) -> fmt::Result {
        let report = self.0;
        head(report, to)?;
        top(report, to)?;
        checks::contents(report, to)?;
        to.write_str("<main>\n")?;
        circumstances(report, to)?;
        checks::sections(report, to)?;
        posture(report, to)?;
        signature(report, to)?;
        limits(to)?;
        whole_report(report, to)?;
        to.write_str("</main>\n")?;
        writeln!(
            to,
            "<footer class=\"quiet\"><p>Made by <code>sandbox verify --html</code>, {}.</p></footer>",
            Word(&report.schema)
        )?;
        to.write_str("</body>\n</html>\n")
    }
}

fn head(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    let verdict = verdict::of(report);
    to.write_str(HEAD)?;
    writeln!(to, "<title>{}: Cofferdam verify, {}</title>", verdict.word, Word(&report.generated))?;
    writeln!(to, "<style>\n{STYLE}</style>\n</head>\n<body>")
}

fn top(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    let (verdict, host) = (verdict::of(report), &report.host);
    writeln!(to, "<header class=\"top\">\n<p class=\"quiet\">Cofferdam: report of <code>sandbox verify</code></p>")?;
    writeln!(
        to,
        "<div class=\"verdict {}\"><h1>{}: {}</h1>",
        verdict.standing.class(),
        verdict.word,
        verdict.sentence
    )?;
    writeln!(
        to,
        "<p>On {} ({}), kernel {}, as {}, at <time>{}</time>.</p>",
        Word(&host.distribution),
        Word(&host.machine),
        Word(&host.kernel),
        Word(&host.user),
        Word(&report.generated)
    )?;
    for fact in report.left_out() {
        writeln!(to, "<p><strong>Not a whole run.</strong> {}: {}</p>", Word(&fact.name), Word(&fact.value))?;
    }
    let summary = &report.summary;
    to.write_str("</div>\n<dl class=\"counts\">\n")?;
    for (class, name, count) in [
        ("bad", "not contained", summary.not_contained),
        ("caution", "cannot be checked here", summary.cannot_check),
        ("good", "contained", summary.contained),
        ("bad", "required, and not shown to hold", summary.required_failed),
    ] {
        // Zero failures are no failure: the colour goes with the number.
        let class = if count == 0 { "" } else { class };
        writeln!(to, "<div class=\"{class}\"><dt>{name}</dt><dd>{count}</dd></div>")?;
    }
    to.write_str("</dl>\n</header>\n")
}

fn circumstances(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str("<section aria-labelledby=\"circumstances\">\n<h2 id=\"circumstances\">What was checked, where and when</h2>\n<dl class=\"facts\">\n")?;
    let (host, policy) = (&report.host, &report.policy);
    fact("Machine", &host.machine, to)?;
    fact("Distribution", &host.distribution, to)?;
    fact("Kernel", &host.kernel, to)?;
    fact("User", &host.user, to)?;
    fact("Policy", &policy.source, to)?;
    code_fact("Digest of the policy", &policy.digest, to)?;
    for (program, version) in &report.versions {
        writeln!(to, "<div><dt>Version of {}</dt><dd>{}</dd></div>", Word(program), Word(version))?;
    }
    fact("Made at", &report.generated, to)?;
    let checks = report.checks.len();
    fact("Took", &format!("{:.1} seconds for {}", report.summary.seconds, verdict::counted(checks, "check")), to)?;
    to.write_str("</dl>\n</section>\n")
}

fn fact(name: &str, value: &str, to: &mut Formatter<'_>) -> fmt::Result {
    writeln!(to, "<div><dt>{name}</dt><dd>{}</dd></div>", Word(value))
}

fn code_fact(name: &str, value: &str, to: &mut Formatter<'_>) -> fmt::Result {
    writeln!(to, "<div><dt>{name}</dt><dd><code>{}</code></dd></div>", Word(value))
}

fn posture(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str("<section aria-labelledby=\"posture\">\n<h2 id=\"posture\">Posture</h2>\n")?;
    if report.posture.is_empty() {
        return to.write_str("<p>The report has no posture.</p>\n</section>\n");
    }
    to.write_str(
        "<p>Which walls a session has on this host under this policy, and by which mechanism.</p>\n<table>\n<thead><tr><th \
         scope=\"col\">Wall</th><th scope=\"col\">State</th></tr></thead>\n<tbody>\n",
    )?;
    for fact in &report.posture {
        writeln!(to, "<tr><th scope=\"row\">{}</th><td>{}</td></tr>", Word(&fact.name), Word(&fact.value))?;
    }
    to.write_str("</tbody>\n</table>\n</section>\n")
}

fn signature(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str("<section aria-labelledby=\"signature\">\n<h2 id=\"signature\">Signature</h2>\n")?;
    let Some(signature) = &report.signature else {
        return to.write_str(
            "<p><strong>This report is not signed.</strong> Nothing shows who made it, or that it was not changed \
             since.</p>\n</section>\n",
        );
    };
    to.write_str("<dl class=\"facts\">\n")?;
    fact("Algorithm", &signature.algorithm, to)?;
    code_fact("Key", &signature.key_id, to)?;
    code_fact("Signature", &signature.value, to)?;
    to.write_str("</dl>\n<p>To check it:</p>\n<ol class=\"steps\">\n")?;
    to.write_str(
        "<li>Ask the operator of the host for the key, by another way than this page, and compare: a changed page could \
         name any key.</li>\n",
    )?;
    to.write_str(
        "<li>Take <a href=\"#whole\">the report</a> out of the file of this page. (Or copy it: one click on it \
         selects all of it. The file has to end with one end of a line.)<pre>",
    )?;
    markup(TAKE_OUT, to)?;
    to.write_str(
        "</pre></li>\n<li>Check it, with the operator's key in place of <code>KEY</code>:<pre>sandbox verify --check \
         report.json --key KEY</pre></li>\n",
    )?;
    to.write_str(
        "<li>The signature is of the report, not of this page. To be sure that the page shows what was signed, compare \
         the two.</li>\n</ol>\n</section>\n",
    )
}

fn limits(to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str(
        "<section aria-labelledby=\"limits\">\n<h2 id=\"limits\">What this page does not say</h2>\n<ul class=\"limits\">
<li>It is evidence about this host, this kernel, this user and this policy at that time. Another host, a later kernel, \
another policy: run <code>sandbox verify</code> there, then.</li>
<li>The checks are attempts that are known. That each was contained does not show that there is no other: a fault in the \
kernel, and what can be learned from timing, are outside of what is promised.</li>
<li>A check that cannot be made here has no result: nothing is known of that wall, and the page says why.</li>
<li>What the policy allows is allowed: a host that a session may reach, or a file that it may write, is no finding.</li>
<li>The report was made by the host that it is about, with its key. A host whose kernel or operator lies can sign a lie.</li>
</ul>\n</section>\n",
    )
}

/// The report itself, so that the signature can be checked with this page alone.
fn whole_report(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    let json = signing::text(report);
    to.write_str("<section aria-labelledby=\"whole\">\n<h2 id=\"whole\">The report as it was signed</h2>\n")?;
    let size = json.len();
    writeln!(to, "<details><summary>Show all of it: JSON, {size} bytes</summary>")?;
    to.write_str("<pre id=\"report\" tabindex=\"0\" aria-label=\"The report as JSON\">")?;
    // Without the last end of a line, which copying would not take along either.
    markup(json.trim_end(), to)?;
    to.write_str("</pre></details>\n</section>\n")
}

#[cfg(test)]
mod tests;
