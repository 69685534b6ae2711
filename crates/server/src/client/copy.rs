//! `thalweg cp`: a stream, byte for byte, to another name or another server, and again where it was left.
//!
//! The producer's identity is made from the source, so a second run is the same producer: the destination
//! says which sequence it expects, and how many bytes it has, and those are as many of the source's. What
//! another writer has added to the destination is noticed, and left alone; so is a source that is made anew
//! while it is copied. So is a copy of a fork that had nothing of its own yet: until then it goes by its
//! source's identity.
//!
//! A source may have let its first bytes go before it was copied. The identity then says behind how many the
//! copy began, so that one that is gone on with begins where it ended, or not at all.

use super::address::Address;
use super::compare::{Reader, hold_the_same, stored};
use super::connection::Head;
use super::failure::{Failure, passes};
use super::output::{Output, messages};
use super::parts::Parts;
use super::producer::{Appended, Patience, Producer};
use super::progress::Progress;
use super::read::{Chunk, chunk};
use super::session::Session;
use super::verbs::{CopyOptions, Server};
use super::{is_json, names_json};
use serde::Serialize;
use std::time::{Duration, Instant};
use thalweg_wire::decimal::SAFE_INTEGER_MAX;
use thalweg_wire::token::Token;

/// Between two attempts at the source.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    source: &'a str,
    destination: &'a str,
    /// Bytes copied by this run.
    bytes: u64,
    /// Bytes that earlier runs had copied.
    resumed_at: u64,
    next_offset: &'a str,
    closed: bool,
}

/// One end of a copy.
struct CopyEnd {
    address: Address,
    session: Session,
    /// The last `HEAD`.
    head: Head,
    place: Token,
}

impl CopyEnd {
    fn new(address: Address) -> Result<Self, Failure> {
        let mut session = Session::new(&address.url);
        let head = session.ask("HEAD", &address.target(""), &[], b"")?;
        let place = place(&address, &head)?;
        Ok(Self { address, session, head, place })
    }

    fn content_type(&self) -> &str {
        self.head.field("content-type").unwrap_or("application/octet-stream")
    }

    fn reader(&mut self) -> Reader<'_> {
        Reader::new(&mut self.session, &self.address)
    }
}

fn place(address: &Address, head: &Head) -> Result<Token, Failure> {
    let offset = head.field("stream-next-offset").unwrap_or_default();
    let foreign = || {
        Failure::Copy(format!("the server of {} does not count offsets as this program does", address.name))
    };
    Token::parse(offset.as_bytes()).ok_or_else(foreign)
}

/// Where to copy to. Its own token goes to the server that `--to-url` names or, without that, to the one that
/// the destination does.
fn destination(options: &CopyOptions) -> Result<Address, Failure> {
    let token = options.to_token.clone();
    let Some(url) = options.to_url.clone() else {
        let to = Address::parse(&options.destination, &options.server)?;
        return Ok(if token.is_some() { to.with_token(token) } else { to });
    };
    Address::parse(&options.destination, &Server { url, token, tls_ca: options.server.tls_ca.clone() })
}

/// Copies what the source holds now.
pub(super) fn copy(options: &CopyOptions, output: Output) -> Result<(), Failure> {
    let from = Address::parse(&options.source, &options.server)?;
    let to = destination(options)?;
    if from.is_same_stream(&to) {
        return Err(Failure::Copy("source and destination are the same stream".to_owned()));
    }
    let mut source = CopyEnd::new(from)?;
    let mut creator = Session::new(&to.url);
    let content_type = source.content_type().to_owned();
    match CopyEnd::new(to.clone()) {
        Ok(_) => {}
        Err(Failure::Refused { status: 404, .. }) => {
            creator.ask("PUT", &to.target(""), &[("Content-Type", &content_type)], b"")?;
        }
        Err(failure) => return Err(failure),
    }
    let mut destination = CopyEnd::new(to)?;
    if destination.content_type() != content_type {
        let why = format!("{} holds {}, not {content_type}", options.destination, destination.content_type());
        return Err(Failure::Copy(why));
    }
    let close = source.head.says("stream-closed") && !options.keep_open;
    let patience = Patience { lasts: Duration::from_secs(options.retry_s), output };
    let resumed_at = destination.place.offset;
    let closed_before = destination.head.says("stream-closed");
    let copied = if closed_before {
        check_closed(&mut source, &mut destination, patience)?;
        CopyResult { bytes: 0, next_offset: text(destination.place) }
    } else {
        let begun = begin(&mut source, &mut destination, patience)?;
        run(&mut source, destination, begun, close, patience)?
    };
    let report = Report {
        source: &options.source,
        destination: &options.destination,
        bytes: copied.bytes,
        resumed_at,
        next_offset: &copied.next_offset,
        closed: close || closed_before,
    };
    output.say(&copied.next_offset, &report)
}

