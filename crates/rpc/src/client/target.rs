//! Where a service is: a URL, resolved once.

use super::bearer::Bearer;
use std::net::{SocketAddr, ToSocketAddrs};
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;

/// A service that calls may go to; of the client that named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target(pub(crate) usize);

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// What stands in front of a body's length: the request line and the fields.
    pub(crate) head: Vec<u8>,
}

impl Place {
    pub(crate) fn of(url: &str, token: Option<&Bearer>) -> Result<Self, Failure> {
        let refuse = |what: &str| Err(Failure::new(Fault::BadArgument, format!("{url}: {what}")));
        let Some(rest) = url.strip_prefix("http://") else {
            return refuse("give a URL, http://host:port/path");
        };
        let (host, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !is_plain(host) || !is_plain(path) {
            return refuse("host and path have to be plain characters");
        }
        let with_port = match host.rsplit_once(':').filter(|_| !host.ends_with(']')) {
            None => format!("{host}:80"),
            Some((name, port)) if is_port(port) && (name.starts_with('[') || !name.contains(':')) => {
                host.to_owned()
            }
            Some(_) => return refuse("a port is a number up to 65535"),
        };
        let unknown = |error| Failure::system(Fault::NoServer, url, error);
        let address = with_port.to_socket_addrs().map_err(unknown)?.next();
        let Some(address) = address else { return refuse("the host has no address") };
        let shown =
            token.map_or_else(String::new, |token| format!("Authorization: Bearer {}\r\n", token.text()));
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
             {shown}Content-Length: "
        );
        Ok(Self { address, head: head.into_bytes() })
    }
}

fn is_port(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_address_and_path() {
        let place = Place::of("http://127.0.0.1:4437/rpc/log", None).unwrap();
        assert_eq!(place.address, "127.0.0.1:4437".parse().unwrap());
        assert!(place.head.starts_with(b"POST /rpc/log HTTP/1.1\r\nHost: 127.0.0.1:4437\r\n"));
        assert_eq!(Place::of("http://[::1]", None).unwrap().address, "[::1]:80".parse().unwrap());
        for wrong in [
            "",
            "127.0.0.1:1",
            "https://127.0.0.1/",
            "http://",
            "http://a b/",
            "http://127.0.0.1/\r\nX: y",
            "http://u@h/",
            "http://127.0.0.1:65536/",
            "http://127.0.0.1:+80/",
            "http://[::1]:x/",
            "http://127.0.0.1:80:80/x",
        ] {
            assert_eq!(Place::of(wrong, None).unwrap_err().fault, Fault::BadArgument, "{wrong:?}");
        }
    }

    #[test]
    fn a_token_stands_among_the_fields() {
        let token = Bearer::new("tw_4fPq").unwrap();
        let head = Place::of("http://127.0.0.1:1/", Some(&token)).unwrap().head;
        let lines: Vec<_> = std::str::from_utf8(&head).unwrap().split("\r\n").collect();
        assert!(
            lines.contains(&"Authorization: Bearer tw_4fPq") && lines.last() == Some(&"Content-Length: ")
        );
    }
}
