//! Addresses to listen at: as the configuration names them, and as they can be listened at.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use thalweg_wire::host::is_port;

/// RFC 1035 2.3.4.
const HOST_BYTES_MAX: usize = 253;

/// Where to listen, as the configuration names it. Its form is judged when the configuration is read; a name
/// is resolved when it is opened, because a resolver may be slow, or not there yet, and says nothing about
/// the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenSpec {
    /// An address or a path.
    At(ListenAddress),
    /// A TCP port at the first address of a host.
    Named {
        /// Its name.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// An address that can be listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A TCP address where TLS is spoken, as all are once there is a certificate.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for ListenSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path".into())
            } else {
                Ok(Self::At(ListenAddress::Unix(path.into())))
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::At(ListenAddress::Tcp(address)));
        }
        let is_host = |host: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(plain)
        };
        let parts = text.rsplit_once(':').filter(|(host, port)| is_host(host) && is_port(port));
        let named = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let (host, port) =
            named.ok_or("expected an address with a port, such as 127.0.0.1:4437, or unix:/path")?;
        Ok(Self::Named { host, port })
    }
}

impl ListenSpec {
    /// Where that is. Asks the system's resolver if it has a name, and waits for as long as that takes.
    ///
    /// # Errors
    /// The name has no address, or the resolver does not say.
    pub(crate) fn resolve(&self) -> io::Result<ListenAddress> {
        match self {
            Self::At(place) => Ok(place.clone()),
            Self::Named { host, port } => {
                let first = (host.as_str(), *port).to_socket_addrs()?.next();
                first.map(ListenAddress::Tcp).ok_or_else(|| io::Error::other("it has no address"))
            }
        }
    }
}

impl fmt::Display for ListenSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(place) => write!(formatter, "{place}"),
            Self::Named { host, port } => write!(formatter, "{host}:{port}"),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "http://{address}"),
            Self::Tls(address) => write!(formatter, "https://{address}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl ListenAddress {
    /// The same address, with what is spoken there where there is a certificate or none.
    pub(crate) fn spoken(self, sealed: bool) -> Self {
        match self {
            Self::Tcp(address) if sealed => Self::Tls(address),
            place => place,
        }
    }

    /// Whether only this machine can reach it.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) | Self::Tls(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_judged() {
        let local = |text: &str| ListenSpec::from_str(text).map(|place| place.resolve().unwrap().is_local());
        assert_eq!(local("127.0.0.1:80"), Ok(true));
        assert_eq!(local("[::1]:80"), Ok(true));
        assert_eq!(local("unix:/tmp/x"), Ok(true));
        assert_eq!(local("0.0.0.0:80"), Ok(false));
        assert_eq!(local("[::]:80"), Ok(false));
        assert_eq!(local("localhost:80"), Ok(true));
        for wrong in
            ["127.0.0.1", "unix:", "", ":80", "a:", "a:65536", "a b:80", "::1:80", "http://a:80", "[::1]"]
        {
            assert!(ListenSpec::from_str(wrong).is_err(), "{wrong}");
        }
        // With a sign it is no address, and must not become the name of a host.
        for signed in ["127.0.0.1:+80", "a:+80", "a:-0"] {
            assert!(ListenSpec::from_str(signed).is_err(), "{signed}");
        }
        assert_eq!(ListenSpec::from_str("[::1]:80").unwrap().to_string(), "http://[::1]:80");
    }

    #[test]
    fn a_name_is_asked_for_when_it_is_opened_and_not_when_it_is_read() {
        let place = ListenSpec::from_str("nosuch.invalid:80").unwrap();
        assert_eq!(place, ListenSpec::Named { host: "nosuch.invalid".into(), port: 80 });
        assert!(place.resolve().is_err());
    }
}