fn holds_something_else(destination: &CopyEnd) -> Failure {
    Failure::Copy(format!("{} holds something else: copy to a new stream", destination.address.name))
}

/// Whether a destination that is closed holds all of the source that there still is: nobody can tell any more
/// who wrote it. What either has let go of is not asked for.
fn check_closed(source: &mut CopyEnd, destination: &mut CopyEnd, patience: Patience) -> Result<(), Failure> {
    let (here, there) = (source.place.offset, destination.place.offset);
    let Some(base) = here.checked_sub(there) else { return Err(holds_something_else(destination)) };
    let first_here = if here == 0 { 0 } else { first(source, patience)?.1 };
    if base > first_here {
        let name = &destination.address.name;
        return Err(Failure::Copy(format!("{name} is closed already: copy to a new stream")));
    }
    let first_there = match there {
        0 => 0,
        _ => match first(destination, patience) {
            // Who may only write it has it as long as it should be, and is told no more.
            Err(Failure::Refused { status: 403, .. }) => return Ok(()),
            found => found?.1,
        },
    };
    // As the source counts.
    let from = first_here.max(base + first_there);
    let ours = source.reader().behind(from - first_here);
    let theirs = destination.reader().behind(from - base - first_there);
    if hold_the_same(ours, theirs, patience)? { Ok(()) } else { Err(holds_something_else(destination)) }
}

/// What a copy goes on from.
struct CopyStart {
    id: String,
    sequence: u64,
    /// Bytes of the source that were gone when it was begun.
    base: u64,
    /// The source's first, where it is known already.
    first: Option<Chunk>,
}

/// Where the source is to be gone on with, and as whom.
fn begin(source: &mut CopyEnd, destination: &mut CopyEnd, patience: Patience) -> Result<CopyStart, Failure> {
    let id = identity(source);
    let sequence = expected(destination, &id)?;
    let resumed_at = destination.place.offset;
    let begun = if source.place.offset == 0 || sequence > 0 {
        CopyStart { id, sequence, base: 0, first: None }
    } else {
        let (piece, base) = first(source, patience)?;
        if base == 0 {
            CopyStart { id, sequence, base, first: Some(piece) }
        } else {
            let id = format!("{id}-{base}");
            let sequence = expected(destination, &id)?;
            CopyStart { id, sequence, base, first: Some(piece).filter(|_| resumed_at == 0) }
        }
    };
    if resumed_at > 0 && begun.sequence == 0 && begun.base > 0 {
        return Err(Failure::Copy(format!(
            "{} holds something else, or a copy of {} from when it still had bytes that are gone now: copy to a new stream",
            destination.address.name, source.address.name
        )));
    }
    if resumed_at > 0 && begun.sequence == 0 || resumed_at + begun.base > source.place.offset {
        return Err(holds_something_else(destination));
    }
    Ok(begun)
}

/// The source's first chunk, and how many bytes before it are gone.
fn first(source: &mut CopyEnd, patience: Patience) -> Result<(Chunk, u64), Failure> {
    let piece = patient_chunk(source, "-1", patience)?;
    let base = begins_at(&piece)?;
    Ok((piece, base))
}

