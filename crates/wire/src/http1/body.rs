//! A message's body as it comes, whatever says where it ends.

use super::chunked::{Chunk, ChunkedDecoder};
use super::head::BodyLength;
use crate::exchange::Refusal;

/// Incremental decoder of one body, however it is delimited. Keeps no bytes.
///
/// ```
/// use thalweg_wire::http1::{BodyDecoder, BodyLength};
///
/// let mut body = BodyDecoder::of(Some(BodyLength::Known(4)));
/// let first = body.decode(b"ab").unwrap();
/// assert_eq!((first.data, first.done), (&b"ab"[..], false));
/// let second = body.decode(b"cdHTTP/1.1").unwrap();
/// assert_eq!((second.data, second.consumed, second.done), (&b"cd"[..], 2, true));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum BodyDecoder {
    /// This many bytes are to come.
    Known(u64),
    /// In chunks.
    Chunked(ChunkedDecoder),
    /// All that comes until the connection ends.
    UntilEnd,
}

impl BodyDecoder {
    /// Of a body that is delimited like that; `None`: by the end of the connection.
    pub fn of(length: Option<BodyLength>) -> Self {
        match length {
            Some(BodyLength::Known(length)) => Self::Known(length),
            Some(BodyLength::Chunked) => Self::Chunked(ChunkedDecoder::default()),
            None => Self::UntilEnd,
        }
    }

    /// Decodes up to the next data, the end, or the end of the input. Call again with what is left until it
    /// consumes nothing or is done; one that the connection's end delimits never is.
    ///
    /// # Errors
    /// A 400 [`Refusal`]: the framing is broken and the connection cannot be used any further.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Chunk<'a>, Refusal> {
        match self {
            Self::Known(left) => {
                let wanted = usize::try_from(*left).unwrap_or(usize::MAX);
                let data = &input[..wanted.min(input.len())];
                *left -= data.len() as u64;
                Ok(Chunk { consumed: data.len(), data, done: *left == 0 })
            }
            Self::Chunked(decoder) => decoder.decode(input),
            Self::UntilEnd => Ok(Chunk { consumed: input.len(), data: input, done: false }),
        }
    }

    /// Bytes that were announced and are still to come; of chunks, those of the present one.
    pub fn owed_bytes(&self) -> u64 {
        match self {
            Self::Known(left) => *left,
            Self::Chunked(decoder) => decoder.owed_bytes(),
            Self::UntilEnd => 0,
        }
    }

    /// Whether the end of the connection is its own.
    pub fn needs_end(&self) -> bool {
        matches!(self, Self::UntilEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All of a body out of pieces of `length`, what was left of the input, and whether it is whole.
    fn decoded(delimited: Option<BodyLength>, input: &[u8], length: usize) -> (Vec<u8>, usize, bool) {
        let (mut body, mut at, mut data) = (BodyDecoder::of(delimited), 0, Vec::new());
        loop {
            let piece = &input[at..input.len().min(at + length)];
            let chunk = body.decode(piece).unwrap();
            data.extend_from_slice(chunk.data);
            at += chunk.consumed;
            if chunk.done || chunk.consumed == 0 {
                return (data, input.len() - at, chunk.done || body.needs_end());
            }
        }
    }

    #[test]
    fn each_kind_of_body_ends_where_it_is_said_in_any_pieces() {
        for length in 1..=20 {
            let known = |bytes| decoded(Some(BodyLength::Known(bytes)), b"hello, body", length);
            assert_eq!(known(5), (b"hello".to_vec(), 6, true));
            assert_eq!(known(0), (Vec::new(), 11, true));
            assert_eq!(known(12), (b"hello, body".to_vec(), 0, false));
            let chunked = decoded(Some(BodyLength::Chunked), b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\nmore", length);
            assert_eq!(chunked, (b"abc".to_vec(), 4, true));
            assert_eq!(decoded(None, b"all of it", length), (b"all of it".to_vec(), 0, true));
        }
        assert!(BodyDecoder::of(Some(BodyLength::Chunked)).decode(b"x").is_err());
    }
}
