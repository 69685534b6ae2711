//! `thalweg tail --via`: follows a stream through the service of a server on this machine, over its Unix socket or shared
//! memory, reconnects, resumes where it was.

use super::connection::Failure;
use super::output::{Output, Printer, notice};
use super::session::passes;
use super::tail::{PAUSE_MAX, PAUSE_MIN};
use crate::services::generated::client::LogClient;
use crate::services::generated::types::{LogHead, LogTail, SCHEMA_HASH};
use clap::ValueEnum;
use std::path::Path;
use std::time::Duration;
use thalweg_service::{ClientOptions, Endpoint, SyncClient};
use thalweg_wire::service::{CallError, Next};

const CONNECT_WITHIN: Duration = Duration::from_secs(1);

/// How a verb reaches a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Via {
    /// HTTP, at the server's URL.
    Http,
    /// The Unix socket in the store's directory.
    Sock,
    /// Shared memory, by way of the store's directory.
    Shm,
}

impl Via {
    /// Where the services of a store are.
    fn endpoint(self, data: &Path) -> Endpoint {
        match self {
            Self::Shm => Endpoint::Shared(data.join("thalweg.shm")),
            Self::Http | Self::Sock => Endpoint::Socket(data.join("thalweg.sock")),
        }
    }
}

/// Where the follower is.
struct Place<'a> {
    name: &'a str,
    offset: String,
    /// A server answered once: from then on its absence is waited out.
    met: bool,
    printer: Printer,
}

/// Prints what the stream holds from `from` and what is appended, until it is closed.
pub(super) fn tail(name: &str, via: Via, data: &Path, from: &str, output: Output) -> Result<(), Failure> {
    let endpoint = via.endpoint(data);
    let printer = Printer { output, messages: false };
    let mut place = Place { name, offset: from.to_owned(), met: false, printer };
    let mut pause = PAUSE_MIN;
    loop {
        let before = place.offset.clone();
        match follow(&endpoint, &mut place) {
            Ok(()) => return Ok(()),
            Err(failure) if place.met && passes(&failure) => {
                if place.offset != before {
                    pause = PAUSE_MIN;
                }
                notice(format_args!("thalweg: {failure}; trying again"));
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn follow(endpoint: &Endpoint, place: &mut Place<'_>) -> Result<(), Failure> {
    // Not for long: whether to go on waiting for a server is decided by whoever calls.
    let options =
        ClientOptions { schema: SCHEMA_HASH, connect_within: CONNECT_WITHIN, ..ClientOptions::default() };
    let call = SyncClient::connect(endpoint, options).map_err(Failure::Service)?;
    let mut client = LogClient::new(call);
    if !place.met {
        let head = client.head(&LogHead { name: place.name.into() }).map_err(refused)?;
        place.printer.messages = head.content_type.starts_with("application/json");
        place.met = true;
    }
    let request = LogTail { name: place.name.into(), offset: Some(place.offset.clone().into()) };
    let mut items = client.tail(&request).map_err(refused)?;
    loop {
        match items.next().map_err(refused)? {
            Next::Item(item) => {
                if place.printer.print(&item.data, &item.next, false)?.is_none() {
                    return Ok(());
                }
                place.offset = item.next.into_owned();
            }
            Next::End(end) => {
                place.printer.print(b"", &end.next, true)?;
                return Ok(());
            }
        }
    }
}

/// A refusal begins with the status that HTTP would give it.
fn refused(error: CallError<thalweg_service::Error>) -> Failure {
    match error {
        CallError::Transport(error) => Failure::Service(error),
        CallError::Decode(error) => Failure::Event(error.to_string()),
        CallError::Refused(message) => {
            let (status, why) = message.split_once(' ').unwrap_or(("", &message));
            match status.parse() {
                Ok(status) => Failure::Said { status, why: why.to_owned() },
                Err(_) => Failure::Said { status: 500, why: message },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_the_status_it_begins_with() {
        let failure = refused(CallError::Refused("404 stream-missing: no stream of that name".to_owned()));
        assert!(matches!(failure, Failure::Said { status: 404, why } if why.starts_with("stream-missing: ")));
        assert!(
            matches!(refused(CallError::Refused("no".to_owned())), Failure::Said { status: 500, why } if why == "no")
        );
    }

    #[test]
    fn the_endpoints_lie_in_the_store() {
        let data = Path::new("d");
        assert_eq!(Via::Shm.endpoint(data).to_string(), "d/thalweg.shm");
        assert_eq!(Via::Sock.endpoint(data).to_string(), "d/thalweg.sock");
    }
}
