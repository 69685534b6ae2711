//! Where the messages of a record end, which only reading it finds: at once in a small record, and on a
//! thread beside the reactors in a large one. A request of a few bytes can name any record, so a reactor
//! must not read a large one.
//!
//! What was found is kept until the request is served again, and a little longer: a record never changes.

use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_wire::exchange::{Pieces, Work};
use thalweg_wire::json;

/// The largest record, in bytes, that is read at once.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;
/// How many ends are kept: as many as reads of two reactors may wait for the disk. Of more at once some are
/// read anew.
const KEPT_MAX: usize = 1_024;

/// What is sought: the end of a message in what is left of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageSearch {
    pub(crate) incarnation: u64,
    /// Where the first message begins.
    pub(crate) from: u64,
    /// Where the record ends.
    pub(crate) to: u64,
    /// Which message, from 1 on.
    pub(crate) count: u64,
}

/// The ends found last, of all reactors.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageEnds(Arc<Mutex<VecDeque<Known>>>);

/// What was sought, and its end if the record has that many messages.
type Known = (MessageSearch, Option<u64>);

impl MessageEnds {
    /// Bytes up to behind the message's separator, `None` if there are fewer messages; or what is to be done
    /// first.
    pub(crate) fn behind(&self, sought: MessageSearch, pieces: &Pieces) -> Result<Option<u64>, Work> {
        let bytes = sought.to.saturating_sub(sought.from);
        // The shortest message is a digit, with its separator.
        if sought.count > bytes / 2 {
            return Ok(None);
        }
        if bytes <= AT_ONCE_BYTES_MAX {
            return Ok(read(pieces, sought.count));
        }
        if let Some((_, end)) = self.0.lock().iter().find(|(of, _)| *of == sought) {
            return Ok(*end);
        }
        let (ends, pieces) = (self.clone(), pieces.clone());
        Err(Work(Box::new(move || ends.keep(sought, read(&pieces, sought.count)))))
    }

    fn keep(&self, sought: MessageSearch, end: Option<u64>) {
        let mut kept = self.0.lock();
        kept.retain(|(of, _)| *of != sought);
        if kept.len() == KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back((sought, end));
    }
}

fn read(pieces: &Pieces, count: u64) -> Option<u64> {
    let kept = match &pieces[..] {
        [whole] => Cow::Borrowed(&whole[..]),
        parts => Cow::Owned(parts.concat()),
    };
    json::end_of_message(&kept, count).map(|bytes| bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_as_may_wait_at_once_find_what_was_read_for_them() {
        let ends = MessageEnds::default();
        let bytes = 2 * AT_ONCE_BYTES_MAX;
        let pieces: Pieces = [b"1,".repeat(bytes as usize / 2).into()].into_iter().collect();
        let sought = |count| MessageSearch { incarnation: 1, from: 0, to: bytes, count };
        // Twice: what nobody asks for any more makes room.
        for begin in [1, 2_001] {
            let counts = begin..begin + 1_024;
            let works: Vec<Work> =
                counts.clone().map(|count| ends.behind(sought(count), &pieces).unwrap_err()).collect();
            works.into_iter().for_each(|work| (work.0)());
            for count in counts {
                assert_eq!(ends.behind(sought(count), &pieces).ok(), Some(Some(2 * count)), "{count}");
            }
        }
    }
}
