//! `thalweg append`: arguments, a file or standard input, in pieces that are there whole or not at all.
//!
//! Input is read by a thread of its own into a short queue, so that whatever arrives while one piece is on
//! its way makes up the next: an input that trickles is appended as it comes, one that pours in large pieces.

use super::failure::Failure;
use super::is_json;
use super::output::Output;
use super::partly::{AppendedPart, PartialAppend};
use super::parts::Parts;
use super::producer::{Appended, Patience, Producer, fresh_id};
use super::progress::Progress;
use super::session::Session;
use super::verbs::AppendOptions;
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// Pieces of input that wait to be sent.
const QUEUE: usize = 64;
/// Messages of one append.
const MESSAGES_MAX: usize = 10_000;

/// A piece of input: some bytes, or one message.
type Piece = Result<Vec<u8>, Failure>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    name: &'a str,
    next_offset: &'a str,
    appends: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    /// Appends that an earlier attempt had put there.
    duplicates: u64,
    closed: bool,
}

/// Where input comes from, and whether there is more of it at once than a piece takes.
struct Input {
    reader: Box<dyn Read + Send>,
    /// A file: pieces are filled up. A pipe: what has come is sent.
    is_file: bool,
    bytes: Option<u64>,
}

impl Input {
    fn open(options: &AppendOptions) -> Result<Self, Failure> {
        let (reader, metadata): (Box<dyn Read + Send>, _) = match &options.file {
            Some(path) if path.as_os_str() != "-" => {
                let failed = |error| Failure::File { path: path.clone(), error };
                let file = File::open(path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if metadata.is_dir() {
                    return Err(failed(io::ErrorKind::IsADirectory.into()));
                }
                (Box::new(file), Some(metadata))
            }
            _ => (Box::new(io::stdin()), std::fs::metadata("/dev/stdin").ok()),
        };
        let file = metadata.filter(std::fs::Metadata::is_file);
        Ok(Self { reader, is_file: file.is_some(), bytes: file.map(|file| file.len()) })
    }
}

/// The body being put together.
struct Batch {
    json: bool,
    body: Vec<u8>,
    messages: usize,
    bytes_max: usize,
}

impl Batch {
    fn push(&mut self, piece: &[u8]) {
        if self.json {
            self.body.push(if self.messages == 0 { b'[' } else { b',' });
            self.messages += 1;
        }
        self.body.extend_from_slice(piece);
    }

    fn has_room(&self) -> bool {
        self.body.len() < self.bytes_max && self.messages < MESSAGES_MAX
    }

    /// Whether it can go with what is there. A message that is too large goes alone, and bytes can be cut.
    fn takes(&self, piece: &[u8]) -> bool {
        let beside = self.messages == 0 || self.body.len() + piece.len() + ",]".len() <= self.bytes_max;
        !self.json || beside
    }

    fn take(&mut self) -> Vec<u8> {
        if self.json && self.messages > 0 {
            self.body.push(b']');
        }
        self.messages = 0;
        std::mem::take(&mut self.body)
    }
}

/// An append under way.
struct Sender<'a> {
    producer: Producer,
    progress: Progress,
    report: Report<'a>,
    next_offset: String,
}

impl Sender<'_> {
    fn send(&mut self, body: &[u8], messages: usize, close: bool) -> Result<(), Failure> {
        self.send_all(&mut None, body, messages, close)
    }

    /// As [`Sender::send`]; in parts, where the server takes no more at once.
    fn send_all(
        &mut self,
        parts: &mut Option<Parts>,
        body: &[u8],
        messages: usize,
        close: bool,
    ) -> Result<(), Failure> {
        let (report, reached) = (&mut self.report, &mut self.next_offset);
        let mut there = |part: &[u8], Appended { next_offset, duplicate }: Appended| {
            *reached = next_offset;
            report.appends += u64::from(!part.is_empty());
            report.bytes += part.len() as u64;
            report.duplicates += u64::from(duplicate);
        };
        match parts {
            Some(parts) => parts.append(&mut self.producer, body, close, there)?,
            None => self.producer.append(body, close).map(|appended| there(body, appended))?,
        }
        self.report.closed |= close;
        if let Some(count) = &mut self.report.messages {
            *count += messages as u64;
        }
        self.progress.at(self.report.bytes);
        Ok(())
    }
}

