//! What caches are told (PROTOCOL 10.1): entity tags and freshness.

use crate::Sharing;
use crate::access::FoundStream;
use crate::headers::Headers;
use crate::store::{Read, Store};
use smallvec::SmallVec;
use thalweg_wire::decimal;
use thalweg_wire::token::Token;

/// An entity tag with its quotes.
pub(crate) type Etag = SmallVec<[u8; 96]>;

const FRESH_S: u64 = 60;
const STALE_S: u64 = 300;

/// The tag of the bytes from `start` to the read's end, of one incarnation. PROTOCOL 10.1: the tag varies
/// with closure, or a 304 would hide it; and with whether this is all there is, which a 304 does not take
/// back either: RFC 9111 3.2 has a cache keep what it does not say.
pub(crate) fn entity_tag(start: Token, read: &Read) -> Etag {
    let mut number = itoa::Buffer::new();
    let mut tag = Etag::new();
    tag.push(b'"');
    tag.extend_from_slice(number.format(start.incarnation).as_bytes());
    tag.push(b':');
    tag.extend_from_slice(number.format(start.offset).as_bytes());
    tag.push(b':');
    tag.extend_from_slice(number.format(read.next).as_bytes());
    tag.extend_from_slice(match (read.at_tail, read.closed) {
        (false, _) => b"\"",
        (true, false) => b":t\"",
        (true, true) => b":c\"",
    });
    tag
}

/// Whether a tag is one that a read which came to the end of the stream as it was found has now.
pub(crate) fn is_tag_of_end<S: Store>(tag: &[u8], found: &FoundStream<S>) -> bool {
    let state = &found.state;
    let mark: &[u8] = if state.closed { b"c\"" } else { b"t\"" };
    let Some(inner) = tag.strip_prefix(b"\"") else { return false };
    let mut parts = inner.split(|byte| *byte == b':');
    let mut number = |most| parts.next().and_then(|digits| decimal::parse(digits, most));
    let (incarnation, start, end) = (number(u64::MAX), number(state.tail), number(state.tail));
    let is_at_end = incarnation == Some(found.incarnation) && start.is_some() && end == Some(state.tail);
    is_at_end && parts.eq([mark])
}

/// Appends how long a response may be kept: as PROTOCOL 10.1 has it, but never past the stream's own end.
pub(crate) fn freshness(headers: &mut Headers, sharing: Sharing, remaining_s: Option<u64>) {
    let fresh_s = remaining_s.map_or(FRESH_S, |left_s| left_s.min(FRESH_S));
    let stale_s = remaining_s.map_or(STALE_S, |left_s| (left_s - fresh_s).min(STALE_S));
    let mut number = itoa::Buffer::new();
    let mut value = SmallVec::<[u8; 64]>::new();
    value.extend_from_slice(match sharing {
        Sharing::Public => b"public, max-age=",
        Sharing::Private => b"private, max-age=",
    });
    value.extend_from_slice(number.format(fresh_s).as_bytes());
    value.extend_from_slice(b", stale-while-revalidate=");
    value.extend_from_slice(number.format(stale_s).as_bytes());
    headers.line("Cache-Control", &value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::exchange::Pieces;

    fn cache_control(sharing: Sharing, remaining_s: Option<u64>) -> String {
        let mut headers = Headers::new();
        freshness(&mut headers, sharing, remaining_s);
        let lines = String::from_utf8(headers.respond_empty(200).fields.to_vec()).unwrap();
        lines.lines().find_map(|line| line.strip_prefix("Cache-Control: ")).unwrap().to_owned()
    }

    #[test]
    fn nothing_is_kept_past_the_end_of_the_stream() {
        let whole = "public, max-age=60, stale-while-revalidate=300";
        assert_eq!(cache_control(Sharing::Public, None), whole);
        assert_eq!(cache_control(Sharing::Public, Some(360)), whole);
        assert_eq!(
            cache_control(Sharing::Private, Some(100)),
            "private, max-age=60, stale-while-revalidate=40"
        );
        assert_eq!(cache_control(Sharing::Public, Some(7)), "public, max-age=7, stale-while-revalidate=0");
    }

    #[test]
    fn tags_tell_incarnation_range_and_closure_apart() {
        let start = |incarnation, offset| Token { incarnation, offset };
        let read =
            |next, at_tail, closed| Read { pieces: Pieces::new(), next, at_tail, closed, inside: false };
        for (at_tail, closed, tag) in [
            (false, false, "\"3:0:9\""),
            (false, true, "\"3:0:9\""),
            (true, false, "\"3:0:9:t\""),
            (true, true, "\"3:0:9:c\""),
        ] {
            assert_eq!(entity_tag(start(3, 0), &read(9, at_tail, closed)).as_slice(), tag.as_bytes());
        }
        assert_eq!(entity_tag(start(u64::MAX, u64::MAX), &read(u64::MAX, true, true)).len(), 66);
    }
}
