//! Where the server listens.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::str::FromStr;
use thalweg_http::Listening;
use thalweg_http::tls::Identity;
use thalweg_sys::socket;
use thalweg_sys::systemd::{Bound, bound};
use thalweg_transport::{BoundPath, Listener};

/// RFC 1035 2.3.4.
const HOST_BYTES_MAX: usize = 253;

/// A place to listen at, as the configuration names it: whether it is one is judged when the configuration is
/// read, and what address its name has when it is opened. A resolver may be slow, or not there yet, and says
/// nothing about the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// An address or a path.
    At(Listen),
    /// A TCP port at the first address of a host.
    Named {
        /// Its name.
        host: String,
        /// Its port.
        port: u16,
    },
}

/// A place that can be listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A TCP address where TLS is spoken, as all are once there is a certificate.
    Tls(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err("unix: needs a path".into())
            } else {
                Ok(Self::At(Listen::Unix(path.into())))
            };
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::At(Listen::Tcp(address)));
        }
        let is_host = |host: &str| {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.bytes().all(plain)
        };
        let parts = text.rsplit_once(':').filter(|(host, _)| is_host(host));
        let named = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let (host, port) =
            named.ok_or("expected an address with a port, such as 127.0.0.1:4437, or unix:/path")?;
        Ok(Self::Named { host, port })
    }
}

