//! The page as text: that it tells everything in the order it promises, that no word of a report becomes markup, and that the
//! report can be taken out of it again. What a browser makes of it: `browser`.

mod browser;
mod samples;

use super::verdict::{self, Standing};
use super::{STYLE, TAKE_OUT, page};
use crate::report::{ControlResult, Fact, ONLY, Outcome, Report, SCHEMA, SWITCHED_OFF};
use crate::signing;
use samples::{Scratch, all_contained, hostile, mixed, with_every_text};

/// Every tag of a page, attributes included, in order.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split_once('>').map_or(rest, |(tag, _)| tag)).collect()
}

/// The report that a page carries.
fn carried(page: &str) -> Report {
    let (_, rest) = page.split_once("<pre id=\"report\"").expect("the page has the report");
    let (_, rest) = rest.split_once('>').expect("the tag ends");
    let (text, _) = rest.split_once("</pre>").expect("the report ends");
    let escapes = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    let json = escapes.iter().fold(text.to_owned(), |text, (escape, c)| text.replace(escape, c));
    serde_json::from_str(&json).expect("the report parses")
}

#[test]
fn no_text_of_a_report_becomes_markup() {
    let hostile_page = page(&with_every_text(&mixed(), hostile));
    // The same report with as many letters in each place has the same tags, attribute for attribute.
    let harmless = |at: usize| hostile(at).chars().map(|c| if c == '\n' { c } else { 'x' }).collect();
    let harmless_page = page(&with_every_text(&mixed(), harmless));
    assert_eq!(tags(&hostile_page), tags(&harmless_page));
    assert!(tags(&hostile_page).iter().all(|tag| !tag.contains("script") && !tag.contains("src=")));
}

#[test]
fn what_cannot_be_seen_is_shown_as_escapes() {
    let page = page(&with_every_text(&mixed(), hostile));
    let unseen = page.chars().find(|c| *c != '\n' && *c != ' ' && !c.is_ascii_graphic());
    assert_eq!(unseen, None);
    for escape in ["\\u{202e}", "\\u{2066}", "\\u{1b}[2J", "\\u{0}", "\\u{7f}", "\\u{9b}"] {
        assert!(page.contains(escape), "{escape}");
    }
}

#[test]
fn a_long_line_is_folded_and_whole() {
    let mut report = mixed();
    report.checks[0].evidence = "y".repeat(10_000);
    report.host.kernel = "k".repeat(10_000);
    let page = page(&report);
    assert!(page.contains("... and 9760 more characters"));
    assert!(page.contains(&format!("kernel {}...(9500 more), as", "k".repeat(500))));
    assert!(page.contains(&format!("<pre>{}</pre>", "y".repeat(10_000))));
}

#[test]
fn the_page_carries_the_report_word_for_word() {
    for report in [mixed(), all_contained(), with_every_text(&mixed(), hostile)] {
        assert_eq!(carried(&page(&report)), report);
    }
}

#[test]
fn the_signature_can_be_checked_with_the_page_alone() {
    let scratch = Scratch::new("take-out");
    let mut report = with_every_text(&mixed(), hostile);
    report.schema = SCHEMA.to_owned();
    signing::sign(&mut report, &scratch.path("state")).expect("a key can be made");
    let key = report.signature.as_ref().map(|signature| signature.key_id.clone()).expect("it is signed");
    std::fs::write(scratch.path("PAGE.html"), page(&report)).expect("the page is written");
    // The command as the page gives it.
    let status = std::process::Command::new("sh").args(["-c", TAKE_OUT]).current_dir(scratch.root()).status();
    let status = status.expect("there is a shell");
    if status.code() == Some(127) {
        println!("skipped: `python3` is not installed");
        return;
    }
    assert!(status.success());
    let mut taken = std::fs::read(scratch.path("report.json")).expect("the report was written");
    assert_eq!(signing::checked(&taken, &key), Ok(report));
    let at = taken.windows(9).position(|part| part == b"contained").expect("a result");
    taken[at] = b'C';
    assert!(signing::checked(&taken, &key).is_err());
}

#[test]
fn the_browser_may_run_and_fetch_nothing() {
    let page = page(&mixed());
    let policy =
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    let at = page.find(policy).expect("the page has a policy");
    assert!(at < page.find("<style>").expect("the page has a style"));
    for outside in ["url(", "@import", "@font-face", "</"] {
        assert!(!STYLE.contains(outside), "{outside}");
    }
    assert!(!page.contains("http:") && !page.contains("https:"));
}

