//! How a connection's answers are framed.

use thalweg_wire::frame::{FrameKind, HEADER_BYTES, Header, LENGTH_BYTES, LENGTH_MAX};

/// How one call's answers are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// `[u32 length][payload]`.
    Plain,
    /// A header with the call's id.
    Multiplexed(u64),
}

impl Framing {
    /// Reserves the frame's header; returns where the frame begins.
    #[inline]
    pub(crate) fn begin(self, output: &mut Vec<u8>) -> usize {
        let start = output.len();
        match self {
            Self::Plain => output.extend_from_slice(&[0; LENGTH_BYTES]),
            Self::Multiplexed(_) => output.extend_from_slice(&[0; HEADER_BYTES]),
        }
        start
    }

    /// Writes the header of the payload that was appended. `end` is `None` for an item, else the code of a
    /// fault or 0.
    #[inline]
    pub(crate) fn finish(self, output: &mut [u8], start: usize, end: Option<u16>) {
        let head = match self {
            Self::Plain => LENGTH_BYTES,
            Self::Multiplexed(_) => HEADER_BYTES,
        };
        // Payloads are refused before they are as long as that.
        let length = u32::try_from(output.len() - start - head).unwrap_or(LENGTH_MAX);
        let place = &mut output[start..start + head];
        match self {
            Self::Plain => place.copy_from_slice(&length.to_le_bytes()),
            Self::Multiplexed(id) => {
                let kind = if end.is_some() { FrameKind::End } else { FrameKind::Item };
                let header = Header { fault: end.unwrap_or(0), ..Header::new(kind, id, length) };
                place.copy_from_slice(&header.encode());
            }
        }
    }

    /// Appends a whole frame.
    pub(crate) fn write(self, output: &mut Vec<u8>, payload: &[u8], end: Option<u16>) {
        let start = self.begin(output);
        output.extend_from_slice(payload);
        self.finish(output, start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_read_back_as_they_were_meant() {
        let mut output = b"before".to_vec();
        Framing::Plain.write(&mut output, b"abc", Some(0));
        assert_eq!(output, b"before\x03\0\0\0abc");
        output.clear();
        Framing::Multiplexed(9).write(&mut output, b"ab", None);
        Framing::Multiplexed(9).write(&mut output, b"", Some(12));
        let item = Header::decode(&output, 16).unwrap().unwrap();
        assert_eq!(item, Header::new(FrameKind::Item, 9, 2));
        let end = Header::decode(&output[HEADER_BYTES + 2..], 16).unwrap().unwrap();
        assert_eq!(end, Header { fault: 12, ..Header::new(FrameKind::End, 9, 0) });
    }
}