/// Appends what the options name, and prints the offset behind it.
pub(super) fn append(options: &AppendOptions, output: Output) -> Result<(), Failure> {
    let address = options.target.address()?;
    let is_input = |data: &String| data == "-";
    if options.data.len() > 1 && options.data.iter().any(is_input) {
        return Err(Failure::Asked("standard input (-) is taken alone, not beside other arguments"));
    }
    let mut session = Session::new(&address.url);
    // Also tells whether the server and the stream are there before any input is read.
    let head = session.ask("HEAD", &address.target(""), &[], b"")?;
    if options.json && !is_json(&head) {
        return Err(Failure::Asked(
            "--json appends messages to a stream of application/json, which this is not: leave --json out",
        ));
    }
    let known = head.field("content-type").unwrap_or("application/octet-stream");
    let content_type = options.content_type.as_deref().unwrap_or(known).to_owned();
    let whole = is_json(&head) && !options.json;
    let id = if options.no_producer { None } else { Some(fresh_id()?) };
    let patience = Patience { lasts: Duration::from_secs(options.retry_s), output };
    let from_input = options.data.is_empty() || options.data == ["-"];
    let input = if from_input { Some(Input::open(options)?) } else { None };
    let mut sender = Sender {
        producer: Producer::new(session, &address, content_type, id, 0, patience),
        progress: Progress::new(input.as_ref().and_then(|input| input.bytes)),
        report: Report {
            name: &address.name,
            next_offset: "",
            appends: 0,
            bytes: 0,
            messages: options.json.then_some(0),
            duplicates: 0,
            closed: false,
        },
        next_offset: head.field("stream-next-offset").unwrap_or_default().to_owned(),
    };
    let outcome = match input {
        None => append_arguments(options, &mut sender),
        Some(input) => append_input(options, input, whole, &mut sender),
    };
    drop(sender.progress);
    if let Err(failure) = outcome {
        let Report { bytes, appends, .. } = sender.report;
        let unsure = failure.leaves_open();
        let there = AppendedPart { next_offset: sender.next_offset, bytes, appends, unsure };
        return Err(Failure::Partly(Box::new(PartialAppend { failure, there })));
    }
    let report = Report { next_offset: &sender.next_offset, ..sender.report };
    output.say(report.next_offset, &report)
}

/// Messages go as one append; anything else as one each. A bad message ends it behind those before it.
fn append_arguments(options: &AppendOptions, sender: &mut Sender<'_>) -> Result<(), Failure> {
    if options.json {
        let bytes_max = usize::MAX;
        let mut batch = Batch { json: true, body: Vec::new(), messages: 0, bytes_max };
        let mut bad = None;
        for (index, message) in options.data.iter().enumerate() {
            match checked(message.as_bytes(), "argument", index + 1) {
                Ok(message) => batch.push(&message),
                Err(failure) => {
                    bad = Some(failure);
                    break;
                }
            }
        }
        let count = batch.messages;
        if count > 0 {
            sender.send(&batch.take(), count, options.close && bad.is_none())?;
        }
        return bad.map_or(Ok(()), Err);
    }
    let last = options.data.len() - 1;
    for (index, data) in options.data.iter().enumerate() {
        if !data.is_empty() || (options.close && index == last) {
            let sent = sender.send(data.as_bytes(), 1, options.close && index == last);
            sent.map_err(|failure| if last > 0 { failure.of_argument(index + 1) } else { failure })?;
        }
    }
    Ok(())
}

