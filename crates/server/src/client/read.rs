//! `thalweg read`: chunk after chunk, until the server says that this is all there is, or up to an offset.

use super::address::Address;
use super::connection::Head;
use super::failure::Failure;
use super::is_json;
use super::output::{Output, Printer, messages};
use super::place::is_time;
use super::progress::Progress;
use super::session::Session;
use std::io::IsTerminal;
use thalweg_wire::path::encode;
use thalweg_wire::token::Token;

/// The query that begins at an offset or at a time.
pub(super) fn start(from: &str) -> String {
    let key = if is_time(from) { "since" } else { "offset" };
    format!("{key}={}", encode(from))
}

/// A chunk of a stream.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) head: Head,
    pub(super) content: Vec<u8>,
    /// Offset behind it.
    pub(super) next: String,
    /// There is no more now.
    pub(super) last: bool,
    pub(super) closed: bool,
}

/// Reads one chunk, from an offset or a time up to a time.
pub(super) fn chunk(
    session: &mut Session,
    address: &Address,
    offset: &str,
    until_time: Option<&str>,
) -> Result<Chunk, Failure> {
    let until = until_time.map(|time| format!("&until={}", encode(time))).unwrap_or_default();
    let query = format!("?{}{until}", start(offset));
    let head = session.ask("GET", &address.target(&query), &[], b"")?;
    let content = session.body()?;
    let next = head.field("stream-next-offset").unwrap_or(offset).to_owned();
    let closed = head.says("stream-closed");
    let over = head.says("stream-up-to-date") || head.says("stream-until-reached");
    let last = closed || over || next == offset;
    Ok(Chunk { head, content, next, last, closed })
}

/// Prints a stream from `from` to `until`.
pub(super) fn read(address: &Address, from: &str, until: &str, output: Output) -> Result<(), Failure> {
    let mut session = Session::new(&address.url);
    let mut offset = from.to_owned();
    let (until_time, until) = match until {
        "tail" => (None, None),
        time if is_time(time) => (Some(time), None),
        offset => {
            check_end(&mut session, address, offset)?;
            (None, Some(offset))
        }
    };
    // Where the output is a terminal, a bar would be in its way.
    let mut progress = (!std::io::stdout().is_terminal()).then(|| Progress::new(None));
    let (mut bytes, mut is_first) = (0, true);
    loop {
        let mut chunk = chunk(&mut session, address, &offset, until_time)
            .map_err(|failure| if offset == from { failure.of_beginning(from) } else { failure })?;
        let cut = match until {
            Some(until) if chunk.next.as_str() > until => Some(cut(&mut chunk, until)?),
            Some(until) => (chunk.next == until).then_some(()),
            None => None,
        };
        bytes += chunk.content.len() as u64;
        let printer = Printer { output, messages: is_json(&chunk.head) };
        let is_only = is_first && (chunk.last || cut.is_some());
        is_first = false;
        let printed = if is_only {
            printer.print_whatever_came(&chunk.content, &chunk.next, chunk.closed)
        } else {
            printer.print(&chunk.content, &chunk.next, chunk.closed)
        };
        if printed?.is_none() || cut.is_some() {
            return Ok(());
        }
        if let Some(progress) = &mut progress {
            progress.at(bytes);
        }
        if chunk.last {
            return match until {
                Some(until) => Err(Failure::PastEnd { until: until.to_owned(), end: chunk.next }),
                None => Ok(()),
            };
        }
        offset = chunk.next;
    }
}

/// Whether a stream may be read up to an offset: one of its own, or of what it was forked from.
fn check_end(session: &mut Session, address: &Address, until: &str) -> Result<(), Failure> {
    let token = Token::parse(until.as_bytes()).ok_or_else(|| Failure::Until(until.to_owned()))?;
    let head = session.ask("HEAD", &address.target(""), &[], b"")?;
    let end = head.field("stream-next-offset").and_then(|end| Token::parse(end.as_bytes()));
    if end.is_some_and(|end| end.incarnation == token.incarnation) {
        return Ok(());
    }
    // The server knows whose it is.
    session.ask("GET", &address.target(&format!("?{}", start(until))), &[], b"")?;
    session.body().map(drop)
}

/// Cuts a chunk that reaches past `until`. An offset counts bytes; JSON messages are kept a comma each.
fn cut(chunk: &mut Chunk, until: &str) -> Result<(), Failure> {
    let unfit = || Failure::Until(until.to_owned());
    let end = Token::parse(chunk.next.as_bytes()).ok_or_else(unfit)?.offset;
    let until_offset = Token::parse(until.as_bytes()).ok_or_else(unfit)?.offset;
    let mut excess = end.checked_sub(until_offset).ok_or_else(unfit)?;
    if is_json(&chunk.head) {
        let mut kept: Vec<String> = messages(&chunk.content)?.iter().map(|m| m.get().to_owned()).collect();
        while excess > 0 {
            let Some(last) = kept.pop() else { break };
            excess = excess.checked_sub(last.len() as u64 + 1).ok_or_else(unfit)?;
        }
        chunk.content = format!("[{}]", kept.join(",")).into_bytes();
    } else {
        let kept = chunk.content.len() as u64;
        chunk.content.truncate(usize::try_from(kept.saturating_sub(excess)).unwrap_or(0));
    }
    chunk.next = until.to_owned();
    chunk.closed = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(offset: u64) -> String {
        String::from_utf8(Token { incarnation: 1, offset }.encode().to_vec()).unwrap()
    }

    fn cut_at(kind: &str, content: &str, end: u64, until: &str) -> Result<String, Failure> {
        let fields = vec![("Content-Type".to_owned(), kind.to_owned())];
        let head = Head { status: 200, fields, keep_alive: true };
        let content = content.as_bytes().to_vec();
        let mut chunk = Chunk { head, content, next: token(end), last: true, closed: true };
        cut(&mut chunk, until)?;
        assert!(chunk.next == until && !chunk.closed);
        Ok(String::from_utf8(chunk.content).unwrap())
    }

    #[test]
    fn a_chunk_is_cut_where_asked() {
        assert_eq!(cut_at("text/plain", "hello", 15, &token(12)).unwrap(), "he");
        assert_eq!(cut_at("text/plain", "hello", 15, &token(3)).unwrap(), "");
        // As stored: `1,"x",[2],` are 2, 4 and 4 bytes.
        let json = "[1,\"x\",[2]]";
        assert_eq!(cut_at("application/json", json, 10, &token(6)).unwrap(), "[1,\"x\"]");
        assert_eq!(cut_at("application/json", json, 10, &token(2)).unwrap(), "[1]");
        assert_eq!(cut_at("application/json", json, 10, &token(0)).unwrap(), "[]");
        assert!(matches!(cut_at("application/json", json, 10, &token(5)), Err(Failure::Until(_))));
        assert!(matches!(cut_at("text/plain", "hello", 15, "elsewhere"), Err(Failure::Until(_))));
    }
}
