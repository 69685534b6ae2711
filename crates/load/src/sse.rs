//! Server-sent events in bytes that come in pieces: data lines and control lines, lent where they were
//! received unless a piece ended in one. Enough for servers whose data are one line each.

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SseLine<'a> {
    /// A line of data.
    Data(&'a [u8]),
    /// What a control event says.
    Control(&'a [u8]),
}

/// Where the last piece ended.
#[derive(Debug, Default)]
pub(crate) struct Events {
    partial: Vec<u8>,
    control: bool,
}

impl Events {
    /// Takes a piece in and tells what it says.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut tell: impl FnMut(SseLine<'_>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            bytes = rest;
            if self.partial.is_empty() {
                self.line(line, &mut tell);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(line);
                self.line(&whole, &mut tell);
                whole.clear();
                self.partial = whole;
            }
        }
        self.partial.extend_from_slice(bytes);
    }

    fn line(&mut self, line: &[u8], tell: &mut impl FnMut(SseLine<'_>)) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let value = |name: &[u8]| {
            let value = line.strip_prefix(name)?;
            Some(value.strip_prefix(b" ").unwrap_or(value))
        };
        if let Some(kind) = value(b"event:") {
            self.control = kind == b"control";
        } else if let Some(data) = value(b"data:") {
            tell(if self.control { SseLine::Control(data) } else { SseLine::Data(data) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::sse::read::Control;

    #[test]
    fn lines_are_whole_wherever_pieces_end() {
        let text = b"event: data\ndata: one\n\nevent: control\r\ndata:{\"streamNextOffset\":\"7\"}\r\n\r\nevent: data\ndata: two\n\n";
        for cut in 0..text.len() {
            let (mut events, mut told) = (Events::default(), Vec::new());
            for piece in [&text[..cut], &text[cut..]] {
                events.push(piece, |said| {
                    told.push(match said {
                        SseLine::Data(data) => (false, String::from_utf8_lossy(data).into_owned()),
                        SseLine::Control(data) => (true, Control::parse(data).unwrap().next_offset),
                    });
                });
            }
            let wanted = [(false, "one".to_owned()), (true, "7".to_owned()), (false, "two".to_owned())];
            assert_eq!(told, wanted, "cut at {cut}");
        }
    }
}
