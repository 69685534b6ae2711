//! Server-sent events: data events that no payload can break out of, and control events.
//!
//! CR, LF and CRLF each end a line, as an event parser ends lines, and every line gets its own `data:`; so
//! the parser gives the payload back with its line ends as LF and nothing in it is taken for a field. A line
//! that begins with a space gets one more, because parsers drop one.
//!
//! The first event of what is sent at once has an `id`: where to go on behind all of it. An `EventSource`
//! that connects again by itself brings it along as `Last-Event-ID`.
//!
//! [`read`] is the way back.

pub mod read;

use crate::token::Token;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use memchr::memchr2;

/// What a control event tells (PROTOCOL 5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Where to read on.
    pub next: Token,
    /// The cursor to send back; none once the stream is closed.
    pub cursor: Option<u64>,
    /// Everything there is has been sent; of text, all but part of a character that nothing follows.
    pub up_to_date: bool,
    /// Everything there will ever be has been sent.
    pub closed: bool,
}

/// Appends the `id` of the event that comes next.
pub fn place(out: &mut Vec<u8>, next: Token) {
    out.extend_from_slice(b"id:");
    out.extend_from_slice(&next.encode());
    out.push(b'\n');
}

/// Appends a `data` event whose payload is the concatenation of `pieces` as text.
pub fn text_event<'a>(out: &mut Vec<u8>, pieces: impl IntoIterator<Item = &'a [u8]>) {
    out.extend_from_slice(b"event: data\n");
    let mut lines = Lines::default();
    for piece in pieces {
        lines.feed(out, piece);
    }
    lines.finish(out);
}

/// Appends a `data` event whose payload is the concatenation of `pieces` in base64, on one line.
pub fn base64_event<'a>(out: &mut Vec<u8>, pieces: impl IntoIterator<Item = &'a [u8]>) {
    out.extend_from_slice(b"event: data\ndata:");
    let mut carry = [0_u8; 3];
    let mut carried = 0;
    for mut piece in pieces {
        while carried > 0 && carried < 3 && !piece.is_empty() {
            carry[carried] = piece[0];
            carried += 1;
            piece = &piece[1..];
        }
        if carried == 3 {
            append_base64(out, &carry);
            carried = 0;
        }
        // With nothing carried, whole groups go straight from the piece; up to two bytes wait.
        if carried == 0 {
            let (groups, rest) = piece.split_at(piece.len() / 3 * 3);
            append_base64(out, groups);
            carry[..rest.len()].copy_from_slice(rest);
            carried = rest.len();
        }
    }
    append_base64(out, &carry[..carried]);
    out.extend_from_slice(b"\n\n");
}

/// Appends a `control` event.
pub fn control_event(out: &mut Vec<u8>, control: &Control) {
    out.extend_from_slice(b"event: control\ndata:{\"streamNextOffset\":\"");
    out.extend_from_slice(&control.next.encode());
    out.push(b'"');
    if let Some(cursor) = control.cursor {
        out.extend_from_slice(b",\"streamCursor\":\"");
        out.extend_from_slice(itoa::Buffer::new().format(cursor).as_bytes());
        out.push(b'"');
    }
    if control.up_to_date {
        out.extend_from_slice(b",\"upToDate\":true");
    }
    if control.closed {
        out.extend_from_slice(b",\"streamClosed\":true");
    }
    out.extend_from_slice(b"}\n\n");
}

/// How many bytes at the end of `text` belong with what follows: an unfinished UTF-8 sequence, or a CR
/// that an LF may follow. An event that stopped there would come back changed.
pub fn unfinished_bytes(text: &[u8]) -> usize {
    if text.last() == Some(&b'\r') {
        return 1;
    }
    for back in 1..=text.len().min(3) {
        let byte = text[text.len() - back];
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if back < length { back } else { 0 };
    }
    0
}

fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The room is exact, so encoding cannot fail; truncating to what was written keeps that local.
    let written = STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// Where the writer of a payload's lines stands between pieces.
#[derive(Default)]
struct Lines {
    /// The current line has its `data:`.
    begun: bool,
    /// The last piece ended in CR: an LF that follows belongs to it.
    after_cr: bool,
}

impl Lines {
    fn feed(&mut self, out: &mut Vec<u8>, mut rest: &[u8]) {
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            if !self.begun {
                out.extend_from_slice(if *first == b' ' { b"data: " } else { b"data:" });
                self.begun = true;
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                out.extend_from_slice(rest);
                return;
            };
            out.extend_from_slice(&rest[..end]);
            out.push(b'\n');
            self.begun = false;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
    }

