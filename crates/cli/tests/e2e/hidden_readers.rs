//! Programs that read `.env` in a project where it is hidden: none ends because of what stands there, none takes it for an
//! empty file, and samples are read. With the real packages, from the registries that this machine is set up for.

use crate::registries::Client;
use crate::support::Ran;

const MODES: [&str; 2] = ["static", "dynamic"];

fn project(client: &Client) {
    for name in [".env", ".env.local", ".env.development"] {
        client.place.write(name, "KEY=hunter2\n");
    }
    client.place.write(".env.example", "KEY=sample\n");
}

/// Whether the packages could be had; else says why not.
fn is_installed(ran: &Ran) -> bool {
    if ran.code != 0 {
        let why = ran.err.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        println!("skipped: packages cannot be had from a registry: {why}");
    }
    ran.code == 0
}

#[test]
fn node_dotenv_vite_and_nexts_loader_pass_a_hidden_env_file_by() {
    let Some(client) = Client::new(&["node", "npm"], &[".npmrc"]) else { return };
    client.place.write("package.json", "{\"name\":\"app\",\"version\":\"1.0.0\",\"type\":\"module\"}\n");
    // `@next/env` is what `next dev` and `next build` read these files with; all of Next is 150 MB.
    let install = "npm install --cache .npm --no-audit --no-fund --ignore-scripts dotenv@16 vite@5 @next/env@15";
    if !is_installed(&client.outside(install)) {
        return;
    }
    project(&client);
    client.place.write("index.html", "<script type=\"module\" src=\"/main.js\"></script>\n");
    client.place.write("main.js", "console.log(import.meta.env.MODE)\n");
    let script = "
        import dotenv from 'dotenv'; import next from '@next/env'; import { loadEnv } from 'vite';
        const parsed = path => (dotenv.config({ path, processEnv: {} }).parsed ?? {}).KEY;
        console.log('dotenv', parsed('.env'), parsed('.env.example'));
        console.log('vite', loadEnv('development', process.cwd(), '').KEY);
        const log = { info() {}, error(...words) { console.log('next complains', ...words) } };
        console.log('next', next.loadEnvConfig(process.cwd(), true, log).combinedEnv.KEY);";
    client.place.write("read.js", script);
    for mode in MODES {
        let inside = |script: &str| client.place.run(&["--mode", mode], &["bash", "-c", script]);
        let out = inside("node read.js").ok();
        assert_eq!(out, "dotenv undefined sample\nvite undefined\nnext undefined\n", "{mode}");
        inside("node node_modules/vite/bin/vite.js build --logLevel error && ls dist/index.html").ok();
        // As where the file is missing: an error, instead of a program without its settings.
        let ran = inside("node --env-file=.env -p process.env.KEY");
        assert!(ran.code != 0 && ran.out.is_empty(), "{mode}: {ran:?}");
        assert_eq!(inside("node --env-file=.env.example -p process.env.KEY").ok(), "sample\n", "{mode}");
    }
    // The control: outside all of them read it.
    let out = client.place.host("node read.js").ok();
    assert_eq!(out, "dotenv hunter2 sample\nvite hunter2\nnext hunter2\n");
}

#[test]
fn python_dotenv_passes_a_hidden_env_file_by() {
    let Some(client) = Client::new(&["/usr/bin/python3"], &[".config/pip/pip.conf", ".pip/pip.conf"]) else { return };
    let install = "/usr/bin/python3 -m pip install --quiet --no-input --no-deps --target lib 'python-dotenv==1.0.1'";
    if !is_installed(&client.outside(install)) {
        return;
    }
    project(&client);
    client.place.write(
        "read.py",
        "import sys; sys.path.insert(0, 'lib')\nfrom dotenv import dotenv_values, find_dotenv\n\
         print(find_dotenv(usecwd=True)[-4:], dict(dotenv_values('.env')), dict(dotenv_values('.env.example')))\n",
    );
    for mode in MODES {
        let out = client.place.run(&["--mode", mode], &["/usr/bin/python3", "read.py"]).ok();
        assert_eq!(out, " {} {'KEY': 'sample'}\n", "{mode}");
    }
    let out = client.place.host("/usr/bin/python3 read.py").ok();
    assert_eq!(out, ".env {'KEY': 'hunter2'} {'KEY': 'sample'}\n");
}
