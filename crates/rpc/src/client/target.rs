//! Where a service is: a URL, whose host is looked up once.

use super::bearer::Bearer;
use super::exchange::{HEAD_END, NO_LENGTH};
use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, ToSocketAddrs};
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;
use thalweg_wire::url::{Url, UrlError, shown};

/// A service that calls may go to; of the client that named it, and as long as that keeps it:
/// [`Options::targets_max`](super::Options::targets_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target(pub(crate) u32);

impl Target {
    /// The target as a number, which no other of its client has: 0 is the client's own service.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The target that has this number. One that the client never had, or has no more, is refused where it is
    /// called.
    pub fn from_number(number: u32) -> Self {
        Self(number)
    }
}

/// A URL, resolved: where it leads, and the head of a request to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResolvedUrl {
    /// Of its host, in the order in which they are tried: at least one.
    pub(crate) addresses: Vec<SocketAddr>,
    /// What stands in front of a body: the request line and the fields, without the body's length, for which
    /// there is room.
    pub(crate) head: Vec<u8>,
}

impl ResolvedUrl {
    pub(crate) fn of(url: &str, token: Option<&Bearer>) -> Result<Self, Failure> {
        let refuse = |what: &str| Err(Failure::new(Fault::BadArgument, format!("{}: {what}", shown(url))));
        let parts = match Url::split(url) {
            Ok(parts) if !parts.secure => parts,
            Ok(_) | Err(UrlError::Scheme) => {
                return refuse("give a URL, http://host:port/path; TLS is not spoken");
            }
            Err(UrlError::User) => return refuse("no user is named in a URL: a server's token is an option"),
            Err(UrlError::Host) => return refuse("it names no host: give http://host:port/path"),
            Err(UrlError::Character) => {
                return refuse(
                    "host and path are ASCII without blanks: write other characters of a path as %XX",
                );
            }
            Err(UrlError::Port) => return refuse("a port is a number up to 65535"),
        };
        let (host, path) = (parts.host_field(), parts.rest);
        if path.contains('#') {
            return refuse("a service has no part that a # names: leave out what begins with it");
        }
        let joint = if path.starts_with('/') { "" } else { "/" };
        let unknown = |error| Failure::system(Fault::NoServer, url, error);
        let mut addresses = Vec::new();
        let place = (&*parts.host_to_resolve(), parts.port_or_own());
        for address in place.to_socket_addrs().map_err(unknown)? {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        if addresses.is_empty() {
            return refuse("the host has no address");
        }
        let shown =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {}\r\n", token.text()));
        let head = format!(
            "POST {joint}{path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
             {shown}Content-Length: {NO_LENGTH}{HEAD_END}"
        );
        Ok(Self { addresses, head: head.into_bytes() })
    }
}

/// A host: calls to all URLs with the same addresses share its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiteId(pub(crate) usize);

/// The hosts that were named.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    all: Vec<Site>,
    by_addresses: HashMap<Vec<SocketAddr>, SiteId>,
    /// Numbers of sites that no URL leads to any more: to be used again.
    free: Vec<SiteId>,
}

#[derive(Debug)]
struct Site {
    addresses: Vec<SocketAddr>,
    /// Which of them is tried first: the one that accepted last.
    first: usize,
    /// How many targets lead there.
    names: usize,
    /// Whether the server has closed a kept connection.
    is_wary: bool,
}

