//! Server-sent events as a client reads them (HTML Living Standard 9.2.6), and what a control event says.
//!
//! What another server writes is read too: an offset and a cursor are any text.

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it is called; nothing if it is not.
    pub kind: String,
    /// Its data lines, joined by line feeds.
    pub data: Vec<u8>,
}

/// Takes events out of bytes that come in pieces. Looks at each byte once, in however many it comes.
#[derive(Debug, Default)]
pub struct Events {
    text: Vec<u8>,
    /// Where the first line begins that was not read.
    line: usize,
    /// Up to where that line was looked at for its end.
    looked: usize,
    kind: String,
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended with CR: a line feed right behind it belongs to it.
    after_return: bool,
}

impl Events {
    /// Takes a piece in.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.line > 0 {
            self.text.drain(..self.line);
            self.looked -= self.line;
            self.line = 0;
            count_touched(self.text.len());
        }
        self.text.extend_from_slice(bytes);
    }

    /// The next event that is whole. One without data is none.
    #[allow(clippy::should_implement_trait, reason = "there may be more after there was none")]
    pub fn next(&mut self) -> Option<Event> {
        while let Some(end) = self.line_end() {
            self.after_return = self.text[end] == b'\r';
            let line = self.line..end;
            (self.line, self.looked) = (end + 1, end + 1);
            if let Some(event) = self.line(line) {
                return Some(event);
            }
        }
        None
    }

    /// Where the line ends that was not read, if it does.
    fn line_end(&mut self) -> Option<usize> {
        if self.after_return && self.text.get(self.line) == Some(&b'\n') {
            (self.line, self.looked) = (self.line + 1, self.looked + 1);
            self.after_return = false;
        }
        let new = &self.text[self.looked..];
        let found = new.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
        let end = found.map(|length| self.looked + length);
        count_touched(found.unwrap_or(new.len()));
        self.looked = end.unwrap_or(self.text.len());
        end
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
pub struct Control {
    /// Where to read on.
    pub next_offset: String,
    /// What to send back, if anything.
    pub cursor: Option<String>,
    /// Nothing will follow.
    pub closed: bool,
}

impl Control {
    /// Reads a control event's data; nothing if it is not such an event's JSON.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let value: serde_json::Value = serde_json::from_slice(data).ok()?;
        let text = |name: &str| value.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        Some(Self {
            next_offset: text("streamNextOffset")?,
            cursor: text("streamCursor"),
            closed: value.get("streamClosed").and_then(serde_json::Value::as_bool).unwrap_or(false),
        })
    }
}

/// Counts bytes that are looked at for the end of a line, or moved.
#[inline]
fn count_touched(_bytes: usize) {
    #[cfg(test)]
    TOUCHED.set(TOUCHED.get() + _bytes);
}

#[cfg(test)]
thread_local! {
    /// What this thread counted.
    static TOUCHED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_byte_is_looked_at_once_however_long_its_line_and_many_its_events() {
        let long = format!("data:{}\n\n", "x".repeat(2000));
        let many = "data:x\n\n".repeat(250);
        for (text, piece_bytes) in [(&long, 1), (&many, 1), (&many, many.len()), (&many, 7)] {
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(piece_bytes).collect();
            let events = read(&pieces);
            assert_eq!(events.len(), text.matches("data").count());
            let touched = TOUCHED.take();
            // Looked at, and moved at most once.
            assert!(touched <= 2 * text.len(), "{touched} of {} in pieces of {piece_bytes}", text.len());
        }
    }

    #[test]
    fn control_events() {
        let control =
            Control::parse(br#"{"streamNextOffset":"5","streamCursor":"9","upToDate":true}"#).unwrap();
        assert_eq!(control, Control { next_offset: "5".into(), cursor: Some("9".into()), closed: false });
        assert!(Control::parse(br#"{"streamNextOffset":"5","streamClosed":true}"#).unwrap().closed);
        for bad in [&b""[..], b"{}", b"[]", br#"{"streamNextOffset":5}"#] {
            assert_eq!(Control::parse(bad), None);
        }
    }

    /// All events of a text that came at once, by the standard's words.
    fn plain(stream: &str) -> Vec<(String, String)> {
        let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
        let mut all = Vec::new();
        let (mut kind, mut data) = (String::new(), None::<String>);
        // What stands behind the last line end is no line yet.
        let whole = stream.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.split('\n').filter(|_| stream.contains('\n')) {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "" if line.is_empty() => {
                    let kind = std::mem::take(&mut kind);
                    all.extend(data.take().map(|data| (kind, data)));
                }
                "event" => value.clone_into(&mut kind),
                "data" => data = Some(data.map_or_else(|| value.to_owned(), |data| data + "\n" + value)),
                _ => {}
            }
        }
        all
    }

    proptest! {
        #[test]
        fn any_text_in_any_pieces_says_what_the_standard_says(
            text in "(data|event|id|:|: |a|\u{e9}|\r|\n|\n|\r\n){0,32}", cuts in proptest::collection::vec(0_usize..100, 0..4),
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text.as_bytes()[pair[0]..pair[1]]).collect();
            prop_assert_eq!(read(&pieces), plain(&text));
        }
    }
}
