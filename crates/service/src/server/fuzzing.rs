//! A connection's input, as anybody could send it.

use super::connection::next_frame::{NextFrame, first_bytes, multiplexed, plain};
use thalweg_wire::frame::{HEADER_BYTES, LENGTH_BYTES};

/// What lies wholly in the input is cut from it, and what follows changes nothing. The first byte says how
/// long a request may be.
pub fn cut(data: &[u8]) {
    let Some((length_max, data)) = data.split_first() else { return };
    let length_max = u32::from(*length_max);
    for (cut, head_bytes) in
        [(plain as fn(&[u8], u32) -> NextFrame, LENGTH_BYTES), (multiplexed, HEADER_BYTES)]
    {
        let mut decided = None;
        for end in 0..=data.len().min(600) {
            let now = cut(&data[..end], length_max);
            if let NextFrame::Request(asked) = now {
                assert!(asked.head == head_bytes && asked.total() <= end);
                assert!(asked.length <= length_max as usize);
                assert_eq!(first_bytes(&data[..end], asked.head), asked.total());
            }
            if decided.is_none() && now != NextFrame::More {
                decided = Some(now);
            }
            assert!(decided.is_none_or(|before| before == now), "{decided:?} became {now:?}");
        }
    }
}
