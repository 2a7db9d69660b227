//! Every row of the escape suite as a test of its own. The list is in `src/table.rs`.

use cofferdam_escape::{Verdict, every_row, find, judge};

fn check(name: &'static str) {
    let row = find(name).expect("a row of the table");
    match judge(name, row) {
        Verdict::Contained { how, without } => println!("contained: {how}\nwith the control off: {without}"),
        Verdict::Skipped(why) => println!("skipped: {why}"),
        Verdict::Failed(why) => panic!("{}: {why}", row.what),
    }
}

macro_rules! tests {
    ($(fn $name:ident() => $row:expr;)+) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })+
    };
}

every_row!(tests);
