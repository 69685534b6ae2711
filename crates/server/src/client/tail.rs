//! `thalweg tail`: follows a stream, reconnects, resumes where it was.
//!
//! By server-sent events where those bring what is there: messages, and bytes in base64. Text they bring by
//! the line, and of a line's end they do not say which it was, nor that there is none yet (HTML Living
//! Standard 9.2.6). So streams of text are read chunk by chunk, and then waited for by long polls.

use super::address::Address;
use super::ask_once;
use super::connection::Connection;
use super::failure::{Failure, passes};
use super::is_json;
use super::output::{Output, Printer};
use super::read::start;
use super::session::Session;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use thalweg_wire::media::{self, Kind};
use thalweg_wire::path::encode;
use thalweg_wire::sse::read::{Control, Events};

pub(super) const PAUSE_MIN: Duration = Duration::from_millis(100);
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A response that lasted for so long ended as they do; the next may be asked for at once.
const LASTS: Duration = Duration::from_secs(1);
/// A long poll that brought nothing, too: a server may be asked to end them early.
const POLL_LASTS: Duration = Duration::from_millis(50);

/// Where the follower is.
struct TailPosition {
    offset: String,
    cursor: Option<String>,
    /// A server answered once: from then on its absence is waited out.
    met: bool,
    /// It holds text.
    text: bool,
    /// Came, and ends inside a character: programs are told of it with the rest, or when that does not come.
    held: Vec<u8>,
    printer: Printer,
}

impl TailPosition {
    /// Prints what came up to `next`, and continues there. Whether the output still has a reader.
    fn print(&mut self, came: Vec<u8>, next: String, closed: bool) -> Result<bool, Failure> {
        let nothing_came = came.is_empty();
        self.held.extend(came);
        self.offset = next;
        let by_characters = self.text && matches!(self.printer.output, Output::Json);
        if by_characters && !nothing_came && !closed && ends_inside(&self.held) {
            return Ok(true);
        }
        let content = std::mem::take(&mut self.held);
        Ok(self.printer.print(&content, &self.offset, closed)?.is_some())
    }
}

/// Whether it is UTF-8 but for a last character that has more bytes.
fn ends_inside(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_err_and(|error| error.error_len().is_none())
}

/// What one response came to.
enum FollowOutcome {
    /// The response ended; more may come on the next.
    Ended,
    /// The stream is closed, or the output has no reader any more.
    Over,
}

