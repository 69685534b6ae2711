//! An append that a server takes in smaller parts only: halved where it is refused as too large (413), text
//! between two characters, other bytes anywhere and JSON between two messages. What an earlier attempt may
//! have put there whole is not halved any more.

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
            let (first, second) = part.split_at_checked(between_characters(part, part.len() / 2))?;
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

/// `at`, or where the character of UTF-8 begins in which that is. A character has four bytes at most.
fn between_characters(text: &[u8], at: usize) -> usize {
    let begins = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    (at.saturating_sub(3)..=at).rev().find(begins).filter(|at| *at > 0).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::super::address::Address;
    use super::super::output::Output;
    use super::super::producer::Patience;
    use super::super::scripted;
    use super::super::session::Session;
    use super::super::verbs::Server;
    use super::*;
    use std::time::Duration;

    fn halves(json: bool, part: &str) -> Option<(String, String)> {
        let text = |half: Vec<u8>| String::from_utf8(half).unwrap();
        Parts::new(json).halves(part.as_bytes()).map(|(first, second)| (text(first), text(second)))
    }

    /// What a server that takes two bytes at once was sent, and what came of it.
    fn sent(loses_the_first: bool) -> (Vec<String>, Result<(), Failure>) {
        let (told, hears) = std::sync::mpsc::channel();
        let mut count = 0;
        let url = scripted::serve(move |request: &str| {
            told.send(request.to_owned()).unwrap();
            count += 1;
            // It took that one, say, and takes less from now on.
            if loses_the_first && count == 1 {
                return String::new();
            }
            scripted::answer(if count <= 2 { 413 } else { 200 }, &[("Stream-Next-Offset", "1_1")], "")
        });
        let address = Address::parse("a", &Server { url, token: None, tls_ca: None }).unwrap();
        let patience = Patience { lasts: Duration::from_secs(60), output: Output::Json };
        let (session, id) = (Session::new(&address.url), Some("me".to_owned()));
        let mut producer = Producer::new(session, &address, "text/plain".to_owned(), id, 0, patience);
        let mut bytes = Vec::new();
        let there = |part: &[u8], _| bytes.push(String::from_utf8(part.to_vec()).unwrap());
        let outcome = Parts::new(false).append(&mut producer, b"abcd", false, there);
        assert!(hears.try_iter().count() >= 2);
        (bytes, outcome)
    }

    #[test]
    fn what_may_be_there_whole_is_not_halved() {
        let (bytes, outcome) = sent(false);
        assert_eq!(bytes.concat(), "abcd");
        assert!(outcome.is_ok() && bytes.len() > 1, "{bytes:?}");
        let (bytes, outcome) = sent(true);
        let failure = outcome.unwrap_err();
        assert!(bytes.is_empty() && failure.leaves_open(), "{bytes:?}");
        assert!(matches!(failure.cause(), Failure::Refused { status: 413, .. }), "{failure}");
        assert!(failure.to_string().ends_with("what was sent may have been applied"), "{failure}");
    }

    #[test]
    fn what_can_be_cut_is_cut_where_it_can_be() {
        assert_eq!(halves(false, "abc"), Some(("a".to_owned(), "bc".to_owned())));
        assert_eq!(halves(false, "a"), None);
        assert_eq!(halves(false, "aä€"), Some(("aä".to_owned(), "€".to_owned())));
        assert_eq!(halves(false, "a𝄞"), Some(("a".to_owned(), "𝄞".to_owned())));
        assert_eq!(between_characters(&[0x80; 9], 4), 4, "this is no text");
        assert_eq!(halves(true, "[1, [2], 3]"), Some(("[1]".to_owned(), "[[2],3]".to_owned())));
        assert_eq!(halves(true, "[\"long\"]"), None);
    }
}
