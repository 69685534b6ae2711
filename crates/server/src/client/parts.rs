//! An append that a server takes in smaller parts only: halved where it is refused as too large (413), bytes anywhere and JSON between
//! two messages.

use super::failure::Failure;
use super::output::messages;
use super::producer::{Appended, Producer};

/// What one stream's appends are cut to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    json: bool,
    /// As much as the server may take of one.
    bytes_max: usize,
}

impl Parts {
    /// For streams of messages, or of bytes. Nothing is cut before the server asks for it.
    pub(super) fn new(json: bool) -> Self {
        Self { json, bytes_max: usize::MAX }
    }

    /// Appends all of it, and closes the stream behind the last part. Each part that is there is told.
    ///
    /// # Errors
    /// As [`Producer::append`]; what was told is there.
    pub(super) fn append(
        &mut self,
        producer: &mut Producer,
        body: &[u8],
        close: bool,
        mut there: impl FnMut(&[u8], Appended),
    ) -> Result<(), Failure> {
        let mut left = vec![body.to_vec()];
        while let Some(part) = left.pop() {
            if part.len() > self.bytes_max
                && let Some((first, second)) = self.halves(&part)
            {
                left.extend([second, first]);
                continue;
            }
            match producer.append(&part, close && left.is_empty()) {
                Ok(appended) => there(&part, appended),
                Err(failure @ Failure::Refused { status: 413, .. }) => {
                    let (first, second) = self.halves(&part).ok_or(failure)?;
                    self.bytes_max = self.bytes_max.min(part.len() - 1);
                    left.extend([second, first]);
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn halves(self, part: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        if !self.json {
            let (first, second) = part.split_at_checked(part.len() / 2)?;
            return (!first.is_empty()).then(|| (first.to_vec(), second.to_vec()));
        }
        let messages = messages(part).ok()?;
        let (first, second) = messages.split_at(messages.len() / 2);
        let array = |messages: &[&serde_json::value::RawValue]| {
            let texts: Vec<&str> = messages.iter().map(|message| message.get()).collect();
            format!("[{}]", texts.join(",")).into_bytes()
        };
        (!first.is_empty()).then(|| (array(first), array(second)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halves(json: bool, part: &str) -> Option<(String, String)> {
        let text = |half: Vec<u8>| String::from_utf8(half).unwrap();
        Parts::new(json).halves(part.as_bytes()).map(|(first, second)| (text(first), text(second)))
    }

    #[test]
    fn what_can_be_cut_is_cut_where_it_can_be() {
        assert_eq!(halves(false, "abc"), Some(("a".to_owned(), "bc".to_owned())));
        assert_eq!(halves(false, "a"), None);
        assert_eq!(halves(true, "[1, [2], 3]"), Some(("[1]".to_owned(), "[[2],3]".to_owned())));
        assert_eq!(halves(true, "[\"long\"]"), None);
    }
}
