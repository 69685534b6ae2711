//! A client's side of a connection: bytes in, bytes out, whatever socket carries them.

use super::Trust;
use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io::{self, Read, Write};

/// What a client and the server it trusts say to each other, sealed. Owns no socket.
pub struct Peer(ClientConnection);

impl fmt::Debug for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Peer").finish_non_exhaustive()
    }
}

impl Peer {
    /// With a server that proves to be `host`, a name or an address.
    ///
    /// # Errors
    /// `host` is neither.
    pub fn new(trust: &Trust, host: &str) -> io::Result<Self> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(trust.0.clone(), name).map_err(io::Error::other)?;
        connection.set_buffer_limit(None);
        Ok(Self(connection))
    }

    /// Whether the server has still to prove who it is; what is sealed before waits for that.
    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Opens what came, and appends what it says; whether the server said that nothing follows.
    ///
    /// # Errors
    /// The server is not who it should be, or its bytes were changed on the way.
    pub fn take(&mut self, mut received: &[u8], plain: &mut Vec<u8>) -> io::Result<bool> {
        let mut ended = false;
        while !received.is_empty() && !ended {
            self.0.read_tls(&mut received)?;
            let refused = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            let state = self.0.process_new_packets().map_err(refused)?;
            ended = state.peer_has_closed();
            let length = plain.len();
            plain.resize(length + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[length..])?;
        }
        Ok(ended)
    }

    /// Seals bytes, for [`Peer::outgoing`].
    ///
    /// # Errors
    /// None: without a bound all of it is taken.
    pub fn seal(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.writer().write_all(bytes)
    }

    /// Appends what is to be sent.
    ///
    /// # Errors
    /// None: a vector takes all of it.
    pub fn outgoing(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(out)?;
        }
        Ok(())
    }
}