/// Input that ends in a failure is appended up to there, and leaves the stream open.
fn append_input(
    options: &AppendOptions,
    input: Input,
    whole: bool,
    sender: &mut Sender<'_>,
) -> Result<(), Failure> {
    let is_file = input.is_file;
    let pieces = read_aside(input, options.json)?;
    // A JSON document cannot be cut.
    let bytes_max = if whole { usize::MAX } else { options.batch_bytes as usize };
    let mut batch = Batch { json: options.json, body: Vec::new(), messages: 0, bytes_max };
    let mut parts = (!whole).then(|| Parts::new(options.json));
    let mut carried: Option<Vec<u8>> = None;
    let mut ended = false;
    let mut failed: Option<Failure> = None;
    while !ended {
        match carried.take().map_or_else(|| pieces.recv().ok(), |piece| Some(Ok(piece))) {
            Some(Ok(piece)) => batch.push(&piece),
            Some(Err(failure)) => (failed, ended) = (Some(failure), true),
            None => ended = true,
        }
        while !ended && batch.has_room() {
            let more = if is_file || whole { pieces.recv().ok() } else { pieces.try_recv().ok() };
            match more {
                Some(Ok(piece)) if batch.takes(&piece) => batch.push(&piece),
                Some(Ok(piece)) => {
                    carried = Some(piece);
                    break;
                }
                Some(Err(failure)) => (failed, ended) = (Some(failure), true),
                None if is_file || whole => ended = true,
                None => break,
            }
        }
        if whole && failed.is_some() {
            // Part of a JSON document is none.
            break;
        }
        let count = batch.messages;
        let mut body = batch.take();
        if body.len() > bytes_max && !options.json {
            carried = Some(body.split_off(bytes_max));
            ended = false;
        }
        let close = options.close && ended && failed.is_none();
        if !body.is_empty() || close {
            sender.send_all(&mut parts, &body, count, close)?;
        }
    }
    failed.map_or(Ok(()), Err)
}

/// Reads the input on a thread of its own.
fn read_aside(input: Input, lines: bool) -> Result<Receiver<Piece>, Failure> {
    let (sender, receiver) = sync_channel(QUEUE);
    let read = move || {
        let reader = BufReader::with_capacity(READ_BYTES, input.reader);
        // An error here says that the receiver is gone.
        let _ = if lines { read_lines(reader, &sender) } else { read_bytes(reader, &sender) };
    };
    std::thread::Builder::new().name("input".into()).spawn(read).map_err(Failure::Input)?;
    Ok(receiver)
}

type ReceiverGone = std::sync::mpsc::SendError<Piece>;

fn read_bytes(mut reader: impl BufRead, pieces: &SyncSender<Piece>) -> Result<(), ReceiverGone> {
    loop {
        let piece = match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(bytes) => bytes.to_vec(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return pieces.send(Err(Failure::Input(error))),
        };
        reader.consume(piece.len());
        pieces.send(Ok(piece))?;
    }
}

fn read_lines(mut reader: impl BufRead, pieces: &SyncSender<Piece>) -> Result<(), ReceiverGone> {
    for number in 1.. {
        let mut line = Vec::new();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return pieces.send(Err(Failure::Input(error))),
        }
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let message = checked(line, "line", number);
        let sound = message.is_ok();
        pieces.send(message)?;
        if !sound {
            return Ok(());
        }
    }
    Ok(())
}

/// A message, if it is one JSON value.
fn checked(text: &[u8], what: &'static str, number: usize) -> Result<Vec<u8>, Failure> {
    match serde_json::from_slice::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text.to_vec()),
        Err(error) => Err(Failure::Message { what, number, why: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &'static str, lines: bool) -> Vec<Piece> {
        let input = Input { reader: Box::new(text.as_bytes()), is_file: false, bytes: None };
        read_aside(input, lines).unwrap().iter().collect()
    }

    #[test]
    fn lines_are_messages_and_a_bad_one_is_named_and_the_last() {
        let found = pieces("{\"a\": 1}\r\n\n  2  \nnot json\n3\n", true);
        let texts: Vec<&[u8]> = found.iter().flatten().map(Vec::as_slice).collect();
        assert_eq!(texts, [&b"{\"a\": 1}"[..], b"2"]);
        let Some(Err(failure)) = found.last() else { panic!("{found:?}") };
        assert!(failure.to_string().contains("line 4"), "{failure}");
    }

    #[test]
    fn bytes_come_as_they_are() {
        let found: Vec<u8> = pieces("a\n\n b", false).into_iter().flatten().flatten().collect();
        assert_eq!(found, b"a\n\n b");
    }

    #[test]
    fn a_batch_of_messages_is_an_array_and_stops_when_full() {
        let mut batch = Batch { json: true, body: Vec::new(), messages: 0, bytes_max: 7 };
        assert!(batch.take().is_empty());
        batch.push(b"1");
        assert!(batch.has_room() && batch.takes(b"[2]") && !batch.takes(b"[23]"));
        batch.push(b"[2]");
        assert!(!batch.takes(b"3"));
        assert_eq!(batch.take(), b"[1,[2]]");
        assert!(batch.takes(b"\"too long\""), "alone");
        batch.push(b"x");
        assert_eq!(batch.take(), b"[x]");
    }
}
