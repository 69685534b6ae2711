//! Who the server is: its certificate and key, which may be exchanged while it serves.

use super::PROTOCOL;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// Why a certificate or a key is not taken.
#[derive(Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The certificates are no PEM.
    Certificate(String),
    /// There is no certificate.
    Empty,
    /// The key is no PEM, or there is none.
    Key(String),
    /// They do not belong together, or are of a kind that is not spoken.
    Unfit(String),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(why) => write!(out, "the certificate cannot be read as PEM: {why}"),
            Self::Empty => write!(out, "there is no certificate in it"),
            Self::Key(why) => write!(out, "the key cannot be read as PEM: {why}"),
            Self::Unfit(why) => write!(out, "the certificate and its key are not taken: {why}"),
        }
    }
}

impl std::error::Error for IdentityError {}

/// The certificate in force; a handshake takes whichever it is at the time.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// A server's certificate chain and key. Clones share them, through every [`Identity::reload`].
#[derive(Clone)]
pub struct Identity {
    current: Arc<Current>,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Identity").finish_non_exhaustive()
    }
}

impl Identity {
    /// Takes a certificate chain and its key, both PEM.
    ///
    /// # Errors
    /// [`IdentityError`] says what is wrong with them.
    pub fn of(certificate: &[u8], key: &[u8]) -> Result<Self, IdentityError> {
        let provider = Arc::new(default_provider());
        let unfit = |error: rustls::Error| IdentityError::Unfit(error.to_string());
        let certified = Arc::new(read(&provider, certificate, key)?);
        let current = Arc::new(Current(RwLock::new(certified)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // What it takes to resume is with the client, sealed: clients that come back cost no memory here.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new().map_err(unfit)?;
        Ok(Self { current, config: Arc::new(config) })
    }

    /// Exchanges them, for handshakes from now on. What is wrong changes nothing.
    ///
    /// # Errors
    /// [`IdentityError`] says what is wrong with them.
    pub fn reload(&self, certificate: &[u8], key: &[u8]) -> Result<(), IdentityError> {
        let certified = Arc::new(read(self.config.crypto_provider(), certificate, key)?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    pub(super) fn connection(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }
}

fn read(provider: &CryptoProvider, certificate: &[u8], key: &[u8]) -> Result<CertifiedKey, IdentityError> {
    let chain = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| IdentityError::Certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(IdentityError::Empty);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| IdentityError::Key(error.to_string()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| IdentityError::Unfit(error.to_string()))
}
