//! TLS that ends in the egress process: for which sessions, with which credentials, and how programs inside get to believe it.
//! Owns the files and variables that say whom to believe, and what may hold a secret; reads no secret and makes no key, both are
//! the launch's. Called by `egress`, `environment` and `plan()`.

use std::path::PathBuf;

use cofferdam_policy::path::is_at_or_below;
use cofferdam_policy::{Access, Credential, HOLDS_A_SECRET, Network, NetworkRule, Ports, SecretSource};
use serde::Serialize;

use crate::PlanError;
use crate::facts::host::HostFacts;
use crate::facts::path::Kind;
use crate::files::decision::Decision;
use crate::step::{Mount, MountKind, Step, TrustFormat};

/// Stands for what each session makes up anew.
const PLACEHOLDER: &str = "cofferdam-placeholder";
/// Where programs of all kinds look for the authorities that they believe in TLS.
const TRUST_VARIABLES: [&str; 7] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
];
pub(crate) const JAVA_OPTIONS: &str = "JAVA_TOOL_OPTIONS";

/// TLS that ends in the egress process, with an authority that only this session believes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TerminatesPlan {
    pub credentials: Vec<CredentialPlan>,
    /// Directory of the files that say whom to believe.
    pub directory: PathBuf,
}

/// A secret that goes to one place only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CredentialPlan {
    pub host: String,
    pub port: u16,
    pub header: String,
    /// Holds the placeholder inside.
    pub variable: String,
    pub source: SecretPlace,
}

/// Where a secret is read, outside and before anything starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretPlace {
    Environment(String),
    File(PathBuf),
    Command(Vec<String>),
}

impl TerminatesPlan {
    pub(crate) fn of(network: &Network, facts: &HostFacts, host: &[(String, String)]) -> Option<TerminatesPlan> {
        let reads_tls = |rule: &NetworkRule| !rule.is_whole() && rule.endpoint.ports != Ports::One(80);
        let credentials: Vec<&Credential> = in_force(network, host).collect();
        let is_wanted = !credentials.is_empty() || network.allow.iter().chain(&network.deny).any(reads_tls);
        let places = facts.places();
        let planned = |credential: &Credential| {
            let Credential { host, port, variable, header, source, optional: _ } = credential.clone();
            let source = match source {
                SecretSource::Environment(name) => SecretPlace::Environment(name),
                SecretSource::File(path) => SecretPlace::File(path.expand(&places).into_iter().next()?),
                SecretSource::Command(argv) => SecretPlace::Command(argv),
            };
            Some(CredentialPlan { host, port, header, variable, source })
        };
        let credentials = credentials.into_iter().filter_map(planned).collect();
        let has_run = facts.system.iter().any(|path| path.as_os_str() == "/run");
        let directory = if has_run { "/run/cofferdam" } else { "/tmp/.cofferdam" }.into();
        is_wanted.then_some(TerminatesPlan { credentials, directory })
    }

    fn file(&self, format: TrustFormat) -> PathBuf {
        self.directory.join(match format {
            TrustFormat::Pem => "ca.pem",
            TrustFormat::Java => "ca.jks",
        })
    }

    /// The files that the variables name. What they hold is known once the authority is made.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let files = [TrustFormat::Pem, TrustFormat::Java].map(|format| {
            Step::Mount(Mount {
                target: self.file(format),
                kind: MountKind::Trust { format, content: Vec::new() },
                create: Some(Kind::File),
                if_present: false,
                why: "whom programs believe in TLS: the host's authorities and the session's own".to_owned(),
            })
        });
        let directory = Step::MakeDirectory { at: self.directory.clone(), mode: 0o755 };
        std::iter::once(directory).chain(files).collect()
    }

    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let bundle = self.file(TrustFormat::Pem).display().to_string();
        let java = format!(
            "-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStorePassword=changeit",
            self.file(TrustFormat::Java).display()
        );
        let trust = TRUST_VARIABLES.map(|name| (name.to_owned(), bundle.clone()));
        let held = self.credentials.iter().map(|one| (one.variable.clone(), PLACEHOLDER.to_owned()));
        trust.into_iter().chain([(JAVA_OPTIONS.to_owned(), java)]).chain(held).collect()
    }
}

/// Those that there is a secret for, and those without which there is no session.
fn in_force<'a>(network: &'a Network, host: &'a [(String, String)]) -> impl Iterator<Item = &'a Credential> {
    let is_set = |name: &String| host.iter().any(|(set, value)| set == name && !value.is_empty());
    let all = network.credentials.iter().map(|one| &one.value);
    all.filter(move |one| match &one.source {
        SecretSource::Environment(name) if one.optional => is_set(name),
        _ => true,
    })
}

/// Variables of the caller that hold a secret, which is used outside or not at all.
pub(crate) fn withheld(network: &Network) -> Vec<&str> {
    let sources = network.credentials.iter().map(|one| &one.value.source);
    let names = sources.filter_map(|source| match source {
        SecretSource::Environment(name) => Some(name.as_str()),
        SecretSource::File(_) | SecretSource::Command(_) => None,
    });
    names.collect()
}

/// What a session could write before, it could have filled with anything that the user can read.
pub(crate) fn refuse_writable_secrets(decisions: &[Decision]) -> Result<(), PlanError> {
    let secrets = decisions.iter().filter(|decision| decision.reason == HOLDS_A_SECRET);
    for secret in secrets {
        let above = |other: &&Decision| other.access == Access::Write && is_at_or_below(&secret.path, &other.path);
        if let Some(writable) = decisions.iter().find(above) {
            let (path, origin) = (secret.path.clone(), secret.origin.clone());
            return Err(PlanError::SecretIsWritable { path, writable: writable.path.clone(), origin });
        }
    }
    Ok(())
}
