//! Opens every listener, for each reactor.

use super::address::ListenAddress;
use super::error::ServerError;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use thalweg_http::ListenerSettings;
use thalweg_http::tls::Identity;
use thalweg_sys::socket;
use thalweg_sys::systemd::{Bound, bound};
use thalweg_transport::{BoundPath, Listener};

/// What holds at each listener.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListenOptions<'a> {
    /// In whose name TLS is spoken at TCP addresses.
    pub(super) identity: Option<&'a Identity>,
    /// A client has to have a token there.
    pub(super) guarded: bool,
}

/// Open listeners.
pub(super) struct Listeners {
    /// For each reactor, its listeners.
    pub(super) per_reactor: Vec<Vec<ListenerSettings>>,
    /// Where they are, ports filled in.
    pub(super) addresses: Vec<ListenAddress>,
    /// Unix paths that lead to them, removed when dropped.
    pub(super) paths: Vec<BoundPath>,
    /// In whose name TLS is spoken at TCP addresses.
    identity: Option<Identity>,
    /// A client has to have a token there.
    guarded: bool,
}

impl Listeners {
    /// None yet, for so many reactors.
    pub(super) fn new(reactors: usize, options: ListenOptions<'_>) -> Self {
        Self {
            per_reactor: (0..reactors).map(|_| Vec::new()).collect(),
            addresses: Vec::new(),
            paths: Vec::new(),
            identity: options.identity.cloned(),
            guarded: options.guarded,
        }
    }

    /// Opens a listener at every address, for every reactor; but at no path whose directory is not there yet
    /// and is to be made, as `is_to_come` says. Those are left, and returned.
    ///
    /// # Errors
    /// The address that cannot be listened at, and why.
    pub(super) fn open(
        &mut self,
        addresses: &[ListenAddress],
        is_to_come: impl Fn(&Path) -> bool,
    ) -> Result<Vec<ListenAddress>, ServerError> {
        let mut left = Vec::new();
        for address in addresses {
            let opened = match address {
                ListenAddress::Tcp(at) | ListenAddress::Tls(at) => self.open_tcp(*at),
                ListenAddress::Unix(path) => match self.open_unix(path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound && is_to_come(path) => {
                        left.push(address.clone());
                        Ok(())
                    }
                    opened => opened,
                },
            };
            opened.map_err(|error| ServerError::Listen(self.spoken(address.clone()), error))?;
        }
        Ok(left)
    }

    fn open_tcp(&mut self, at: SocketAddr) -> io::Result<()> {
        let opened = Listener::tcp(at, self.per_reactor.len())?;
        let at = opened.first().map_or(Ok(at), Listener::local_address)?;
        let address = self.spoken(ListenAddress::Tcp(at));
        let known_hosts_only = self.is_for_known_hosts(&address);
        for (own, listener) in self.per_reactor.iter_mut().zip(opened) {
            own.push(ListenerSettings {
                descriptor: listener.into_parts().0,
                shared: false,
                handed_over: false,
                identity: self.identity.clone(),
                same_user_only: false,
                known_hosts_only,
            });
        }
        self.addresses.push(address);
        Ok(())
    }

    fn open_unix(&mut self, path: &Path) -> io::Result<()> {
        let listener = Listener::unix(path)?;
        let shared = self.per_reactor.len() > 1;
        let (last, others) = self.per_reactor.split_last_mut().ok_or(io::ErrorKind::InvalidInput)?;
        let at = |descriptor| ListenerSettings {
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
        self.paths.extend(bound);
        self.addresses.push(ListenAddress::Unix(path.to_owned()));
        Ok(())
    }

    /// Adds a listener that was handed over. Its path, if it has one, stays when the listeners are dropped:
    /// it is the supervisor's.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(super) fn add_inherited(
        &mut self,
        address: ListenAddress,
        descriptor: OwnedFd,
    ) -> Result<(), ServerError> {
        let shared = self.per_reactor.len() > 1;
        let address = self.spoken(address);
        let identity = self.identity.as_ref().filter(|_| matches!(address, ListenAddress::Tls(_)));
        let known_hosts_only = self.is_for_known_hosts(&address);
        for own in &mut self.per_reactor {
            let duplicate = socket::duplicate(descriptor.as_fd());
            own.push(ListenerSettings {
                descriptor: duplicate.map_err(|error| ServerError::Listen(address.clone(), error))?,
                shared,
                handed_over: true,
                identity: identity.cloned(),
                // The program that handed a Unix socket over decided who may connect to it.
                same_user_only: false,
                known_hosts_only,
            });
        }
        self.addresses.push(address);
        Ok(())
    }

