//! What a server that has started says on standard output: where it is, and what to try.
//!
//! Standard output may be closed: then nobody wanted to know.

use crate::client::Output;
use crate::limits::Limits;
use crate::listen::Listen;
use serde_json::{Value, json};
use std::fmt::Display;
use thalweg_service::Endpoint;

/// Where a server is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Greeting<'a> {
    pub(crate) places: &'a [Listen],
    pub(crate) rpc: &'a [Listen],
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
        for place in self.places {
            text += &format!("thalweg is listening on {place}\n");
        }
        for place in self.rpc {
            text += &format!("and for JSON-RPC on {place}\n");
        }
        for endpoint in self.neighbours {
            text += &format!("and, for programs on this machine, at {endpoint}\n");
        }
        text += &format!("limits: {}\n", self.limits);
        if let Some(url) = self.places.iter().find_map(from_here) {
            text += &tries(&url, self.is_guarded);
        }
        text
    }

    fn json(self) -> Value {
        let rpc = texts(self.rpc);
        let neighbours = texts(self.neighbours);
        json!({
            "listening": texts(self.places),
            "rpc": rpc,
            "neighbours": neighbours,
            "limits": self.limits.to_string(),
        })
    }
}

/// The URL by which programs on this machine reach a place. One that stands for every address is reached at
/// loopback, and behind TLS by a name that a certificate may have.
fn from_here(place: &Listen) -> Option<String> {
    match place {
        Listen::Unix(_) => None,
        Listen::Tcp(address) | Listen::Tls(address) if !address.ip().is_unspecified() => {
            Some(place.to_string())
        }
        Listen::Tls(address) => Some(format!("https://localhost:{}", address.port())),
        Listen::Tcp(address) if address.is_ipv4() => Some(format!("http://127.0.0.1:{}", address.port())),
        Listen::Tcp(address) => Some(format!("http://[::1]:{}", address.port())),
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
        let url = |place: Listen| from_here(&place);
        let at = |text: &str| text.parse().unwrap();
        for (place, wanted) in [
            (Listen::Tcp(at("127.0.0.1:1")), Some("http://127.0.0.1:1")),
            (Listen::Tcp(at("0.0.0.0:1")), Some("http://127.0.0.1:1")),
            (Listen::Tcp(at("[::]:1")), Some("http://[::1]:1")),
            (Listen::Tls(at("0.0.0.0:1")), Some("https://localhost:1")),
            (Listen::Tls(at("192.0.2.1:1")), Some("https://192.0.2.1:1")),
            (Listen::Unix("/s".into()), None),
        ] {
            assert_eq!(url(place).as_deref(), wanted);
        }
    }
}