#[test]
fn what_does_not_hold_comes_first_then_what_cannot_be_checked() {
    let page = page(&mixed());
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("the page has {text}"));
    let order = [
        "Not contained: ",
        "<dl class=\"counts\">",
        "sha256:5d41",
        "<code>N1</code>",
        "<code>L2</code>",
        "<code>P3</code>",
        "<code>F1</code>",
        "<code>S1</code>",
        "id=\"posture\"",
        "id=\"signature\"",
        "id=\"limits\"",
        "<pre id=\"report\"",
    ];
    let places: Vec<usize> = order.iter().map(|text| at(text)).collect();
    assert!(places.is_sorted(), "{places:?}");
    // Each check once.
    for check in &mixed().checks {
        assert_eq!(page.matches(&format!("<code>{}</code>", check.id)).count(), 1, "{}", check.id);
    }
}

#[test]
fn each_check_tells_its_result_and_its_control_in_words() {
    let page = page(&mixed());
    let article = |id: &str| {
        let found = page.split("<article").find(|part| part.contains(&format!("<code>{id}</code>")));
        found.unwrap_or_else(|| panic!("{id} has an article")).to_owned()
    };
    for (id, words) in [
        ("F1", [">required<", ">contained<", "<strong>Fell</strong>, as it must"]),
        ("N1", [">required<", ">not contained<", "<strong>Not run</strong>."]),
        ("L2", [">not required<", ">cannot be checked here<", "<strong>Not run</strong>."]),
        (
            "P3",
            [
                ">not required<",
                ">contained, control did not fall<",
                "<strong>Held</strong>: the attempt fails without the wall too",
            ],
        ),
    ] {
        for word in words {
            assert!(article(id).contains(word), "{id}: {word}");
        }
    }
}

#[test]
fn the_verdict_is_never_better_than_the_report() {
    let said = |report: &Report| {
        let verdict = verdict::of(report);
        (verdict.standing, format!("{}: {}", verdict.word, verdict.sentence))
    };
    let (standing, text) = said(&all_contained());
    assert_eq!(
        (standing, text.as_str()),
        (Standing::Good, "Contained: all of 3 checks held on this host, and the negative control of each fell.")
    );

    let mut report = all_contained();
    report.checks[1].control.result = ControlResult::Held;
    let (standing, text) = said(&report);
    assert_eq!(standing, Standing::Caution);
    assert!(text.ends_with("none failed, and 1 without a control that fell."), "{text}");

    let mut report = all_contained();
    report.checks[1].result = Outcome::CannotCheck;
    (report.summary.contained, report.summary.cannot_check) = (2, 1);
    let (standing, text) = said(&report);
    assert_eq!(
        (standing, text.as_str()),
        (
            Standing::Caution,
            "Contained as far as it could be checked: 2 of 3 checks held on this host, none failed, 1 cannot be made here."
        )
    );

    report.summary.required_failed = 1;
    let (standing, text) = said(&report);
    assert_eq!(
        (standing, text.as_str()),
        (Standing::Bad, "Not shown to be contained: 1 required of 3 checks could not be shown to hold on this host.")
    );

    let (standing, text) = said(&mixed());
    assert_eq!(
        (standing, text.as_str()),
        (Standing::Bad, "Not contained: 1 of 7 checks did not hold on this host, 1 of them required.")
    );

    report.checks.clear();
    assert_eq!(said(&report).0, Standing::Bad);
}

#[test]
fn a_run_that_left_something_out_says_so_beside_the_verdict() {
    for (name, value) in [(ONLY, "only E1, no checklist"), (SWITCHED_OFF, "by hand, in every session: network")] {
        let mut report = all_contained();
        report.posture.insert(0, Fact { name: name.to_owned(), value: value.to_owned() });
        assert_eq!(verdict::of(&report).standing, Standing::Caution);
        let page = page(&report);
        let told = format!("<strong>Not a whole run.</strong> {name}: {value}</p>");
        assert!(page.find(&told).is_some_and(|at| at < page.find("<dl").unwrap_or(0)), "{name}");
    }
}

#[test]
fn a_report_without_a_signature_says_so() {
    let mut report = all_contained();
    assert!(page(&report).contains("sandbox verify --check report.json --key KEY"));
    report.signature = None;
    let page = page(&report);
    assert!(page.contains("This report is not signed."));
    assert!(!page.contains("--check report.json"));
}
