//! `cargo xtask ran`: what ran, from nextest's junit files. Owns reading them, the `name status` lines that
//! `conformance --ran` takes and the totals that end `.ci/run`; judges nothing.
//!
//! A test that cannot run on a kernel prints a line `skipped: reason` and returns. nextest calls that a pass; here it
//! is a skip, so that nothing counts as shown which was not.

use std::fmt;
use std::path::PathBuf;

use crate::problems::Problems;
use crate::workspace::read;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// junit files, one per nextest run; they need `store-success-output = true`
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print the totals only
    #[arg(long)]
    totals: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Pass,
    Fail,
    Skip,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Pass => "pass",
            Status::Fail => "fail",
            Status::Skip => "skip",
        })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    /// `package::path::of::test`
    pub(crate) name: String,
    pub(crate) status: Status,
    /// Why it was skipped, in its own words.
    pub(crate) reason: Option<String>,
}

pub(crate) fn print(args: &Args) -> Result<String, Problems> {
    let mut all = Vec::new();
    for file in &args.files {
        all.extend(tests(&read(file)?));
    }
    let count = |status| all.iter().filter(|t| t.status == status).count();
    let totals =
        format!("{} passed, {} failed, {} skipped", count(Status::Pass), count(Status::Fail), count(Status::Skip));
    if args.totals {
        for test in &all {
            if let Some(reason) = &test.reason {
                println!("skipped {}: {reason}", test.name);
            }
        }
        return Ok(totals);
    }
    let lines: Vec<_> = all.iter().map(|test| format!("{} {}", test.name, test.status)).collect();
    Ok(lines.join("\n"))
}

/// The test cases of one file. nextest writes one element per test with `name` and `classname` (package, or
/// package and binary) in double quotes and all text escaped, so splitting at the tags is enough.
pub(crate) fn tests(xml: &str) -> Vec<Ran> {
    xml.split("<testcase ").skip(1).filter_map(test_case).collect()
}

fn test_case(element: &str) -> Option<Ran> {
    let (attributes, rest) = element.split_once('>')?;
    let name = attribute(attributes, "name")?;
    let class = attribute(attributes, "classname")?;
    let package = class.split("::").next()?;
    let body = if attributes.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or("") };
    // Text is escaped, so a `>` can only end a tag: what follows it starts a line of the test's output.
    let reason = body.split(['\n', '>']).find_map(skip_reason).map(unescape);
    let status = if body.contains("<failure") || body.contains("<error") {
        Status::Fail
    } else if body.contains("<skipped") || reason.is_some() {
        Status::Skip
    } else {
        Status::Pass
    };
    Some(Ran { name: format!("{package}::{name}"), status, reason })
}

/// The harness may have put `test NAME ... ` before what the test printed.
fn skip_reason(line: &str) -> Option<&str> {
    let printed = line.strip_prefix("test ").and_then(|l| l.split_once(" ... ")).map_or(line, |(_, printed)| printed);
    printed.strip_prefix("skipped: ")
}

fn attribute(attributes: &str, name: &str) -> Option<String> {
    let padded = format!(" {attributes}");
    let (_, rest) = padded.split_once(&format!(" {name}=\""))?;
    Some(unescape(rest.split('"').next()?))
}

fn unescape(text: &str) -> String {
    let text = text.split("</").next().unwrap_or(text);
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_result_is_told_apart() {
        let xml = r#"<testsuites><testsuite name="p">
<testcase name="m::a" classname="p" time="0.1"/>
<testcase name="b" classname="p::bin$x" time="0.1"><system-out>running 1 test
skipped: no Landlock &lt; 6
</system-out></testcase>
<testcase name="c" classname="p"><system-err>skipped: at the start</system-err></testcase>
<testcase name="d" classname="p"><system-out>test d ... skipped: in line</system-out></testcase>
<testcase name="e" classname="p"><failure type="test failure">skipped: no</failure></testcase>
</testsuite></testsuites>"#;
        let found: Vec<_> = tests(xml).into_iter().map(|t| (t.name, t.status, t.reason)).collect();
        assert_eq!(found[0], ("p::m::a".into(), Status::Pass, None));
        assert_eq!(found[1], ("p::b".into(), Status::Skip, Some("no Landlock < 6".into())));
        assert_eq!(found[2], ("p::c".into(), Status::Skip, Some("at the start".into())));
        assert_eq!(found[3], ("p::d".into(), Status::Skip, Some("in line".into())));
        assert_eq!((found[4].0.as_str(), found[4].1), ("p::e", Status::Fail));
    }

    #[test]
    fn classname_is_not_taken_for_name() {
        let found = tests(r#"<testcase classname="p" name="t"/>"#);
        assert_eq!(found[0].name, "p::t");
    }
}
