//! The page in a real browser, where one is installed: in frames of a page that measures them from outside, since the page itself
//! runs nothing. Owns what is measured; what the words should be is the business of the tests beside it.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::super::page;
use super::super::text::markup;
use super::samples::{Scratch, hostile, mixed, with_every_text};

const MEASURE: &str = include_str!("measure.html");

/// What `measure.html` found in one frame.
#[derive(Debug, Deserialize)]
struct Measured {
    title: String,
    heading: String,
    /// Of the document, with everything unfolded.
    width: f64,
    /// Elements that can run or fetch something.
    active: u32,
    ran: bool,
    background: String,
    /// The least of all texts, and where.
    contrast: f64,
    faintest: String,
    /// Links whose target is missing, ids that stand twice, headings that skip a level.
    broken: Vec<String>,
}

/// The DOM of a file after everything in it was loaded; `None` where there is no browser.
fn dom(scratch: &Scratch, file: &Path) -> Option<String> {
    let run = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-breakpad"])
        .args(["--no-first-run", "--disable-background-networking", "--disable-extensions", "--window-size=1400,900"])
        .arg(format!("--user-data-dir={}", scratch.path("profile").display()))
        .arg("--dump-dom")
        .arg(file)
        .env("HOME", scratch.root())
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match run {
        Ok(output) => {
            assert!(output.status.success(), "chromium: {}", output.status);
            Some(String::from_utf8(output.stdout).expect("a DOM is text"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: `chromium` is not installed");
            None
        }
        Err(error) => panic!("chromium: {error}"),
    }
}

/// A frame for each page, of this width and scheme.
fn measured(name: &str, frames: &[(&str, u32, &str)]) -> Option<Vec<Measured>> {
    let scratch = Scratch::new(name);
    let mut shown = String::new();
    for (number, (page, width, scheme)) in frames.iter().enumerate() {
        write!(shown, "<iframe name=\"frame-{number}\" style=\"width: {width}px; color-scheme: {scheme}\" srcdoc=\"")
            .ok()?;
        markup(page, &mut shown).ok()?;
        shown.push_str("\"></iframe>\n");
    }
    let file = scratch.path("measure.html");
    std::fs::write(&file, MEASURE.replace("FRAMES", &shown)).expect("the page is written");
    let dom = dom(&scratch, &file)?;
    let (_, rest) = dom.split_once("<pre id=\"measured\">").expect("it was measured");
    let (json, _) = rest.split_once("</pre>").expect("to the end");
    let json = json.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

#[test]
fn a_browser_shows_the_verdict_and_keeps_every_text_a_text() {
    let scratch = Scratch::new("dom");
    let file = scratch.path("page.html");
    std::fs::write(&file, page(&mixed())).expect("the page is written");
    let Some(dom) = dom(&scratch, &file) else { return };
    assert!(dom.contains("Not contained: 1 of 7 checks did not hold on this host"), "{dom}");

    let worst = page(&with_every_text(&mixed(), hostile));
    let Some(frames) = measured("texts", &[(&worst, 360, "light")]) else { return };
    let frame = &frames[0];
    assert!(frame.heading.starts_with("Not contained: 1 of 7 checks"), "{frame:?}");
    assert!(frame.title.starts_with("Not contained: Cofferdam verify"), "{frame:?}");
    assert_eq!((frame.active, frame.ran), (0, false), "{frame:?}");
}

#[test]
fn a_browser_runs_no_script_even_if_one_got_into_the_page() {
    let injected = page(&mixed()).replace("<main>", "<main><script>parent.ran.add(self.name)</script>");
    // The control: without the policy of the page it runs.
    let open = injected.replace("Content-Security-Policy", "X-Nothing");
    let Some(frames) = measured("script", &[(&injected, 360, "light"), (&open, 360, "light")]) else { return };
    assert_eq!((frames[0].active, frames[0].ran), (1, false), "{:?}", frames[0]);
    assert_eq!((frames[1].active, frames[1].ran), (1, true), "{:?}", frames[1]);
}

#[test]
fn the_page_fits_a_telephone_and_reads_in_light_and_dark() {
    let (usual, worst) = (page(&mixed()), page(&with_every_text(&mixed(), hostile)));
    let all = [
        (usual.as_str(), 360, "light"),
        (&usual, 360, "dark"),
        (&usual, 1280, "light"),
        (&usual, 1280, "dark"),
        (&worst, 360, "dark"),
        (&worst, 1280, "light"),
    ];
    let Some(frames) = measured("sizes", &all) else { return };
    for ((_, width, scheme), frame) in all.iter().zip(&frames) {
        assert!(frame.width <= f64::from(*width), "{width} {scheme}: {frame:?}");
        assert!(frame.contrast >= 4.5, "{width} {scheme}: {} at {}", frame.contrast, frame.faintest);
        assert!(frame.broken.is_empty(), "{width} {scheme}: {frame:?}");
    }
    // Both schemes were looked at.
    assert_ne!(frames[0].background, frames[1].background);
}
