//! An endpoint: one socket from which a node calls others, and at which it is called.
//!
//! Both sides show a certificate of the cluster's authority, and it must bear the name that its owner gives. Whether that
//! name belongs to the cluster, and whether both run the same one, is for those to say who know the topology.

use crate::hello::{HELLO_MAX, Hello, Mismatch};
use crate::identity::Identity;
use crate::link::{EXPRESS, Ends, Heard, Link, REFUSED};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{ConnectionError, IdleTimeout, RecvStream, SendStream, TransportConfig, VarInt};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What this protocol is called in the handshake. Its version is in the [`Hello`], where a mismatch can be told in words.
const ALPN: &[u8] = b"tokenrouter";

/// How long silence may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// After so long without a packet a link is broken.
    pub idle_timeout: Duration,
    /// So often a packet is sent where nothing else is.
    pub keep_alive: Duration,
}

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket cannot be had.
    #[error("cannot listen at {address}: {source}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The files of this node prove nothing.
    #[error("the certificate of node `{node}` cannot be used: {reason}")]
    Identity {
        /// This node.
        node: String,
        /// Why.
        reason: String,
    },
    /// Nobody answers there, or somebody with another certificate.
    #[error("no connection: {0}")]
    Unreachable(String),
    /// The peer gives a name that its certificate does not bear.
    #[error("the peer says that it is node `{0}`, but its certificate bears another name")]
    Impostor(String),
    /// The peer does not greet.
    #[error("the peer did not greet within {0:?}")]
    Silent(Duration),
    /// The peer runs something else.
    #[error("the peer cannot be understood: {0}")]
    Mismatch(#[from] Mismatch),
    /// The peer does not want this node.
    #[error("the peer refuses: {0}")]
    Refused(String),
}

/// A node's socket.
#[derive(Clone, Debug)]
pub struct Endpoint {
    quinn: quinn::Endpoint,
    timing: Timing,
}

impl Endpoint {
    /// Binds the socket. Must be called in a tokio runtime.
    ///
    /// # Errors
    /// [`LinkError::Bind`], or [`LinkError::Identity`] where certificate, key and authority do not belong together.
    pub fn bind(
        identity: &Identity,
        address: SocketAddr,
        timing: Timing,
    ) -> Result<Self, LinkError> {
        let failed = |reason: String| LinkError::Identity { node: identity.node.clone(), reason };
        let (server, client) = configs(identity, timing).map_err(failed)?;
        let mut quinn = quinn::Endpoint::server(server, address)
            .map_err(|source| LinkError::Bind { address, source })?;
        quinn.set_default_client_config(client);
        Ok(Self { quinn, timing })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the socket is gone.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.quinn.local_addr()
    }

    /// Calls the node named `peer`, and exchanges greetings.
    ///
    /// # Errors
    /// See [`LinkError`]; all but [`LinkError::Identity`] may be different at the next try.
    pub async fn dial(
        &self,
        peer: &str,
        address: SocketAddr,
        hello: &Hello,
    ) -> Result<Call, LinkError> {
        let connecting = self
            .quinn
            .connect(address, peer)
            .map_err(|error| LinkError::Unreachable(error.to_string()))?;
        let connection = connecting.await.map_err(refusal)?;
        let mut said = connection.open_uni().await.map_err(refusal)?;
        let greeting = preface(hello)?;
        // Why a write fails is what the connection ended of, which reading tells as well.
        drop(said.write_all(&greeting).await);
        let (theirs, heard) = self.greeting(&connection).await?;
        Ok(Call { hello: theirs, ends: Ends { connection, said, heard, preface: None } })
    }

    /// The next one who calls; `None` once the endpoint is closed.
    pub async fn accept(&self) -> Option<Ring> {
        let incoming = self.quinn.accept().await?;
        Some(Ring { incoming, endpoint: self.clone() })
    }

    /// Breaks every link of this endpoint, and takes no more.
    pub fn close(&self) {
        self.quinn.close(VarInt::from_u32(0), b"the node stops");
    }

    /// Waits until everything that was said in closing has left.
    pub async fn closed(&self) {
        self.quinn.wait_idle().await;
    }

    /// The peer's first words, and the stream that they came on.
    async fn greeting(
        &self,
        connection: &quinn::Connection,
    ) -> Result<(Hello, RecvStream), LinkError> {
        let wait = self.timing.idle_timeout;
        match tokio::time::timeout(wait, read_greeting(connection)).await {
            Ok(greeting) => greeting,
            Err(_) => Err(LinkError::Silent(wait)),
        }
    }
}

/// Somebody who calls, not yet heard.
#[derive(Debug)]
pub struct Ring {
    incoming: quinn::Incoming,
    endpoint: Endpoint,
}

impl Ring {
    /// Where the call comes from.
    pub fn address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Hears who it is. May take as long as the idle timeout, twice.
    ///
    /// # Errors
    /// See [`LinkError`]; the caller has been refused then, with the reason.
    pub async fn answer(self) -> Result<Caller, LinkError> {
        let connection = self.incoming.await.map_err(refusal)?;
        let greeted = async {
            let (hello, heard) = self.endpoint.greeting(&connection).await?;
            genuine(&connection, &hello.node)?;
            let said = connection.open_uni().await.map_err(refusal)?;
            Ok::<_, LinkError>((hello, heard, said))
        };
        match greeted.await {
            Ok((hello, heard, said)) => {
                Ok(Caller { hello, ends: Ends { connection, said, heard, preface: None } })
            }
            Err(error) => {
                refuse(&connection, &error.to_string());
                Err(error)
            }
        }
    }
}

/// A node that was called and has greeted.
#[derive(Debug)]
pub struct Call {
    /// What it said.
    pub hello: Hello,
    ends: Ends,
}

