//! Package managers inside, against the registries that this machine is set up for. Which hosts those are is read from the
//! clients themselves as they work outside; where they do not work outside, the test says so and is skipped.

use std::collections::BTreeSet;
use std::net::ToSocketAddrs as _;

use cofferdam_reach::address::special;

use crate::support::{Place, Ran, finish};

/// Settings of clients that name registries and certificates.
const SETTINGS: [&str; 4] = ["PIP_", "npm_config_", "CARGO_REGISTR", "CARGO_SOURCE_"];
const CERTIFICATES: [&str; 6] = [
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
];

/// A place with the settings of the user who runs the tests.
pub(crate) struct Client {
    pub(crate) place: Place,
    pub(crate) variables: Vec<(String, String)>,
}

impl Client {
    pub(crate) fn new(programs: &[&str], files: &[&str]) -> Option<Client> {
        let place = Place::with(programs)?;
        let home = std::path::PathBuf::from(std::env::var_os("HOME")?);
        for file in files {
            if let Ok(text) = std::fs::read_to_string(home.join(file)) {
                place.write(&format!("home:{file}"), &text);
            }
        }
        let wanted =
            |name: &str| SETTINGS.iter().any(|setting| name.starts_with(setting)) || CERTIFICATES.contains(&name);
        let variables = std::env::vars().filter(|(name, _)| wanted(name)).collect();
        Some(Client { place, variables })
    }

    pub(crate) fn outside(&self, script: &str) -> Ran {
        let variables = self.variables.iter().map(|(name, value)| (name, value));
        finish(self.place.command("timeout").envs(variables).args(["60", "bash", "-c", script]), b"")
    }

    fn inside(&self, hosts: &BTreeSet<String>, script: &str) -> Ran {
        let mut command = self.place.command(crate::support::binary());
        command.args(["run", "--network", "egress", "--timeout", "120s"]);
        for (name, value) in &self.variables {
            command.args(["--env", &format!("{name}={value}")]);
        }
        for host in hosts {
            command.args(["--allow-host", host]);
        }
        command.args(["--", "bash", "-c", script]);
        finish(&mut command, b"")
    }

    /// What works outside works inside once the hosts are allowed that `found` reads from it, and not before.
    fn check(&self, script: &str, found: impl Fn(&Ran) -> Vec<String>) {
        let ran = self.outside(script);
        if ran.code != 0 {
            let why = ran.err.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
            println!("skipped: the registry cannot be reached from outside: {why}");
            return;
        }
        let hosts: BTreeSet<String> = found(&ran).iter().filter_map(|url| host_of(url)).collect();
        if hosts.is_empty() {
            println!("skipped: the client names no registry: it may have what it needs at hand");
            return;
        }
        let refused = self.inside(&BTreeSet::new(), script);
        assert_ne!(refused.code, 0, "{}\n{}", refused.out, refused.err);
        assert!(refused.err.contains("--allow-host"), "{}\n{}", refused.out, refused.err);
        let addresses: BTreeSet<String> = hosts.iter().flat_map(|host| unusual(host)).collect();
        let allowed = hosts.union(&addresses).cloned().collect();
        let ran = self.inside(&allowed, script);
        assert_eq!(ran.code, 0, "{allowed:?}\n{}\n{}", ran.out, ran.err);
    }
}

/// `HOST:PORT` of an address of the web.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let port = match scheme.trim_start_matches("sparse+") {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '"', '\'', ' ', ')', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    Some(if host.contains(':') { host.to_owned() } else { format!("{host}:{port}") })
}

/// Every address of the web in a text.
fn urls(text: &str) -> Vec<String> {
    let starts = text
        .match_indices("://")
        .map(|(at, _)| text[..at].rfind(|c: char| !c.is_alphanumeric()).map_or(0, |at| at + 1));
    starts.map(|start| text[start..].split_whitespace().next().unwrap_or_default().to_owned()).collect()
}

/// The addresses of a host that egress refuses unless a trusted layer lists them: a registry of one's own may have such.
fn unusual(host: &str) -> Vec<String> {
    let Some((_, port)) = host.rsplit_once(':') else { return Vec::new() };
    let found = host.to_socket_addrs().into_iter().flatten().map(|address| address.ip());
    let refused = found.filter(|address| special(*address, &[]).is_some());
    let written = refused.map(|address| if address.is_ipv6() { format!("[{address}]") } else { address.to_string() });
    written.map(|address| format!("{address}:{port}")).collect()
}

#[test]
fn npm_installs_a_package_once_its_registry_is_allowed() {
    let Some(client) = Client::new(&["npm"], &[".npmrc"]) else { return };
    client.place.write("package.json", "{\"name\":\"app\",\"version\":\"1.0.0\"}\n");
    let install = "rm -rf node_modules package-lock.json .npm
        npm install --cache .npm --fetch-retries 0 --no-audit --no-fund --ignore-scripts --loglevel http ms &&
        test -f node_modules/ms/package.json";
    client.check(install, |ran| {
        let registry = client.outside("npm config get registry").ok();
        [urls(&registry), urls(&ran.err)].concat()
    });
}

#[test]
fn pip_downloads_a_package_once_its_index_is_allowed() {
    let Some(client) = Client::new(&["python3"], &[".config/pip/pip.conf", ".pip/pip.conf"]) else { return };
    let download = "rm -rf out
        python3 -m pip download -vvv --no-input --no-cache-dir --no-deps --retries 0 -d out iniconfig 2>&1 &&
        ls out/iniconfig*";
    client.check(download, |ran| {
        let lines = ran.out.lines().filter(|line| {
            ["Looking up", "Downloading", "Starting new HTTP", "Fetching project page", "Obtaining", "Index"]
                .iter()
                .any(|word| line.contains(word))
                || line.contains("/simple/")
        });
        lines.flat_map(urls).collect()
    });
}

#[test]
fn cargo_fetches_a_crate_once_its_registry_is_allowed() {
    let Some(client) = Client::new(&["cargo"], &[".cargo/config.toml"]) else { return };
    client.place.write(
        "Cargo.toml",
        "[package]\nname = \"app\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ncfg-if = \"1\"\n",
    );
    client.place.write("src/lib.rs", "");
    let fetch = "rm -rf registry Cargo.lock && mkdir registry && cp ~/.cargo/config.toml registry/ 2>/dev/null
        CARGO_HOME=$PWD/registry CARGO_NET_RETRY=0 cargo fetch && ls registry/registry/cache/*/cfg-if-*";
    client.check(fetch, |_| {
        // Cargo keeps the index below its host's name, with where crates are loaded from.
        let script = "for one in registry/registry/index/*; do
            name=$(basename $one); echo https://${name%-*}/; cat $one/config.json; done";
        let text = client.outside(script).ok();
        urls(&text.replace(['"', ','], " "))
    });
}
