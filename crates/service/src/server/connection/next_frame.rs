//! Which frame a connection's input begins with: a pure function of the bytes, which consumes none.

use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{FrameKind, HEADER_BYTES, Header, LENGTH_BYTES, LENGTH_MAX};

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextFrame {
    /// More bytes are needed.
    More,
    /// A request that is there as a whole.
    Request(RequestHead),
    /// The client cancels a call.
    Cancel(u64),
    /// A call may send more items.
    Credit(u64, u32),
    /// A request that is too long: `bytes` is its whole length, some of which may be still to come.
    TooLong { id: u64, bytes: usize },
    /// The client broke the protocol, and the connection cannot go on; `id` is the call that the frame named.
    ProtocolError { id: u64, fault: Fault },
}

/// A request: `head` bytes, then `length` of payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) head: usize,
    pub(crate) length: usize,
    /// The client's name for its call; on plain connections 0.
    pub(crate) id: u64,
    /// Milliseconds until the answer is not wanted any more; 0 for no deadline.
    pub(crate) deadline_ms: u32,
    /// Items that its stream may send to begin with; 0 leaves that to the server.
    pub(crate) credit: u32,
}

impl RequestHead {
    /// Bytes of head and payload.
    #[inline]
    pub(crate) const fn total(&self) -> usize {
        self.head + self.length
    }
}

/// Cuts a plain connection's input.
#[inline]
pub(crate) fn plain(unread: &[u8], length_max: u32) -> NextFrame {
    let Some(length) = unread.first_chunk::<LENGTH_BYTES>() else { return NextFrame::More };
    let length = u32::from_le_bytes(*length);
    if length > LENGTH_MAX {
        return NextFrame::ProtocolError { id: 0, fault: Fault::BadFrame };
    }
    if length > length_max {
        return NextFrame::TooLong { id: 0, bytes: LENGTH_BYTES + length as usize };
    }
    if unread.len() - LENGTH_BYTES < length as usize {
        return NextFrame::More;
    }
    NextFrame::Request(RequestHead { head: LENGTH_BYTES, length: length as usize, ..RequestHead::default() })
}

/// Cuts a multiplexed connection's input.
#[inline]
pub(crate) fn multiplexed(unread: &[u8], length_max: u32) -> NextFrame {
    let header = match Header::decode(unread, LENGTH_MAX) {
        Ok(Some(header)) => header,
        Ok(None) => return NextFrame::More,
        Err(error) => return NextFrame::ProtocolError { id: id_of(unread), fault: error.fault() },
    };
    let invalid = NextFrame::ProtocolError { id: header.id, fault: Fault::BadFrame };
    match header.kind {
        FrameKind::Request if header.length > length_max => {
            NextFrame::TooLong { id: header.id, bytes: HEADER_BYTES + header.length as usize }
        }
        FrameKind::Request if unread.len() - HEADER_BYTES < header.length as usize => NextFrame::More,
        FrameKind::Request => NextFrame::Request(RequestHead {
            head: HEADER_BYTES,
            length: header.length as usize,
            id: header.id,
            deadline_ms: header.deadline_ms,
            credit: header.credit,
        }),
        FrameKind::Cancel if header.length == 0 => NextFrame::Cancel(header.id),
        FrameKind::Credit if header.length == 0 => NextFrame::Credit(header.id, header.credit),
        // Kinds that only servers send, or a payload where there is none.
        FrameKind::Cancel | FrameKind::Credit | FrameKind::Item | FrameKind::End | FrameKind::Goodbye => {
            invalid
        }
    }
}

/// Bytes of the frame that the input begins with, as its header announces them; 0 before that has come.
pub(crate) fn first_bytes(unread: &[u8], head: usize) -> usize {
    unread.first_chunk::<4>().map_or(0, |length| head.saturating_add(u32::from_le_bytes(*length) as usize))
}

/// The id in a header whose other fields are invalid.
fn id_of(header: &[u8]) -> u64 {
    header.get(8..16).and_then(|id| id.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever comes, a cut is either a request that lies wholly in the input or is decided by its head
        /// alone.
        #[test]
        fn no_bytes_are_claimed_that_are_not_there(bytes in proptest::collection::vec(any::<u8>(), 0..80), max in 0_u32..64) {
            for cut in [plain(&bytes, max), multiplexed(&bytes, max)] {
                if let NextFrame::Request(head) = cut {
                    prop_assert!(head.total() <= bytes.len());
                    prop_assert!(head.length <= max as usize);
                }
            }
        }
    }

    #[test]
    fn a_frame_is_cut_once_it_is_whole() {
        assert_eq!(plain(&[2, 0, 0, 0, 1], 9), NextFrame::More);
        assert_eq!(
            plain(&[0, 0, 0, 0], 0),
            NextFrame::Request(RequestHead { head: 4, ..RequestHead::default() })
        );
        assert_eq!(plain(&[9, 0, 0, 0], 8), NextFrame::TooLong { id: 0, bytes: 13 });
        assert_eq!(plain(&[0, 0, 0, 0xff], 8), NextFrame::ProtocolError { id: 0, fault: Fault::BadFrame });
    }

    #[test]
    fn a_servers_own_kinds_and_payloads_of_what_has_none_break_the_protocol() {
        for (kind, length) in [
            (FrameKind::Item, 0),
            (FrameKind::End, 0),
            (FrameKind::Goodbye, 0),
            (FrameKind::Cancel, 1),
            (FrameKind::Credit, 1),
        ] {
            let header = Header::new(kind, 5, length);
            assert_eq!(
                multiplexed(&header.encode(), 64),
                NextFrame::ProtocolError { id: 5, fault: Fault::BadFrame }
            );
        }
        let credit = Header { credit: 3, ..Header::new(FrameKind::Credit, 5, 0) };
        assert_eq!(multiplexed(&credit.encode(), 64), NextFrame::Credit(5, 3));
        assert_eq!(multiplexed(&Header::new(FrameKind::Cancel, 5, 0).encode(), 64), NextFrame::Cancel(5));
        let mut unknown = Header::new(FrameKind::Request, 5, 0).encode();
        unknown[4] = 99;
        assert_eq!(multiplexed(&unknown, 64), NextFrame::ProtocolError { id: 5, fault: Fault::BadFrame });
    }
}
