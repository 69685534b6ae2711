//! Payloads of the frames that are no entries.

use super::{Config, Lifetime, Producer, word16, word32, word64};
use crate::Offset;
use crate::error::TooLong;
use crate::fork::Branch;
use smallvec::SmallVec;

fn length16(bytes: &[u8]) -> Result<[u8; 2], TooLong> {
    let too_long = TooLong { size: bytes.len() as u64, limit: u16::MAX.into() };
    u16::try_from(bytes.len()).map(u16::to_le_bytes).map_err(|_| too_long)
}

fn length32(bytes: &[u8]) -> Result<[u8; 4], TooLong> {
    let too_long = TooLong { size: bytes.len() as u64, limit: u32::MAX.into() };
    u32::try_from(bytes.len()).map(u32::to_le_bytes).map_err(|_| too_long)
}

/// Payload of a create frame: the log's name and configuration, and where a fork branches off.
///
/// # Errors
/// Nothing was encoded.
pub(crate) fn encode_create(
    name: &[u8],
    config: &Config,
    branch: Option<&Branch>,
    into: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let lengths = [length16(name)?, length16(config.content_type.as_bytes())?];
    let (kind, value) = match config.lifetime {
        Lifetime::Unlimited => (0u16, 0),
        Lifetime::Sliding { ttl_s } => (1, ttl_s),
        Lifetime::Until { expires_us } => (2, expires_us),
    };
    into.extend_from_slice(&value.to_le_bytes());
    into.extend_from_slice(&kind.to_le_bytes());
    into.extend_from_slice(lengths.as_flattened());
    into.extend_from_slice(name);
    into.extend_from_slice(config.content_type.as_bytes());
    if let Some(Branch { parent, base, asked, first }) = branch {
        for word in [*parent, *base, asked[0], asked[1], *first] {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }
    Ok(())
}

/// What a create frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Created<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) config: Config,
    /// Where it branches off, if it is a fork.
    pub(crate) branch: Option<Branch>,
}

/// What the payload of a create frame says; `None` if it is none.
pub(crate) fn decode_create(payload: &[u8]) -> Option<Created<'_>> {
    let fixed = payload.get(..14)?;
    let value = word64(fixed, 0);
    let lifetime = match word16(fixed, 8) {
        0 => Lifetime::Unlimited,
        1 => Lifetime::Sliding { ttl_s: value },
        2 => Lifetime::Until { expires_us: value },
        _ => return None,
    };
    let name_end = 14 + usize::from(word16(fixed, 10));
    let name = payload.get(14..name_end)?;
    let type_end = name_end + usize::from(word16(fixed, 12));
    let content_type = std::str::from_utf8(payload.get(name_end..type_end)?).ok()?.into();
    let branch = match &payload[type_end..] {
        [] => None,
        rest => {
            let rest: &[u8; 40] = rest.try_into().ok()?;
            let asked = [word64(rest, 16), word64(rest, 24)];
            Some(Branch { parent: word64(rest, 0), base: word64(rest, 8), asked, first: word64(rest, 32) })
        }
    };
    Some(Created { name, config: Config { content_type, lifetime }, branch })
}

/// The offset below which a trim frame's payload purges.
pub(crate) fn decode_trim(payload: &[u8]) -> Option<Offset> {
    payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Keys and values of notes.
pub(crate) type NoteList<'a> = SmallVec<[(&'a [u8], &'a [u8]); 2]>;

/// Payload of a note frame, and how checkpoints keep notes: `key length 2 | value length 4 | key | value`
/// each.
///
/// # Errors
/// Nothing was encoded.
pub(crate) fn encode_note(key: &[u8], value: &[u8], into: &mut Vec<u8>) -> Result<(), TooLong> {
    let (key_length, value_length) = (length16(key)?, length32(value)?);
    into.extend_from_slice(&key_length);
    into.extend_from_slice(&value_length);
    into.extend_from_slice(key);
    into.extend_from_slice(value);
    Ok(())
}

/// Keys and values out of a note frame's payload; `None` if it is not made of whole notes.
pub(crate) fn decode_notes(mut payload: &[u8]) -> Option<NoteList<'_>> {
    let mut notes = SmallVec::new();
    while !payload.is_empty() {
        let (fixed, rest) = payload.split_at_checked(6)?;
        let (key, rest) = rest.split_at_checked(word16(fixed, 0).into())?;
        let (value, rest) = rest.split_at_checked(word32(fixed, 2) as usize)?;
        notes.push((key, value));
        payload = rest;
    }
    Some(notes)
}

