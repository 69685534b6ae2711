use super::*;
use crate::messagepack::write;
use proptest::prelude::*;

fn kind_of<'a, T: std::fmt::Debug>(
    bytes: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Read<T>,
) -> DecodeErrorKind {
    read(&mut Reader::new(bytes)).unwrap_err().kind
}

#[test]
fn integers_of_any_width_are_taken_when_they_fit() {
    for five in [
        &[5][..],
        &[0xcc, 5],
        &[0xcd, 0, 5],
        &[0xce, 0, 0, 0, 5],
        &[0xcf, 0, 0, 0, 0, 0, 0, 0, 5],
        &[0xd0, 5],
        &[0xd1, 0, 5],
        &[0xd2, 0, 0, 0, 5],
        &[0xd3, 0, 0, 0, 0, 0, 0, 0, 5],
    ] {
        assert_eq!(Reader::new(five).u8(), Ok(5));
        assert_eq!(Reader::new(five).i64(), Ok(5));
    }
    assert_eq!(Reader::new(&[0xff]).i8(), Ok(-1));
    assert_eq!(kind_of(&[0xff], Reader::u64), DecodeErrorKind::Range);
    assert_eq!(kind_of(&[0xcc, 200], Reader::i8), DecodeErrorKind::Range);
    let large = [0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(kind_of(&large, Reader::i64), DecodeErrorKind::Range);
    assert_eq!(Reader::new(&large).u64(), Ok(1 << 63));
    assert_eq!(kind_of(&[0xc0], Reader::u8), DecodeErrorKind::Type { expected: "an integer", found: 0xc0 });
}

#[test]
fn a_count_is_believed_only_as_far_as_bytes_are_left() {
    let huge = [0xdd, 0xff, 0xff, 0xff, 0xff, 0, 0];
    assert_eq!(kind_of(&huge, |r| r.list(1, Reader::u8)), DecodeErrorKind::Truncated);
    assert_eq!(kind_of(&[0x93, 1, 2, 3], |r| r.list(2, Reader::u8)), DecodeErrorKind::Truncated);
    assert_eq!(
        kind_of(&[0xdf, 0xff, 0xff, 0xff, 0xff], |r| r.map(1, Reader::u8)),
        DecodeErrorKind::Truncated
    );
    assert_eq!(kind_of(&[0xc6, 0xff, 0xff, 0xff, 0xff, 0], Reader::bytes), DecodeErrorKind::Truncated);
}

/// A value of one byte on the wire and 8 KiB in memory.
type Large = Option<[u64; 1024]>;

fn large(reader: &mut Reader<'_>) -> Read<Large> {
    reader.optional(|r| r.array(Reader::u64))
}

/// A list of as many absent values.
fn absent(count: usize) -> Vec<u8> {
    let mut frame = vec![0xdd];
    frame.extend_from_slice(&u32::try_from(count).unwrap().to_be_bytes());
    frame.resize(5 + count, 0xc0);
    frame
}

#[test]
fn memory_is_reserved_by_the_bytes_that_are_left() {
    let frame = absent(2000);
    let mut reader = Reader::new(&frame);
    let count = reader.begin_list(1).unwrap();
    let reserved = reader.hold::<Large>(count).unwrap() * size_of::<Large>();
    assert!(reserved <= frame.len() * HELD_PER_BYTE, "{reserved}");
    // Values of the usual sizes are reserved at once.
    assert_eq!(Reader::new(&frame[5..]).hold::<Option<u64>>(2000), Ok(2000));
    assert_eq!(Reader::new(&frame[5..]).hold::<Cow<'_, str>>(2000), Ok(2000));
    assert_eq!(Reader::new(&[]).hold::<()>(2000), Ok(0));
}

#[test]
fn small_values_that_are_large_in_memory_are_held_only_so_far() {
    let frame = absent(2000);
    assert_eq!(Reader::new(&frame).list(1, large), Ok(vec![None; 2000]));
    let frame = absent(15_728_640);
    let error = Reader::new(&frame).list(1, large).unwrap_err();
    assert_eq!((error.kind, error.at), (DecodeErrorKind::Memory, 5));
    // What stands in several lists is counted together.
    let frame = [vec![0xdc, 0, 20], absent(1000).repeat(20)].concat();
    assert_eq!(kind_of(&frame, |r| r.list(1, |r| r.list(1, large))), DecodeErrorKind::Memory);
    let frame = [vec![0x92], absent(1000).repeat(2)].concat();
    let lists = Reader::new(&frame).list(1, |r| r.list(1, large)).unwrap();
    assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [1000, 1000]);
}

#[test]
fn a_maps_values_are_held_only_so_far() {
    let frame = |count: u16| {
        let mut frame = vec![0xde];
        frame.extend_from_slice(&count.to_be_bytes());
        for key in 0..count {
            write::string(&mut frame, &key.to_string());
            frame.push(0xc0);
        }
        frame
    };
    assert_eq!(Reader::new(&frame(1000)).map(1, large).unwrap().len(), 1000);
    assert_eq!(kind_of(&frame(u16::MAX), |r| r.map(1, large)), DecodeErrorKind::Memory);
}

#[test]
fn fixed_lengths_are_exact() {
    assert_eq!(Reader::new(&[0x92, 1, 2]).array::<u8, 2>(Reader::u8), Ok([1, 2]));
    assert_eq!(
        kind_of(&[0x91, 1], |r| r.array::<u8, 2>(Reader::u8)),
        DecodeErrorKind::Length { expected: 2, found: 1 }
    );
    assert_eq!(kind_of(&[0x92, 1], |r| r.array::<u8, 2>(Reader::u8)), DecodeErrorKind::Truncated);
    assert_eq!(kind_of(&[0xc4, 1, 0], Reader::bin32), DecodeErrorKind::Length { expected: 32, found: 1 });
}

#[test]
fn keys_come_once_and_strings_are_utf8() {
    let twice = [0x82, 0xa1, b'a', 1, 0xa1, b'a', 2];
    assert_eq!(kind_of(&twice, |r| r.map(1, Reader::u8)), DecodeErrorKind::Duplicate);
    // Whatever its value is.
    let twice_and_wrong = [0x82, 0xa1, b'a', 1, 0xa1, b'a', 0xc0];
    assert_eq!(kind_of(&twice_and_wrong, |r| r.map(1, Reader::u8)), DecodeErrorKind::Duplicate);
    assert_eq!(kind_of(&[0xa1, 0xff], Reader::string), DecodeErrorKind::Utf8);
    assert_eq!(
        kind_of(&[0xa1, b'a'], Reader::bytes),
        DecodeErrorKind::Type { expected: "bytes", found: 0xa1 }
    );
}

/// The encoding is the smallest there is, told apart from the one under test by its length alone.
fn smallest(value: i128) -> usize {
    match value {
        -32..=127 => 1,
        -128..=255 => 2,
        -32_768..=65_535 => 3,
        -2_147_483_648..=4_294_967_295 => 5,
        _ => 9,
    }
}

/// A struct of one number.
fn inner(reader: &mut Reader<'_>) -> Result<u8, DecodeError> {
    let mut number = None;
    for _ in 0..reader.fields("Inner")? {
        reader.key()?;
        reader.field(&mut number, "Inner.number", Reader::u8)?;
    }
    reader.required(number, "Inner.number")
}

#[test]
fn behind_a_struct_the_place_is_that_of_what_holds_it() {
    let place = |frame: &[u8], read: fn(&mut Reader<'_>) -> Result<(), DecodeError>| {
        let mut slot = None;
        let error = Reader::new(frame).field(&mut slot, "Outer.field", |r| read(r)).unwrap_err();
        (error.place, error.at)
    };
    // The second key is no string.
    let map = b"\x82\xa1a\x81\xa1n\x01\x02\x02";
    assert_eq!(place(map, |r| r.map(1, inner).map(drop)), ("Outer.field", 7));
    // The second list, behind one of structs, is none.
    let lists = b"\x92\x91\x81\xa1n\x01\x07";
    assert_eq!(place(lists, |r| r.list(1, |r| r.list(1, inner)).map(drop)), ("Outer.field", 6));
    assert_eq!(place(lists, |r| r.list(1, |r| r.array::<_, 1>(inner)).map(drop)), ("Outer.field", 6));
}

#[test]
fn a_word_that_no_enum_has_is_placed_where_it_begins() {
    let mut slot: Option<u8> = None;
    let read = |r: &mut Reader<'_>| r.word(|word| (word == b"calm").then_some(7));
    Reader::new(b"\xa4calm").field(&mut slot, "Outer.mood", read).unwrap();
    assert_eq!(slot.take(), Some(7));
    let error = Reader::new(b"\xa4glad").field(&mut slot, "Outer.mood", read).unwrap_err();
    assert_eq!((error.kind, error.place, error.at), (DecodeErrorKind::UnknownWord, "Outer.mood", 0));
}

proptest! {
    #[test]
    fn integers_come_back_in_the_fewest_bytes(value: i64, shift in 0_u32..64) {
        let (signed, unsigned) = (value >> shift, (value as u64) >> shift);
        let mut out = Vec::new();
        write::i64(&mut out, &signed);
        prop_assert_eq!(out.len(), smallest(signed.into()));
        prop_assert_eq!(Reader::new(&out).i64(), Ok(signed));
        out.clear();
        write::u64(&mut out, &unsigned);
        prop_assert_eq!(out.len(), smallest(unsigned.into()));
        prop_assert_eq!(Reader::new(&out).u64(), Ok(unsigned));
    }

    #[test]
    fn strings_lists_and_maps_come_back(values: BTreeMap<String, Vec<u8>>, long in 0_usize..70_000) {
        let mut out = Vec::new();
        write::map(&mut out, &values, write::bytes);
        write::string(&mut out, &"x".repeat(long));
        write::list(&mut out, &vec![7_u8; long], write::u8);
        let mut reader = Reader::new(&out);
        let back = reader.map(1, Reader::bytes).unwrap();
        prop_assert!(back.iter().map(|(k, v)| (&**k, &**v)).eq(values.iter().map(|(k, v)| (&**k, &**v))));
        prop_assert_eq!(reader.string().unwrap().len(), long);
        prop_assert_eq!(reader.list(1, Reader::u8).unwrap().len(), long);
        prop_assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        let _ = Reader::new(&bytes).map(1, |r| r.list(1, |r| r.optional(Reader::string)));
        let _ = Reader::new(&bytes).array::<_, 3>(Reader::f64);
        let _ = Reader::new(&bytes).request();
    }
}
