//! Where a webhook may go (PROTOCOL 6.2, 12.8): `https` to public addresses, and for development, where that
//! is allowed, `http` to this very machine by the names `localhost` and `127.0.0.x`.
//!
//! Two checks, for a name says nothing about where it leads: the URL when a subscription is made, and every
//! address it resolves to on each delivery. A delivery connects only to addresses that [`Target::permits`]
//! let pass, so a name that leads elsewhere a moment later gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use thalweg_wire::url::{Url, UrlError};

const NOWHERE: &str = "the webhook URL names no host, or no usable port";

/// A webhook URL that was taken apart and may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Encrypted, and the peer's name proven.
    pub secure: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// What the `Host` field says.
    pub authority: String,
    /// Path and query, beginning with `/`.
    pub path: String,
}

impl Target {
    /// Takes a URL apart; `loopback` is whether it may lead to this very machine.
    ///
    /// # Errors
    /// Which rule it breaks, as a sentence.
    pub fn parse(url: &str, loopback: bool) -> Result<Target, &'static str> {
        let parts = match Url::split(url) {
            Err(UrlError::Scheme) => return Err("a webhook URL begins with https://"),
            parts if url.len() <= 2048 && !url.contains('\\') => parts,
            _ => Err(UrlError::Character),
        };
        let parts = parts.map_err(|wrong| match wrong {
            UrlError::User => "a webhook URL carries no user or password",
            UrlError::Character => "a webhook URL has at most 2048 printable ASCII characters",
            UrlError::Scheme | UrlError::Host | UrlError::Port => NOWHERE,
        })?;
        if parts.port == Some(0) || !is_host(&parts) {
            return Err(NOWHERE);
        }
        let path = parts.rest.split('#').next().unwrap_or_default();
        let target = Target {
            secure: parts.secure,
            host: parts.host.to_ascii_lowercase(),
            port: parts.port_or_own(),
            authority: parts.authority.to_ascii_lowercase(),
            path: if path.starts_with('/') { path.to_owned() } else { format!("/{path}") },
        };
        target.judge(loopback).map(|()| target)
    }

    fn judge(&self, loopback: bool) -> Result<(), &'static str> {
        match self.address() {
            // PROTOCOL 6.2: development may use http://localhost and http://127.0.0.x.
            _ if self.is_development() && loopback => Ok(()),
            _ if self.is_development() => {
                Err("webhooks to the server's own machine are allowed by its setting webhooks_loopback alone")
            }
            _ if !self.secure => Err("http:// is for localhost and 127.0.0.x only; use https://"),
            Some(address) if !is_public(address) => Err("the address is not a public one"),
            Some(_) => Ok(()),
            // What resolvers take for an address though it is not written as one: 127.1, 0x7f000001.
            None if numeric_end(&self.host) => Err("the host is neither a name nor a plain address"),
            None if is_local_name(&self.host) => Err("the name leads to this machine or network"),
            None => Ok(()),
        }
    }

    /// The host, if it is an address already.
    pub fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Covered by the development exception: its addresses are known without a resolver.
    pub fn is_development(&self) -> bool {
        let near = |address| matches!(address, IpAddr::V4(v4) if v4.octets()[..3] == [127, 0, 0]);
        !self.secure && (self.host == "localhost" || self.address().is_some_and(near))
    }

    /// Whether a delivery may connect to an address the host resolved to.
    pub fn permits(&self, address: IpAddr) -> bool {
        if self.is_development() { address.is_loopback() } else { is_public(address) }
    }
}

/// Whether a host is written as a name or an address is.
fn is_host(url: &Url<'_>) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if url.is_bracketed() {
        return url.host.parse::<Ipv6Addr>().is_ok();
    }
    url.host.len() <= 253 && url.host.bytes().all(plain)
}

