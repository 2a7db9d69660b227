//! Runs the escape suite: every row with its negative control. `neighbour` measures what one session costs another.
//! `storm` floods a session's egress, `cover-storm` works on covered names. `launch ...` and `...-launch ...` are what it starts
//! itself with, once per launch.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use cofferdam_escape::{ROWS, Verdict, cover_storm, judge, launch, neighbour, storm};
use serde_json::json;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "launch" => ExitCode::from(u8::try_from(launch(rest)).unwrap_or(2)),
        Some((first, rest)) if first == "neighbour-launch" => {
            ExitCode::from(u8::try_from(neighbour::launch(rest)).unwrap_or(2))
        }
        Some((first, rest)) if first == "storm-launch" => {
            ExitCode::from(u8::try_from(storm::launch(rest)).unwrap_or(2))
        }
        Some((first, rest)) if first == "cover-storm-launch" => {
            ExitCode::from(u8::try_from(cover_storm::launch(rest)).unwrap_or(2))
        }
        Some((first, rest)) if first == "cover-storm" => measured(cover_storm::measure(rest)),
        Some((first, rest)) if first == "neighbour" => measured(neighbour::measure(rest)),
        Some((first, rest)) if first == "storm" => measured(storm::measure(rest)),
        _ => suite(&arguments),
    }
}

fn measured(result: Result<bool, String>) -> ExitCode {
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("cannot measure: {why}");
            ExitCode::FAILURE
        }
    }
}

/// `--json` for a last line of JSON; other arguments select rows by a part of their name.
fn suite(arguments: &[String]) -> ExitCode {
    let json = arguments.iter().any(|a| a == "--json");
    let wanted: Vec<&String> = arguments.iter().filter(|a| *a != "--json").collect();
    let (mut contained, mut failed, mut skipped) = (0u32, Vec::new(), Vec::new());
    for (name, row) in ROWS.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(*w))) {
        let id = name.split('_').nth(1).unwrap_or("").to_uppercase();
        match judge(name, row) {
            Verdict::Contained { how, without } => {
                contained += 1;
                println!("{id}  contained  {}: {how}  [off: {without}]", row.what);
            }
            Verdict::Failed(why) => {
                println!("{id}  FAILED     {}: {why}", row.what);
                failed.push(id);
            }
            Verdict::Skipped(why) => {
                println!("{id}  skipped    {}: {why}", row.what);
                skipped.push(format!("{id}: {why}"));
            }
        }
    }
    let reasons = if skipped.is_empty() { "none".to_owned() } else { skipped.join("; ") };
    println!("{contained} contained, {} failed, {} skipped ({reasons})", failed.len(), skipped.len());
    let pass = failed.is_empty() && contained > 0;
    if json {
        let figures = json!({"contained": contained, "failed": failed.len(), "skipped": skipped.len(), "failed_rows": failed, "skips": skipped});
        println!("{}", json!({"figures": figures, "targets": {"failed": 0}, "pass": pass}));
    }
    if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