/// Which of the stream's bytes a chunk begins with.
fn begins_at(piece: &Chunk) -> Result<u64, Failure> {
    let end = Token::parse(piece.next.as_bytes()).map_or(0, |token| token.offset);
    Ok(end.saturating_sub(stored(piece)?.len() as u64))
}

struct CopyResult {
    bytes: u64,
    next_offset: String,
}

fn run(
    source: &mut CopyEnd,
    destination: CopyEnd,
    begun: CopyStart,
    close: bool,
    patience: Patience,
) -> Result<CopyResult, Failure> {
    let CopyStart { id, sequence, base, first: mut found } = begun;
    let content_type = destination.content_type().to_owned();
    let (start, kind) = (destination.place, content_type.clone());
    let mut producer =
        Producer::new(destination.session, &destination.address, content_type, Some(id), sequence, patience);
    // As the source counts.
    let mut end = start.offset + base;
    let mut progress = Progress::new(Some(source.place.offset - end));
    let mut copied = CopyResult { bytes: 0, next_offset: text(start) };
    let mut offset = if end == 0 { "-1".to_owned() } else { text(Token { offset: end, ..source.place }) };
    let mut closed = false;
    let mut parts = Parts::new(names_json(&kind));
    while end < source.place.offset {
        let read = found.take().map_or_else(|| patient_chunk(source, &offset, patience), Ok);
        let piece = match read {
            // A fork counts what it inherited in its source's name: such a place is found by walking there.
            Err(Failure::Refused { status: 410, .. }) if copied.bytes == 0 && end > 0 => {
                walk(source, end, patience)?
            }
            outcome => outcome?,
        };
        let reached = Token::parse(piece.next.as_bytes()).unwrap_or(Token { offset: end, ..source.place });
        if copied.bytes == 0 && reached.incarnation != source.place.incarnation {
            check_source(source, patience)?;
        }
        let grown = reached.offset.checked_sub(end).ok_or_else(|| made_anew(source))?;
        if grown == 0 {
            break;
        }
        // What came after the look at the source's end may close it too, but that is for another run.
        closed = close && piece.closed;
        let mut next_offset = String::new();
        let reached = |_: &[u8], appended: Appended| next_offset = appended.next_offset;
        parts.append(&mut producer, &piece.content, closed, reached)?;
        end += grown;
        let there = Token::parse(next_offset.as_bytes()).map(|token| token.offset);
        if there != Some(end - base) {
            let why = "somebody else writes to the destination: copy to a new stream".to_owned();
            return Err(Failure::Copy(why));
        }
        copied.bytes += grown;
        copied.next_offset = next_offset;
        offset = piece.next;
        progress.at(copied.bytes);
    }
    if close && !closed {
        producer.append(b"", true)?;
    }
    Ok(copied)
}

/// The chunk of the source that begins `end` bytes behind its beginning.
fn walk(source: &mut CopyEnd, end: u64, patience: Patience) -> Result<Chunk, Failure> {
    let mut offset = "-1".to_owned();
    loop {
        let mut piece = patient_chunk(source, &offset, patience)?;
        let reached = Token::parse(piece.next.as_bytes()).map_or(0, |token| token.offset);
        if begins_at(&piece)? > end {
            return Err(Failure::Copy(format!(
                "{} no longer has bytes that the copy lacks: copy it to a new stream",
                source.address.name
            )));
        }
        if reached > end {
            piece.content = behind(&piece, reached - end)?;
            return Ok(piece);
        }
        if piece.last {
            return Ok(piece);
        }
        offset = piece.next;
    }
}

/// The last `kept` bytes of a chunk as the stream counts them: JSON messages with a comma each.
fn behind(piece: &Chunk, kept: u64) -> Result<Vec<u8>, Failure> {
    let uneven = || Failure::Copy("the destination ends in the middle of a message".to_owned());
    if !is_json(&piece.head) {
        let length = piece.content.len();
        let kept = usize::try_from(kept).ok().filter(|kept| *kept <= length).ok_or_else(uneven)?;
        return Ok(piece.content[length - kept..].to_vec());
    }
    let all = messages(&piece.content)?;
    let (mut from, mut left) = (all.len(), kept);
    while left > 0 {
        from = from.checked_sub(1).ok_or_else(uneven)?;
        left = left.checked_sub(all[from].get().len() as u64 + 1).ok_or_else(uneven)?;
    }
    let kept: Vec<&str> = all[from..].iter().map(|message| message.get()).collect();
    Ok(format!("[{}]", kept.join(",")).into_bytes())
}

