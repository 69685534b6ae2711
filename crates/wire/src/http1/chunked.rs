//! The chunked transfer coding (RFC 9112 7.1), decoded as it comes.
//!
//! The decoder keeps no bytes: each step consumes a prefix of the input and may lend a range of it as data.
//! Extensions and trailer fields are skipped and bounded, since no layer reads them; a trailer line is a
//! field line all the same, held to what a head's are.

use crate::exchange::Refusal;
use crate::tchar::is_tchar;

/// Bytes of one chunk-size line with its extensions.
const SIZE_LINE_BYTES_MAX: u32 = 256;
/// Bytes of all trailer lines.
const TRAILER_BYTES_MAX: u32 = 4096;

/// One step of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Body bytes among them; empty when the input ended before any.
    pub data: &'a [u8],
    /// The body is whole. What follows `consumed` is the next message.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expecting {
    /// Hex digits of a chunk size; `digits` so far.
    Size { digits: u8 },
    /// Blanks behind a size: its end follows, or an extension.
    SizeBlank,
    /// The rest of a size line: an extension.
    Extension,
    /// LF behind the CR of a size line.
    SizeLineFeed,
    /// Bytes of the chunk.
    Data,
    /// CR behind the bytes.
    DataReturn,
    /// LF behind that CR.
    DataLineFeed,
    /// The first byte of a trailer line.
    TrailerStart,
    /// The rest of a trailer field's name, and its colon.
    TrailerName,
    /// The value of a trailer field.
    TrailerValue,
    /// LF behind the CR of a trailer line.
    TrailerLineFeed,
    /// LF of the final blank line.
    FinalLineFeed,
    /// Nothing: the body is whole.
    Nothing,
}

/// Incremental decoder of one body.
#[derive(Clone, Copy, Debug)]
pub struct ChunkedDecoder {
    expecting: Expecting,
    /// Bytes left of the chunk, or its size while that is read.
    remaining: u64,
    /// Bytes of the present line, or of all trailers.
    line_bytes: u32,
}

impl Default for ChunkedDecoder {
    fn default() -> Self {
        Self { expecting: Expecting::Size { digits: 0 }, remaining: 0, line_bytes: 0 }
    }
}

