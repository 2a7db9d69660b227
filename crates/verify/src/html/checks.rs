//! The checks of a report, in the order in which a reader needs them: what did not hold, what cannot be checked, what may be unable to
//! fail, then the rest by group. Owns that order and how one check is written; every result is told by its word, colour only
//! repeats it. Used by the page for its contents and its sections.

use std::fmt::{self, Formatter};

use super::text::{Said, Word};
use super::verdict::{Standing, counted, is_unproven};
use crate::report::{Check, ControlResult, Outcome, Report};

/// A check and its place in the report, which names it in links: its id is not ours to put into an attribute.
type Placed<'a> = (usize, &'a Check);

struct Group<'a> {
    name: &'a str,
    /// What needs attention, and is told before.
    open: Vec<Placed<'a>>,
    held: Vec<Placed<'a>>,
}

/// How much a check needs a reader's attention; the smallest first.
fn rank(check: &Check) -> (u8, bool) {
    let rank = match check.result {
        Outcome::NotContained => 0,
        Outcome::CannotCheck => 1,
        Outcome::Contained if is_unproven(check) => 2,
        Outcome::Contained => 3,
    };
    (rank, !check.required)
}

fn needs_attention(check: &Check) -> bool {
    check.result != Outcome::Contained || is_unproven(check)
}

fn attention(report: &Report) -> Vec<Placed<'_>> {
    let mut found: Vec<_> = report.checks.iter().enumerate().filter(|(_, check)| needs_attention(check)).collect();
    found.sort_by_key(|(_, check)| rank(check));
    found
}

/// In the order of the report.
fn groups(report: &Report) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (place, check) in report.checks.iter().enumerate() {
        let at = groups.iter().position(|group| group.name == check.group).unwrap_or_else(|| {
            groups.push(Group { name: &check.group, open: Vec::new(), held: Vec::new() });
            groups.len() - 1
        });
        let side = if needs_attention(check) { &mut groups[at].open } else { &mut groups[at].held };
        side.push((place, check));
    }
    groups
}

pub(super) fn contents(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str("<nav aria-label=\"Contents\"><ul>\n<li><a href=\"#circumstances\">What was checked</a></li>\n")?;
    if !attention(report).is_empty() {
        to.write_str("<li><a href=\"#attention\">Not shown to hold</a></li>\n")?;
    }
    for (number, group) in groups(report).iter().enumerate() {
        writeln!(to, "<li><a href=\"#group-{number}\">{}</a></li>", Word(group.name))?;
    }
    to.write_str(
        "<li><a href=\"#posture\">Posture</a></li>\n<li><a href=\"#signature\">Signature</a></li>\n<li><a \
         href=\"#limits\">What this page does not say</a></li>\n<li><a href=\"#whole\">The report</a></li>\n</ul></nav>\n",
    )
}

pub(super) fn sections(report: &Report, to: &mut Formatter<'_>) -> fmt::Result {
    to.write_str(
        "<section aria-labelledby=\"reading\">\n<h2 id=\"reading\">How to read a check</h2>\n<p>A check tries, from inside a \
         sandbox, what must not succeed there. Its negative control is the same attempt with one wall switched off, on \
         files made for it: it must succeed. Then the control has fallen, and it is shown that the check can \
         fail and that this wall is what holds.</p>\n</section>\n",
    )?;
    let open = attention(report);
    if !open.is_empty() {
        to.write_str(
            "<section aria-labelledby=\"attention\">\n<h2 id=\"attention\">Not contained, or not shown to be</h2>\n",
        )?;
        for placed in &open {
            written(placed, "h3", to)?;
        }
        to.write_str("</section>\n")?;
    }
    to.write_str("<section aria-labelledby=\"held\">\n<h2 id=\"held\">Checks by group</h2>\n")?;
    for (number, group) in groups(report).iter().enumerate() {
        writeln!(
            to,
            "<h3 class=\"group\" id=\"group-{number}\">{}: {} of {} contained</h3>",
            Word(group.name),
            group.held.len(),
            counted(group.held.len() + group.open.len(), "check")
        )?;
        if !group.open.is_empty() {
            to.write_str("<p>Told above:")?;
            for (place, check) in &group.open {
                write!(to, " <a href=\"#check-{place}\">{}</a>", Word(&check.id))?;
            }
            to.write_str("</p>\n")?;
        }
        for placed in &group.held {
            written(placed, "h4", to)?;
        }
    }
    to.write_str("</section>\n")
}

fn written(placed: &Placed<'_>, heading: &str, to: &mut Formatter<'_>) -> fmt::Result {
    let (place, check) = placed;
    let (standing, result) = match check.result {
        Outcome::Contained if is_unproven(check) => (Standing::Caution, "contained, control did not fall"),
        Outcome::Contained => (Standing::Good, "contained"),
        Outcome::NotContained => (Standing::Bad, "not contained"),
        Outcome::CannotCheck => (Standing::Caution, "cannot be checked here"),
    };
    let need = if check.required { "required" } else { "not required" };
    writeln!(to, "<article class=\"check {}\" aria-labelledby=\"check-{place}\">", standing.class())?;
    writeln!(
        to,
        "<header><{heading} id=\"check-{place}\"><code>{}</code> {}</{heading}><p class=\"need\">{need}</p><p \
         class=\"result\">{result}</p></header>\n<dl>",
        Word(&check.id),
        Word(&check.title)
    )?;
    // A check that failed may have nothing to add to what it saw.
    if let Some(why) = check.why.as_ref().filter(|why| **why != check.evidence) {
        writeln!(to, "<div class=\"why\"><dt>Why</dt><dd>{}</dd></div>", Word(why))?;
    }
    writeln!(to, "<div><dt>Evidence</dt><dd>{}</dd></div>", Said(&check.evidence))?;
    to.write_str("<div><dt>Negative control</dt><dd>")?;
    control(check, to)?;
    to.write_str("</dd></div>\n</dl>\n</article>\n")
}

fn control(check: &Check, to: &mut Formatter<'_>) -> fmt::Result {
    let control = &check.control;
    let (word, meaning) = match (control.result, check.result) {
        (ControlResult::Fell, _) => ("Fell", ", as it must."),
        (ControlResult::Held, _) => {
            ("Held", ": the attempt fails without the wall too, so this check shows nothing here.")
        }
        (ControlResult::NotRun, Outcome::Contained) => ("Not run", ": nothing shows that this check can fail."),
        (ControlResult::NotRun, _) => ("Not run", "."),
    };
    let what = Word(control.what.trim_end_matches('.'));
    write!(to, "<p class=\"control\">{what}. <strong>{word}</strong>{meaning}</p>")?;
    if control.evidence.is_empty() { Ok(()) } else { write!(to, "{}", Said(&control.evidence)) }
}