impl Call {
    /// The link. Frames go to `hear` from now on.
    pub fn link(self, hear: impl Fn(Heard) + Send + Sync + 'static) -> Link {
        Link::start(self.ends, Arc::new(hear))
    }

    /// Hangs up, with the reason.
    pub fn refuse(self, reason: &str) {
        refuse(&self.ends.connection, reason);
    }
}

/// A node that calls and has greeted.
#[derive(Debug)]
pub struct Caller {
    /// What it said.
    pub hello: Hello,
    ends: Ends,
}

impl Caller {
    /// Greets it in turn. Frames go to `hear` from now on.
    ///
    /// # Errors
    /// [`LinkError::Mismatch`] when the hello is longer than any may be.
    pub fn welcome(
        self,
        hello: &Hello,
        hear: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link, LinkError> {
        let ends = Ends { preface: Some(preface(hello)?), ..self.ends };
        Ok(Link::start(ends, Arc::new(hear)))
    }

    /// Hangs up, with the reason.
    pub fn refuse(self, reason: &str) {
        refuse(&self.ends.connection, reason);
    }
}

fn refuse(connection: &quinn::Connection, reason: &str) {
    connection.close(VarInt::from_u32(REFUSED), reason.as_bytes());
}

/// What the express stream begins with: its kind, then a hello as a frame.
fn preface(hello: &Hello) -> Result<Vec<u8>, LinkError> {
    let garbled = |reason: String| LinkError::Mismatch(Mismatch::Garbled(reason));
    let hello = hello.encode().map_err(|error| garbled(error.to_string()))?;
    let length = u32::try_from(hello.len()).ok().filter(|&length| length as usize <= HELLO_MAX);
    let length = length.ok_or_else(|| garbled(format!("they have {} bytes", hello.len())))?;
    let mut bytes = vec![EXPRESS];
    bytes.extend(length.to_le_bytes());
    bytes.extend(hello);
    Ok(bytes)
}

async fn read_greeting(connection: &quinn::Connection) -> Result<(Hello, RecvStream), LinkError> {
    let mut stream = connection.accept_uni().await.map_err(refusal)?;
    let mut head = [0; 5];
    read(connection, &mut stream, &mut head).await?;
    let [kind, length @ ..] = head;
    let length = u32::from_le_bytes(length) as usize;
    if kind != EXPRESS || length > HELLO_MAX {
        let reason = format!("a stream of kind {kind} begins with {length} bytes");
        return Err(Mismatch::Garbled(reason).into());
    }
    let mut hello = vec![0; length];
    read(connection, &mut stream, &mut hello).await?;
    Ok((Hello::decode(&hello)?, stream))
}

async fn read(
    connection: &quinn::Connection,
    stream: &mut RecvStream,
    bytes: &mut [u8],
) -> Result<(), LinkError> {
    match stream.read_exact(bytes).await {
        Ok(()) => Ok(()),
        Err(error) => Err(match connection.close_reason() {
            Some(reason) => refusal(reason),
            None => Mismatch::Garbled(error.to_string()).into(),
        }),
    }
}

/// Whether the peer's certificate, which the authority has signed, bears this name.
fn genuine(connection: &quinn::Connection, node: &str) -> Result<(), LinkError> {
    let impostor = || LinkError::Impostor(node.to_owned());
    let chain = connection.peer_identity().ok_or_else(impostor)?;
    let chain = chain.downcast::<Vec<CertificateDer<'static>>>().map_err(|_| impostor())?;
    let leaf = chain.first().ok_or_else(impostor)?;
    let leaf = webpki::EndEntityCert::try_from(leaf).map_err(|_| impostor())?;
    let name = ServerName::try_from(node).map_err(|_| impostor())?;
    leaf.verify_is_valid_for_subject_name(&name).map_err(|_| impostor())
}

fn refusal(error: ConnectionError) -> LinkError {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            LinkError::Refused(String::from_utf8_lossy(&close.reason).into_owned())
        }
        other => LinkError::Unreachable(other.to_string()),
    }
}

type Configs = (quinn::ServerConfig, quinn::ClientConfig);

fn configs(identity: &Identity, timing: Timing) -> Result<Configs, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(identity.authority.clone()).map_err(text)?;
    let roots = Arc::new(roots);
    let chain = || vec![identity.certificate.clone()];
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(text)?;
    let tls13 = [&rustls::version::TLS13];
    let mut server = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&tls13)
        .map_err(text)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(), identity.key.clone_key())
        .map_err(text)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&tls13)
        .map_err(text)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain(), identity.key.clone_key())
        .map_err(text)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    let none = |error: NoInitialCipherSuite| error.to_string();
    let server = QuicServerConfig::try_from(server).map_err(none)?;
    let client = QuicClientConfig::try_from(client).map_err(none)?;
    let mut server = quinn::ServerConfig::with_crypto(Arc::new(server));
    let mut client = quinn::ClientConfig::new(Arc::new(client));
    let transport = transport(timing)?;
    server.transport_config(Arc::clone(&transport));
    client.transport_config(transport);
    Ok((server, client))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Two streams each way and nothing else.
fn transport(timing: Timing) -> Result<Arc<TransportConfig>, String> {
    let idle = IdleTimeout::try_from(timing.idle_timeout).map_err(text)?;
    let mut config = TransportConfig::default();
    config
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(timing.keep_alive))
        .max_concurrent_uni_streams(VarInt::from_u32(2))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .datagram_receive_buffer_size(None);
    Ok(Arc::new(config))
}

/// What a stream that a link writes on is opened with.
pub(crate) async fn open(connection: &quinn::Connection, kind: u8) -> Option<SendStream> {
    let mut stream = connection.open_uni().await.ok()?;
    stream.write_all(&[kind]).await.ok()?;
    Some(stream)
}