    fn finish(self, out: &mut Vec<u8>) {
        if !self.begun {
            out.extend_from_slice(b"data:");
        }
        out.extend_from_slice(b"\n\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a client reads: (event, data) pairs.
    fn parse(stream: &[u8]) -> Vec<(String, String)> {
        let mut events = read::Events::default();
        events.push(stream);
        let text = |event: read::Event| (event.kind, String::from_utf8(event.data).unwrap());
        std::iter::from_fn(|| events.next().map(text)).collect()
    }

    fn encode(pieces: &[&[u8]]) -> String {
        let mut out = Vec::new();
        text_event(&mut out, pieces.iter().copied());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn lines_are_prefixed_without_a_blank() {
        assert_eq!(encode(&[b"line1\nline2\nline3"]), "event: data\ndata:line1\ndata:line2\ndata:line3\n\n");
        assert_eq!(encode(&[b" a\n"]), "event: data\ndata:  a\ndata:\n\n");
        assert_eq!(encode(&[]), "event: data\ndata:\n\n");
    }

    #[test]
    fn a_payload_cannot_end_its_event() {
        for attack in [
            "safe\r\n\r\nevent: control\r\ndata: {\"injected\":true}\r\n\r\nmore",
            "start\n\nevent: data\ndata: fake\n\nend",
            "start\r\revent: control\rdata: {}\r\rend",
            "\n\n\n",
            ":comment\nid: 7\nretry: 1",
        ] {
            let events = parse(encode(&[attack.as_bytes()]).as_bytes());
            assert_eq!(events, [("data".into(), attack.replace("\r\n", "\n").replace('\r', "\n"))]);
        }
    }

    #[test]
    fn control_events_are_one_json_line() {
        let next = Token { incarnation: 1, offset: 2 };
        let mut out = Vec::new();
        control_event(&mut out, &Control { next, cursor: Some(42), up_to_date: true, closed: false });
        control_event(&mut out, &Control { next, cursor: None, up_to_date: true, closed: true });
        let token = "0000000000000001_0000000000000002";
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                "event: control\ndata:{{\"streamNextOffset\":\"{token}\",\"streamCursor\":\"42\",\"upToDate\":true}}\n\n\
                 event: control\ndata:{{\"streamNextOffset\":\"{token}\",\"upToDate\":true,\"streamClosed\":true}}\n\n"
            )
        );
    }

    #[test]
    fn unfinished_ends_are_found() {
        for (text, held) in [
            (&b"abc"[..], 0),
            (b"a\r", 1),
            (b"a\r\n", 0),
            ("é".as_bytes(), 0),
            (b"a\xc3", 1),
            (b"a\xe2\x82", 2),
            (b"a\xf0\x9f\x98", 3),
            ("😀".as_bytes(), 0),
            (b"\xff", 0),
            (b"\x80\x80\x80\x80", 0),
            (b"", 0),
        ] {
            assert_eq!(unfinished_bytes(text), held, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn text_comes_back_however_it_is_cut(text in "[a-b \r\n:é]{0,24}", cuts in proptest::collection::vec(0_usize..25, 0..4)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            let expected = text.replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(parse(encode(&pieces).as_bytes()), [("data".to_owned(), expected)]);
        }

        #[test]
        fn base64_comes_back_however_it_is_cut(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..7), 0..6)) {
            let mut out = Vec::new();
            base64_event(&mut out, pieces.iter().map(Vec::as_slice));
            let events = parse(&out);
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(STANDARD.decode(&events[0].1).unwrap(), pieces.concat());
        }

        #[test]
        fn what_a_control_event_tells_comes_back(
            offset in any::<u64>(), cursor in any::<Option<u64>>(), up_to_date in any::<bool>(), closed in any::<bool>(),
        ) {
            let next = Token { incarnation: offset.reverse_bits(), offset };
            let mut out = Vec::new();
            place(&mut out, next);
            control_event(&mut out, &Control { next, cursor, up_to_date, closed });
            let events = parse(&out);
            prop_assert_eq!((events.len(), events[0].0.as_str()), (1, "control"));
            let next_offset = String::from_utf8(next.encode().to_vec()).unwrap();
            let cursor = cursor.map(|cursor| cursor.to_string());
            let wanted = read::Control { next_offset, cursor, closed };
            prop_assert_eq!(read::Control::parse(events[0].1.as_bytes()), Some(wanted));
        }

        #[test]
        fn holding_back_cuts_between_characters(text in "[aé€😀]{1,8}", cut in 0_usize..32) {
            let part = &text.as_bytes()[..cut.min(text.len())];
            let kept = &part[..part.len() - unfinished_bytes(part)];
            prop_assert!(std::str::from_utf8(kept).is_ok());
        }
    }
}
