//! What the fuzz targets (`fuzz/`) reach of this crate beside what everybody does. Built with `--cfg fuzzing`
//! alone.

use crate::record::{self, RECORD_BYTES_MIN};
use crate::sse::{Events, SseLine};
use thalweg_wire::sse::read::Control;

/// Events say the same wherever pieces end, which the first byte says; and so does what a server writes of
/// them.
pub fn events(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    let (front, back) = data.split_at(usize::from(*cut).min(data.len()));
    let whole = told(&[data]);
    assert_eq!(told(&[front, back]), whole);
    assert_eq!(told(&data.chunks(1).collect::<Vec<_>>()), whole);
    whole.iter().filter(|(is_control, _)| *is_control).for_each(|(_, data)| drop(Control::parse(data)));
}

/// What pieces say, and which of it is control.
fn told(pieces: &[&[u8]]) -> Vec<(bool, Vec<u8>)> {
    let (mut events, mut told) = (Events::default(), Vec::new());
    for piece in pieces {
        events.push(piece, |said| {
            told.push(match said {
                SseLine::Data(data) => (false, data.to_vec()),
                SseLine::Control(data) => (true, data.to_vec()),
            });
        });
    }
    told
}

/// What a server writes comes to this reader as it was, as far as it reads: lines, each by itself.
pub fn written(payload: &[u8], stream: &[u8]) {
    let lines = told(&[stream]).into_iter().filter(|(is_control, _)| !is_control).map(|(_, data)| data);
    assert_eq!(lines.collect::<Vec<_>>().join(&b'\n'), payload);
}

/// A record says what was stamped into it.
pub fn records(data: &[u8]) {
    let Some((sent_ns, serial)) = record::read(data) else { return };
    let mut again = data.to_vec();
    record::stamp(&mut again, sent_ns, serial);
    assert_eq!(record::read(&again), Some((sent_ns, serial)));
    assert!(data.len() >= RECORD_BYTES_MIN);
}
