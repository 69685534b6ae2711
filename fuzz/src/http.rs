//! HTTP/1.1, whole and in pieces.

use thalweg_wire::http1::{ChunkedDecoder, HeadParser, Limits, parse_response};

/// A head is the same however many pieces it came in, and lies within what was given.
pub fn request(data: &[u8]) {
    let limits = Limits::default();
    let mut whole = HeadParser::default();
    let at_once = whole.parse(data, &limits);
    let mut pieces = HeadParser::default();
    for end in 0..data.len() {
        match pieces.parse(&data[..end], &limits) {
            Ok(None) => {}
            // Decided before the end: the same is decided with all of it.
            Ok(Some(head)) => {
                let all = at_once
                    .as_ref()
                    .expect("a head that was whole is none")
                    .as_ref()
                    .expect("a head vanished");
                assert!(head.bytes <= end && head.bytes == all.bytes && head.path == all.path);
                assert_eq!(
                    (head.method, head.query, head.fields.len()),
                    (all.method, all.query, all.fields.len())
                );
                return;
            }
            Err(refusal) => {
                assert!(at_once.is_err(), "{refusal:?} was refused in pieces and not at once");
                return;
            }
        }
    }
    if let (Ok(None), later) = (&at_once, pieces.parse(data, &limits)) {
        assert!(matches!(later, Ok(None)));
    }
}

/// A response head lies within what was given.
pub fn response(data: &[u8]) {
    for to_head in [false, true] {
        if let Ok(Some(head)) = parse_response(data, to_head) {
            assert!(head.bytes <= data.len());
        }
    }
}

/// A chunked body is the same in two pieces as in one.
pub fn chunked(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let cut = usize::from(*cut).min(data.len());
    let whole = decode(&[data]);
    let halves = decode(&[&data[..cut], &data[cut..]]);
    match (&whole, &halves) {
        (Some((body, done)), Some((other, also_done))) => assert!(body == other && done == also_done),
        (whole, halves) => assert_eq!(whole.is_none(), halves.is_none()),
    }
}

/// The body, and whether it is whole; `None` if it is none.
fn decode(pieces: &[&[u8]]) -> Option<(Vec<u8>, bool)> {
    let (mut decoder, mut body) = (ChunkedDecoder::default(), Vec::new());
    for piece in pieces {
        let mut rest = *piece;
        while !rest.is_empty() {
            let chunk = decoder.decode(rest).ok()?;
            body.extend_from_slice(chunk.data);
            if chunk.done {
                return Some((body, true));
            }
            assert!(chunk.consumed > 0, "the decoder stands still");
            rest = &rest[chunk.consumed..];
        }
    }
    Some((body, false))
}