/// Refuses a source that was deleted and made anew since its end was looked at. A first piece is asked for by
/// no incarnation of its own, and what a fork inherited has another than the fork; what follows is asked for
/// by where the piece ended.
fn check_source(source: &mut CopyEnd, patience: Patience) -> Result<(), Failure> {
    let target = source.address.target("");
    let head = patiently(patience, || source.session.ask("HEAD", &target, &[], b""))?;
    let is_same = place(&source.address, &head)?.incarnation == source.place.incarnation;
    if is_same { Ok(()) } else { Err(made_anew(source)) }
}

fn made_anew(source: &CopyEnd) -> Failure {
    let name = &source.address.name;
    Failure::Copy(format!("{name} was deleted and made anew meanwhile: copy it to a new stream"))
}

/// A chunk of the source, waited for while its server is away.
fn patient_chunk(source: &mut CopyEnd, offset: &str, patience: Patience) -> Result<Chunk, Failure> {
    patiently(patience, || chunk(&mut source.session, &source.address, offset, None))
}

/// Tries until it is there, for as long as patience lasts and what went wrong may pass.
pub(super) fn patiently<T>(
    patience: Patience,
    mut attempt: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(failure) if passes(&failure) && start.elapsed() + PAUSE < patience.lasts => {
                patience.output.tell(format_args!("{failure}; trying again"));
                std::thread::sleep(PAUSE);
            }
            outcome => return outcome,
        }
    }
}

fn text(token: Token) -> String {
    String::from_utf8_lossy(&token.encode()).into_owned()
}

/// The same for every run that copies this incarnation of the source.
fn identity(source: &CopyEnd) -> String {
    // FNV-1a: the same in every version of this program.
    let text = format!("{} {}", source.address.url.text(), source.address.name);
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("thalweg-cp-{hash:016x}-{:x}", source.place.incarnation)
}