/// Prints what the stream holds from `from` and what is appended, until it is closed.
pub(super) fn tail(address: &Address, from: &str, output: Output) -> Result<(), Failure> {
    let printer = Printer { output, messages: false };
    let mut place = TailPosition {
        offset: from.to_owned(),
        cursor: None,
        met: false,
        text: false,
        held: Vec::new(),
        printer,
    };
    let mut pause = PAUSE_MIN;
    loop {
        let (before, since) = (place.offset.clone(), Instant::now());
        let followed = follow(address, &mut place);
        let has_moved = place.offset != before;
        if has_moved {
            pause = PAUSE_MIN;
        }
        match followed {
            Ok(FollowOutcome::Over) => return Ok(()),
            Ok(FollowOutcome::Ended) if has_moved || since.elapsed() >= LASTS => {
                pause = PAUSE_MIN;
                continue;
            }
            // A proxy that knows no event streams may end each response before an event has come. Without
            // this the client would reconnect without a pause.
            Ok(FollowOutcome::Ended) => {}
            Err(failure) if place.met && passes(&failure) => {
                output.tell(format_args!("{failure}; trying again"));
            }
            Err(failure) => {
                // What came is told of, whatever becomes of the rest.
                let at = place.offset.clone();
                let is_first = at == from;
                place.print(Vec::new(), at, false)?;
                return Err(if is_first { failure.of_beginning(from) } else { failure });
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

fn follow(address: &Address, place: &mut TailPosition) -> Result<FollowOutcome, Failure> {
    if !place.met {
        let head = ask_once(address, "HEAD", &[], b"")?;
        place.printer.messages = is_json(&head);
        place.text = media::kind(head.field("content-type").unwrap_or_default()) == Kind::Text;
        place.met = true;
    }
    if place.text { follow_by_polls(address, place) } else { follow_by_events(address, place) }
}

/// Chunk after chunk up to the end, then a long poll for each that comes, until one ends at once and brings
/// nothing.
fn follow_by_polls(address: &Address, place: &mut TailPosition) -> Result<FollowOutcome, Failure> {
    let mut session = Session::new(&address.url);
    let mut live = false;
    loop {
        let mut query = format!("?{}", start(&place.offset));
        if live {
            query += "&live=long-poll";
            if let Some(cursor) = &place.cursor {
                query += &format!("&cursor={}", encode(cursor));
            }
        }
        let asked = Instant::now();
        let head = match session.ask("GET", &address.target(&query), &[], b"") {
            // Servers may be told to let a poll wait for longer than we do.
            Err(Failure::Broken(error)) if live && error.kind() == ErrorKind::TimedOut => {
                return Ok(FollowOutcome::Ended);
            }
            asked => asked?,
        };
        let content = session.body()?;
        let (next, closed) = (head.field("stream-next-offset"), head.says("stream-closed"));
        let is_empty = content.is_empty();
        let next = match next {
            Some(next) if is_empty || next != place.offset => next.to_owned(),
            None if is_empty => place.offset.clone(),
            _ => {
                return Err(Failure::Event(
                    "bytes, but not where they end: is the URL that of a server of streams?".to_owned(),
                ));
            }
        };
        if !place.print(content, next, closed)? || closed {
            return Ok(FollowOutcome::Over);
        }
        place.cursor = head.field("stream-cursor").map(str::to_owned).or(place.cursor.take());
        if live && is_empty && asked.elapsed() < POLL_LASTS {
            return Ok(FollowOutcome::Ended);
        }
        live |= is_empty || head.says("stream-up-to-date");
    }
}

fn follow_by_events(address: &Address, place: &mut TailPosition) -> Result<FollowOutcome, Failure> {
    let mut connection = Connection::open(&address.url)?;
    let mut query = format!("?{}&live=sse", start(&place.offset));
    if let Some(cursor) = &place.cursor {
        query += &format!("&cursor={}", encode(cursor));
    }
    let fields = [("Accept", "text/event-stream")];
    let head = connection.ask("GET", &address.target(&query), &fields, b"")?;
    let base64 = head.field("stream-sse-data-encoding").is_some_and(|v| v.eq_ignore_ascii_case("base64"));
    let mut events = Events::default();
    let mut bytes = Vec::new();
    let mut data = Vec::new();
    while connection.read_some(&mut bytes)? {
        events.push(&bytes);
        bytes.clear();
        while let Some(event) = events.next() {
            match event.kind.as_str() {
                "data" => data.extend(payload(event.data, base64)?),
                "control" => {
                    let control = Control::parse(&event.data)
                        .ok_or_else(|| Failure::Event(String::from_utf8_lossy(&event.data).into_owned()))?;
                    // Printed only with the control event that says where it ends: an event whose place
                    // is lost with the connection will come again.
                    let is_read =
                        place.print(std::mem::take(&mut data), control.next_offset, control.closed)?;
                    if !is_read || control.closed {
                        return Ok(FollowOutcome::Over);
                    }
                    place.cursor = control.cursor.or(place.cursor.take());
                }
                _ => {}
            }
        }
    }
    Ok(FollowOutcome::Ended)
}

fn payload(data: Vec<u8>, base64: bool) -> Result<Vec<u8>, Failure> {
    if !base64 {
        return Ok(data);
    }
    let text: Vec<u8> = data.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(text).map_err(|error| Failure::Event(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::super::{scripted, verbs::Server};
    use super::*;

    #[test]
    fn payloads_are_decoded_as_the_head_says() {
        assert_eq!(payload(b"AQID\nBA==".to_vec(), true).unwrap(), [1, 2, 3, 4]);
        assert_eq!(payload(b"AQID".to_vec(), false).unwrap(), b"AQID");
        assert!(matches!(payload(b"!".to_vec(), true), Err(Failure::Event(_))));
    }

    fn place(output: Output) -> TailPosition {
        let (printer, held) = (Printer { output, messages: false }, Vec::new());
        TailPosition { offset: "-1".into(), cursor: None, met: false, text: true, held, printer }
    }

    #[test]
    fn a_page_that_is_no_stream_is_not_asked_for_again_and_again() {
        for next in [None, Some(("Stream-Next-Offset", "-1"))] {
            let url = scripted::serve(move |_: &str| {
                let fields: Vec<_> = [("Content-Type", "text/html")].into_iter().chain(next).collect();
                scripted::answer(200, &fields, "<p>a portal")
            });
            let address = Address::parse("a", &Server { url, token: None, tls_ca: None }).unwrap();
            let outcome = follow(&address, &mut place(Output::Text));
            assert!(matches!(outcome, Err(Failure::Event(_))), "{next:?}");
        }
    }

    #[test]
    fn what_ends_inside_a_character_is_kept_until_the_rest_comes_or_does_not() {
        let mut json = place(Output::Json);
        let mut print = |content: &[u8], next: &str, closed| {
            assert!(json.print(content.to_vec(), next.to_owned(), closed).unwrap());
            assert_eq!(json.offset, next);
            json.held.len()
        };
        assert_eq!(print(b"a\xe2\x82", "1_3", false), 3);
        assert_eq!(print(b"\xac", "1_4", false), 0);
        assert_eq!(print(b"b\xe2", "1_6", false), 2);
        assert_eq!(print(b"", "1_6", false), 0, "nothing came: it is told of as it is");
        assert_eq!(print(b"\xff", "1_7", false), 0, "this is no text");
        assert_eq!(print(b"\xe2", "1_8", true), 0, "and nothing comes any more");
        let mut bytes = TailPosition { text: false, ..place(Output::Json) };
        assert!(bytes.print(b"a\xe2".to_vec(), "1_2".to_owned(), false).unwrap());
        assert!(bytes.held.is_empty(), "bytes have no characters to wait for");
        let mut text = place(Output::Text);
        assert!(text.print(b"\xe2".to_vec(), "1_1".to_owned(), false).unwrap() && text.held.is_empty());
    }

    #[test]
    fn who_ends_a_response_without_an_event_is_asked_again_after_a_pause() {
        let mut asked = 0;
        let url = scripted::serve(move |request| {
            if request.starts_with("HEAD ") {
                return scripted::answer(200, &[("Content-Type", "application/json")], "");
            }
            asked += 1;
            let is_last = asked == 4;
            let over = "event: control\ndata: {\"streamNextOffset\":\"-1\",\"streamClosed\":true}\n\n";
            let fields = [("Content-Type", "text/event-stream")];
            scripted::answer(200, &fields, if is_last { over } else { "" })
        });
        let begun = Instant::now();
        let address = Address::parse("a", &Server { url, token: None, tls_ca: None }).unwrap();
        tail(&address, "-1", Output::Text).unwrap();
        assert!(begun.elapsed() >= 7 * PAUSE_MIN, "three pauses, each twice the one before");
    }
}
