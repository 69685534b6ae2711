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
    /// Whoever asks has to show a token.
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
            text += &format!("and to its neighbours on {endpoint}\n");
        }
        text += &format!("limits: {}\n", self.limits);
        let url = self.places.iter().find(|place| !matches!(place, Listen::Unix(_))).map(Listen::to_string);
        if let Some(url) = url {
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

/// What works as it stands here, once whoever has to show a token has one.
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
