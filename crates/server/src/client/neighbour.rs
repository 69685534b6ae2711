//! `thalweg tail --via`: follows a stream through the service of a server on this machine, over its Unix
//! socket or shared memory, reconnects, resumes where it was.

use super::failure::{Failure, passes};
use super::names_json;
use super::output::{Output, Printer};
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
struct TailPosition<'a> {
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
    let mut place = TailPosition { name, offset: from.to_owned(), met: false, printer };
    let mut pause = PAUSE_MIN;
    loop {
        let before = place.offset.clone();
        match follow(&endpoint, &mut place) {
            Ok(()) => return Ok(()),
            Err(failure) if place.met && passes(&failure) => {
                if place.offset != before {
                    pause = PAUSE_MIN;
                }
                output.tell(format_args!("{failure}; trying again"));
                std::thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            Err(failure) if place.offset == from => return Err(failure.of_beginning(from)),
            Err(failure) => return Err(failure),
        }
    }
}

fn follow(endpoint: &Endpoint, place: &mut TailPosition<'_>) -> Result<(), Failure> {
    // Not for long: the caller decides whether to go on waiting for a server.
    let options =
        ClientOptions { schema: SCHEMA_HASH, connect_within: CONNECT_WITHIN, ..ClientOptions::default() };
    let call = SyncClient::connect(endpoint, options).map_err(Failure::Service)?;
    let mut client = LogClient::new(call);
    if !place.met {
        let head = client.head(&LogHead { name: place.name.into() }).map_err(refused)?;
        place.printer.messages = names_json(&head.content_type);
        if place.offset == "now" {
            // Or what is appended while the server is away would be past it.
            place.offset = head.next.into_owned();
        }
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
    use crate::services::generated::types::{LogHeadResponse, LogRequest, LogTailResponse};
    use std::sync::mpsc::channel;
    use thalweg_service::{Reply, Request, Server, ServerOptions};
    use thalweg_wire::messagepack::response_frame;
    use thalweg_wire::service::error_frame;

    #[test]
    fn whoever_begins_now_goes_on_from_there_when_the_server_was_away() {
        let directory = tempfile::tempdir().unwrap();
        let endpoint = Via::Sock.endpoint(directory.path());
        let options = ServerOptions { schema: SCHEMA_HASH, ..ServerOptions::default() };
        let mut server = Server::bind(std::slice::from_ref(&endpoint), options).unwrap();
        let stopper = server.stopper();
        let (asked, offsets) = channel();
        let mut tails = 0;
        let handler =
            move |request: Request<'_>, reply: Reply| match LogRequest::decode(request.frame).unwrap() {
                LogRequest::Head(_) => {
                    let (content_type, next) = ("Application/JSON; charset=utf-8".into(), "then".into());
                    let head = LogHeadResponse { content_type, next, closed: false };
                    reply.end_with(|out| response_frame(&head, out));
                }
                LogRequest::Tail(tail) => {
                    asked.send(tail.offset.unwrap().into_owned()).unwrap();
                    tails += 1;
                    if tails == 1 {
                        reply.end(&error_frame("LogErrorResponse", "503 ending: the server ends"));
                    } else {
                        reply.end_with(|out| response_frame(&LogTailResponse { next: "end".into() }, out));
                    }
                }
                other => panic!("{other:?}"),
            };
        let thread = std::thread::spawn(move || server.serve(handler));
        tail("a", Via::Sock, directory.path(), "now", Output::Text).unwrap();
        let printer = Printer { output: Output::Text, messages: false };
        let mut place = TailPosition { name: "a", offset: "-1".to_owned(), met: false, printer };
        follow(&endpoint, &mut place).unwrap();
        assert!(place.printer.messages, "judged as HTTP has it");
        stopper.stop();
        thread.join().unwrap().unwrap();
        assert_eq!(offsets.iter().collect::<Vec<_>>(), ["then", "then", "-1"]);
    }

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
