//! The certificate authority of one session, whose key never leaves this process. Owns the key and the certificates made with
//! it on first use; which hosts get one is policy's decision, who trusts it inside is `ca_bundle`'s. Used by `terminate`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam_policy::{Host, Network, NetworkRule, Target};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, NameConstraints, SanType,
};
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

/// No session is meant to live longer.
const LIFE: Duration = Duration::days(7);
/// Clocks differ.
const BEFORE: Duration = Duration::hours(1);
/// Hosts whose certificate is kept; past it they are made anew.
const MOST_HOSTS: usize = 256;

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
    made: RefCell<BTreeMap<String, Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    /// Good for the hosts whose requests are read, and for no others.
    pub(crate) fn new(
        network: &Network,
        hosts: impl Iterator<Item = String>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Authority, rcgen::Error> {
        let mut params = params("Cofferdam session")?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        params.name_constraints = Some(constraints(network, hosts));
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Authority { issuer: Issuer::new(params, key), certificate, provider, made: RefCell::default() })
    }

    pub(crate) fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// What to answer a client with that asks for this host.
    pub(crate) fn answer_for(&self, host: &Host) -> Result<Arc<ServerConfig>, String> {
        let name = host.to_string();
        if let Some(made) = self.made.borrow().get(&name) {
            return Ok(Arc::clone(made));
        }
        let config = Arc::new(self.make(host).map_err(|error| format!("no certificate for {name}: {error}"))?);
        let mut made = self.made.borrow_mut();
        if made.len() >= MOST_HOSTS {
            made.clear();
        }
        made.insert(name, Arc::clone(&config));
        Ok(config)
    }

    fn make(&self, host: &Host) -> Result<ServerConfig, Box<dyn std::error::Error>> {
        let mut params = params("Cofferdam")?;
        params.subject_alt_names = vec![match host {
            Host::Name(name) => SanType::DnsName(name.as_str().try_into()?),
            Host::Address(address) => SanType::IpAddress(*address),
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let chain = vec![certificate.der().clone(), self.certificate.clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn params(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    let now = OffsetDateTime::now_utc();
    (params.not_before, params.not_after) = (now - BEFORE, now + LIFE);
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// A constraint is about names or about addresses: where one kind is not meant at all, an example that no host has stands for it.
fn constraints(network: &Network, hosts: impl Iterator<Item = String>) -> NameConstraints {
    let rules = network.allow.iter().chain(&network.deny).filter(|rule| !rule.is_whole());
    let mut permitted: Vec<GeneralSubtree> = rules.map(subtree).collect();
    permitted.extend(hosts.map(GeneralSubtree::DnsName));
    if !permitted.iter().any(|one| matches!(one, GeneralSubtree::DnsName(_))) {
        permitted.push(GeneralSubtree::DnsName("invalid".to_owned()));
    }
    if !permitted.iter().any(|one| matches!(one, GeneralSubtree::IpAddress(_))) {
        permitted.push(GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([0, 0, 0, 0], 32)));
    }
    NameConstraints { permitted_subtrees: permitted, excluded_subtrees: Vec::new() }
}

fn subtree(rule: &NetworkRule) -> GeneralSubtree {
    match &rule.endpoint.target {
        Target::Host(name) | Target::Below(name) | Target::AtAndBelow(name) => GeneralSubtree::DnsName(name.clone()),
        Target::Net(net) => GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(net.address, net.prefix)),
    }
}
