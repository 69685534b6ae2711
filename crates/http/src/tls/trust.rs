//! Which certificates a client accepts.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use thalweg_sys::disk::read_whole;

/// Bytes of a file of certificates: those that a system trusts have some hundred thousand.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a TLS client trusts: the system's certificates, so that what operators add or withdraw counts, or a
/// file's.
#[derive(Clone, Debug)]
pub struct Trust(pub(crate) Arc<ClientConfig>);

impl Trust {
    /// Reads the system's certificates: some hundred kilobytes from disk, so not for a thread that serves.
    ///
    /// # Errors
    /// There are none.
    pub fn of_system() -> io::Result<Trust> {
        let mut roots = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        let (taken, _) = roots.add_parsable_certificates(found.certs);
        if taken == 0 {
            let detail = "no trusted certificates found: install ca-certificates, or set SSL_CERT_FILE";
            return Err(io::Error::new(io::ErrorKind::NotFound, detail));
        }
        Trust::in_roots(roots)
    }

    /// Trusts the certificates in a PEM file, and no others.
    ///
    /// # Errors
    /// It cannot be read, is no regular file or a very large one, or holds none.
    pub fn in_file(path: &Path) -> io::Result<Trust> {
        let bad = |why: String| {
            io::Error::new(io::ErrorKind::InvalidData, format!("cannot trust {}: {why}", path.display()))
        };
        let mut roots = RootCertStore::empty();
        let pem = read_whole(path, FILE_BYTES_MAX).map_err(|error| bad(error.to_string()))?;
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            let certificate = certificate.map_err(|error| bad(error.to_string()))?;
            roots.add(certificate).map_err(|error| bad(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("it holds no certificate".to_owned()));
        }
        Trust::in_roots(roots)
    }

    /// Trusts these roots.
    ///
    /// # Errors
    /// The TLS library's provider lacks what it needs.
    pub(crate) fn in_roots(roots: RootCertStore) -> io::Result<Trust> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Trust(Arc::new(config)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_and_one_that_is_too_large_are_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let large = directory.path().join("large.pem");
        std::fs::File::create(&large).unwrap().set_len(1 << 42).unwrap();
        for (path, why) in
            [(&*large, "more than"), (Path::new("/dev/zero"), "a device"), (directory.path(), "")]
        {
            let said = Trust::in_file(path).unwrap_err().to_string();
            assert!(said.starts_with(&format!("cannot trust {}: ", path.display())), "{said}");
            assert!(said.contains(why), "{said}");
        }
    }
}
