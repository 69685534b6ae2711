//! What a server that has started says on standard output: where it is, and what to try.
//!
//! Standard output may be closed: the greeting is then not wanted.

use super::address::ListenAddress;
use crate::bounds::Limits;
use crate::client::Output;
use serde_json::{Value, json};
use std::fmt::Display;
use thalweg_service::Endpoint;

/// Where a server is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting<'a> {
    pub(crate) streams: &'a [ListenAddress],
    pub(crate) rpc: &'a [ListenAddress],
    pub(crate) neighbours: &'a [&'a Endpoint],
    pub(crate) limits: &'a Limits,
    /// Clients have to show a token.
    pub(crate) is_guarded: bool,
}

impl Greeting<'_> {
    /// Says it in the form that was asked for.
    pub(crate) fn say(self, output: Output) {
        let _ = output.say(self.text(), self.json());
    }

    fn text(self) -> String {
        let mut text = String::new();
        for address in self.streams {
            text += &format!("thalweg is listening on {address}\n");
        }
        for address in self.rpc {
            text += &format!("and for JSON-RPC on {address}\n");
        }
        for endpoint in self.neighbours {
            text += &format!("and, for programs on this machine, at {endpoint}\n");
        }
        text += &format!("limits: {}\n", self.limits.lines().join("\n        "));
        if let Some(url) = self.streams.iter().find_map(from_here) {
            text += &tries(&url, self.is_guarded);
        }
        text
    }

    fn json(self) -> Value {
        let rpc = texts(self.rpc);
        let neighbours = texts(self.neighbours);
        json!({
            "listening": texts(self.streams),
            "rpc": rpc,
            "neighbours": neighbours,
            "limits": self.limits.lines().join("; "),
        })
    }
}

/// The URL by which programs on this machine reach a place. One that stands for every address is reached at
/// loopback, and behind TLS by a name that a certificate may have.
fn from_here(place: &ListenAddress) -> Option<String> {
    match place {
        ListenAddress::Unix(_) => None,
        ListenAddress::Tcp(address) | ListenAddress::Tls(address) if !address.ip().is_unspecified() => {
            Some(place.to_string())
        }
        ListenAddress::Tls(address) => Some(format!("https://localhost:{}", address.port())),
        ListenAddress::Tcp(address) if address.is_ipv4() => {
            Some(format!("http://127.0.0.1:{}", address.port()))
        }
        ListenAddress::Tcp(address) => Some(format!("http://[::1]:{}", address.port())),
    }
}

/// Commands to try that work as they stand, once a token is set where the server asks for one.
fn tries(url: &str, is_guarded: bool) -> String {
    let (begin, token) = if is_guarded {
        let begin =
            "try, with a token that may read and append as THALWEG_TOKEN (`thalweg token` makes them):";
        (begin, " -H \"Authorization: Bearer $THALWEG_TOKEN\"")
    } else {
        ("try:", "")
    };
    format!(
        "{begin}\n  curl -X PUT {url}/v1/stream/hello -H 'Content-Type: text/plain'{token}\n  \
         curl -X POST {url}/v1/stream/hello -H 'Content-Type: text/plain'{token} -d $'hello, stream\\n'\n  \
         curl -N '{url}/v1/stream/hello?offset=-1&live=sse'{token}\n"
    )
}

fn texts(places: &[impl Display]) -> Vec<String> {
    places.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_tried_works_from_this_machine() {
        let url = |place: ListenAddress| from_here(&place);
        let at = |text: &str| text.parse().unwrap();
        for (place, wanted) in [
            (ListenAddress::Tcp(at("127.0.0.1:1")), Some("http://127.0.0.1:1")),
            (ListenAddress::Tcp(at("0.0.0.0:1")), Some("http://127.0.0.1:1")),
            (ListenAddress::Tcp(at("[::]:1")), Some("http://[::1]:1")),
            (ListenAddress::Tls(at("0.0.0.0:1")), Some("https://localhost:1")),
            (ListenAddress::Tls(at("192.0.2.1:1")), Some("https://192.0.2.1:1")),
            (ListenAddress::Unix("/s".into()), None),
        ] {
            assert_eq!(url(place).as_deref(), wanted);
        }
    }
}
