//! Where the server is, and what every request to it begins and ends with.

use crate::arguments::Common;
use crate::error::Error;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use thalweg_http::tls::{Peer, Trust};
use thalweg_wire::path;
use thalweg_wire::url::{Url, shown};

/// A server, and how its streams are named.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// All that the host's name stands for, and the one that is connected to.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) address: SocketAddr,
    pub(crate) url: String,
    /// Behind https://: whom to trust, and the name that the server has to prove.
    tls: Option<(Trust, String)>,
    prefix: String,
    /// The path of all streams up to their numbers.
    path: String,
    /// Bytes of a name at least: numbers are led by zeros until it is as long.
    name_bytes: usize,
    /// Ends the fields that all requests have.
    fields: String,
}

impl Target {
    /// # Errors
    /// The URL is none of `http://host:port`, or its host has no address.
    pub(crate) fn new(common: &Common) -> Result<Self, Error> {
        let url = common.url.trim_end_matches('/');
        let bad = || {
            Error::Asked(format!(
                "{}: a server to be loaded is named as http://host:port or https://host:port",
                shown(url)
            ))
        };
        let parts = Url::split(url).ok().filter(|parts| parts.rest.is_empty()).ok_or_else(bad)?;
        let unreachable = |error| Error::Unreachable { url: url.to_owned(), error };
        let place = (&*parts.host_to_resolve(), parts.port_or_own());
        let addresses = place.to_socket_addrs().map_err(unreachable)?;
        let addresses: Vec<SocketAddr> = addresses.collect();
        let address = *addresses.first().ok_or_else(bad)?;
        let trust = || common.tls_ca.as_deref().map_or_else(Trust::of_system, Trust::in_file);
        let tls = if parts.secure { Some((trust()?, parts.host.to_owned())) } else { None };
        let token = common.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        Ok(Self {
            addresses,
            address,
            url: url.to_owned(),
            tls,
            prefix: common.prefix().to_owned(),
            path: path::of_stream(common.prefix()),
            name_bytes: common.name_bytes,
            fields: format!("Host: {}\r\n{}", parts.host_field(), token.unwrap_or_default()),
        })
    }

    /// What seals a new connection, if it is to be.
    pub(crate) fn seal(&self) -> io::Result<Option<Box<Peer>>> {
        self.tls.as_ref().map(|(trust, name)| Peer::new(trust, name).map(Box::new)).transpose()
    }

    /// The name of the stream of that number.
    pub(crate) fn name(&self, number: u64) -> String {
        format!("{}{number:0digits$}", self.prefix, digits = self.digits())
    }

    fn digits(&self) -> usize {
        self.name_bytes.saturating_sub(self.prefix.len())
    }

    /// Writes a request about the stream of that number. `query` begins with its question mark.
    pub(crate) fn request(&self, out: &mut Vec<u8>, method: &str, number: u64, query: &str, more: &Body<'_>) {
        let digits = self.digits();
        // Writing into a vector cannot fail.
        let _ = write!(out, "{method} {}{number:0digits$}{query} HTTP/1.1\r\n", self.path);
        out.extend_from_slice(self.fields.as_bytes());
        match more {
            Body::None => out.extend_from_slice(b"\r\n"),
            Body::Empty(fields) => {
                let _ = write!(out, "{fields}Content-Length: 0\r\n\r\n");
            }
            Body::Bytes(bytes, media) => {
                let _ = write!(out, "Content-Type: {media}\r\nContent-Length: {}\r\n\r\n", bytes.len());
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// What a request brings.
pub(crate) enum Body<'a> {
    /// Nothing, as GET and HEAD do.
    None,
    /// More fields, each with its line end, and no bytes.
    Empty(&'a str),
    /// Bytes of a media type.
    Bytes(&'a [u8], &'a str),
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A server that is not asked.
    pub(crate) fn target() -> Target {
        Target::new(&Common {
            url: "http://127.0.0.1:1".into(),
            prefix: Some("s-".into()),
            ..Common::default()
        })
        .unwrap()
    }

    #[test]
    fn names_are_as_long_as_asked_for() {
        let common = Common {
            url: "http://127.0.0.1:80".into(),
            name_bytes: 32,
            token: Some("t".into()),
            ..Common::default()
        };
        let target = Target::new(&common).unwrap();
        let mut out = Vec::new();
        target.request(&mut out, "POST", 7, "", &Body::Bytes(b"abc", "text/plain"));
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            text,
            "POST /v1/stream/load-000000000000000000000000007 HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\
             Authorization: Bearer t\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n\r\nabc"
        );
    }

    #[test]
    fn a_prefix_is_any_that_streams_may_have() {
        let prefix = Some("ü b/%2f?".into());
        let target = Target::new(&Common { url: "http://127.0.0.1:80".into(), prefix, ..Common::default() });
        let (target, mut out) = (target.unwrap(), Vec::new());
        target.request(&mut out, "GET", 7, "?offset=-1", &Body::None);
        let line = "GET /v1/stream/%C3%BC%20b/%252f%3F7?offset=-1 HTTP/1.1\r\n";
        assert!(out.starts_with(line.as_bytes()), "{}", String::from_utf8_lossy(&out));
        assert_eq!(target.name(7), "ü b/%2f?7");
    }

    #[test]
    fn only_servers_are_named() {
        let address = |url: &str| {
            let target = Target::new(&Common { url: url.into(), ..Common::default() })?;
            Ok::<_, Error>(target.address.to_string())
        };
        for bad in ["127.0.0.1:80", "http://127.0.0.1:80/path", "unix:/x", "http://127.0.0.1:80?x"] {
            assert!(address(bad).is_err(), "{bad}");
        }
        for (url, found) in [
            ("HTTP://127.0.0.1:1", "127.0.0.1:1"),
            ("http://127.0.0.1/", "127.0.0.1:80"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:8443", "[::1]:8443"),
        ] {
            assert_eq!(address(url).unwrap(), found, "{url}");
        }
    }
}
