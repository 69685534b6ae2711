//! An answer that is wanted whole, on its way in: bytes as they come, to where its body stands among them.
//!
//! Invariants: each byte of a body is looked at once, in however many pieces it comes; memory goes to what
//! has come, never to what a server says will; what comes before the answer has a bound too. *Checked by* the
//! test below, and by those of its callers, which send all that a hostile server may.

use super::body::BodyDecoder;
use super::head::BodyLength;
use super::response::{ResponseError, ResponseHead, parse_response};
use std::ops::Range;

/// Answers in between that one exchange may have.
const BETWEEN_MAX: u32 = 100;
/// Bytes of a head that is kept; a longer one is taken apart each time.
const KEPT_BYTES_MAX: usize = 1 << 10;
/// Room that is made at once for what is announced.
const AHEAD_BYTES: usize = 1 << 20;

/// How far an answer has come. One for each connection, told when the [next answer](Arrival::begin) begins: a
/// head that is byte for byte the one before, as a server's are for the length of a second, is not taken
/// apart again.
///
/// ```
/// use thalweg_wire::http1::Arrival;
///
/// let (mut arrival, mut input) = (Arrival::default(), b"HTTP/1.1 200 OK\r\nContent-Le".to_vec());
/// assert!(arrival.look(&mut input, 100).unwrap().is_none());
/// input.extend_from_slice(b"ngth: 2\r\n\r\nok");
/// let whole = arrival.look(&mut input, 100).unwrap().unwrap();
/// assert_eq!((whole.status, &input[whole.body]), (200, &b"ok"[..]));
/// ```
#[derive(Debug, Default)]
pub struct Arrival {
    /// Answers in between that were passed.
    between: u32,
    /// The body so far, once there is a head that announces one of no known length.
    unsized_body: Option<UnsizedBody>,
    /// What the last head said that counted, and its bytes.
    last: Option<HeadSummary>,
    head: Vec<u8>,
}

/// What a head says of its answer.
#[derive(Clone, Copy, Debug)]
struct HeadSummary {
    /// Where it ends.
    bytes: usize,
    status: u16,
    keep_alive: bool,
    length: Option<BodyLength>,
}

/// An answer that has come whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompleteResponse {
    /// Its status.
    pub status: u16,
    /// Where its body stands in what came in, transfer coding removed. What stands behind it came after the
    /// answer.
    pub body: Range<usize>,
    /// Whether the connection can be used again.
    pub keep_alive: bool,
}

/// Why an answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrivalError {
    /// Its head is none.
    #[error(transparent)]
    Head(#[from] ResponseError),
    /// Its chunks are none.
    #[error("its chunks are none")]
    Chunks,
    /// Too many answers in between.
    #[error("one answer in between after the other, and none that counts")]
    Between,
    /// Its body is longer than is taken.
    #[error("an answer of more than {0} bytes")]
    TooLong(usize),
}

/// A body that says only in the end how long it is, taken apart in place.
#[derive(Debug)]
struct UnsizedBody {
    /// The answer as far as it is known.
    answer: CompleteResponse,
    decoder: BodyDecoder,
}

impl Arrival {
    /// Looks at what came in, `input`, to which bytes were added since the last look, for a body of so many
    /// bytes at most.
    ///
    /// # Errors
    /// [`ArrivalError`]; the connection cannot be used any further.
    pub fn look(
        &mut self,
        input: &mut Vec<u8>,
        body_bytes_max: usize,
    ) -> Result<Option<CompleteResponse>, ArrivalError> {
        if let Some(unsized_body) = &mut self.unsized_body {
            return unsized_body.look(input, body_bytes_max);
        }
        let Some(HeadSummary { bytes: start, status, keep_alive, length }) = self.head(input)? else {
            return Ok(None);
        };
        if let Some(BodyLength::Known(length)) = length {
            let length = usize::try_from(length).ok().filter(|length| *length <= body_bytes_max);
            let end = length.and_then(|length| start.checked_add(length));
            let end = end.ok_or(ArrivalError::TooLong(body_bytes_max))?;
            if input.len() < end {
                input.reserve((end - input.len()).min(AHEAD_BYTES));
                return Ok(None);
            }
            return Ok(Some(CompleteResponse { status, body: start..end, keep_alive }));
        }
        let answer = CompleteResponse { status, body: start..start, keep_alive };
        let unsized_body = self.unsized_body.insert(UnsizedBody { answer, decoder: BodyDecoder::of(length) });
        unsized_body.look(input, body_bytes_max)
    }

