//! Secrets that are put into requests outside: real TLS servers on loopback, with a name of their own and a certificate made
//! for the test, and the programs that people speak to servers with. The session holds a placeholder, and what the server saw
//! is read from its own record.

use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Place, Ran, binary, finish, slurp, which};

const SECRET: &str = "secret-value-473829-kqzjwx";

/// Two servers, one with TLS; each request becomes a line of `home:served`.
const SERVER: &str = r#"
import http.server, ssl, sys, threading
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        sent = len(self.rfile.read(int(self.headers.get("content-length", 0))))
        held = self.headers.get("authorization", "-")
        with open("served", "a") as record:
            record.write(f"{self.server.kind} {self.command} {self.path} {held}\n")
        body = b"x" * sent if sent else b"answered\n"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-echo", held)
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_POST = answer
    def log_message(self, *_): pass
servers = [http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) for _ in range(2)]
for server, kind in zip(servers, ["tls", "plain"]): server.kind = kind
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
servers[0].socket = context.wrap_socket(servers[0].socket, server_side=True)
for server in servers: threading.Thread(target=server.serve_forever, daemon=True).start()
print(*[server.server_address[1] for server in servers], flush=True)
sys.stdin.read()
"#;

const CERTIFICATES: &str = r"set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=test-ca 2>&1
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=api.test 2>&1
printf 'subjectAltName=DNS:api.test\nbasicConstraints=CA:FALSE\n' > ext
openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile ext -out server.pem 2>&1
";

/// Looks for the secret wherever the session can look. The pattern does not match itself.
const SCAN: &str = r#"
import os, re
pattern = re.compile(rb"secre[t]-value-[0-9]{6}-[a-z]{6}")
found, looked = set(), 0
def look(where, data):
    global looked
    looked += 1
    if pattern.search(data): found.add(where)
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ["environ", "cmdline"]:
        try: look(name, open(f"/proc/{pid}/{name}", "rb").read())
        except OSError: pass
    try:
        maps = open(f"/proc/{pid}/maps").read().splitlines()
        memory = open(f"/proc/{pid}/mem", "rb", 0)
    except OSError: continue
    for line in maps:
        if " r" not in line or "[v" in line: continue
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        try:
            memory.seek(begin)
            look("memory", memory.read(end - begin))
        except (OSError, ValueError, OverflowError): pass
for top in ["/run", "/tmp", "/var/tmp", "/dev/shm", "/proc/self/fd", os.environ["HOME"]]:
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path): look("file", open(path, "rb").read(1 << 22))
            except OSError: pass
print("looked" if looked > 20 else "blind", *sorted(found))
"#;

/// Names, servers and a session that may reach them.
struct Stage {
    place: Place,
    server: Child,
    names: Arc<AtomicBool>,
    tls: u16,
    plain: u16,
}

