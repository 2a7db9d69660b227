//! Builds and interpreters, offline, as they are installed: cargo, make and gcc, npm and node, python.

use crate::support::Place;

/// A directory source as `cargo vendor` makes it, with one crate that has a build script and one that needs the other.
fn vendor(place: &Place) {
    let checksum = "{\"files\":{},\"package\":\"0000000000000000000000000000000000000000000000000000000000000000\"}";
    place.write("vendor/inner/Cargo.toml", "[package]\nname = \"inner\"\nversion = \"1.0.0\"\nedition = \"2021\"\n");
    place.write("vendor/inner/build.rs", "fn main() { println!(\"cargo:rustc-env=MADE=by-a-script\"); }\n");
    place.write("vendor/inner/src/lib.rs", "pub fn made() -> &'static str { env!(\"MADE\") }\n");
    place.write("vendor/inner/.cargo-checksum.json", checksum);
    let outer = "[package]\nname = \"outer\"\nversion = \"0.2.0\"\nedition = \"2021\"\n[dependencies]\ninner = \"1\"\n";
    place.write("vendor/outer/Cargo.toml", outer);
    place.write("vendor/outer/src/lib.rs", "pub fn said() -> String { format!(\"made {}\", inner::made()) }\n");
    place.write("vendor/outer/.cargo-checksum.json", checksum);
    let config = "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n";
    place.write(".cargo/config.toml", config);
}

#[test]
fn cargo_builds_runs_and_tests_a_crate_with_dependencies() {
    let Some(place) = Place::with(&["cargo", "cc"]) else { return };
    vendor(&place);
    let manifest = "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nouter = \"0.2\"\ninner = \"1\"\n";
    place.write("Cargo.toml", manifest);
    place.write("src/main.rs", "fn main() { println!(\"{}\", outer::said()) }\n#[test]\nfn works() {}\n");
    std::fs::create_dir_all(place.path("home:.cargo/registry")).expect("a cache");
    assert_eq!(place.inside("cargo run -q --offline").ok(), "made by-a-script\n");
    let tested = place.inside("cargo test --offline 2>&1").ok();
    assert!(tested.contains("test result: ok. 1 passed"), "{tested}");
    // The second time nothing is compiled: the target directory is the real one.
    let again = place.inside("cargo build --offline 2>&1").ok();
    assert!(!again.contains("Compiling"), "{again}");
    assert!(place.exists("target/debug/app"));
}

#[test]
fn a_write_to_cargos_cache_stays_in_the_session_unless_the_preset_is_given() {
    let place = Place::new();
    place.write("home:.cargo/registry/cache/kept", "old");
    let script = "echo new > ~/.cargo/registry/cache/kept && cat ~/.cargo/registry/cache/kept";
    assert_eq!(place.inside(script).ok(), "new\n");
    assert_eq!(place.read("home:.cargo/registry/cache/kept").as_deref(), Some("old"));
    assert!(!place.exists("home:.local/state/cofferdam/sessions") || no_session_left(&place));
    assert_eq!(place.run(&["--preset", "cargo"], &["bash", "-c", script]).ok(), "new\n");
    assert_eq!(place.read("home:.cargo/registry/cache/kept").as_deref(), Some("new\n"));
}

fn no_session_left(place: &Place) -> bool {
    place.path("home:.local/state/cofferdam/sessions").read_dir().is_ok_and(|mut entries| entries.next().is_none())
}

#[test]
fn make_and_gcc_build_in_parallel() {
    let Some(place) = Place::with(&["make", "gcc"]) else { return };
    place.write(
        "Makefile",
        "app: a.o b.o\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -c -O1 -pipe -o $@ $<\nclean:\n\trm -f *.o app\n",
    );
    place.write("a.c", "#include <stdio.h>\nint b(void);\nint main(void) { printf(\"%d\\n\", b()); return 0; }\n");
    place.write("b.c", "int b(void) { return 42; }\n");
    assert_eq!(place.inside("make -s -j4 && ./app && make -s clean && ls *.o 2>/dev/null | wc -l").ok(), "42\n0\n");
}