    /// What the head says that counts, if it is there. Takes those in between away.
    fn head(&mut self, input: &mut Vec<u8>) -> Result<Option<HeadSummary>, ArrivalError> {
        if self.last.is_some() && input.starts_with(&self.head) {
            return Ok(self.last);
        }
        loop {
            let between = match parse_response(input, false)? {
                None => return Ok(None),
                Some(head) if head.is_between() => head.bytes,
                Some(ResponseHead { status, keep_alive, body: length, bytes, .. }) => {
                    let known = HeadSummary { bytes, status, keep_alive, length };
                    self.last = Some(known).filter(|_| bytes <= KEPT_BYTES_MAX);
                    self.head.clear();
                    self.head.extend_from_slice(&input[..bytes.min(KEPT_BYTES_MAX)]);
                    return Ok(Some(known));
                }
            };
            input.drain(..between);
            self.between += 1;
            if self.between > BETWEEN_MAX {
                return Err(ArrivalError::Between);
            }
        }
    }

    /// Another answer begins.
    pub fn begin(&mut self) {
        (self.between, self.unsized_body) = (0, None);
    }

    /// Whether only the connection's end says where the answer ends, as far as is known.
    pub fn needs_end(&self) -> bool {
        self.unsized_body.as_ref().is_some_and(|unsized_body| unsized_body.decoder.needs_end())
    }

    /// The connection ended, by the peer's word: the answer that ends with it, if it is one.
    pub fn end(&self) -> Option<CompleteResponse> {
        let unsized_body =
            self.unsized_body.as_ref().filter(|unsized_body| unsized_body.decoder.needs_end())?;
        Some(unsized_body.answer.clone())
    }
}