impl Stage {
    /// `source` is where the secret of a credential comes from, empty for none; `more` is TOML behind it; `{tls}` and `{plain}` are the ports.
    fn new(source: &str, more: &str) -> Option<Stage> {
        let place = Place::with(&["python3", "openssl", "curl"])?;
        place.write("home:tls/server.py", SERVER);
        let directory = place.path("home:tls");
        finish(place.command("bash").args(["-c", CERTIFICATES]).current_dir(&directory), b"").ok();
        let mut server = place
            .command("python3")
            .arg("server.py")
            .current_dir(&directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python starts");
        let mut line = String::new();
        let out = server.stdout.as_mut().expect("stdout is piped");
        BufReader::new(out).read_line(&mut line).expect("the server says its ports");
        let ports: Vec<u16> = line.split_whitespace().map(|port| port.parse().expect("a port")).collect();
        let (tls, plain) = (ports[0], ports[1]);
        let (resolver, names) = serve_names();
        let credential = if source.is_empty() {
            String::new()
        } else {
            format!(
                "[[network.credentials]]\nhost = \"api.test\"\nport = {tls}\nvariable = \"EXAMPLE_TOKEN\"\n{source}\n"
            )
        };
        let config =
            format!("[network]\nmode = \"egress\"\nresolvers = [\"127.0.0.1:{resolver}\"]\n{credential}{more}\n");
        let config = config.replace("{tls}", &tls.to_string()).replace("{plain}", &plain.to_string());
        place.write("home:.config/cofferdam/config.toml", &config);
        Some(Stage { place, server, names, tls, plain })
    }

    /// A variable of the caller holds the secret, and everything may be sent.
    fn plain_one() -> Option<Stage> {
        Stage::new("env = \"MY_TOKEN\"", ALLOW_ALL)
    }

    /// A shell script inside; `{tls}` and `{plain}` are the ports.
    fn inside(&self, script: &str) -> Ran {
        self.inside_with(&[], script)
    }

    fn inside_with(&self, flags: &[&str], script: &str) -> Ran {
        let script = script.replace("{tls}", &self.tls.to_string()).replace("{plain}", &self.plain.to_string());
        let mut command = self.place.command(binary());
        command.arg("run").args(flags).args(["--", "bash", "-c", &script]);
        command.env("MY_TOKEN", SECRET).env("SSL_CERT_FILE", self.place.path("home:tls/ca.pem"));
        finish(&mut command, b"")
    }

    /// What the servers were asked since the last time.
    fn served(&self) -> Vec<String> {
        let path = self.place.path("home:tls/served");
        let lines = slurp(&path).lines().map(str::to_owned).collect();
        // Not there when nothing was asked.
        std::fs::remove_file(path).ok();
        lines
    }
}

const ALLOW_ALL: &str = "[[network.allow]]\nhost = \"api.test:{tls}\"\n[[network.allow]]\nhost = \"api.test:{plain}\"\n\
                         [[network.allow]]\nhost = \"127.0.0.1:{tls}\"\n[[network.allow]]\nhost = \"127.0.0.1:{plain}\"\n";

impl Drop for Stage {
    fn drop(&mut self) {
        self.names.store(true, Ordering::Relaxed);
        // It may have ended by itself.
        self.server.kill().ok();
        self.server.wait().ok();
    }
}

/// Every name is this machine: an answer to each question, until it is told to end.
fn serve_names() -> (u16, Arc<AtomicBool>) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let port = socket.local_addr().expect("it is bound").port();
    socket.set_read_timeout(Some(Duration::from_millis(200))).expect("it can wait");
    let ended = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        let mut query = [0u8; 512];
        while !told.load(Ordering::Relaxed) {
            let Ok((length, from)) = socket.recv_from(&mut query) else { continue };
            let end = 12 + query[12..length].iter().position(|byte| *byte == 0).unwrap_or(0) + 5;
            let is_v4 = query[end - 4..end] == [0, 1, 0, 1];
            let mut answer = query[..end].to_vec();
            // A response without error, with one question and perhaps one answer, and nothing more.
            answer[2..4].copy_from_slice(&[0x81, 0x80]);
            answer[4..12].copy_from_slice(&[0, 1, 0, u8::from(is_v4), 0, 0, 0, 0]);
            if is_v4 {
                answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 127, 0, 0, 1]);
            }
            socket.send_to(&answer, from).ok();
        }
    });
    (port, ended)
}

#[track_caller]
fn is_placeholder(text: &str) {
    let digits = text.strip_prefix("cofferdam-").unwrap_or_else(|| panic!("`{text}` is no placeholder"));
    assert!(digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "`{text}` is no placeholder");
}

#[test]
fn the_server_sees_the_secret_and_the_session_a_placeholder() {
    let Some(stage) = Stage::plain_one() else { return };
    // Once through the proxy that the environment names, once as if there were none.
    for how in ["", "--noproxy '*'"] {
        let script = format!(
            "curl -sS -D - {how} -H \"Authorization: Bearer $EXAMPLE_TOKEN\" https://api.test:{{tls}}/x; echo \"$EXAMPLE_TOKEN\"; env"
        );
        let ran = stage.inside(&script);
        assert_eq!(stage.served(), [format!("tls GET /x Bearer {SECRET}")], "{ran:?}");
        let out = ran.ok();
        assert!(!out.contains(SECRET) && out.contains("answered"), "{out}");
        assert!(!out.contains("MY_TOKEN"), "{out}");
        let echo = out.lines().find_map(|line| line.strip_prefix("x-echo: Bearer ")).expect("the header came back");
        is_placeholder(echo.trim());
    }
    let ran = stage.inside("curl -sS -u user:$EXAMPLE_TOKEN https://api.test:{tls}/basic");
    ran.ok();
    let served = stage.served().pop().expect("it was asked");
    let pair =
        finish(stage.place.command("base64").arg("-d"), served.rsplit(' ').next().unwrap_or_default().as_bytes());
    assert_eq!(pair.ok(), format!("user:{SECRET}"));
}

