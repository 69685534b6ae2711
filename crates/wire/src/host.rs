//! The name by which a request calls the server: its `Host` (RFC 9110, 7.2).
//!
//! A page may have its name lead to this machine once a browser has loaded it, and is then of the same origin
//! as what answers here. The browser still says the page's name, which is no address, and not `localhost`.

use crate::exchange::Refusal;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The refusal of a request whose `Host` names another server: misdirected (RFC 9110 15.5.20). The client may
/// send it over another connection.
pub const HOST_UNKNOWN: Refusal = Refusal {
    status: 421,
    code: "host-unknown",
    field: "Host",
    detail: "The host is neither an address nor a name that this server goes by; its operator can add names with --hosts.",
};

/// The names of a server. A client keeps using the same one, so the last name that was accepted is not parsed
/// again.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    names: Arc<[String]>,
    /// The last that was one.
    last: Vec<u8>,
}

impl Hosts {
    /// By these names, beside addresses and `localhost`.
    pub fn new(names: Arc<[String]>) -> Self {
        Self { names, last: Vec::new() }
    }

    /// Whether a host is an address, this machine, or one of the names that were given; whatever its port.
    pub fn include(&mut self, host: &[u8]) -> bool {
        // None is empty, as this is before there was one.
        if host == self.last && !host.is_empty() {
            return true;
        }
        let is_ours = is_ours(host, &self.names);
        if is_ours {
            self.last.clear();
            self.last.extend_from_slice(host);
        }
        is_ours
    }
}

fn is_ours(host: &[u8], names: &[String]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let is_sound = port.is_empty() || port.strip_prefix(':').is_some_and(may_be_port);
        return is_sound && address.parse::<Ipv6Addr>().is_ok();
    }
    let name = match host.split_once(':') {
        Some((_, port)) if !may_be_port(port) => return false,
        Some((name, _)) => name,
        None => host,
    };
    name.parse::<Ipv4Addr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a text can be the name of a host, as a `Host` has it in front of a port: without scheme, port and
/// blanks, and in ASCII, as a browser says any name.
pub fn is_name(text: &str) -> bool {
    let may_be_in = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    !text.is_empty() && text.bytes().all(may_be_in)
}

/// Whether a text is a port: digits and nothing else, 65535 at most.
pub fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// RFC 3986, 3.2.3: behind a colon there need be no port.
fn may_be_port(text: &str) -> bool {
    text.is_empty() || is_port(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name_that_was_given() {
        let mut hosts = Hosts::new(["engine.example".to_owned()].into());
        for ours in [
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "LOCALHOST:1",
            "Engine.example:9",
            "10.0.0.7",
            "localhost:",
        ] {
            assert!(hosts.include(ours.as_bytes()), "{ours}");
            assert!(hosts.include(ours.as_bytes()), "{ours} again");
        }
        for theirs in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::1",
            "localhost:x",
            "localhost:+80",
            "localhost:65536",
            "[x]",
            "[::1]80",
            "[::1]:+80",
            ":80",
        ] {
            assert!(!Hosts::default().include(theirs.as_bytes()), "{theirs}");
            assert!(!hosts.include(theirs.as_bytes()), "{theirs} behind one that is");
        }
    }

    #[test]
    fn a_name_is_what_a_host_can_be() {
        for name in
            ["engine.example", "a", "xn--bcher-kva.example", "my_box.local", "10.0.0.7", "dot.example."]
        {
            assert!(is_name(name) && Hosts::new([name.to_owned()].into()).include(name.as_bytes()), "{name}");
        }
        for wrong in ["", "a:80", "http://a", "a/", " a", "a b", "*.example", "b\u{fc}cher.example", "[::1]"]
        {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
