//! The generated Rust against the golden frames: byte for byte there and back, every prefix refused, every
//! mutation either refused or read as something that writes itself back. `conformance/golden` does the same
//! in the other languages. Where `THALWEG_OUTCOMES` names a file, what became of each refused frame and of
//! each mutation is written there to be compared: what it means, or where it is wrong.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod frames;
#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;

use echo::types::*;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use thalweg_wire::messagepack::{DecodeError, DecodeErrorKind};

const MUTATIONS: usize = 10_000;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/golden")
}

/// The frames of a directory, by name, in the names' order.
fn read(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let frames = entries.filter(|path| path.extension().is_some_and(|e| e == "bin"));
    frames
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read(path).unwrap()))
        .collect()
}

/// Decodes a frame as what its first byte says it is, and encodes it again.
fn again(frame: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let mut out = Vec::new();
    if frame.first() == Some(&0x91) {
        let request = EchoRequest::decode(frame)?;
        request.encode(&mut out);
        assert_eq!(request.clone().into_owned(), request);
    } else {
        EchoResponse::decode(frame)?.into_owned().encode(&mut out);
    }
    Ok(out)
}

#[test]
fn the_committed_frames_are_the_assembled_ones() {
    let golden = frames::golden();
    assert_eq!(read(&directory()), golden.iter().map(|(n, f)| ((*n).to_owned(), f.clone())).collect());
    for (name, frame) in golden {
        let meaning = fs::read_to_string(directory().join(format!("{name}.json"))).unwrap();
        assert_eq!(meaning, frames::meaning(&frame), "{name}");
    }
    let accepted =
        frames::accepted().into_iter().map(|(name, what, frame)| (format!("{name}.{what}"), frame));
    assert_eq!(read(&directory().join("accepted")), accepted.collect());
    let refused = frames::refused().into_iter().map(|(name, frame)| (name.to_owned(), frame));
    assert_eq!(read(&directory().join("refused")), refused.collect());
}

#[test]
fn golden_frames_come_back_byte_for_byte() {
    for (name, frame) in read(&directory()) {
        assert_eq!(again(&frame).as_ref(), Ok(&frame), "{name}");
    }
}

#[test]
fn every_prefix_is_refused() {
    for (name, frame) in read(&directory()) {
        for length in 0..frame.len() {
            let error = again(&frame[..length]).expect_err(&name);
            assert_eq!(error.kind, DecodeErrorKind::Truncated, "{name} cut at {length}");
        }
    }
}

#[test]
fn other_encodings_of_a_frame_become_that_frame() {
    let golden = read(&directory());
    for (name, frame) in read(&directory().join("accepted")) {
        assert_eq!(again(&frame).as_ref(), Ok(&golden[name.split_once('.').unwrap().0]), "{name}");
    }
}

#[test]
fn wrong_frames_are_refused() {
    for (name, frame) in read(&directory().join("refused")) {
        assert!(again(&frame).is_err(), "{name}");
    }
    let refused = |name: &str| again(&read(&directory().join("refused"))[name]).unwrap_err();
    assert_eq!(refused("unknown_field").kind, DecodeErrorKind::UnknownField);
    assert_eq!(refused("missing_field").place, "EchoBytes.data");
    assert_eq!(refused("field_twice").kind, DecodeErrorKind::Duplicate);
    assert_eq!(refused("u8_256").to_string(), "EchoNumbers.tiny: an integer out of range at byte 20");
    assert_eq!(refused("unknown_message").kind, DecodeErrorKind::UnknownMessage);
    assert_eq!(refused("trailing_byte").kind, DecodeErrorKind::Trailing);
    assert_eq!(refused("trailing_byte").place, "frame", "no field that is whole is to blame");
}

/// Every language's mutations come from this generator, so that their outcomes can be compared.
struct Random(u32);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 as usize % bound
    }
}

fn mutate(random: &mut Random, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut frame = frames[random.below(frames.len())].clone();
    for _ in 0..=random.below(2) {
        let (what, at, byte) = (random.below(8), random.below(frame.len()), random.below(256) as u8);
        match what {
            0 => drop(frame.remove(at)),
            1 => frame.insert(at, byte),
            2 => frame[at] = byte,
            _ => frame[at] ^= 1 << (byte & 7),
        }
    }
    frame
}

#[test]
fn mutations_are_refused_or_mean_something() {
    let frames: Vec<Vec<u8>> = read(&directory()).into_values().collect();
    let mut random = Random(0x7ea1_9e65);
    let mut outcomes = String::new();
    let mut taken = 0;
    let refused = read(&directory().join("refused")).into_values();
    let mutations = (0..MUTATIONS).map(|_| mutate(&mut random, &frames));
    for frame in refused.chain(mutations) {
        match again(&frame) {
            Ok(frame) => {
                assert_eq!(again(&frame).as_ref(), Ok(&frame));
                frame.iter().for_each(|byte| write!(outcomes, "{byte:02x}").unwrap());
                taken += 1;
            }
            Err(error) => write!(outcomes, "- {} {}", error.place, error.at).unwrap(),
        }
        outcomes.push('\n');
    }
    // A mutation that only ever broke frames would say little about values.
    assert!((1_000..9_000).contains(&taken), "{taken} were taken");
    if let Some(path) = std::env::var_os("THALWEG_OUTCOMES") {
        fs::write(path, outcomes).unwrap();
    }
}

/// What a round trip cannot show: that the bytes mean these values.
#[test]
fn values_are_what_the_frames_say() {
    let golden = read(&directory());
    let encoded = |message: EchoResponse| {
        let mut out = Vec::new();
        message.encode(&mut out);
        out
    };
    let numbers = EchoNumbersResponse {
        tiny: 127,
        small: 128,
        medium: 256,
        large: 65_536,
        signed_tiny: i8::MIN,
        signed_small: i16::MIN,
        signed_medium: i32::MIN,
        signed_large: i64::MIN,
        single: -1.5,
        precise: -std::f64::consts::PI,
    };
    assert_eq!(encoded(EchoResponse::NumbersResponse(numbers)), golden["echo_numbers_min"]);
    let EchoRequest::Places(places) = EchoRequest::decode(&golden["echo_places_request"]).unwrap() else {
        panic!()
    };
    assert_eq!(places.places[0].name, "here");
    assert_eq!(places.places[0].moods["tuesday"], Mood::InAHurry);
    assert_eq!(places.grid, [[Some(1), None], [Some(i16::MIN), Some(-1)], [Some(i16::MAX), Some(-32)]]);
    assert_eq!(places.counts["\u{10000}"], 256);
    let EchoRequest::Aliases(aliases) = EchoRequest::decode(&golden["echo_aliases_request"]).unwrap() else {
        panic!()
    };
    assert_eq!(aliases.digest.0[31], 31);
    assert_eq!(aliases.sequence_number, 256);
    // What was read borrows from its frame.
    let EchoRequest::Bytes(bytes) = EchoRequest::decode(&golden["echo_bytes_request"]).unwrap() else {
        panic!()
    };
    assert!(matches!(bytes.data, Cow::Borrowed([1, 2, 3, 0, 255])));
}