    /// Whether requests there have to name this server: where nothing else keeps a web page away whose name
    /// was made to resolve to this machine. In a browser a certificate does, and other machines reach an
    /// address by names that the server was never told.
    fn is_for_known_hosts(&self, address: &ListenAddress) -> bool {
        !self.guarded && address.is_local() && matches!(address, ListenAddress::Tcp(_))
    }

    /// The address, with what is spoken there.
    fn spoken(&self, address: ListenAddress) -> ListenAddress {
        address.spoken(self.identity.is_some())
    }
}

/// Listening sockets that were handed over, and where they are.
///
/// # Errors
/// One is neither TCP nor Unix.
pub(super) fn inherited(descriptors: Vec<OwnedFd>) -> io::Result<Vec<(ListenAddress, OwnedFd)>> {
    let of = |descriptor: OwnedFd| {
        let address = match bound(descriptor.as_fd())? {
            Bound::Tcp(address) => {
                socket::set_no_delay(descriptor.as_fd())?;
                ListenAddress::Tcp(address)
            }
            Bound::Unix(path) => ListenAddress::Unix(path.unwrap_or_default()),
        };
        Ok((address, descriptor))
    };
    descriptors.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reactor_gets_every_listener_and_paths_go_with_the_listeners() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sock");
        let addresses =
            [ListenAddress::Tcp("127.0.0.1:0".parse().unwrap()), ListenAddress::Unix(path.clone())];
        let open = |addresses: &[ListenAddress], reactors| {
            let mut listeners = Listeners::new(reactors, ListenOptions::default());
            listeners.open(addresses, |_| false).map(|left| (listeners, left))
        };
        let (listeners, left) = open(&addresses, 3).unwrap();
        assert_eq!(left, []);
        assert!(listeners.per_reactor.iter().all(|own| own.len() == 2 && own[1].shared && !own[0].shared));
        assert!(listeners.per_reactor.iter().all(|own| own[0].known_hosts_only && !own[1].known_hosts_only));
        assert!(matches!(listeners.addresses[0], ListenAddress::Tcp(address) if address.port() != 0));
        assert!(path.exists());
        let again = open(&addresses[1..], 1);
        let Some(ServerError::Listen(at, error)) = again.err() else {
            panic!("a live server's path was taken")
        };
        assert_eq!((at, error.kind()), (ListenAddress::Unix(path.clone()), io::ErrorKind::AddrInUse));
        drop(listeners);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_path_whose_directory_is_to_be_made_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let [there, to_come] = ["s.sock", "data/s.sock"].map(|path| directory.path().join(path));
        let addresses = [&there, &to_come].map(|path| ListenAddress::Unix(path.clone()));
        let mut listeners = Listeners::new(1, ListenOptions::default());
        let left = listeners.open(&addresses, |_| true).unwrap();
        assert_eq!((left, &listeners.addresses[..]), (vec![addresses[1].clone()], &addresses[..1]));
        let refused = listeners.open(&addresses[1..], |_| false).unwrap_err();
        assert!(matches!(refused, ServerError::Listen(at, _) if at == addresses[1]));
        std::fs::create_dir(to_come.parent().unwrap()).unwrap();
        assert_eq!(listeners.open(&addresses[1..], |_| false).unwrap(), []);
        assert!(there.exists() && to_come.exists());
    }
}
