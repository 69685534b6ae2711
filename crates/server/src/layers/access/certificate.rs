//! In whose name TLS is spoken: a certificate and its key, from files that are read again while the server
//! runs.

use crate::named_file;
use crate::quoting::quoted;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use thalweg_http::tls::{Identity, IdentityError};

/// Why a certificate or its key is not taken.
#[derive(Debug)]
pub(crate) enum CertificateError {
    /// It cannot be read.
    Unreadable(PathBuf, io::Error),
    /// Others could put a key of their own there.
    Writable(PathBuf),
    /// It makes no identity: no certificate, no key, or not the key of the certificate.
    Unusable(PathBuf, IdentityError),
}

impl fmt::Display for CertificateError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(out, "cannot read {}: {error}", path.display()),
            Self::Writable(path) => {
                write!(
                    out,
                    "the key {} can be written by users other than its owner: chmod go-w -- {}",
                    path.display(),
                    quoted(path)
                )
            }
            Self::Unusable(path, error) => write!(out, "{}: {error}", path.display()),
        }
    }
}

/// The two files, and what they said when they were last right.
pub(crate) struct Certificate {
    chain: PathBuf,
    key: PathBuf,
    /// Every user of the machine could read the key when the server started.
    is_key_exposed: bool,
    identity: Identity,
}

impl Certificate {
    /// Reads a certificate chain and its key, both PEM.
    ///
    /// # Errors
    /// [`CertificateError`] says what is wrong with them.
    pub(crate) fn load(chain: &Path, key: &Path) -> Result<Self, CertificateError> {
        let (identity, is_key_exposed) = take(chain, key, Identity::of)?;
        Ok(Self { chain: chain.to_owned(), key: key.to_owned(), is_key_exposed, identity })
    }

    /// Reads both again, for connections from now on. What is wrong changes nothing.
    ///
    /// # Errors
    /// [`CertificateError`] says what is wrong with them.
    pub(crate) fn reload(&self) -> Result<(), CertificateError> {
        for path in [&self.chain, &self.key] {
            named_file::check_lasts(path)
                .map_err(|error| CertificateError::Unreadable(path.to_owned(), error))?;
        }
        let ((), is_key_exposed) =
            take(&self.chain, &self.key, |chain, key| self.identity.reload(chain, key))?;
        if is_key_exposed {
            self.warn_of_key();
        }
        Ok(())
    }

    /// Logs what may be and is hardly meant.
    pub(crate) fn warn(&self) {
        if self.is_key_exposed {
            self.warn_of_key();
        }
    }

    fn warn_of_key(&self) {
        tracing::warn!(
            key = %self.key.display(),
            "every user of this machine may read the certificate's key, and speak in this server's name: chmod o-r -- {}",
            quoted(&self.key)
        );
    }

    /// What connections prove.
    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Reads both files: what was made of them, and whether every user of the machine may read the key.
fn take<T>(
    chain: &Path,
    key: &Path,
    taken: impl FnOnce(&[u8], &[u8]) -> Result<T, IdentityError>,
) -> Result<(T, bool), CertificateError> {
    let read = |path: &Path| {
        named_file::read(path).map_err(|error| CertificateError::Unreadable(path.to_owned(), error))
    };
    let (chain_file, key_file) = (read(chain)?, read(key)?);
    if key_file.is_writable_by_others {
        return Err(CertificateError::Writable(key.to_owned()));
    }
    let taken = taken(&chain_file.bytes, &key_file.bytes).map_err(|error| {
        let culprit = if matches!(error, IdentityError::Key(_)) { key } else { chain };
        CertificateError::Unusable(culprit.to_owned(), error)
    })?;
    Ok((taken, key_file.is_readable_by_all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn said(chain: &Path, key: &Path) -> String {
        Certificate::load(chain, key).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn it_is_said_which_file_is_wrong_and_a_key_that_others_can_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (chain, key) = (directory.path().join("chain.pem"), directory.path().join("a key.pem"));
        assert!(said(&chain, &key).contains("cannot read") && said(&chain, &key).contains("chain.pem"));
        std::fs::write(&chain, "nothing").unwrap();
        assert!(said(&chain, &key).contains("key.pem"));
        std::fs::write(&key, "nothing").unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o620)).unwrap();
        let command = format!("chmod go-w -- '{}'", key.display());
        assert!(said(&chain, &key).ends_with(&command), "{}", said(&chain, &key));
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(said(&chain, &key).contains("chain.pem: there is no certificate"), "{}", said(&chain, &key));
        let written = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        std::fs::write(&chain, written).unwrap();
        assert!(said(&chain, &key).contains("key.pem: the key"), "{}", said(&chain, &key));
    }
}