/// Payload of a producer frame: its place and identifier.
pub(crate) fn encode_producer(id: &[u8], producer: Producer, into: &mut Vec<u8>) {
    into.extend_from_slice(&producer.epoch.to_le_bytes());
    into.extend_from_slice(&producer.seq.to_le_bytes());
    into.extend_from_slice(id);
}

/// Identifier and place out of a producer frame's payload.
pub(crate) fn decode_producer(payload: &[u8]) -> Option<(&[u8], Producer)> {
    let fixed = payload.get(..16)?;
    Some((&payload[16..], Producer { epoch: word64(fixed, 0), seq: word64(fixed, 8) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn create_and_producer_payloads_read_back(
            name in proptest::collection::vec(any::<u8>(), 0..40), kind in ".{0,20}", epoch: u64, seq: u64, ttl_s: u64,
        ) {
            let config = Config { content_type: kind.as_str().into(), lifetime: Lifetime::Sliding { ttl_s } };
            let mut bytes = Vec::new();
            let branch = Branch { parent: epoch, base: seq, asked: [ttl_s, epoch], first: ttl_s };
            for branch in [None, Some(branch)] {
                bytes.clear();
                encode_create(&name, &config, branch.as_ref(), &mut bytes).unwrap();
                let created = Created { name: &name, config: config.clone(), branch };
                prop_assert_eq!(decode_create(&bytes), Some(created));
            }
            bytes.clear();
            encode_producer(&name, Producer { epoch, seq }, &mut bytes);
            prop_assert_eq!(decode_producer(&bytes), Some((name.as_slice(), Producer { epoch, seq })));
            bytes.clear();
            encode_note(&name, kind.as_bytes(), &mut bytes).unwrap();
            encode_note(b"", &name, &mut bytes).unwrap();
            let notes: [(&[u8], &[u8]); 2] = [(&name, kind.as_bytes()), (b"", &name)];
            let decoded = decode_notes(&bytes).map(|notes| notes.to_vec());
            prop_assert_eq!(decoded, Some(notes.to_vec()));
            let whole = [0, 6 + name.len() + kind.len(), bytes.len()];
            for cut in 0..=bytes.len() {
                prop_assert_eq!(decode_notes(&bytes[..cut]).is_some(), whole.contains(&cut), "cut at {}", cut);
            }
        }
    }

    #[test]
    fn what_is_longer_than_its_length_can_say_is_not_encoded() {
        let (over, limit) = ("x".repeat(65_536), 65_535);
        let refused = Err(TooLong { size: limit + 1, limit });
        let config =
            |content_type: &str| Config { content_type: content_type.into(), lifetime: Lifetime::Unlimited };
        let mut bytes = Vec::new();
        assert_eq!(encode_create(over.as_bytes(), &config(""), None, &mut bytes), refused);
        assert_eq!(encode_create(b"", &config(&over), None, &mut bytes), refused);
        assert_eq!(encode_note(over.as_bytes(), b"", &mut bytes), refused);
        assert!(bytes.is_empty());
        assert_eq!(encode_create(&over.as_bytes()[1..], &config(&over[1..]), None, &mut bytes), Ok(()));
        assert!(decode_create(&bytes).is_some());
        // And what is longer than it says is none.
        bytes.push(0);
        assert_eq!(decode_create(&bytes), None);
    }
}
