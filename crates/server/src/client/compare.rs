//! Whether two streams hold the same, as `thalweg cp` asks of a destination that is closed already.
//!
//! They are read side by side, a chunk of each at a time; where a server ends its chunks does not matter.

use super::address::Address;
use super::copy::patiently;
use super::failure::Failure;
use super::is_json;
use super::output::messages;
use super::producer::Patience;
use super::read::{Chunk, chunk};
use super::session::Session;

/// A chunk's bytes as the stream counts them: JSON messages with a comma each.
pub(super) fn stored(piece: &Chunk) -> Result<Vec<u8>, Failure> {
    if !is_json(&piece.head) {
        return Ok(piece.content.clone());
    }
    let messages = messages(&piece.content)?;
    let mut bytes = Vec::with_capacity(piece.content.len());
    for message in messages {
        bytes.extend_from_slice(message.get().as_bytes());
        bytes.push(b',');
    }
    Ok(bytes)
}

/// Reads a stream from the first byte that it has.
pub(super) struct Reader<'a> {
    session: &'a mut Session,
    address: &'a Address,
    offset: String,
    /// Read and not compared yet.
    ready: Vec<u8>,
    /// Bytes still to be passed over.
    skip: u64,
    is_over: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(session: &'a mut Session, address: &'a Address) -> Self {
        Self { session, address, offset: "-1".to_owned(), ready: Vec::new(), skip: 0, is_over: false }
    }

    /// The same from `skip` bytes on.
    pub(super) fn behind(self, skip: u64) -> Self {
        Self { skip, ..self }
    }

    /// Has something ready unless there is no more.
    fn fill(&mut self, patience: Patience) -> Result<(), Failure> {
        while self.ready.is_empty() && !self.is_over {
            let piece = patiently(patience, || chunk(self.session, self.address, &self.offset, None))?;
            self.ready = stored(&piece)?;
            let passed = self.ready.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.ready.drain(..passed);
            self.skip -= passed as u64;
            self.is_over = piece.last;
            self.offset = piece.next;
        }
        Ok(())
    }
}

/// Whether one stream holds what the other does, from where each reader begins to the last byte.
pub(super) fn hold_the_same(
    mut one: Reader<'_>,
    mut other: Reader<'_>,
    patience: Patience,
) -> Result<bool, Failure> {
    loop {
        one.fill(patience)?;
        other.fill(patience)?;
        let length = one.ready.len().min(other.ready.len());
        if length == 0 {
            return Ok(one.ready.is_empty() && other.ready.is_empty());
        }
        if one.ready[..length] != other.ready[..length] {
            return Ok(false);
        }
        one.ready.drain(..length);
        other.ready.drain(..length);
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Output;
    use super::super::scripted;
    use super::super::verbs::Server;
    use super::*;
    use std::time::Duration;

    const NONE: Patience = Patience { lasts: Duration::ZERO, output: Output::Text };

    /// Whether two streams of text hold the same that come in these chunks.
    fn same(one: &'static [&'static str], other: &'static [&'static str]) -> bool {
        let [one, other] = [one, other].map(|chunks| {
            scripted::serve(move |asked| {
                let at: usize = asked.rsplit_once('=').unwrap().1.parse().unwrap_or(0);
                let next = (at + 1).to_string();
                let mut fields = vec![("Content-Type", "text/plain"), ("Stream-Next-Offset", &*next)];
                if at + 1 == chunks.len() {
                    fields.push(("Stream-Up-To-Date", "true"));
                }
                scripted::answer(200, &fields, chunks[at])
            })
        });
        let [one, other] =
            [one, other].map(|url| Address::parse("a", &Server { url, token: None, tls_ca: None }).unwrap());
        let (mut here, mut there) = (Session::new(&one.url), Session::new(&other.url));
        let readers = (Reader::new(&mut here, &one), Reader::new(&mut there, &other));
        hold_the_same(readers.0, readers.1, NONE).unwrap()
    }

    #[test]
    fn streams_are_the_same_however_they_come() {
        assert!(
            same(&["hello"], &["hel", "lo"]) && same(&["h", "ello"], &["hell", "o"]) && same(&[""], &[""])
        );
        for other in [&["world"][..], &["hel", "la"], &["hell"], &["hello", "!"], &[""]] {
            assert!(!same(&["hello"], other) && !same(other, &["hello"]), "{other:?}");
        }
    }
}