impl ChunkedDecoder {
    /// Decodes up to the next data, the end, or the end of the input. Call again with what is left until
    /// it consumes nothing or is done.
    ///
    /// # Errors
    /// A 400 [`Refusal`]: the framing is broken and the connection cannot be used any further.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Chunk<'a>, Refusal> {
        let mut at = 0;
        while at < input.len() && self.expecting != Expecting::Nothing {
            if self.expecting == Expecting::Data {
                let wanted = usize::try_from(self.remaining).unwrap_or(usize::MAX);
                let data = &input[at..at + wanted.min(input.len() - at)];
                self.remaining -= data.len() as u64;
                if self.remaining == 0 {
                    self.expecting = Expecting::DataReturn;
                }
                return Ok(Chunk { consumed: at + data.len(), data, done: false });
            }
            self.step(input[at])?;
            at += 1;
        }
        Ok(Chunk { consumed: at, data: &[], done: self.expecting == Expecting::Nothing })
    }

    /// Bytes of the present chunk that are still to come, once its size was read to the end of the line.
    pub fn owed_bytes(&self) -> u64 {
        if self.expecting == Expecting::Data { self.remaining } else { 0 }
    }

    fn step(&mut self, byte: u8) -> Result<(), Refusal> {
        use Expecting as E;
        self.expecting = match (self.expecting, byte) {
            (E::Size { digits }, b) if b.is_ascii_hexdigit() => self.size_digit(digits, b)?,
            (E::Size { digits: 1.. } | E::SizeBlank | E::Extension, b'\r') => E::SizeLineFeed,
            // RFC 9112 7.1.1: there may be blanks in front of an extension, and nothing else.
            (E::Size { digits: 1.. } | E::SizeBlank, b' ' | b'\t') => {
                self.count(SIZE_LINE_BYTES_MAX)?;
                E::SizeBlank
            }
            (E::Size { digits: 1.. } | E::SizeBlank, b';') => E::Extension,
            (E::Extension, b) if b == b'\t' || !b.is_ascii_control() => {
                self.count(SIZE_LINE_BYTES_MAX)?;
                E::Extension
            }
            (E::SizeLineFeed, b'\n') => {
                self.line_bytes = 0;
                if self.remaining == 0 { E::TrailerStart } else { E::Data }
            }
            (E::DataReturn, b'\r') => E::DataLineFeed,
            (E::DataLineFeed, b'\n') => E::Size { digits: 0 },
            (E::TrailerStart, b'\r') => E::FinalLineFeed,
            // RFC 9112 7.1.2: trailers are field lines. None is folded, so none begins with a blank.
            (E::TrailerStart | E::TrailerName, b) if is_tchar(b) => {
                self.count(TRAILER_BYTES_MAX)?;
                E::TrailerName
            }
            (E::TrailerName, b':') => {
                self.count(TRAILER_BYTES_MAX)?;
                E::TrailerValue
            }
            (E::TrailerValue, b) if b == b'\t' || !b.is_ascii_control() => {
                self.count(TRAILER_BYTES_MAX)?;
                E::TrailerValue
            }
            (E::TrailerValue, b'\r') => E::TrailerLineFeed,
            (E::TrailerLineFeed, b'\n') => E::TrailerStart,
            (E::FinalLineFeed, b'\n') => E::Nothing,
            _ => return Err(MALFORMED),
        };
        Ok(())
    }

    fn size_digit(&mut self, digits: u8, byte: u8) -> Result<Expecting, Refusal> {
        if digits == 16 {
            return Err(MALFORMED);
        }
        let value = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => byte - b'A' + 10,
        };
        let before = if digits == 0 { 0 } else { self.remaining };
        self.remaining = (before << 4) | u64::from(value);
        Ok(Expecting::Size { digits: digits + 1 })
    }

    fn count(&mut self, limit: u32) -> Result<(), Refusal> {
        self.line_bytes += 1;
        if self.line_bytes > limit { Err(LINE_TOO_LONG) } else { Ok(()) }
    }
}

