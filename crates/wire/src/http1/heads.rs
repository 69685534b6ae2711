//! Request heads that come again. A client that keeps a connection mostly sends the same head again, byte for
//! byte, so what the last head at a place came to is kept, and the same bytes are not parsed twice.
//!
//! Invariant: what comes out is what [`HeadParser`] makes of the same bytes. A head is told by its bytes
//! alone, since they say where it ends, and the limits do not change; so who sent it before does not matter.
//! *Checked by* the property test below and by the fuzz target of request heads.

use super::head::{BodyLength, Head, HeadParser, Limits};
use crate::exchange::{Method, Refusal};
use crate::field::{Field, Name};

/// Places, each for the last head there. Connections at the same one only take each other's.
const PLACES: usize = 64;
/// Bytes of a head that is kept; a longer one is taken apart each time.
const KEPT_BYTES_MAX: usize = 512;
/// Heads in a row that all were others, after which only one in so many is kept: their sender has new ones
/// each time.
const OTHERS_MAX: u8 = 4;
const KEPT_OF_OTHERS: u8 = 16;

/// Parses heads, those that come again by what they came to before. At most 64 KiB.
///
/// ```
/// use thalweg_wire::http1::{HeadParser, Heads, Limits};
///
/// let (mut heads, mut parser) = (Heads::new(Limits::default()), HeadParser::default());
/// for _ in 0..2 {
///     let head = heads.parse(7, &mut parser, b"GET /v1/stream/a HTTP/1.1\r\nHost: here\r\n\r\n");
///     assert_eq!(head.unwrap().unwrap().path, "/v1/stream/a");
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Heads {
    limits: Limits,
    /// None until the first head.
    kept: Vec<Kept>,
}

/// A part of a head: where it begins and ends.
type Span = (u16, u16);

/// A head, and what it came to.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// All of it, ASCII; nothing as long as there is none.
    bytes: Vec<u8>,
    parts: Option<Parts>,
    fields: Vec<(Name, Span)>,
    /// Heads in a row that were others.
    others: u8,
}

/// What a head says beside its fields.
#[derive(Clone, Copy, Debug)]
struct Parts {
    method: Method,
    path: Span,
    query: Option<Span>,
    minor_version: u8,
    body: BodyLength,
    keep_alive: bool,
    expects_continue: bool,
}

impl Heads {
    /// Heads within these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, kept: Vec::new() }
    }

    /// As [`HeadParser::parse`], for somebody at this place, whose parser that is: any number, best the same
    /// each time.
    ///
    /// # Errors
    /// As there.
    pub fn parse<'a>(
        &mut self,
        place: usize,
        parser: &mut HeadParser,
        bytes: &'a [u8],
    ) -> Result<Option<Head<'a>>, Refusal> {
        if self.kept.is_empty() {
            self.kept.resize(PLACES, Kept::default());
        }
        let kept = &mut self.kept[place % PLACES];
        if let Some(head) = kept.again(bytes) {
            *parser = HeadParser::default();
            kept.others = 0;
            return Ok(Some(head));
        }
        let head = parser.parse(bytes, &self.limits)?;
        if let Some(head) = &head {
            kept.keep(head, &bytes[..head.bytes]);
        }
        Ok(head)
    }
}

impl Kept {
    /// The head that is kept, if it is at the beginning of these bytes.
    #[inline]
    fn again<'a>(&self, bytes: &'a [u8]) -> Option<Head<'a>> {
        let parts = self.parts.as_ref()?;
        let bytes = bytes.get(..self.bytes.len()).filter(|bytes| *bytes == self.bytes)?;
        let part = |(start, end): Span| &bytes[usize::from(start)..usize::from(end)];
        let text = |span: Span| std::str::from_utf8(part(span)).ok();
        let query = match parts.query {
            Some(query) => Some(text(query)?),
            None => None,
        };
        let field = |&(name, value): &(Name, Span)| Field { name, value: part(value) };
        Some(Head {
            method: parts.method,
            path: text(parts.path)?,
            query,
            minor_version: parts.minor_version,
            fields: self.fields.iter().map(field).collect(),
            bytes: bytes.len(),
            body: parts.body,
            keep_alive: parts.keep_alive,
            expects_continue: parts.expects_continue,
        })
    }

    /// Keeps a head, which is these bytes, in place of the one before.
    fn keep(&mut self, head: &Head<'_>, bytes: &[u8]) {
        self.others = self.others.wrapping_add(1);
        if self.others > OTHERS_MAX && !self.others.is_multiple_of(KEPT_OF_OTHERS) {
            return;
        }
        self.bytes.clear();
        self.fields.clear();
        self.parts = None;
        if bytes.len() > KEPT_BYTES_MAX || !bytes.is_ascii() {
            return;
        }
        for Field { name, value } in &head.fields {
            let Some(value) = span(value, bytes) else { return };
            self.fields.push((*name, value));
        }
        self.parts = Parts::of(head, bytes);
        self.bytes.extend_from_slice(bytes);
    }
}

