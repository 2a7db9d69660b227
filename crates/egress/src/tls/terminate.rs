//! TLS that ends here: the client speaks to a certificate of the session's own authority, the server is spoken to with a
//! connection of our own whose certificate was checked. Owns both handshakes; what passes in between is `connections::http`'s.
//! Called by `connections::http`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use cofferdam_policy::{Host, Network};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{IpAddr, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::tls::ca_bundle::Trusted;
use crate::tls::session_ca::Authority;

/// Both ends of what is terminated.
pub(crate) struct Terminator {
    authority: Authority,
    connector: TlsConnector,
}

impl std::fmt::Debug for Terminator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Terminator")
    }
}

impl Terminator {
    /// For the hosts that rules are about requests to, and these.
    pub(crate) fn new(
        network: &Network,
        hosts: impl Iterator<Item = String>,
        trusted: &Trusted,
    ) -> Result<Terminator, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authority = Authority::new(network, hosts, Arc::clone(&provider))
            .map_err(|error| format!("the session's certificate authority: {error}"))?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS: {error}"))?
            .with_root_certificates(trusted.roots())
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Terminator { authority, connector: TlsConnector::from(Arc::new(config)) })
    }

    /// The authority's certificate, for programs inside.
    pub(crate) fn certificate(&self) -> &[u8] {
        self.authority.certificate()
    }

    /// Speaks to a client as if this were `host`; `read` was read from it already.
    pub(crate) async fn accept(
        &self,
        host: &Host,
        stream: TcpStream,
        read: Vec<u8>,
    ) -> io::Result<server::TlsStream<Begun>> {
        let config = self.authority.answer_for(host).map_err(io::Error::other)?;
        TlsAcceptor::from(config).accept(Begun { read, taken: 0, stream }).await
    }

    /// Speaks to a server that has to prove that it is `host`.
    pub(crate) async fn connect(&self, host: &Host, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let name = match host {
            Host::Name(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
            Host::Address(address) => ServerName::IpAddress(IpAddr::from(*address)),
        };
        self.connector.connect(name, stream).await
    }
}

/// A connection of which the beginning was read.
#[derive(Debug)]
pub(crate) struct Begun {
    read: Vec<u8>,
    taken: usize,
    stream: TcpStream,
}

impl AsyncRead for Begun {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = &self.read[self.taken..];
        if left.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = left.len().min(buf.remaining());
        buf.put_slice(&left[..length]);
        self.taken += length;
        if self.taken == self.read.len() {
            (self.read, self.taken) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Begun {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_policy::{Endpoint, NetworkRule, Origin};
    use rustls::pki_types::CertificateDer;
    use rustls::{ClientConfig, RootCertStore};
    use tokio::net::TcpListener;

    use super::*;

    /// Rules about requests to one host, and no authority that is trusted outside.
    fn terminator(host: &str) -> Terminator {
        let mut rule = NetworkRule::whole(Endpoint::parse(host).expect("an endpoint"), Origin::default_value());
        rule.methods.push("GET".to_owned());
        let network = Network { allow: vec![rule], ..Network::default() };
        Terminator::new(&network, std::iter::empty(), &Trusted::default()).expect("an authority")
    }

    /// A program inside, that believes the authority, speaks to `host`.
    fn speaks(terminator: &Terminator, host: &str) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(terminator.certificate().to_vec())).expect("a certificate");
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = TlsConnector::from(Arc::new(config));
        let host = Host::parse(host).expect("a host");
        let name = match &host {
            Host::Name(name) => ServerName::try_from(name.clone()).expect("a name"),
            Host::Address(address) => ServerName::IpAddress(IpAddr::from(*address)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let there = TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
            let (here, _) = listener.accept().await.expect("accepted");
            let (accepted, connected) =
                tokio::join!(terminator.accept(&host, here, Vec::new()), connector.connect(name, there));
            connected.map_err(|error| error.to_string())?;
            accepted.map(|_| ()).map_err(|error| error.to_string())
        })
    }

    #[test]
    fn the_authority_vouches_for_hosts_of_the_policy_only() {
        let names = terminator("**.api.test");
        speaks(&names, "api.test").expect("its host");
        speaks(&names, "a.api.test").expect("below it");
        for host in ["other.test", "192.0.2.1"] {
            let refused = speaks(&names, host).expect_err("beyond its constraints");
            assert!(refused.contains("certificate"), "{host}: {refused}");
        }
        let addresses = terminator("192.0.2.0/24");
        speaks(&addresses, "192.0.2.1").expect("an address of its network");
        speaks(&addresses, "api.test").expect_err("a name");
    }
}