impl UnsizedBody {
    /// Takes apart what stands behind the body so far, so that nothing but the body is left, and what may
    /// follow the answer.
    fn look(
        &mut self,
        input: &mut Vec<u8>,
        body_bytes_max: usize,
    ) -> Result<Option<CompleteResponse>, ArrivalError> {
        let body = &mut self.answer.body;
        let mut at = body.end;
        let mut is_whole = false;
        while at < input.len() && !is_whole {
            let chunk = self.decoder.decode(&input[at..]).map_err(|_| ArrivalError::Chunks)?;
            let (length, is_done) = (chunk.data.len(), chunk.done);
            at += chunk.consumed;
            // What a step lends is the last of what it took.
            input.copy_within(at - length..at, body.end);
            body.end += length;
            is_whole = is_done;
        }
        input.drain(body.end..at);
        // A chunk counts from its announcement: its bytes need not come to be refused.
        let announced = (body.len() as u64).saturating_add(self.decoder.owed_bytes());
        if announced > body_bytes_max as u64 {
            return Err(ArrivalError::TooLong(body_bytes_max));
        }
        Ok(is_whole.then(|| self.answer.clone()))
    }
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
            let CompleteResponse { status, body, keep_alive } = whole.unwrap();
            assert_eq!((status, keep_alive, body.end), (200, true, input.len()), "pieces of {piece}");
            assert_eq!(&input[body], b"abc0123456789");
        }
        let (mut input, mut arrival) = (text.to_vec(), Arrival::default());
        let body = arrival.look(&mut input, 13).unwrap().unwrap().body;
        assert_eq!(&input[body.end..], b"more", "what follows is still there to be seen");
        assert_eq!(Arrival::default().look(&mut text.to_vec(), 12), Err(ArrivalError::TooLong(12)));
    }

    #[test]
    fn a_head_that_comes_again_says_what_it_said_and_another_what_it_says() {
        let head =
            |length: usize, more: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{more}\r\n");
        let (mut arrival, mut close) = (Arrival::default(), "Connection: close\r\n");
        for (length, more) in [(2, ""), (2, ""), (3, ""), (3, ""), (3, close), (3, close), (3, ""), (2, "")] {
            arrival.begin();
            let mut input = head(length, more).into_bytes();
            let start = input.len();
            assert_eq!(arrival.look(&mut input, 9), Ok(None), "its body is missing");
            input.extend_from_slice(&b"body"[..length]);
            let whole = arrival.look(&mut input, 9).unwrap().unwrap();
            let keep_alive = more.is_empty();
            assert_eq!(whole, CompleteResponse { status: 200, body: start..start + length, keep_alive });
        }
        // Only the beginning of the one before, and something in between before it.
        close = "HTTP/1.1 103 Early Hints\r\n\r\n";
        for cut in 0..head(2, "").len() {
            arrival.begin();
            let mut input = format!("{close}{}", &head(2, "")[..cut]).into_bytes();
            assert_eq!(arrival.look(&mut input, 9), Ok(None));
            input.extend_from_slice(&head(2, "").as_bytes()[cut..]);
            input.extend_from_slice(b"ok");
            assert_eq!(&input[arrival.look(&mut input.clone(), 9).unwrap().unwrap().body], b"ok");
        }
    }

    #[test]
    fn a_chunk_is_not_waited_for_that_makes_a_body_longer_than_is_taken() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (announced, bytes_max) in [("e\r\n", 13), ("3\r\nabc\r\nb\r\n", 13), ("ffffffffffffffff\r\n", 13)]
        {
            let (mut arrival, mut input) = (Arrival::default(), format!("{head}{announced}").into_bytes());
            let line_end = input.len() - 1;
            let (mut begun, mut whole) = (input[..line_end].to_vec(), Arrival::default());
            assert_eq!(whole.look(&mut begun, bytes_max), Ok(None), "{announced:?} is not all there");
            assert_eq!(arrival.look(&mut input, bytes_max), Err(ArrivalError::TooLong(bytes_max)));
        }
        let (mut arrival, mut input) = (Arrival::default(), format!("{head}3\r\nabc\r\na\r\n").into_bytes());
        assert_eq!(arrival.look(&mut input, 13), Ok(None), "as long as it may be");
    }

    #[test]
    fn an_answer_of_no_length_is_whole_when_the_connection_ends() {
        let (mut arrival, mut input) = (Arrival::default(), Vec::new());
        assert_eq!(arrival.end(), None);
        for piece in [&b"HTTP/1.1 200 OK\r\n\r\nsome"[..], b" more"] {
            input.extend_from_slice(piece);
            assert_eq!(arrival.look(&mut input, 9), Ok(None));
            assert!(arrival.needs_end());
        }
        let whole = arrival.end().unwrap();
        assert_eq!((&input[whole.body], whole.keep_alive), (&b"some more"[..], false));
        input.push(b'!');
        assert_eq!(arrival.look(&mut input, 9), Err(ArrivalError::TooLong(9)));
    }

    #[test]
    fn a_length_is_not_believed_beyond_what_is_taken_and_makes_no_room_of_its_own() {
        let head = |length: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        assert_eq!(Arrival::default().look(&mut head("14"), 13), Err(ArrivalError::TooLong(13)));
        let (mut arrival, mut input) = (Arrival::default(), head("1000000000"));
        assert_eq!(arrival.look(&mut input, usize::MAX), Ok(None));
        assert!(input.capacity() <= 2 * AHEAD_BYTES, "{}", input.capacity());
        assert!(!arrival.needs_end() && arrival.end().is_none());
        let mut flood = b"HTTP/1.1 102 Processing\r\n\r\n".repeat(BETWEEN_MAX as usize + 1);
        assert_eq!(Arrival::default().look(&mut flood, 1), Err(ArrivalError::Between));
        assert!(matches!(
            Arrival::default().look(&mut b"SSH-2.0-x\r\n".to_vec(), 1),
            Err(ArrivalError::Head(_))
        ));
    }
}
