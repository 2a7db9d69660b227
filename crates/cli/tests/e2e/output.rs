//! `--max-output` as a user meets it. What happens to each kind of stream is shown in `crates/testkit/tests/output.rs`.

use crate::support::{Place, finish};

#[test]
fn max_output_ends_a_flood_with_a_marker_and_the_flag_to_raise_it() {
    let place = Place::new();
    let ran = place.run(&["--max-output", "1M", "--json"], &["yes"]).code(124);
    assert_eq!(ran.out.len(), 1 << 20);
    let ran = ran.says(&["[sandbox: output limit of 1 MiB reached; the rest is dropped]\n", "--max-output"]);
    assert!(ran.err.contains("\"end\":\"output-limit\""), "{}", ran.err);
    let log = place.read("home:.local/state/cofferdam/audit/00000001.ndjson").expect("a log");
    for event in ["RESOURCE_LIMIT_APPROACHED", "RESOURCE_LIMIT_EXCEEDED"] {
        let told = log.lines().filter(|line| line.contains(event) && line.contains("\"output\"")).count();
        assert_eq!(told, 1, "{event} in {log}");
    }
}

#[test]
fn output_below_the_limit_is_as_without_one() {
    let place = Place::new();
    let script = "seq 1 20000; echo done >&2; exit 3";
    let (with, without) = (place.run(&["--max-output", "1M"], &["bash", "-c", script]), place.inside(script));
    assert_eq!((with.code, &with.out, &with.err), (3, &without.out, &without.err));
}

#[test]
fn output_that_cannot_be_written_is_no_success() {
    let place = Place::new();
    let mut command = place.command("bash");
    let script = "\"$0\" run --max-output 1M -- echo lost >/dev/full";
    let ran = finish(command.args(["-c", script]).arg(crate::support::binary()), b"").code(1);
    ran.says(&["output could not be written: No space left on device"]);
}
