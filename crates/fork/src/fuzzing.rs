//! What the fuzz targets (`fuzz/`) reach of this crate beside its public items. Built only with
//! `--cfg fuzzing`.

use crate::line::{LINE_BYTES_MAX, Line, LineEvent};
use std::os::fd::AsFd;
use thalweg_sys::socket;

/// Whatever a process says, its lines are heard one by one, as they were, or as they began. The first byte
/// says how often the rest is said: so they come to more than a line may have.
pub fn lines(data: &[u8]) {
    let Some((times, data)) = data.split_first() else { return };
    let data = &data.repeat(usize::from(times % 16));
    let Ok((ours, theirs)) = socket::pair() else { return };
    let mut line = Line::new(ours);
    let mut told = Vec::new();
    for piece in data.chunks(1_000) {
        assert_eq!(socket::send(theirs.as_fd(), piece).expect("an empty socket"), Some(piece.len()));
        loop {
            match line.hear() {
                Ok(LineEvent::Line(words, beside)) => {
                    assert!(beside.is_none() && !words.contains('\n'));
                    told.push(words);
                }
                Ok(LineEvent::Nothing) => break,
                Ok(LineEvent::End) => panic!("nobody went away"),
                Err(error) => panic!("a line that was said was not heard: {error}"),
            }
        }
    }
    let begun = |line: &[u8]| String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]).into_owned();
    let mut wanted: Vec<_> = data.split(|byte| *byte == b'\n').map(begun).collect();
    // What no line feed ended is not heard.
    wanted.pop();
    assert_eq!(told, wanted);
    drop(theirs);
    assert!(matches!(line.hear(), Ok(LineEvent::End)));
}