impl Sites {
    /// The host that has these addresses, for one more target.
    pub(crate) fn with(&mut self, addresses: &[SocketAddr]) -> SiteId {
        if let Some(&known) = self.by_addresses.get(addresses) {
            self.all[known.0].names += 1;
            return known;
        }
        let site = Site { addresses: addresses.to_vec(), first: 0, names: 1, is_wary: false };
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id.0] = site;
                id
            }
            None => {
                self.all.push(site);
                SiteId(self.all.len() - 1)
            }
        };
        self.by_addresses.insert(addresses.to_vec(), id);
        id
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_addresses.len()
    }

    /// How many targets lead to a host.
    pub(crate) fn names(&self, SiteId(site): SiteId) -> usize {
        self.all.get(site).map_or(0, |site| site.names)
    }

    /// A target of this host is dropped. With the last goes the host: nothing else may know it then.
    pub(crate) fn without(&mut self, id: SiteId) {
        let Some(site) = self.all.get_mut(id.0).filter(|site| site.names > 0) else { return };
        site.names -= 1;
        if site.names == 0 {
            self.by_addresses.remove(&std::mem::take(&mut site.addresses));
            self.free.push(id);
        }
    }

    /// Where to look for a host, in this order.
    pub(crate) fn addresses(&self, SiteId(site): SiteId) -> VecDeque<SocketAddr> {
        let Some(Site { addresses, first, .. }) = self.all.get(site) else { return VecDeque::new() };
        addresses.iter().cycle().skip(*first).take(addresses.len()).copied().collect()
    }

    /// Whether a connection to this host is looked at before it is used again, however fresh it is.
    pub(crate) fn is_wary(&self, SiteId(site): SiteId) -> bool {
        self.all.get(site).is_some_and(|site| site.is_wary)
    }

    /// The server there closed a connection that was kept.
    pub(crate) fn beware(&mut self, SiteId(site): SiteId) {
        if let Some(site) = self.all.get_mut(site) {
            site.is_wary = true;
        }
    }

    /// This address accepted a connection.
    pub(crate) fn answered(&mut self, SiteId(site): SiteId, at: SocketAddr) {
        let Some(site) = self.all.get_mut(site) else { return };
        if let Some(first) = site.addresses.iter().position(|address| *address == at) {
            site.first = first;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_address_and_path() {
        let resolved = ResolvedUrl::of("http://127.0.0.1:4437/rpc/log", None).unwrap();
        assert_eq!(resolved.addresses, ["127.0.0.1:4437".parse().unwrap()]);
        assert!(resolved.head.starts_with(b"POST /rpc/log HTTP/1.1\r\nHost: 127.0.0.1:4437\r\n"));
        assert_eq!(ResolvedUrl::of("http://[::1]", None).unwrap().addresses, ["[::1]:80".parse().unwrap()]);
        for zoned in ["http://[fe80::1%1]:80/x", "http://[fe80::1%251]:80/x"] {
            let resolved = ResolvedUrl::of(zoned, None).unwrap();
            assert_eq!(resolved.addresses, ["[fe80::1%1]:80".parse().unwrap()], "{zoned}");
            let head = String::from_utf8(resolved.head).unwrap();
            assert!(head.contains("\r\nHost: [fe80::1]:80\r\n"), "{head}");
        }
        for (url, line) in [
            ("HTTP://127.0.0.1:1/x", "POST /x HTTP/1.1"),
            ("http://127.0.0.1:1", "POST / HTTP/1.1"),
            ("http://127.0.0.1:1?a=@/", "POST /?a=@/ HTTP/1.1"),
        ] {
            assert!(ResolvedUrl::of(url, None).unwrap().head.starts_with(line.as_bytes()), "{url}");
        }
        for (wrong, says) in [
            ("", "give a URL"),
            ("127.0.0.1:1", "give a URL"),
            ("https://127.0.0.1/", "TLS is not spoken"),
            ("http://", "names no host"),
            ("http:///x", "names no host"),
            ("http://:80/x", "names no host"),
            ("http://a b/", "without blanks"),
            ("http://127.0.0.1/\r\nX: y", "without blanks"),
            ("http://u:secret@127.0.0.1/", "http://…@127.0.0.1/: no user"),
            ("https://u:secret@127.0.0.1/", "https://…@127.0.0.1/: no user"),
            ("u:secret@127.0.0.1/", "…@127.0.0.1/: give a URL"),
            ("http://127.0.0.1/x#y", "leave out"),
            ("http://127.0.0.1#y", "leave out"),
            ("http://127.0.0.1:65536/", "a port"),
            ("http://127.0.0.1:+80/", "a port"),
            ("http://[::1]:x/", "a port"),
            ("http://127.0.0.1:80:80/x", "a port"),
        ] {
            let failure = ResolvedUrl::of(wrong, None).unwrap_err();
            assert_eq!(failure.fault, Fault::BadArgument, "{wrong:?}");
            assert!(failure.detail.contains(says) && !failure.detail.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn a_host_is_looked_for_first_where_it_answered_last() {
        let [a, b, c] = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut sites = Sites::default();
        let site = sites.with(&[a, b, c]);
        assert_eq!((sites.with(&[a, b, c]), sites.with(&[a])), (site, SiteId(1)));
        assert_eq!(sites.addresses(site), [a, b, c]);
        sites.answered(site, b);
        assert_eq!(sites.addresses(site), [b, c, a]);
        // As often as it was named it is let go of, and its number serves another.
        sites.without(site);
        assert_eq!((sites.names(site), sites.addresses(site).len()), (1, 3));
        sites.without(site);
        sites.without(site);
        assert_eq!((sites.names(site), sites.with(&[c])), (0, site));
        assert_eq!(sites.addresses(site), [c]);
    }

    #[test]
    fn a_token_stands_among_the_fields() {
        let token = Bearer::new("tw_4fPq").unwrap();
        let head = ResolvedUrl::of("http://127.0.0.1:1/", Some(&token)).unwrap().head;
        let lines: Vec<_> = std::str::from_utf8(&head).unwrap().split("\r\n").collect();
        assert!(lines.contains(&"Authorization: Bearer tw_4fPq"));
        assert!(lines.ends_with(&["Content-Length:           ", "", ""]), "{lines:?}");
    }
}