/// The sequence that the destination expects of this producer: asked by claiming one that cannot be, which
/// changes nothing.
fn expected(destination: &mut CopyEnd, id: &str) -> Result<u64, Failure> {
    let far = SAFE_INTEGER_MAX.to_string();
    let content_type = destination.content_type().to_owned();
    let fields = [
        ("Content-Type", content_type.as_str()),
        ("Producer-Id", id),
        ("Producer-Epoch", "0"),
        ("Producer-Seq", &far),
    ];
    match destination.session.ask("POST", &destination.address.target(""), &fields, b"0") {
        Err(Failure::Refused { status: 409, head, why, rule }) => {
            let expected = head.field("producer-expected-seq").and_then(|text| text.parse().ok());
            expected.ok_or(Failure::Refused { status: 409, head, why, rule })
        }
        Err(failure) => Err(failure),
        Ok(_) => Err(Failure::Copy("the destination does not check producers".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::scripted;
    use super::*;

    fn kept(kind: &str, content: &str, kept: u64) -> Result<String, Failure> {
        let fields = vec![("content-type".to_owned(), kind.to_owned())];
        let head = Head { status: 200, fields, keep_alive: true };
        let content = content.as_bytes().to_vec();
        let piece = Chunk { head, content, next: String::new(), last: true, closed: false };
        behind(&piece, kept).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn what_was_copied_is_left_out() {
        assert_eq!(kept("text/plain", "hello", 2).unwrap(), "lo");
        assert!(kept("text/plain", "hello", 6).is_err());
        // As stored: `1,"x",[2],` are 2, 4 and 4 bytes.
        assert_eq!(kept("application/json", "[1,\"x\",[2]]", 8).unwrap(), "[\"x\",[2]]");
        assert!(kept("application/json", "[1,\"x\",[2]]", 7).is_err());
        assert!(kept("application/json", "[1]", 3).is_err());
    }

    fn from_to(url: String) -> CopyOptions {
        CopyOptions {
            source: "from".to_owned(),
            destination: "to".to_owned(),
            server: Server { url, token: None, tls_ca: None },
            to_url: None,
            to_token: None,
            keep_open: false,
            retry_s: 0,
        }
    }

    /// Goes on with a copy of 5 bytes of `from`, which is made anew right after its `HEAD` and now holds
    /// `content`. Says what the copy came to, and what was asked for.
    fn copy_of_one_made_anew(content: &'static str) -> (Failure, Vec<String>) {
        let token = |incarnation, offset| text(Token { incarnation, offset });
        let (sender, heard) = std::sync::mpsc::channel();
        let mut heads = 0;
        let url = scripted::serve(move |asked| {
            sender.send(asked.to_owned()).unwrap();
            let at = |place: &str| [("Content-Type", "text/plain"), ("Stream-Next-Offset", place)].map(own);
            let answer = |status, fields: &[(String, String)], body: &str| {
                let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
                scripted::answer(status, &fields, body)
            };
            match asked {
                "HEAD /v1/stream/from" => {
                    heads += 1;
                    let end = if heads == 1 { token(1, 10) } else { token(2, content.len() as u64) };
                    answer(200, &at(&end), "")
                }
                "HEAD /v1/stream/to" => answer(200, &at(&token(7, 5)), ""),
                "POST /v1/stream/to" => answer(409, &[own(("Producer-Expected-Seq", "1"))], ""),
                "GET /v1/stream/from?offset=-1" => {
                    let last = own(("Stream-Up-To-Date", "true"));
                    let fields = [&at(&token(2, content.len() as u64))[..], &[last]].concat();
                    answer(200, &fields, content)
                }
                _ => answer(410, &[], ""),
            }
        });
        let failure = copy(&from_to(url), Output::Text).unwrap_err();
        (failure, heard.try_iter().collect())
    }

    #[test]
    fn a_copy_that_began_behind_the_first_bytes_is_gone_on_with_where_it_ended() {
        let token = |incarnation, offset| text(Token { incarnation, offset });
        let (sender, heard) = std::sync::mpsc::channel();
        let mut posts = 0;
        let url = scripted::serve(move |asked| {
            sender.send(asked.to_owned()).unwrap();
            let at = |place: &str, body: &str| {
                let fields = [("Content-Type", "text/plain"), ("Stream-Next-Offset", place)];
                scripted::answer(200, &fields, body)
            };
            match asked {
                "HEAD /v1/stream/from" => at(&token(1, 20), ""),
                "HEAD /v1/stream/to" => at(&token(7, 4), ""),
                "GET /v1/stream/from?offset=-1" => at(&token(1, 20), "0123456789"),
                "POST /v1/stream/to" => {
                    posts += 1;
                    let expected = |next| scripted::answer(409, &[("Producer-Expected-Seq", next)], "");
                    // First for the copy from the beginning, then for the copy of what is left.
                    if posts < 3 { expected(["0", "1"][posts - 1]) } else { at(&token(7, 10), "") }
                }
                asked if asked.ends_with(&token(1, 14)) => at(&token(1, 20), "456789"),
                _ => scripted::answer(410, &[], ""),
            }
        });
        copy(&from_to(url), Output::Text).unwrap();
        let asked: Vec<String> = heard.try_iter().collect();
        assert_eq!(asked.iter().filter(|asked| asked.starts_with("POST ")).count(), 3, "{asked:?}");
    }

    fn own((name, value): (&str, &str)) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn a_source_that_is_made_anew_while_it_is_copied_is_left_alone() {
        for content in ["new", "new and longer than what there was"] {
            let (failure, asked) = copy_of_one_made_anew(content);
            assert!(failure.to_string().contains("made anew"), "{content}: {failure}");
            let appends = asked.iter().filter(|asked| asked.starts_with("POST ")).count();
            assert_eq!(appends, 1, "but for asking what is expected, nothing is appended: {asked:?}");
        }
    }
}
