//! Places to listen at of which only one can be opened. They are found before any is opened, while it is
//! known which flag or service asks for each.

use super::address::ListenAddress;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What asks for a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    Listen,
    RpcListen,
    /// The process that opened the listener and handed it over.
    Supervisor,
    /// A service of the store, in its directory.
    Service,
}

/// Two places of which only one can be listened at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenConflict {
    one: (Asker, ListenAddress),
    other: (Asker, ListenAddress),
}

impl ListenConflict {
    /// The first conflict, if there is one. Listeners that were handed over are open, so that two of them
    /// are none.
    pub(crate) fn among<'a>(
        places: impl Iterator<Item = (Asker, &'a ListenAddress)> + Clone,
    ) -> Option<Self> {
        let owned = |(asker, place): (Asker, &ListenAddress)| (asker, place.clone());
        places.clone().enumerate().find_map(|(count, other)| {
            let mut before = places.clone().take(count);
            let both_open = |one: Asker| one == Asker::Supervisor && other.0 == Asker::Supervisor;
            let one = before.find(|one| !both_open(one.0) && are_one(one.1, other.1))?;
            Some(Self { one: owned(one), other: owned(other) })
        })
    }

    /// The same, with each place shown as http or https: `sealed` says whether there is a certificate.
    pub(crate) fn spoken(self, sealed: bool) -> Self {
        let spoken = |(asker, place): (Asker, ListenAddress)| (asker, place.spoken(sealed));
        Self { one: spoken(self.one), other: spoken(self.other) }
    }
}

impl fmt::Display for ListenConflict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((one, place), (other, beside)) = (&self.one, &self.other);
        match (one, other) {
            (Asker::Supervisor | Asker::Service, _) => write!(
                out,
                "{one} is at {place}, and {other} asks for {beside} beside it: leave that out, or name another place"
            ),
            _ if place != beside => write!(
                out,
                "{one} asks for {place}, and {other} for {beside} beside it, which is a part of the same: leave one of them out"
            ),
            _ if one == other => write!(out, "{one} asks for {place} twice: once is enough"),
            _ => write!(out, "{one} and {other} both ask for {place}: name another place for one of them"),
        }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Listen => "--listen",
            Self::RpcListen => "--rpc-listen",
            Self::Supervisor => "a listener handed over",
            Self::Service => "a service of the store",
        })
    }
}

/// Whether a listener at one place keeps another from listening at the other.
fn are_one(one: &ListenAddress, other: &ListenAddress) -> bool {
    match (one, other) {
        (ListenAddress::Unix(one), ListenAddress::Unix(other)) => {
            // One that was handed over need not have a path.
            let whole = |path| std::path::absolute(path).ok();
            whole(one).is_some_and(|one| Some(one) == whole(other))
        }
        (
            ListenAddress::Tcp(one) | ListenAddress::Tls(one),
            ListenAddress::Tcp(other) | ListenAddress::Tls(other),
        ) => overlap(*one, *other),
        _ => false,
    }
}

/// Port 0 is another port each time; an unspecified address stands for every address of its own family.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b): (IpAddr, IpAddr) = (one.ip(), other.ip());
    let is_part = a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
    one.port() != 0 && one.port() == other.port() && is_part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start::ListenSpec;

    fn said(places: &[(Asker, &str)]) -> String {
        let parsed: Vec<(Asker, ListenAddress)> = places
            .iter()
            .map(|(asker, text)| (*asker, text.parse::<ListenSpec>().unwrap().resolve().unwrap()))
            .collect();
        let conflict = ListenConflict::among(parsed.iter().map(|(asker, place)| (*asker, place)));
        conflict.map(|conflict| conflict.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_place_that_is_asked_for_twice_is_named_with_who_asks() {
        use Asker::{Listen, RpcListen, Service, Supervisor};
        for (places, wanted) in [
            (
                &[(Listen, "127.0.0.1:1"), (Listen, "127.0.0.1:1")][..],
                "--listen asks for http://127.0.0.1:1 twice",
            ),
            (
                &[(Listen, "[::1]:1"), (RpcListen, "[::1]:1")],
                "--listen and --rpc-listen both ask for http://[::1]:1",
            ),
            (&[(Listen, "unix:/a/b"), (RpcListen, "unix:/a/./b")], "both ask for unix:/a/b"),
            (
                &[(Listen, "[::]:1"), (RpcListen, "[::1]:1")],
                "http://[::]:1, and --rpc-listen for http://[::1]:1 beside it",
            ),
            (
                &[(Supervisor, "127.0.0.1:1"), (Listen, "127.0.0.1:1")],
                "a listener handed over is at http://127.0.0.1:1",
            ),
            (
                &[(Service, "unix:/d/thalweg.sock"), (Listen, "unix:/d/./thalweg.sock")],
                "a service of the store is at unix:/d/thalweg.sock, and --listen asks for unix:/d/",
            ),
        ] {
            assert!(said(places).contains(wanted), "{}", said(places));
        }
        for places in [
            &[(Listen, "127.0.0.1:0"), (Listen, "127.0.0.1:0"), (RpcListen, "127.0.0.1:0")][..],
            &[
                (Listen, "127.0.0.1:1"),
                (Listen, "127.0.0.1:2"),
                (RpcListen, "127.0.0.2:1"),
                (Listen, "unix:/a"),
            ],
            &[(Listen, "0.0.0.0:1"), (Listen, "[::]:1")],
            &[(Supervisor, "127.0.0.1:1"), (Supervisor, "127.0.0.1:1")],
        ] {
            assert_eq!(said(places), "");
        }
    }
}
