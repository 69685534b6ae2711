//! Who the server is: its certificate and key, from files that may be read again while it serves.

use super::PROTOCOL;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, UnbufferedServerConnection};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Write permission of the group and of everybody.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Why a certificate or a key is not taken.
#[derive(Debug)]
pub enum IdentityError {
    /// It cannot be read.
    Unreadable(PathBuf, String),
    /// Others could put a key of their own there.
    Writable(PathBuf),
    /// There is no certificate in it.
    Empty(PathBuf),
    /// They do not belong together, or are of a kind that is not spoken.
    Unfit(String),
}

impl fmt::Display for IdentityError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, why) => write!(out, "cannot read {} as PEM: {why}", path.display()),
            Self::Writable(path) => {
                let path = path.display();
                write!(out, "the key {path} can be written by others than its owner: chmod go-w {path}")
            }
            Self::Empty(path) => write!(out, "{} holds no certificate", path.display()),
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
    /// Reads a certificate chain and its key, both PEM.
    ///
    /// # Errors
    /// [`IdentityError`] says what is wrong with them.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, IdentityError> {
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

    /// Reads them again, for handshakes from now on. What is wrong changes nothing.
    ///
    /// # Errors
    /// [`IdentityError`] says what is wrong with them.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), IdentityError> {
        let certified = Arc::new(read(self.config.crypto_provider(), certificate, key)?);
        *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(())
    }

    pub(super) fn connection(&self) -> Result<UnbufferedServerConnection, rustls::Error> {
        UnbufferedServerConnection::new(Arc::clone(&self.config))
    }
}

fn read(provider: &CryptoProvider, certificate: &Path, key: &Path) -> Result<CertifiedKey, IdentityError> {
    let unreadable = |path: &Path, why: String| IdentityError::Unreadable(path.to_owned(), why);
    let mode = std::fs::metadata(key).map_err(|error| unreadable(key, error.to_string()))?.mode();
    if mode & WRITABLE_BY_OTHERS != 0 {
        return Err(IdentityError::Writable(key.to_owned()));
    }
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unreadable(certificate, error.to_string()))?;
    if chain.is_empty() {
        return Err(IdentityError::Empty(certificate.to_owned()));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error.to_string()))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|error| IdentityError::Unfit(error.to_string()))
}