/// Whether the last label reads as a number, which makes resolvers take the whole for an address.
fn numeric_end(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or(host);
    let hex = last.strip_prefix("0x");
    last.bytes().all(|byte| byte.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_local_name(host: &str) -> bool {
    let host = host.trim_end_matches('.');
    host == "localhost" || [".localhost", ".local", ".internal"].iter().any(|end| host.ends_with(end))
}

/// Whether an address is one of the public Internet: not of a private or shared network, this machine, a
/// link, a group, documentation, or a tunnel that could lead back to any of those (RFC 6890 registries).
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224.., _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let global = a & 0xe000 == 0x2000;
    let special = a == 0x2001 && (b < 0x0200 || b == 0x0db8);
    let tunnel = a == 0x2002;
    let documentation = a == 0x3fff;
    global && !special && !tunnel && !documentation
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_targets_are_taken_apart() {
        let parse = |url| Target::parse(url, true).unwrap();
        let target = parse("https://Worker.Example:8443/hooks?x=1#frag");
        assert_eq!((target.host.as_str(), target.port, target.secure), ("worker.example", 8443, true));
        assert_eq!((target.authority.as_str(), target.path.as_str()), ("worker.example:8443", "/hooks?x=1"));
        assert_eq!(parse("https://a.example").path, "/");
        assert_eq!(parse("https://a.example?x").path, "/?x");
        assert_eq!(parse("https://[2606:4700::1]/").host, "2606:4700::1");
        for local in ["http://localhost:3000/h", "http://127.0.0.1:1/", "http://127.0.0.9/"] {
            assert!(parse(local).is_development(), "{local}");
        }
    }

    #[test]
    fn this_machine_is_a_target_only_where_that_is_allowed() {
        for local in ["http://localhost:3000/h", "http://127.0.0.1:1/", "http://LOCALHOST/"] {
            assert!(Target::parse(local, true).is_ok(), "{local}");
            assert!(Target::parse(local, false).unwrap_err().contains("webhooks_loopback"), "{local}");
        }
        assert!(Target::parse("https://a.example/", false).is_ok());
    }

    #[test]
    fn targets_that_lead_inside_are_refused() {
        for bad in [
            "http://10.0.0.1/hook",
            "https://10.0.0.1/",
            "https://127.0.0.1/",
            "https://localhost/",
            "http://example.com/",
            "https://169.254.169.254/latest/meta-data",
            "https://192.168.1.1/",
            "https://172.20.0.1/",
            "https://100.64.0.1/",
            "https://0.0.0.0/",
            "https://224.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:10.0.0.1]/",
            "https://[fe80::1]/",
            "https://[fd00::1]/",
            "https://[::]/",
            "https://[ff02::1]/",
            "https://[64:ff9b::a00:1]/",
            "https://[2002:a00:1::]/",
            "https://127.1/",
            "https://2130706433/",
            "https://0x7f000001/",
            "https://0177.0.0.1/",
            "https://metadata.google.internal/",
            "https://printer.local/",
            "https://foo.localhost/",
            "http://127.1.0.1/",
            "http://127.0.0.1.example.com/",
            "http://localhost.example.com/",
            "https://user@example.com/",
            "https://10.0.0.1@example.com/",
            "ftp://example.com/",
            "example.com",
            "https:///x",
            "https://a.example:0/",
            "https://a.example:99999/",
            "https://a.example:x/",
            "https://a example/",
            "https://a.example/\r\nX: y",
            "https://a.example\\@10.0.0.1/",
            "",
        ] {
            assert!(Target::parse(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_public_name_that_resolves_inside_is_not_permitted() {
        let target = Target::parse("https://rebound.example/", true).unwrap();
        for (address, allowed) in [
            ("93.184.216.34", true),
            ("10.1.2.3", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("::1", false),
            ("2606:4700::1111", true),
            ("fd12::1", false),
        ] {
            assert_eq!(target.permits(address.parse().unwrap()), allowed, "{address}");
        }
        let near = Target::parse("http://localhost/", true).unwrap();
        assert!(near.permits("127.0.0.1".parse().unwrap()) && near.permits("::1".parse().unwrap()));
        assert!(!near.permits("93.184.216.34".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn no_url_panics_and_none_with_a_private_address_passes(url in ".{0,60}", a in any::<u32>()) {
            let _ = Target::parse(&url, true);
            let address = Ipv4Addr::from(a);
            let private = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_unspecified();
            if private {
                let url = format!("https://{address}/");
                prop_assert!(Target::parse(&url, true).is_err());
            }
            let mapped = IpAddr::V6(address.to_ipv6_mapped());
            prop_assert_eq!(is_public(mapped), is_public(IpAddr::V4(address)));
        }
    }
}
