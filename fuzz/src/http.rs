//! HTTP/1.1, whole and in pieces.

use thalweg_wire::http1::{Arrival, BodyDecoder, ChunkedDecoder, HeadParser, Heads, Limits, parse_response};

/// A head is the same however many pieces it came in, and when it comes again, and lies within what was
/// given.
pub fn request(data: &[u8]) {
    let limits = Limits::default();
    let mut whole = HeadParser::default();
    let at_once = whole.parse(data, &limits);
    let mut heads = Heads::new(limits);
    for _ in 0..2 {
        assert_eq!(heads.parse(0, &mut HeadParser::default(), data), at_once);
    }
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

/// Bytes of a body that is taken.
const BODY_BYTES_MAX: usize = 1 << 10;

/// An answer that is wanted whole is the same in pieces as at once, and what its body is read to as it comes.
pub fn answer(data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    let at_once = arrived(&[data]);
    assert_eq!(arrived(&data.chunks(usize::from(*size).max(1)).collect::<Vec<_>>()), at_once);
    let mut rest = data;
    while let Ok(Some(head)) = parse_response(rest, false) {
        rest = &rest[head.bytes..];
        if head.is_between() {
            continue;
        }
        let (mut decoder, mut body, mut done) = (BodyDecoder::of(head.body), Vec::new(), false);
        while let Ok(chunk) = decoder.decode(rest) {
            body.extend_from_slice(chunk.data);
            rest = &rest[chunk.consumed..];
            done = chunk.done;
            if done || chunk.consumed == 0 {
                break;
            }
        }
        if let Some((status, whole)) = at_once {
            assert!((status, &whole) == (head.status, &body) && (done || decoder.needs_end()));
        }
        return;
    }
}

/// The status and the body of an answer that comes in these pieces, before the connection ends; `None` if it
/// is none.
fn arrived(pieces: &[&[u8]]) -> Option<(u16, Vec<u8>)> {
    let mut arrival = Arrival::default();
    let first = arrives(&mut arrival, pieces);
    arrival.begin();
    assert_eq!(arrives(&mut arrival, pieces), first, "the same again is the same");
    first
}

fn arrives(arrival: &mut Arrival, pieces: &[&[u8]]) -> Option<(u16, Vec<u8>)> {
    let mut input = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        if let Some(whole) = arrival.look(&mut input, BODY_BYTES_MAX).ok()? {
            return Some((whole.status, input[whole.body].to_vec()));
        }
    }
    arrival.end().map(|whole| (whole.status, input[whole.body].to_vec()))
}