#[test]
fn npm_ci_installs_from_a_local_cache_and_node_runs_it() {
    let Some(place) = Place::with(&["npm", "node"]) else { return };
    place.write("home:greeting/package.json", r#"{"name":"greeting","version":"1.0.0","main":"index.js"}"#);
    place.write("home:greeting/index.js", "module.exports = name => `hello ${name}`;\n");
    place.write("package.json", r#"{"name":"app","version":"1.0.0","dependencies":{"greeting":"1.0.0"}}"#);
    place.write("index.js", "console.log(require('greeting')('sandbox'));\n");
    // As a registry would have given it: packed, in npm's cache, named in the lock file by its checksum.
    place.host("cd ~ && npm pack --silent ./greeting && npm cache add --silent ./greeting-1.0.0.tgz").ok();
    let sum = r#"node -p 'crypto.createHash("sha512").update(fs.readFileSync("greeting-1.0.0.tgz")).digest("base64")'"#;
    let checksum = place.host(&format!("cd ~ && {sum}")).ok();
    let lock = serde_json::json!({
        "name": "app", "version": "1.0.0", "lockfileVersion": 3, "requires": true,
        "packages": {
            "": { "name": "app", "version": "1.0.0", "dependencies": { "greeting": "1.0.0" } },
            "node_modules/greeting": {
                "version": "1.0.0", "resolved": "https://registry.npmjs.org/greeting/-/greeting-1.0.0.tgz",
                "integrity": format!("sha512-{}", checksum.trim()),
            },
        },
    });
    place.write("package-lock.json", &lock.to_string());
    let out = place.inside("npm ci --offline --no-audit --no-fund --silent && node index.js").ok();
    assert_eq!(out, "hello sandbox\n");
    assert!(place.exists("node_modules/greeting/index.js"));
}

#[test]
fn node_runs_worker_threads_and_child_processes() {
    let Some(place) = Place::with(&["node"]) else { return };
    let script = "
        const { Worker, isMainThread, parentPort } = require('worker_threads');
        const { execFileSync, fork } = require('child_process');
        if (!isMainThread) { parentPort.postMessage('worker'); return; }
        if (process.argv[2]) { process.send('child'); return; }
        console.log(execFileSync('echo', ['program']).toString().trim());
        new Worker(__filename).on('message', text => {
            console.log(text);
            fork(__filename, ['child']).on('message', text => console.log(text));
        });";
    place.write("script.js", script);
    assert_eq!(place.run(&[], &["node", "script.js"]).ok(), "program\nworker\nchild\n");
}

#[test]
fn node_serves_and_fetches_on_the_private_loopback() {
    let Some(place) = Place::with(&["node"]) else { return };
    let script = "
        const http = require('http');
        const server = http.createServer((_, answer) => answer.end('served')).listen(8080, '127.0.0.1', async () => {
            console.log(await (await fetch('http://localhost:8080/')).text());
            server.close();
        });";
    place.write("server.js", script);
    assert_eq!(place.run(&[], &["node", "server.js"]).ok(), "served\n");
}

#[test]
fn python_makes_a_venv_and_runs_in_it() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "python3 -m venv --without-pip env && . env/bin/activate && python -c 'import sys; print(sys.prefix)'";
    assert_eq!(place.inside(script).ok().trim(), place.path("env").display().to_string());
}

#[test]
fn python_multiprocessing_has_semaphores_pools_and_shared_memory() {
    let Some(place) = Place::with(&["python3"]) else { return };
    let script = "
import multiprocessing as m
from multiprocessing import shared_memory
def square(n): return n * n
def write(name):
    block = shared_memory.SharedMemory(name=name); block.buf[0] = 7; block.close()
if __name__ == '__main__':
    for way in ('fork', 'spawn'):
        with m.get_context(way).Pool(3) as pool: print(way, pool.map(square, range(5)))
    lock, counter = m.Lock(), m.Value('i', 0)
    with lock: counter.value += 1
    queue = m.Queue(); queue.put('through a queue'); print(queue.get())
    block = shared_memory.SharedMemory(create=True, size=16)
    child = m.Process(target=write, args=(block.name,)); child.start(); child.join()
    print(block.buf[0], m.BoundedSemaphore(2).acquire()); block.close(); block.unlink()
";
    place.write("script.py", script);
    let expected = "fork [0, 1, 4, 9, 16]\nspawn [0, 1, 4, 9, 16]\nthrough a queue\n7 True\n";
    assert_eq!(place.run(&[], &["python3", "script.py"]).ok(), expected);
}