impl Parts {
    /// Of a head, which is these bytes; `None` where a part of it is not among them.
    fn of(head: &Head<'_>, bytes: &[u8]) -> Option<Self> {
        let query = match head.query {
            Some(query) => Some(span(query.as_bytes(), bytes)?),
            None => None,
        };
        Some(Self {
            method: head.method,
            path: span(head.path.as_bytes(), bytes)?,
            query,
            minor_version: head.minor_version,
            body: head.body,
            keep_alive: head.keep_alive,
            expects_continue: head.expects_continue,
        })
    }
}

/// Where a part lies in the whole; `None` where it is no part of it: what a head leaves out is said by a word
/// of ours.
fn span(part: &[u8], whole: &[u8]) -> Option<Span> {
    let start = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    let end = start + part.len();
    if end > whole.len() {
        return None;
    }
    Some((u16::try_from(start).ok()?, u16::try_from(end).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Heads of which many are the same, and many nearly.
    fn heads() -> impl Strategy<Value = String> {
        let target = prop::sample::select(vec!["/a", "/a?b=c", "http://h", "http://h?q", "*", "/\u{e9}", ""]);
        let field = prop::sample::select(vec![
            "Content-Length: 3\r\n",
            "Content-Length: 4\r\n",
            "Transfer-Encoding: chunked\r\n",
            "Connection: close\r\n",
            "X: \u{e9}\r\n",
            "X:  y \r\n",
            "Expect: 100-continue\r\n",
            "A: b\n",
        ]);
        let method = prop::sample::select(vec!["GET", "POST", "OPTIONS"]);
        let fields = prop::collection::vec(field, 0..3);
        (method, target, prop::sample::select(vec!["1.1", "1.0"]), fields, 0..3usize).prop_map(
            |(method, target, version, fields, cut)| {
                let host = if version == "1.1" { "Host: h\r\n" } else { "" };
                let text = format!("{method} {target} HTTP/{version}\r\n{host}{}\r\nbody", fields.concat());
                text[..text.len().saturating_sub(4 * cut)].to_owned()
            },
        )
    }

    proptest! {
        #[test]
        fn a_head_that_comes_again_is_what_it_was(
            heads in prop::collection::vec((heads(), 0..3usize, 1..4usize), 1..20)
        ) {
            let mut memory = Heads::new(Limits::default());
            for (head, place, times) in heads {
                for _ in 0..times {
                    let plain = HeadParser::default().parse(head.as_bytes(), &Limits::default());
                    let mut parser = HeadParser::default();
                    prop_assert_eq!(memory.parse(place, &mut parser, head.as_bytes()), plain);
                }
            }
        }

        #[test]
        fn a_head_that_comes_in_pieces_is_found_again(cut in 1..40usize) {
            let (mut memory, mut parser) = (Heads::new(Limits::default()), HeadParser::default());
            let twice = "GET /again HTTP/1.1\r\nHost: here\r\n\r\nGET /other HTTP/1.1\r\nHost: here\r\n\r\n";
            let length = twice.len() / 2;
            for _ in 0..3 {
                let first = memory.parse(0, &mut parser, &twice.as_bytes()[..cut.min(length)]).unwrap();
                if first.is_none() {
                    let head = memory.parse(0, &mut parser, twice.as_bytes()).unwrap().unwrap();
                    prop_assert_eq!((head.path, head.bytes), ("/again", length));
                }
                let head = memory.parse(0, &mut parser, &twice.as_bytes()[length..]).unwrap().unwrap();
                prop_assert_eq!(head.path, "/other");
            }
        }
    }

    #[test]
    fn what_is_kept_is_bounded_and_new_heads_are_not_kept_each_time() {
        let mut memory = Heads::new(Limits::default());
        let mut keeps = |head: &str| {
            memory.parse(3, &mut HeadParser::default(), head.as_bytes()).unwrap().unwrap();
            memory.kept[3].bytes == head.as_bytes()
        };
        let head = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: h\r\n\r\n");
        assert!(!keeps(&head(&"x".repeat(KEPT_BYTES_MAX))));
        let kept = (0..64).filter(|number| keeps(&head(&number.to_string()))).count();
        assert!((4..=10).contains(&kept), "{kept}");
        // Another client that sends the same each time is learned soon.
        let first = (0..64).find(|_| keeps(&head("same"))).unwrap();
        assert!(first <= usize::from(KEPT_OF_OTHERS), "{first}");
    }
}
