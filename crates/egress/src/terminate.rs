//! TLS that ends here: the client speaks to a certificate of the session's own authority, the server is spoken to with a
//! connection of our own whose certificate was checked. Owns both handshakes; what passes in between is `exchange`'s.
//! Called by `transparent` for hosts whose requests are read, and by `exchange` to reach them.

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

use crate::authority::Authority;
use crate::trust::Trusted;

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
    pub(crate) fn new(network: &Network, trusted: &Trusted) -> Result<Terminator, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authority = Authority::new(network, Arc::clone(&provider))
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
