//! What a connection's bytes go through: a TCP or Unix socket, or TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;
use thalweg_http::tls::{Peer, Trust};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Above the pauses a live response makes between two comments, and above a long-poll's patience. For as long
/// a server may take nothing of what it is sent.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 16 * 1024;

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// At a TCP port of a host.
    Tcp { host: String, port: u16 },
    /// At a TCP port of a host, with the name that the server there has to prove.
    Tls { host: String, port: u16, name: String },
    /// A Unix socket.
    Unix(PathBuf),
}

#[derive(Debug)]
pub(super) enum Channel {
    Tcp(TcpStream),
    Tls(Box<Sealed>),
    Unix(UnixStream),
}

impl Channel {
    /// Connects; behind TLS only to a server whose certificate is valid for its name, by the system's
    /// authorities unless others are given.
    pub(super) fn open(endpoint: &Endpoint, trust: &Option<Trust>) -> io::Result<Self> {
        match endpoint {
            Endpoint::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                Ok(Self::Unix(stream))
            }
            Endpoint::Tcp { host, port } => connect(host, *port).map(Self::Tcp),
            Endpoint::Tls { host, port, name } => {
                let peer = match trust {
                    Some(trust) => Peer::new(trust, name)?,
                    None => Peer::new(&Trust::of_system()?, name)?,
                };
                let mut sealed =
                    Sealed { stream: connect(host, *port)?, peer, opened: Vec::new(), at: 0, ended: false };
                sealed.shake_hands()?;
                Ok(Self::Tls(Box::new(sealed)))
            }
        }
    }

    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Tls(sealed) => sealed.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Tls(sealed) => {
                sealed.peer.seal(bytes)?;
                sealed.flush()
            }
            Self::Unix(stream) => stream.write_all(bytes),
        }
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A sealed connection.
#[derive(Debug)]
pub(super) struct Sealed {
    stream: TcpStream,
    peer: Peer,
    /// What was opened; read up to `at`.
    opened: Vec<u8>,
    at: usize,
    ended: bool,
}

impl Sealed {
    fn shake_hands(&mut self) -> io::Result<()> {
        while self.peer.is_handshaking() {
            self.flush()?;
            if !self.fill()? {
                let why = "the server ended the connection before it proved who it is";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut out = Vec::new();
        self.peer.outgoing(&mut out)?;
        self.stream.write_all(&out)
    }

    /// Reads and opens some more; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        let mut received = [0_u8; READ_BYTES];
        let count = self.stream.read(&mut received)?;
        let outcome = self.peer.take(&received[..count], &mut self.opened);
        // An alert says more to the server than a connection that just ends.
        let told = self.flush();
        self.ended = outcome? || count == 0;
        told?;
        Ok(count > 0)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.opened.len() {
            (self.at, self.opened) = (0, Vec::new());
            if self.ended {
                return Ok(0);
            }
            self.fill()?;
        }
        let count = into.len().min(self.opened.len() - self.at);
        into[..count].copy_from_slice(&self.opened[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
