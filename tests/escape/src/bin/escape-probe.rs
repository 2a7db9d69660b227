//! Runs inside the sandbox: `escape-probe CHECK SCENE` makes one benign check and prints one line about it.
#![forbid(unsafe_code)]

fn main() {
    let mut arguments = std::env::args().skip(1);
    let check = arguments.next().unwrap_or_default();
    let scene = arguments.next().unwrap_or_default();
    println!("{}", cofferdam_escape::probe::run(&check, &cofferdam_testkit::Place::at(scene)));
}