#[test]
fn programs_of_all_kinds_believe_the_sessions_authority() {
    let Some(stage) = Stage::plain_one() else { return };
    let python = "import os, urllib.request as u; r = u.Request('https://api.test:{tls}/python', \
                  headers={'Authorization': os.environ['EXAMPLE_TOKEN']}); print(u.urlopen(r).read())";
    stage.place.write(
        "Get.java",
        "import java.net.*;\npublic class Get { public static void main(String[] a) throws Exception {\n\
         HttpURLConnection c = (HttpURLConnection) new URL(a[0]).openConnection();\n\
         c.setRequestProperty(\"Authorization\", System.getenv(\"EXAMPLE_TOKEN\"));\n\
         System.out.println(c.getResponseCode());\n} }\n",
    );
    let node = "fetch('https://api.test:{tls}/node', {headers: {authorization: process.env.EXAMPLE_TOKEN}})\
                .then(r => r.text()).then(console.log)";
    for (program, script) in [
        ("python3", format!("python3 -c \"{python}\"")),
        ("node", format!("node -e \"{node}\"")),
        ("java", "java Get.java https://api.test:{tls}/java".to_owned()),
    ] {
        if which(program).is_none() {
            println!("skipped in part: `{program}` is not installed");
            continue;
        }
        let ran = stage.inside(&script);
        let name = program.trim_end_matches('3');
        assert_eq!(stage.served(), [format!("tls GET /{name} {SECRET}")], "{ran:?}");
        assert!(!ran.ok().contains(SECRET));
    }
}

#[test]
fn nothing_that_the_session_can_read_holds_the_secret() {
    let Some(stage) = Stage::plain_one() else { return };
    stage.place.write("scan.py", SCAN);
    let asked = "curl -sS -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{tls}/ > /tmp/answer; sleep 30 & ";
    let ran = stage.inside(&format!("{asked} python3 scan.py"));
    assert_eq!(ran.ok(), "looked\n");
    assert_eq!(stage.served(), [format!("tls GET / {SECRET}")]);
    // The control: put there on purpose, it is found in each of these places.
    stage.place.write("leak", SECRET);
    let ran = stage.inside("cat leak > /tmp/leaked; LEAK=$(cat leak) python3 scan.py");
    assert_eq!(ran.ok(), "looked environ file memory\n");
}

#[test]
fn a_placeholder_never_leaves_in_the_open() {
    let Some(stage) = Stage::plain_one() else { return };
    for how in ["", "--noproxy '*'"] {
        for port in ["{plain}", "{tls}"] {
            let script = format!(
                "curl -sS -w '%{{http_code}}' {how} -H \"Authorization: $EXAMPLE_TOKEN\" http://api.test:{port}/"
            );
            let out = stage.inside(&script).ok();
            assert!(out.ends_with("403") && out.contains("over TLS only"), "{how} {port}: {out}");
        }
    }
    assert_eq!(stage.served(), [] as [String; 0]);
    // Without it the host is one like others.
    let out = stage.inside("curl -sS http://api.test:{plain}/open").ok();
    assert_eq!((out.as_str(), stage.served()), ("answered\n", vec!["plain GET /open -".to_owned()]));
}

#[test]
fn bodies_of_any_length_and_many_requests_go_over_one_connection() {
    let Some(stage) = Stage::plain_one() else { return };
    let out = stage.inside(
        "head -c 5000000 /dev/zero > /tmp/big\n\
         curl -sS -o /tmp/one -o /tmp/two -w '%{num_connects} %{size_download}\\n' --data-binary @/tmp/big \
         -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{tls}/1 https://api.test:{tls}/2",
    );
    assert_eq!(out.ok(), "1 5000000\n0 5000000\n");
    assert_eq!(stage.served(), ["/1", "/2"].map(|path| format!("tls POST {path} {SECRET}")));
}

#[test]
fn rules_about_requests_hold_in_tls() {
    let allow = "[[network.allow]]\nhost = \"api.test:{tls}\"\nmethods = [\"GET\"]\npaths = [\"/open/**\"]\n\
                 [[network.allow]]\nhost = \"127.0.0.1:{tls}\"\n";
    // Without a credential, too.
    let Some(stage) = Stage::new("", allow) else { return };
    for how in ["", "--noproxy '*'"] {
        let status = |arguments: &str| {
            let curl = format!("curl -sS -o /tmp/body -w '%{{http_code}}' --path-as-is {how} {arguments}");
            stage.inside(&curl).ok()
        };
        assert_eq!(status("https://api.test:{tls}/open/x"), "200");
        assert_eq!(status("-X POST -d x https://api.test:{tls}/open/x"), "403");
        assert_eq!(status("https://api.test:{tls}/open/%2e%2e/shut"), "403");
        assert_eq!(status("https://api.test:{tls}/open/../shut"), "403");
        assert_eq!(stage.served(), ["tls GET /open/x -"]);
    }
}

#[test]
fn a_server_that_proves_nothing_gets_no_secret() {
    let Some(stage) = Stage::plain_one() else { return };
    // The authority of another party: the certificate of the server itself is not among those that are believed.
    stage
        .place
        .host(
            "cd ../tls && cp ca.pem other.pem && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes \
                      -keyout other.key -out ca.pem -days 2 -subj /CN=other 2>/dev/null",
        )
        .ok();
    for how in ["", "--noproxy '*'"] {
        let script = format!(
            "curl -sS -w '%{{http_code}}' {how} -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{{tls}}/"
        );
        let out = stage.inside(&script).ok();
        assert!(out.ends_with("502") && out.contains("invalid peer certificate"), "{out}");
    }
    assert_eq!(stage.served(), [] as [String; 0]);
}

