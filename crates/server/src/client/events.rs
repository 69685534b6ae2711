//! Server-sent events as a client reads them (HTML Living Standard 9.2.6), and what a control event says.

use super::Failure;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    /// Its data lines, joined by line feeds.
    pub(crate) data: Vec<u8>,
}

/// Takes events out of bytes that come in pieces.
#[derive(Debug, Default)]
pub(crate) struct Events {
    text: Vec<u8>,
    kind: String,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended with CR: a line feed right behind it belongs to it.
    after_return: bool,
}

impl Events {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// The next event that is whole. One without data is none.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let mut at = 0;
        let mut event = None;
        while event.is_none() {
            if self.after_return && self.text.get(at) == Some(&b'\n') {
                at += 1;
                self.after_return = false;
            }
            let Some(length) = self.text[at..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
                break;
            };
            let line = at..at + length;
            self.after_return = self.text[line.end] == b'\r';
            at = line.end + 1;
            event = self.line(line);
        }
        self.text.drain(..at);
        event
    }

    fn line(&mut self, range: std::ops::Range<usize>) -> Option<Event> {
        let line = &self.text[range];
        if line.is_empty() {
            let kind = std::mem::take(&mut self.kind);
            let data = std::mem::take(&mut self.data);
            return std::mem::take(&mut self.has_data).then_some(Event { kind, data });
        }
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let value = line.get(colon + 1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match &line[..colon] {
            b"event" => self.kind = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            // Comments, ids, and what a later protocol may add.
            _ => {}
        }
        None
    }
}

/// What a control event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) next_offset: String,
    pub(crate) cursor: Option<String>,
    pub(crate) closed: bool,
}

impl Control {
    /// # Errors
    /// [`Failure::Event`] for anything but a control event's JSON.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, Failure> {
        let bad = || Failure::Event(String::from_utf8_lossy(data).into_owned());
        let value: serde_json::Value = serde_json::from_slice(data).map_err(|_| bad())?;
        let text = |name: &str| value.get(name).and_then(|v| v.as_str()).map(str::to_owned);
        Ok(Self {
            next_offset: text("streamNextOffset").ok_or_else(bad)?,
            cursor: text("streamCursor"),
            closed: value.get("streamClosed").and_then(serde_json::Value::as_bool).unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut events = Events::default();
        let mut all = Vec::new();
        for piece in pieces {
            events.push(piece);
            while let Some(event) = events.next() {
                all.push((event.kind, String::from_utf8(event.data).unwrap()));
            }
        }
        all
    }

    #[test]
    fn events_are_the_same_however_they_are_cut_and_their_lines_end() {
        let text = ": hello\n\nevent: data\ndata: a\ndata:b\ndata:  c\n\nevent: control\ndata: {}\n\nevent: none\n\ndata\n\n";
        let wanted: Vec<(String, String)> = [("data", "a\nb\n c"), ("control", "{}"), ("", "")]
            .map(|(kind, data)| (kind.to_owned(), data.to_owned()))
            .into();
        for text in [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")] {
            assert_eq!(read(&[text.as_bytes()]), wanted);
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            assert_eq!(read(&bytes), wanted);
            for cut in 0..text.len() {
                assert_eq!(read(&[&text.as_bytes()[..cut], &text.as_bytes()[cut..]]), wanted, "{cut}");
            }
        }
    }

    #[test]
    fn control_events() {
        let control =
            Control::parse(br#"{"streamNextOffset":"5","streamCursor":"9","upToDate":true}"#).unwrap();
        assert_eq!(control, Control { next_offset: "5".into(), cursor: Some("9".into()), closed: false });
        assert!(Control::parse(br#"{"streamNextOffset":"5","streamClosed":true}"#).unwrap().closed);
        for bad in [&b""[..], b"{}", b"[]", br#"{"streamNextOffset":5}"#] {
            assert!(matches!(Control::parse(bad), Err(Failure::Event(_))));
        }
    }
}
