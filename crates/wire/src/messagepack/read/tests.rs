use super::*;
use crate::messagepack::write;
use proptest::prelude::*;

fn wrong<'a, T: std::fmt::Debug>(bytes: &'a [u8], read: impl FnOnce(&mut Reader<'a>) -> Read<T>) -> Wrong {
    read(&mut Reader::new(bytes)).unwrap_err().wrong
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
    assert_eq!(wrong(&[0xff], Reader::u64), Wrong::Range);
    assert_eq!(wrong(&[0xcc, 200], Reader::i8), Wrong::Range);
    let large = [0xcf, 0x80, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(wrong(&large, Reader::i64), Wrong::Range);
    assert_eq!(Reader::new(&large).u64(), Ok(1 << 63));
    assert_eq!(wrong(&[0xc0], Reader::u8), Wrong::Kind { expected: "an integer", found: 0xc0 });
}

#[test]
fn a_count_is_believed_only_as_far_as_bytes_are_left() {
    let huge = [0xdd, 0xff, 0xff, 0xff, 0xff, 0, 0];
    assert_eq!(wrong(&huge, |r| r.list(1, Reader::u8)), Wrong::Truncated);
    assert_eq!(wrong(&[0x93, 1, 2, 3], |r| r.list(2, Reader::u8)), Wrong::Truncated);
    assert_eq!(wrong(&[0xdf, 0xff, 0xff, 0xff, 0xff], |r| r.map(1, Reader::u8)), Wrong::Truncated);
    assert_eq!(wrong(&[0xc6, 0xff, 0xff, 0xff, 0xff, 0], Reader::bytes), Wrong::Truncated);
}

#[test]
fn fixed_lengths_are_exact() {
    assert_eq!(Reader::new(&[0x92, 1, 2]).array::<u8, 2>(Reader::u8), Ok([1, 2]));
    assert_eq!(wrong(&[0x91, 1], |r| r.array::<u8, 2>(Reader::u8)), Wrong::Length { expected: 2, found: 1 });
    assert_eq!(wrong(&[0x92, 1], |r| r.array::<u8, 2>(Reader::u8)), Wrong::Truncated);
    assert_eq!(wrong(&[0xc4, 1, 0], Reader::bin32), Wrong::Length { expected: 32, found: 1 });
}

#[test]
fn keys_come_once_and_strings_are_utf8() {
    let twice = [0x82, 0xa1, b'a', 1, 0xa1, b'a', 2];
    assert_eq!(wrong(&twice, |r| r.map(1, Reader::u8)), Wrong::Duplicate);
    assert_eq!(wrong(&[0xa1, 0xff], Reader::string), Wrong::Utf8);
    assert_eq!(wrong(&[0xa1, b'a'], Reader::bytes), Wrong::Kind { expected: "bytes", found: 0xa1 });
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