impl Place {
    /// Where that is. Asks the system's resolver if it has a name, and waits for as long as that takes.
    ///
    /// # Errors
    /// The name has no address, or the resolver does not say.
    pub(crate) fn resolve(&self) -> io::Result<Listen> {
        match self {
            Self::At(place) => Ok(place.clone()),
            Self::Named { host, port } => {
                let first = (host.as_str(), *port).to_socket_addrs()?.next();
                first.map(Listen::Tcp).ok_or_else(|| io::Error::other("it has no address"))
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(place) => write!(formatter, "{place}"),
            Self::Named { host, port } => write!(formatter, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(formatter, "http://{address}"),
            Self::Tls(address) => write!(formatter, "https://{address}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl Listen {
    /// The same place, with what is spoken there where there is a certificate or none.
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

/// How listeners are kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Keeping<'a> {
    /// In whose name TLS is spoken at TCP addresses.
    pub(crate) identity: Option<&'a Identity>,
    /// A client has to have a token there.
    pub(crate) guarded: bool,
}

/// Open listeners.
pub(crate) struct Doors {
    /// For each reactor, its listeners.
    pub(crate) per_reactor: Vec<Vec<Listening>>,
    /// Where they are, ports filled in.
    pub(crate) places: Vec<Listen>,
    /// Unix paths that lead to them, removed when dropped.
    pub(crate) paths: Vec<BoundPath>,
    /// In whose name TLS is spoken at TCP addresses.
    identity: Option<Identity>,
    /// A client has to have a token there.
    guarded: bool,
}

/// Opens every listener for every reactor.
///
/// # Errors
/// The place that cannot be listened at, and why.
pub(crate) fn open(
    listens: &[Listen],
    reactors: usize,
    keeping: Keeping<'_>,
) -> Result<Doors, (Listen, io::Error)> {
    let mut doors = Doors {
        per_reactor: (0..reactors).map(|_| Vec::new()).collect(),
        places: Vec::new(),
        paths: Vec::new(),
        identity: keeping.identity.cloned(),
        guarded: keeping.guarded,
    };
    for listen in listens {
        open_one(&mut doors, listen).map_err(|error| (doors.spoken(listen.clone()), error))?;
    }
    Ok(doors)
}

fn open_one(doors: &mut Doors, listen: &Listen) -> io::Result<()> {
    match listen {
        Listen::Tcp(address) | Listen::Tls(address) => {
            let listeners = Listener::tcp(*address, doors.per_reactor.len())?;
            let address = listeners.first().map_or(Ok(*address), Listener::local_address)?;
            let place = doors.spoken(Listen::Tcp(address));
            let known_hosts_only = doors.is_for_known_hosts(&place);
            for (own, listener) in doors.per_reactor.iter_mut().zip(listeners) {
                let identity = doors.identity.clone();
                let descriptor = listener.into_parts().0;
                let (shared, same_user_only) = (false, false);
                own.push(Listening {
                    descriptor,
                    shared,
                    handed_over: false,
                    identity,
                    same_user_only,
                    known_hosts_only,
                });
            }
            doors.places.push(place);
        }
        Listen::Unix(path) => {
            let listener = Listener::unix(path)?;
            let shared = doors.per_reactor.len() > 1;
            let (last, others) = doors.per_reactor.split_last_mut().ok_or(io::ErrorKind::InvalidInput)?;
            let at = |descriptor| Listening {
                descriptor,
                shared,
                handed_over: false,
                identity: None,
                same_user_only: true,
                known_hosts_only: false,
            };
            for own in others {
                own.push(at(listener.duplicate()?));
            }
            let (descriptor, bound) = listener.into_parts();
            last.push(at(descriptor));
            doors.paths.extend(bound);
            doors.places.push(listen.clone());
        }
    }
    Ok(())
}

/// Listening sockets that were handed over, and where they are.
///
/// # Errors
/// One is neither TCP nor Unix.
pub(crate) fn inherited(descriptors: Vec<OwnedFd>) -> io::Result<Vec<(Listen, OwnedFd)>> {
    let place = |descriptor: OwnedFd| {
        let listen = match bound(descriptor.as_fd())? {
            Bound::Tcp(address) => {
                socket::set_no_delay(descriptor.as_fd())?;
                Listen::Tcp(address)
            }
            Bound::Unix(path) => Listen::Unix(path.unwrap_or_default()),
        };
        Ok((listen, descriptor))
    };
    descriptors.into_iter().map(place).collect()
}

impl Doors {
    /// Adds a listener that was handed over. Its path, if it has one, stays when the doors go: it is not
    /// ours.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn add_inherited(&mut self, place: Listen, descriptor: OwnedFd) -> io::Result<()> {
        let shared = self.per_reactor.len() > 1;
        let place = self.spoken(place);
        let identity = self.identity.as_ref().filter(|_| matches!(place, Listen::Tls(_)));
        let known_hosts_only = self.is_for_known_hosts(&place);
        for own in &mut self.per_reactor {
            let (descriptor, identity) = (socket::duplicate(descriptor.as_fd())?, identity.cloned());
            // The program that handed a Unix socket over decided who may connect to it.
            let same_user_only = false;
            own.push(Listening {
                descriptor,
                shared,
                handed_over: true,
                identity,
                same_user_only,
                known_hosts_only,
            });
        }
        self.places.push(place);
        Ok(())
    }

    /// Whether what is asked there has to name this server: where nothing else keeps a page away whose name
    /// was made to lead to this machine. In a browser a certificate does, and what other machines reach goes
    /// by names that nobody told us.
    fn is_for_known_hosts(&self, place: &Listen) -> bool {
        !self.guarded && place.is_local() && matches!(place, Listen::Tcp(_))
    }

    /// The place, with what is spoken there.
    pub(crate) fn spoken(&self, place: Listen) -> Listen {
        place.spoken(self.identity.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_judged() {
        let local = |text: &str| Place::from_str(text).map(|place| place.resolve().unwrap().is_local());
        assert_eq!(local("127.0.0.1:80"), Ok(true));
        assert_eq!(local("[::1]:80"), Ok(true));
        assert_eq!(local("unix:/tmp/x"), Ok(true));
        assert_eq!(local("0.0.0.0:80"), Ok(false));
        assert_eq!(local("[::]:80"), Ok(false));
        assert_eq!(local("localhost:80"), Ok(true));
        for wrong in
            ["127.0.0.1", "unix:", "", ":80", "a:", "a:65536", "a b:80", "::1:80", "http://a:80", "[::1]"]
        {
            assert!(Place::from_str(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Place::from_str("[::1]:80").unwrap().to_string(), "http://[::1]:80");
    }

    #[test]
    fn a_name_is_asked_for_when_it_is_opened_and_not_when_it_is_read() {
        let place = Place::from_str("nosuch.invalid:80").unwrap();
        assert_eq!(place, Place::Named { host: "nosuch.invalid".into(), port: 80 });
        assert!(place.resolve().is_err());
    }

    #[test]
    fn every_reactor_gets_every_listener_and_paths_go_with_the_doors() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let listens = [Listen::Tcp("127.0.0.1:0".parse().unwrap()), Listen::Unix(path.clone())];
        let doors = open(&listens, 3, Keeping::default()).map_err(|(_, error)| error).unwrap();
        assert!(doors.per_reactor.iter().all(|own| own.len() == 2 && own[1].shared && !own[0].shared));
        assert!(doors.per_reactor.iter().all(|own| own[0].known_hosts_only && !own[1].known_hosts_only));
        assert!(matches!(doors.places[0], Listen::Tcp(address) if address.port() != 0));
        assert!(path.exists());
        let Err((at, error)) = open(&listens[1..], 1, Keeping::default()) else {
            panic!("a live server's path was taken")
        };
        assert_eq!((at, error.kind()), (Listen::Unix(path.clone()), io::ErrorKind::AddrInUse));
        drop(doors);
        assert!(!path.exists());
    }
}
