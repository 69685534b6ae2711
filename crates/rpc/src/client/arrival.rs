//! An answer on its way in: bytes as they come, to where its body stands among them. No I/O.
//!
//! *Invariants*: each byte of a body is looked at once, in however many pieces it comes; memory goes to what has come,
//! never to what a server says will; what comes before the answer has a bound too. Checked by `tests/hostile.rs`.

use std::ops::Range;
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;
use thalweg_wire::http1::{BodyLength, ChunkedDecoder, parse_response};

/// Answers in between that one exchange may have.
const BETWEEN_MAX: u32 = 100;
/// Room that is made at once for what is announced.
const AHEAD_BYTES: usize = 1 << 20;

/// How far an answer has come. One for each exchange.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// Answers in between that were passed.
    between: u32,
    /// The chunks so far, once there is a head that announces some.
    chunks: Option<Chunks>,
}

/// An answer that has come whole.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    pub(crate) status: u16,
    /// Where its body stands in what came in.
    pub(crate) body: Range<usize>,
    pub(crate) keep_alive: bool,
}

/// A body in chunks, which are taken apart in place.
#[derive(Debug)]
struct Chunks {
    /// The answer as far as it is known: its body is what stood in chunks.
    answer: Whole,
    decoder: ChunkedDecoder,
}

impl Arrival {
    /// Looks at what came in, `input`, to which bytes were added since the last look.
    ///
    /// # Errors
    /// [`Fault::BadAnswer`], [`Fault::FrameTooLarge`].
    pub(crate) fn look(
        &mut self,
        input: &mut Vec<u8>,
        answer_bytes_max: usize,
    ) -> Result<Option<Whole>, Failure> {
        if let Some(chunks) = &mut self.chunks {
            return chunks.look(input, answer_bytes_max);
        }
        let (status, start, keep_alive, length) = loop {
            let parts = match parse_response(input, false) {
                Ok(Some(head)) => (head.status, head.bytes, head.keep_alive, head.body),
                Ok(None) => return Ok(None),
                Err(error) => return Err(bad(&error.to_string())),
            };
            // Whoever changes to another protocol has given its last answer.
            if parts.0 >= 200 || parts.0 == 101 {
                break parts;
            }
            // Something in between, which asks for nothing.
            input.drain(..parts.1);
            self.between += 1;
            if self.between > BETWEEN_MAX {
                return Err(bad("one answer in between after the other, and none that counts"));
            }
        };
        match length {
            Some(BodyLength::Known(length)) => {
                let length = usize::try_from(length).ok().filter(|length| *length <= answer_bytes_max);
                let end = length.and_then(|length| start.checked_add(length));
                let end = end.ok_or_else(|| too_long(answer_bytes_max))?;
                if input.len() < end {
                    input.reserve((end - input.len()).min(AHEAD_BYTES));
                    return Ok(None);
                }
                Ok(Some(Whole { status, body: start..end, keep_alive }))
            }
            Some(BodyLength::Chunked) => {
                let answer = Whole { status, body: start..start, keep_alive };
                let chunks = self.chunks.insert(Chunks { answer, decoder: ChunkedDecoder::default() });
                chunks.look(input, answer_bytes_max)
            }
            None => Err(bad("the answer does not say where it ends")),
        }
    }
}

impl Chunks {
    /// Takes apart what stands behind the body so far, so that nothing but the body is left, and what may follow the answer.
    fn look(&mut self, input: &mut Vec<u8>, answer_bytes_max: usize) -> Result<Option<Whole>, Failure> {
        let Whole { body, .. } = &mut self.answer;
        let mut at = body.end;
        let mut is_whole = false;
        while at < input.len() && !is_whole {
            let chunk = self.decoder.decode(&input[at..]).map_err(|_| bad("its chunks are none"))?;
            let (length, is_done) = (chunk.data.len(), chunk.done);
            at += chunk.consumed;
            // What a step lends is the last of what it took.
            input.copy_within(at - length..at, body.end);
            body.end += length;
            is_whole = is_done;
        }
        input.drain(body.end..at);
        if body.len() > answer_bytes_max {
            return Err(too_long(answer_bytes_max));
        }
        Ok(is_whole.then(|| self.answer.clone()))
    }
}

fn too_long(answer_bytes_max: usize) -> Failure {
    Failure::new(Fault::FrameTooLarge, format!("an answer of more than {answer_bytes_max} bytes"))
}

fn bad(what: &str) -> Failure {
    Failure::new(Fault::BadAnswer, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wherever it is cut, and with something in between before it.
    #[test]
    fn an_answer_in_chunks_is_the_same_in_any_pieces() {
        let text = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
            3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: t\r\n\r\nmore";
        let end = text.len() - "more".len();
        for piece in 1..=text.len() {
            let (mut arrival, mut input) = (Arrival::default(), Vec::new());
            let whole = text[..end].chunks(piece).find_map(|piece| {
                input.extend_from_slice(piece);
                arrival.look(&mut input, 13).unwrap()
            });
            let Whole { status, body, keep_alive } = whole.unwrap();
            assert_eq!((status, keep_alive, body.end), (200, true, input.len()), "pieces of {piece}");
            assert_eq!(&input[body], b"abc0123456789");
        }
        let (mut input, mut arrival) = (text.to_vec(), Arrival::default());
        let body = arrival.look(&mut input, 13).unwrap().unwrap().body;
        assert_eq!(&input[body.end..], b"more", "what follows is still there to be seen");
        let too_long = Arrival::default().look(&mut text.to_vec(), 12).unwrap_err();
        assert_eq!(too_long.fault, Fault::FrameTooLarge);
    }
}