const MALFORMED: Refusal = Refusal {
    status: 400,
    code: "chunk-malformed",
    field: "body",
    detail: "A chunk is a hexadecimal size, CR LF, so many bytes, CR LF; the last has size 0, and trailer lines behind it are name, colon and value.",
};
const LINE_TOO_LONG: Refusal = Refusal {
    status: 400,
    code: "chunk-line-too-long",
    field: "body",
    detail: "Chunk extensions and trailer fields are longer than the limit; leave them out.",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::{HeadParser, Limits};
    use proptest::prelude::*;

    /// Feeds `input` in the given cuts; the body and how many bytes it took, once done.
    fn decode(input: &[u8], cuts: &[usize]) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
        let mut decoder = ChunkedDecoder::default();
        let mut body = Vec::new();
        let mut at = 0;
        let mut ends: Vec<usize> = cuts.iter().map(|c| c % (input.len() + 1)).collect();
        ends.sort_unstable();
        ends.push(input.len());
        for end in ends {
            while at < end {
                let chunk = decoder.decode(&input[at..end])?;
                body.extend_from_slice(chunk.data);
                at += chunk.consumed;
                if chunk.done {
                    return Ok(Some((body, at)));
                }
                assert!(chunk.consumed > 0, "no progress at {at}");
            }
        }
        Ok(None)
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let input = b"4 \t;name=\"v\xe9\t\"\r\nWiki\r\n5 \r\npedia\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
        assert_eq!(decode(input, &[]), Ok(Some((b"Wikipedia".to_vec(), input.len() - 5))));
        assert_eq!(decode(b"0\r\n\r\n", &[]), Ok(Some((Vec::new(), 5))));
        let input = b"0\r\nX-Sum:\r\n~!`:a:\t\xff \r\n\r\n";
        assert_eq!(decode(input, &[]), Ok(Some((Vec::new(), input.len()))));
    }

    #[test]
    fn broken_framing_is_refused() {
        for bad in [
            &b"\r\n"[..],
            b"g\r\n",
            b"-1\r\n",
            b"0x4\r\nWiki\r\n",
            b"4\nWiki\r\n",
            b"4\r\nWikiX\r\n",
            b"4\r\nWiki\n",
            b"4;a\nWiki",
            b"4;a=\x01\r\nWiki\r\n",
            b"4;a=\x7f\r\nWiki\r\n",
            b"4 a\r\nWiki\r\n",
            b"4 4\r\nWiki\r\n",
            b"12345678901234567\r\n",
            b"0\r\nX: 1\n\r\n",
            b" 4\r\nWiki\r\n",
            b"0\r\nno colon here\r\n\r\n",
            b"0\r\nno-colon\r\n\r\n",
            b"0\r\n: no name\r\n\r\n",
            b"0\r\nX : 1\r\n\r\n",
            b"0\r\nX: 1\r\n folded\r\n\r\n",
            b"0\r\nX: 1\r2\r\n\r\n",
            b"0\r\nX: \x01\r\n\r\n",
            b"0\r\nX: \x7f\r\n\r\n",
            b"0\r\nX\xe9: 1\r\n\r\n",
        ] {
            assert_eq!(decode(bad, &[]).map_err(|r| r.code), Err("chunk-malformed"), "{bad:?}");
        }
        let long = [b"1;".to_vec(), vec![b'a'; 300]].concat();
        assert_eq!(decode(&long, &[]).map_err(|r| r.code), Err("chunk-line-too-long"));
        let long = [b"0\r\n".to_vec(), b"a: b\r\n".repeat(1500)].concat();
        assert_eq!(decode(&long, &[]).map_err(|r| r.code), Err("chunk-line-too-long"));
    }

    #[test]
    fn what_a_chunk_announces_is_owed_until_it_came() {
        let mut decoder = ChunkedDecoder::default();
        for (input, owed) in
            [("7fffffff", 0), ("ffffffff;a\r", 0), ("\n", i64::MAX as u64), ("abc", i64::MAX as u64 - 3)]
        {
            decoder.decode(input.as_bytes()).unwrap();
            assert_eq!(decoder.owed_bytes(), owed, "{input:?}");
        }
        let mut decoder = ChunkedDecoder::default();
        assert_eq!(decoder.decode(b"2\r\nab").unwrap().data, b"ab");
        assert_eq!(decoder.owed_bytes(), 0);
    }

    proptest! {
        #[test]
        fn any_cut_decodes_to_the_same(
            parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 0..6),
            cuts in proptest::collection::vec(any::<usize>(), 0..12),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut input = Vec::new();
            for part in &parts {
                input.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
                input.extend_from_slice(part);
                input.extend_from_slice(b"\r\n");
            }
            input.extend_from_slice(b"0\r\n\r\n");
            let length = input.len();
            input.extend_from_slice(&rest);
            prop_assert_eq!(decode(&input, &cuts), Ok(Some((parts.concat(), length))));
        }

        #[test]
        fn trailers_are_what_a_head_takes_for_fields(
            lines in proptest::collection::vec(
                prop_oneof!["[a-zA-Z!~^ :\u{1}\u{7f}\u{e9}]{0,4}(: ?)?[ -~\t\u{e9}\u{b}\r]{0,6}", "[a-zA-Z-]{1,8}: [ -~]{0,8}"], 0..4),
            cuts in proptest::collection::vec(any::<usize>(), 0..8),
        ) {
            let lines: String = lines.iter().map(|line| format!("X{line}\r\n")).collect();
            let body = format!("0\r\n{lines}\r\n");
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
            let taken = HeadParser::default().parse(head.as_bytes(), &Limits::default());
            let decoded = decode(body.as_bytes(), &cuts);
            prop_assert_eq!(decoded.is_ok(), taken.is_ok(), "{:?}", lines);
            prop_assert!(decoded != Ok(None));
        }

        #[test]
        fn hostile_bytes_end_alike_wherever_they_are_cut(
            input in proptest::collection::vec(
                prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'3'), Just(b';'), any::<u8>()], 0..80),
            cuts in proptest::collection::vec(any::<usize>(), 0..8),
        ) {
            prop_assert_eq!(decode(&input, &cuts), decode(&input, &[]));
        }
    }
}
