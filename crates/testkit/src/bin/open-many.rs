//! `open-many FILE...`: opens each file in a thread of its own, and counts in the first thread as long as one of them waits.
//! Makes the file `counted` when it has counted to [`ENOUGH`]; prints `opened N`, `refused N` and `counted N`. Runs inside a
//! sandbox, for tests of the gate.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read as _;
use std::time::Duration;

/// So often another thread worked.
const ENOUGH: u64 = 20;

fn main() {
    let read = |path: String| {
        let mut text = String::new();
        File::open(path).and_then(|mut file| file.read_to_string(&mut text)).is_ok()
    };
    let threads: Vec<_> = std::env::args().skip(1).map(|path| std::thread::spawn(move || read(path))).collect();
    let mut counted = 0u64;
    while threads.iter().any(|thread| !thread.is_finished()) {
        std::thread::sleep(Duration::from_millis(1));
        counted += 1;
        // Work that needs the file system, and nothing that is asked about.
        if File::open("/proc/self/status").is_err() {
            break;
        }
        if counted == ENOUGH && File::create("counted").is_err() {
            break;
        }
    }
    let opened = threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|opened| *opened).count();
    println!("opened {opened}\nrefused {}\ncounted {counted}", std::env::args().skip(1).len() - opened);
}
