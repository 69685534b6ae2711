//! How much of a stream is kept: `Stream-Retain-Seconds` and `Stream-Retain-Bytes`, an extension of ours. Set
//! when the stream is created, kept by the engine as a note, enforced by it in the background.

use crate::headers::{Headers, single};
use crate::problem::Problem;
use crate::store::{Note, RETAIN_NOTE};
use thalweg_wire::decimal::{self, SAFE_INTEGER_MAX};
use thalweg_wire::exchange::Request;
use thalweg_wire::field::Name;

const SECONDS: Name = Name::StreamRetainSeconds;
const BYTES: Name = Name::StreamRetainBytes;
const SECOND_US: u64 = 1_000_000;
/// Whole seconds whose microseconds fit.
const SECONDS_MAX: u64 = u64::MAX / SECOND_US;

/// Bounds of what is kept; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retain {
    seconds: u64,
    bytes: u64,
}

impl Retain {
    /// What a creator asks for.
    pub(crate) fn parse(request: &Request<'_>) -> Result<Self, Problem> {
        let number = |name: Name, most: u64| match single(request, name)? {
            None => Ok(0),
            Some(text) => decimal::parse(text, most).filter(|number| *number > 0).ok_or_else(|| {
                let detail = format!("it has to be a positive plain decimal integer of at most {most}");
                Problem::new(400, "retain-malformed", name, detail)
            }),
        };
        let seconds = number(SECONDS, SECONDS_MAX.min(SAFE_INTEGER_MAX))?;
        Ok(Self { seconds, bytes: number(BYTES, SAFE_INTEGER_MAX)? })
    }

    /// What a stream was created with.
    pub(crate) fn of(notes: &[Note]) -> Self {
        let value = notes.iter().find(|(key, _)| **key == *RETAIN_NOTE).map(|(_, value)| value);
        let word = |at: usize| {
            value.and_then(|value| value.get(at..)?.first_chunk().map(|w| u64::from_le_bytes(*w)))
        };
        Self { seconds: word(0).unwrap_or(0) / SECOND_US, bytes: word(8).unwrap_or(0) }
    }

    /// As the engine keeps it; nothing when nothing is bounded.
    pub(crate) fn note(self) -> Option<[u8; 16]> {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&(self.seconds * SECOND_US).to_le_bytes());
        value[8..].copy_from_slice(&self.bytes.to_le_bytes());
        (self != Self::default()).then_some(value)
    }

    pub(crate) fn lines(self, headers: &mut Headers) {
        for (name, bound) in [(SECONDS, self.seconds), (BYTES, self.bytes)] {
            if bound > 0 {
                headers.integer(name, bound);
            }
        }
    }

    /// The field in which another request differs.
    pub(crate) fn mismatch(self, other: Self) -> Option<Name> {
        let field = if self.seconds == other.seconds { BYTES } else { SECONDS };
        (self != other).then_some(field)
    }
}
