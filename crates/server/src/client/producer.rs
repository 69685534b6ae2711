//! Appends that are sent again until they are known to be there, and are there once.
//!
//! A producer is an identity, an epoch and a sequence (PROTOCOL 5.2.1): whatever is sent twice under one
//! sequence is applied once, so a lost connection or a restarted server costs time and nothing else.

use super::address::Address;
use super::failure::{Failure, passes};
use super::output::Output;
use super::session::Session;
use std::time::{Duration, Instant};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Appends to one stream.
#[derive(Debug)]
pub(super) struct Producer {
    session: Session,
    target: String,
    content_type: String,
    /// Without one, nothing is sent twice.
    id: Option<String>,
    sequence: u64,
    patience: Patience,
}

/// For how long something is tried again, and how that is said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) lasts: Duration,
    pub(super) output: Output,
}

/// An append that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    /// Offset behind the stream's last byte.
    pub(super) next_offset: String,
    /// It was there before: an earlier attempt, or an earlier run, had put it there.
    pub(super) duplicate: bool,
}

impl Producer {
    /// `session` is one that has met the server. With an `id` the first append is number `sequence`.
    pub(super) fn new(
        session: Session,
        address: &Address,
        content_type: String,
        id: Option<String>,
        sequence: u64,
        patience: Patience,
    ) -> Self {
        Self { session, target: address.target(""), content_type, id, sequence, patience }
    }

    /// Appends a body, closes the stream, or both; trying again for as long as patience lasts.
    ///
    /// # Errors
    /// What the last attempt came to; [`Failure::Unsure`] if any of them may have put it there.
    pub(super) fn append(&mut self, body: &[u8], close: bool) -> Result<Appended, Failure> {
        let start = Instant::now();
        let mut pause = PAUSE_MIN;
        let mut left_open = false;
        loop {
            match self.attempt(body, close) {
                Ok(appended) => {
                    self.sequence += 1;
                    return Ok(appended);
                }
                Err(failure)
                    if self.id.is_some()
                        && passes(&failure)
                        && start.elapsed() + pause < self.patience.lasts =>
                {
                    left_open |= failure.leaves_open();
                    let told = format_args!("{failure}; trying again, which appends nothing twice");
                    self.patience.output.tell(told);
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(failure) => return Err(failure.of_change(left_open)),
            }
        }
    }

    fn attempt(&mut self, body: &[u8], close: bool) -> Result<Appended, Failure> {
        let sequence = self.sequence.to_string();
        let mut fields = vec![("Content-Type", self.content_type.as_str())];
        if let Some(id) = &self.id {
            fields.extend([
                ("Producer-Id", id.as_str()),
                ("Producer-Epoch", "0"),
                ("Producer-Seq", &sequence),
            ]);
        }
        if close {
            fields.push(("Stream-Closed", "true"));
        }
        let head = self.session.ask("POST", &self.target, &fields, body)?;
        // PROTOCOL 5.2.1: 200 is new data, 204 was there before. A bare close answers 204 either way.
        let duplicate = self.id.is_some() && head.status == 204 && !body.is_empty();
        let next_offset = head.field("stream-next-offset").unwrap_or_default().to_owned();
        Ok(Appended { next_offset, duplicate })
    }
}

/// An identity that no other run has.
///
/// # Errors
/// The kernel gives no random bytes.
pub(super) fn fresh_id() -> Result<String, Failure> {
    let word = || thalweg_sys::process::random_u64().map_err(Failure::Random);
    Ok(format!("thalweg-{:016x}{:016x}", word()?, word()?))
}
