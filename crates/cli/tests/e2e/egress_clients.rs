//! Programs that know nothing of a proxy, in a session that may reach one host by name: each gets there, and nowhere else.
//! The servers are real ones in an internet of the test's own.

use crate::internet::{ALLOWED, Internet, OTHER};
use crate::support::Ran;

/// Another host, and another port of the same one, are refused and never seen outside.
#[track_caller]
fn refused_elsewhere(internet: &Internet, client: impl Fn(&str) -> Ran) {
    let ran = client("http://other.test/");
    assert_ne!(ran.code, 0, "{}", ran.out);
    let ran = ran.says(&["other.test", "--allow-host other.test"]);
    assert!(!ran.out.contains("GET / HTTP"), "{}", ran.out);
    let ran = client("http://allowed.test:8080/");
    assert_ne!(ran.code, 0, "{}", ran.out);
    ran.says(&["allowed.test:8080", "--allow-host allowed.test:8080"]);
    internet.assert_untouched(&format!("{OTHER}:80"), "other.test");
    assert!(internet.world.connections(&format!("{ALLOWED}:8080")).is_empty());
}

const FLAGS: [&str; 2] = ["--allow-host", "allowed.test"];

#[test]
fn curl_without_a_proxy_reaches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with_web(&["curl"]) else { return };
    internet.with_tls();
    let curl = |url: &str| internet.direct(&FLAGS, &format!("curl -sSf --cacert authority.pem {url}"));
    assert!(curl("http://allowed.test/plain").ok().contains("GET /plain HTTP/1.1\r\nHost: allowed.test"));
    assert!(curl("https://allowed.test/secret").ok().contains("GET /secret HTTP/1.1"));
    refused_elsewhere(&internet, curl);
    assert_ne!(curl("https://other.test/").code, 0);
    assert!(internet.world.connections(&format!("{OTHER}:443")).is_empty());
}

#[test]
fn git_without_a_proxy_clones_from_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with_web(&["git"]) else { return };
    internet.with_tls();
    internet.world.repository("thing");
    let clone = |url: &str| {
        let script = format!("git -c http.sslCAInfo=authority.pem clone -q {url}/git/thing && cat thing/README");
        internet.direct(&FLAGS, &format!("rm -rf thing; {script}"))
    };
    assert_eq!(clone("https://allowed.test").ok(), "thing\n");
    assert_ne!(clone("https://other.test").code, 0);
    assert!(internet.world.connections(&format!("{OTHER}:443")).is_empty());
    refused_elsewhere(&internet, |url| clone(url.trim_end_matches('/')));
}

#[test]
fn node_without_a_proxy_fetches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with_web(&["node"]) else { return };
    internet.with_tls();
    if internet.place.host("node -e 'process.exit(typeof fetch === \"function\" ? 0 : 1)'").code != 0 {
        println!("skipped: this node has no fetch");
        return;
    }
    internet.place.write(
        "get.mjs",
        "const answer = await fetch(process.argv[2], { signal: AbortSignal.timeout(20000) })\n\
         if (!answer.ok) process.exit(2)\nconsole.log(await answer.text())\n",
    );
    let fetch =
        |url: &str| internet.direct(&FLAGS, &format!("NODE_EXTRA_CA_CERTS=$PWD/authority.pem node get.mjs {url}"));
    assert!(fetch("http://allowed.test/plain").ok().contains("GET /plain HTTP/1.1"));
    assert!(fetch("https://allowed.test/secret").ok().contains("GET /secret HTTP/1.1"));
    refused_elsewhere(&internet, fetch);
}

/// `requests` where it is installed.
const PYTHON: &str = "import sys
try:
    import requests
    answer = requests.get(sys.argv[1], timeout=20, verify='authority.pem')
    answer.raise_for_status()
    print(answer.text)
except ImportError:
    import ssl, urllib.request
    context = ssl.create_default_context(cafile='authority.pem')
    print(urllib.request.urlopen(sys.argv[1], timeout=20, context=context).read().decode())
";

#[test]
fn python_without_a_proxy_fetches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with_web(&[]) else { return };
    internet.with_tls();
    internet.place.write("get.py", PYTHON);
    let fetch = |url: &str| internet.direct(&FLAGS, &format!("python3 get.py {url}"));
    assert!(fetch("http://allowed.test/plain").ok().contains("GET /plain HTTP/1.1"));
    assert!(fetch("https://allowed.test/secret").ok().contains("GET /secret HTTP/1.1"));
    refused_elsewhere(&internet, fetch);
}

/// Java's own client trusts what it is told to.
const JAVA: &str = r#"import java.net.URI;
import java.net.http.*;
import java.nio.file.*;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.*;

class Get {
    public static void main(String[] arguments) throws Exception {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        var certificates = CertificateFactory.getInstance("X.509");
        store.setCertificateEntry("test", certificates.generateCertificate(Files.newInputStream(Path.of("authority.pem"))));
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        HttpClient client = HttpClient.newBuilder().sslContext(context).build();
        for (String url : arguments) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(url)).build();
            HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(answer.body());
            if (answer.statusCode() != 200) System.exit(2);
        }
    }
}
"#;

#[test]
fn java_without_a_proxy_fetches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with_web(&["java", "javac"]) else { return };
    internet.with_tls();
    internet.place.write("Get.java", JAVA);
    let java = |urls: &str| internet.direct(&FLAGS, &format!("java -XX:TieredStopAtLevel=1 Get.java {urls}"));
    let out = java("http://allowed.test/plain https://allowed.test/secret").ok();
    assert!(out.contains("GET /plain HTTP/1.1") && out.contains("GET /secret HTTP/1.1"), "{out}");
    refused_elsewhere(&internet, java);
}

#[test]
fn ssh_reaches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with(&["ssh", "sshd", "ssh-keygen"]) else { return };
    let server = internet.world.ssh(&format!("{ALLOWED}:2222"));
    internet.world.listener(&format!("{OTHER}:2222"));
    internet.place.host(&format!("cp '{}' key && chmod 600 key", server.key.display())).ok();
    internet.place.write("known", &format!("* {}\n", server.host_key));
    let ssh = |host: &str| {
        let options = "-F /dev/null -o BatchMode=yes -o UserKnownHostsFile=known -o ConnectTimeout=20 -i key -p 2222";
        let script = format!("ssh {options} {}@{host} echo over-there", server.user);
        internet.direct(&["--allow-host", "allowed.test:2222"], &script)
    };
    assert_eq!(ssh("allowed.test").ok(), "over-there\n");
    ssh("other.test").code(255).says(&["other.test", "--allow-host other.test, or other.test:PORT"]);
    assert!(internet.world.dials(&format!("{OTHER}:2222")).is_empty());
    assert!(internet.world.queries("other.test").is_empty());
}

#[test]
fn psql_reaches_what_is_allowed_and_nothing_else() {
    let Some(internet) = Internet::with(&["psql"]) else { return };
    if !std::path::Path::new("/usr/lib/postgresql").is_dir() {
        println!("skipped: the PostgreSQL server is not installed");
        return;
    }
    internet.world.postgres(&format!("{ALLOWED}:5432"));
    internet.world.listener(&format!("{OTHER}:5432"));
    let psql = |host: &str| {
        let script = format!("psql -h {host} -U tester -d postgres -Atc 'select 6 * 7'");
        internet.direct(&["--allow-host", "allowed.test:5432"], &script)
    };
    assert_eq!(psql("allowed.test").ok(), "42\n");
    psql("other.test").code(2).says(&["other.test"]);
    assert!(internet.world.dials(&format!("{OTHER}:5432")).is_empty());
}
