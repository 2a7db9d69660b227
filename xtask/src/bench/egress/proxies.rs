//! The explicit proxy beside squid: nginx with a file of 1 KB, asked by wrk over 16 connections that stay or that are new for
//! each request, and bulk by CONNECT. Owns nginx, squid and the command lines of wrk.

use std::process::{Command, Stdio};

use crate::bench::egress::ground::{Ground, NAME, free_port, installed};
use crate::bench::egress::running::{Running, figure, output};
use crate::bench::report::Limit;

/// Where the sandbox's proxy is for programs inside.
const OURS: &str = "198.18.0.1:3128";
const CONNECTIONS: &str = "16";
const DURATION: &str = "2s";
const MIB: &str = "512";

/// The request is made once: a proxy wants the whole address in it, and the host's name in both places.
const SCRIPT: &str = r#"
local request_text
function init(args)
    local headers = { ["Host"] = args[2] }
    if args[3] == "new" then headers["Connection"] = "close" end
    request_text = wrk.format("GET", args[1], headers)
end
function request() return request_text end
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Traffic {
    KeepAlive,
    New,
    Connect,
}

impl Traffic {
    pub(crate) const ALL: [Traffic; 3] = [Traffic::KeepAlive, Traffic::New, Traffic::Connect];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Traffic::KeepAlive => "keep_alive",
            Traffic::New => "new",
            Traffic::Connect => "connect",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Traffic::KeepAlive => "keep-alive",
            Traffic::New => "new connections",
            Traffic::Connect => "CONNECT bulk",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        if self == Traffic::Connect { "MiB/s" } else { "requests/s" }
    }

    pub(crate) fn target(self) -> Limit {
        match self {
            Traffic::KeepAlive | Traffic::New => Limit::AtLeast(0.40),
            Traffic::Connect => Limit::AtLeast(0.60),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proxy {
    None,
    Ours,
    Squid,
}

impl Proxy {
    pub(crate) const ALL: [Proxy; 3] = [Proxy::None, Proxy::Ours, Proxy::Squid];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Proxy::None => "direct",
            Proxy::Ours => "ours",
            Proxy::Squid => "squid",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Proxies<'a> {
    ground: &'a Ground<'a>,
    nginx: Result<Running, String>,
    squid: Result<(Running, u16), String>,
}

impl<'a> Proxies<'a> {
    pub(crate) fn start(ground: &'a Ground<'a>) -> Self {
        Proxies { ground, nginx: nginx(ground), squid: squid(ground) }
    }

    pub(crate) fn measure(&self, proxy: Proxy, traffic: Traffic) -> Result<f64, String> {
        let at = match proxy {
            Proxy::None => None,
            Proxy::Ours => Some(OURS.to_owned()),
            Proxy::Squid => Some(format!("127.0.0.1:{}", self.squid.as_ref().map_err(Clone::clone)?.1)),
        };
        let ours = proxy == Proxy::Ours;
        let mut command = if ours { self.ground.sandbox() } else { self.ground.stage.user_command("env".as_ref()) };
        let host = if ours { NAME } else { "127.0.0.1" };
        command.args(["timeout", "30"]);
        if traffic == Traffic::Connect {
            command.arg(&self.ground.load).args(["down", &format!("{host}:{}", self.ground.port), MIB]).args(at);
            return figure(&mut command);
        }
        self.nginx.as_ref().map_err(Clone::clone)?;
        let host = format!("{host}:{}", self.ground.web_port);
        let target = if at.is_some() { format!("http://{host}/1k") } else { "/1k".to_owned() };
        command.arg(installed("wrk")?).args(["-t", "1", "-c", CONNECTIONS, "-d", DURATION, "-s"]);
        command.arg(self.ground.stage.project().join("request.lua"));
        command.arg(format!("http://{}/", at.as_deref().unwrap_or(&host))).args(["--", &target, &host, traffic.name()]);
        requests_per_second(&output(&mut command)?)
    }
}

/// Answers that are errors, and connections that broke, are no measurement.
fn requests_per_second(text: &str) -> Result<f64, String> {
    if let Some(line) = text.lines().find(|line| line.contains("Non-2xx") || line.contains("Socket errors")) {
        return Err(format!("wrk: {}", line.trim()));
    }
    let rate = text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:")?.trim().parse().ok());
    rate.filter(|rate| *rate > 0.0).ok_or_else(|| "wrk: no figure".to_owned())
}

fn nginx(ground: &Ground) -> Result<Running, String> {
    let program = installed("nginx")?;
    let place = ground.stage.project();
    let shown = place.display();
    let temporary =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|kind| format!("{kind}_temp_path {shown}/{kind};"));
    let configuration = format!(
        "daemon off; master_process off; pid {shown}/nginx.pid; error_log {shown}/nginx.log;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; {}\n\
         server {{ listen 127.0.0.1:{}; root {shown}/www; }} }}\n",
        temporary.join(" "),
        ground.web_port
    );
    for (name, text) in [("nginx.conf", configuration.as_str()), ("www/1k", &"k".repeat(1024)), ("request.lua", SCRIPT)]
    {
        ground.stage.write(&format!("project/{name}"), text).map_err(|problems| problems.to_string())?;
    }
    let mut command = ground.stage.user_command(&program);
    command.arg("-c").arg(place.join("nginx.conf")).arg("-e").arg(place.join("nginx.log"));
    quiet(&mut command);
    Running::listening(&mut command, &format!("127.0.0.1:{}", ground.web_port))
}

fn squid(ground: &Ground) -> Result<(Running, u16), String> {
    let program = installed("squid")?;
    let port = free_port().map_err(|e| e.to_string())?;
    let place = ground.stage.project();
    let configuration = format!(
        "http_port 127.0.0.1:{port}\nhttp_access allow all\ncache deny all\naccess_log none\ncache_store_log none\n\
         cache_log /dev/null\npid_filename none\ncoredump_dir {}\nnetdb_filename none\n",
        place.display()
    );
    ground.stage.write("project/squid.conf", &configuration).map_err(|problems| problems.to_string())?;
    let mut command = ground.stage.user_command(&program);
    command.arg("-N").arg("-f").arg(place.join("squid.conf"));
    quiet(&mut command);
    Ok((Running::listening(&mut command, &format!("127.0.0.1:{port}"))?, port))
}

fn quiet(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_no_measurement() {
        assert_eq!(requests_per_second("  2 requests\nRequests/sec:  12.50\n"), Ok(12.5));
        assert!(requests_per_second("  Non-2xx or 3xx responses: 3\nRequests/sec:  12.50\n").is_err());
        assert!(requests_per_second("Requests/sec:      0.00\n").is_err());
        assert!(requests_per_second("").is_err());
    }
}
