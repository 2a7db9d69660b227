//! What a session that attacks costs another, on kernels where nobody measures by hand.

use cofferdam_escape::neighbour;

/// Few windows, for a processor in software takes its time; on real machines `cargo xtask neighbour` measures more of them.
#[test]
fn a_neighbour_waits_at_most_three_times_as_long() {
    if std::env::var_os("COFFERDAM_TEST_GUEST").is_none() {
        println!("skipped: measured by `cargo xtask neighbour`");
        return;
    }
    let arguments = ["--limited", "--windows", "3", "--rounds", "200"].map(str::to_owned);
    assert_eq!(neighbour::measure(&arguments), Ok(true));
}