#[test]
fn without_its_secret_nothing_starts() {
    let Some(stage) = Stage::new("env = \"NOT_SET_ANYWHERE\"", ALLOW_ALL) else { return };
    stage.inside("touch started").code(125).says(&["secret for `EXAMPLE_TOKEN`", "`NOT_SET_ANYWHERE` is not set"]);
    assert!(!stage.place.exists("started"));
}

#[test]
fn a_secret_file_is_used_outside_and_hidden_inside() {
    let Some(stage) = Stage::new("file = \"~/.token\"", ALLOW_ALL) else { return };
    stage.place.write("home:.token", &format!("{SECRET}\nsecond line\n"));
    let ran = stage.inside("cat ~/.token; curl -sS -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{tls}/");
    assert_eq!(stage.served(), [format!("tls GET / {SECRET}")], "{ran:?}");
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{ran:?}");
    assert!(ran.err.contains("others can read the secret"), "{ran:?}");
}

#[test]
fn a_secret_file_that_sessions_can_write_is_refused() {
    let Some(stage) = Stage::new("file = \"~/project/token\"", ALLOW_ALL) else { return };
    stage.place.write("token", SECRET);
    stage.inside("true").code(125).says(&["cannot hold a credential"]);
}

#[test]
fn a_secret_can_come_from_a_program() {
    let source = format!("command = [\"sh\", \"-c\", \"echo {SECRET}; echo more\"]");
    let Some(stage) = Stage::new(&source, ALLOW_ALL) else { return };
    stage.inside("curl -sS -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{tls}/").ok();
    assert_eq!(stage.served(), [format!("tls GET / {SECRET}")]);
}

#[test]
fn a_session_without_such_hosts_believes_nobody_new() {
    let allow = "[[network.allow]]\nhost = \"api.test:{tls}\"\n[[network.allow]]\nhost = \"127.0.0.1:{tls}\"\n";
    let Some(stage) = Stage::new("", allow) else { return };
    let script =
        "curl -sS https://api.test:{tls}/x; ls /run/cofferdam; echo \"$NODE_EXTRA_CA_CERTS$JAVA_TOOL_OPTIONS\"";
    let ran = stage.inside(script);
    // TLS goes through as it is, to the server that the caller's authorities vouch for; no process inside has their file.
    assert!(ran.out.ends_with('\n') && !ran.out.contains("cofferdam"), "{ran:?}");
    assert!(ran.err.contains("/run/cofferdam"), "{ran:?}");
}

#[test]
fn a_command_that_is_attached_holds_the_same_placeholder() {
    let Some(stage) = Stage::plain_one() else { return };
    let mut command = stage.place.command(binary());
    command.args(["run", "--", "bash", "-c", "echo $EXAMPLE_TOKEN; read line"]);
    command.env("MY_TOKEN", SECRET).env("SSL_CERT_FILE", stage.place.path("home:tls/ca.pem"));
    let running = stage.place.begin_session(command);
    let held = &running.first_line;
    is_placeholder(held);
    let curl = format!(
        "echo $EXAMPLE_TOKEN; curl -sS -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{}/attached",
        stage.tls
    );
    let out = stage.place.sandbox(&["attach", "last", "--", "bash", "-c", &curl]).ok();
    assert_eq!(out, format!("{held}\nanswered\n"));
    assert_eq!(stage.served(), [format!("tls GET /attached {SECRET}")]);
    running.end();
}

#[test]
fn neither_explanations_nor_records_hold_the_secret() {
    let Some(stage) = Stage::plain_one() else { return };
    let asked = "curl -sS -H \"Authorization: $EXAMPLE_TOKEN\" https://api.test:{tls}/; curl -sS http://api.test:{plain}/ \
                 -H \"Authorization: $EXAMPLE_TOKEN\"; exit 3";
    let ran = stage.inside_with(&["--json", "--timing"], asked).code(3);
    assert!(!ran.out.contains(SECRET) && !ran.err.contains(SECRET), "{ran:?}");
    for arguments in [&["explain", "--", "true"][..], &["explain", "--json", "--", "true"]] {
        let mut command = stage.place.command(binary());
        let explained = finish(command.args(arguments).env("MY_TOKEN", SECRET), b"");
        assert!(!explained.out.contains(SECRET) && !explained.err.contains(SECRET), "{explained:?}");
    }
    let kept = stage.place.host(&format!("grep -rl {SECRET} ~/.local ~/.config ~/project /run/user 2>/dev/null"));
    assert_eq!(kept.out, "");
}
