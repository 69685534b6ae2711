//! The golden frames, assembled by hand from the written wire rules: each function lays down literal bytes,
//! and nothing here shares a line with a codec. Also their meaning as JSON, read back by a reader of its own.
#![allow(clippy::unwrap_used, reason = "what is wrong here is wrong in the source")]

use std::fmt::Write as _;

type Bytes = Vec<u8>;

fn hex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn join(parts: &[Bytes]) -> Bytes {
    parts.concat()
}

/// A string of at most 31 bytes.
fn s(text: &str) -> Bytes {
    assert!(text.len() < 32);
    [&[0xa0 + text.len() as u8], text.as_bytes()].concat()
}

/// A `bin` of at most 255 bytes.
fn b(bytes: &[u8]) -> Bytes {
    assert!(bytes.len() < 256);
    [&[0xc4, bytes.len() as u8], bytes].concat()
}

/// A map of at most 15 fields, each written out by the caller.
fn map(fields: &[(&str, Bytes)]) -> Bytes {
    assert!(fields.len() < 16);
    let mut out = vec![0x80 + fields.len() as u8];
    for (name, value) in fields {
        out.extend(s(name));
        out.extend(value);
    }
    out
}

fn request(tag: &str, fields: &[(&str, Bytes)]) -> Bytes {
    join(&[hex("91 92"), s(tag), map(fields)])
}

fn response(tag: &str, fields: &[(&str, Bytes)]) -> Bytes {
    join(&[hex("92"), s(tag), map(fields)])
}

fn fields(count: &str, total: &str, name: Bytes) -> [(&'static str, Bytes); 3] {
    [("count", hex(count)), ("total", hex(total)), ("name", name)]
}

fn inner(values: Bytes, flag: &str) -> Bytes {
    map(&[("values", values), ("flag", hex(flag))])
}

/// 32 bytes counting up from `first`.
fn digest(first: u8) -> Bytes {
    b(&(first..first + 32).collect::<Vec<_>>())
}

fn aliases(parent: Bytes, chain: Bytes) -> [(&'static str, Bytes); 4] {
    [("sequenceNumber", hex("cd 01 00")), ("digest", digest(0)), ("parent", parent), ("chain", chain)]
}

fn blobs(extra: Bytes, parts: Bytes) -> [(&'static str, Bytes); 2] {
    [("extra", extra), ("parts", parts)]
}

const NUMBERS: [&str; 10] = [
    "tiny",
    "small",
    "medium",
    "large",
    "signedTiny",
    "signedSmall",
    "signedMedium",
    "signedLarge",
    "single",
    "precise",
];

fn numbers(values: [&str; 10]) -> Vec<(&'static str, Bytes)> {
    NUMBERS.into_iter().zip(values.map(hex)).collect()
}

/// A struct with everything in it.
fn places() -> [(&'static str, Bytes); 5] {
    let moods = join(&[hex("82"), s("monday"), s("calm"), s("tuesday"), s("in-a-hurry")]);
    let here = map(&[("name", s("here")), ("inner", inner(hex("91 c4 01 07"), "c3")), ("moods", moods)]);
    let there = map(&[("name", s("")), ("inner", hex("c0")), ("moods", hex("80"))]);
    // By bytes of UTF-8: z, then U+FFFD (ef bf bd), then U+10000 (f0 90 80 80), which UTF-16 would sort
    // before it.
    let counts =
        join(&[hex("83"), s("z"), hex("01"), s("\u{fffd}"), hex("02"), s("\u{10000}"), hex("cd 01 00")]);
    let named = join(&[hex("82"), s("a"), hex("90"), s("b"), hex("92 c4 00 c4 01 ff")]);
    [
        ("places", join(&[hex("92"), here, there])),
        ("counts", counts),
        ("grid", hex("93 92 01 c0 92 d1 80 00 ff 92 cd 7f ff e0")),
        ("mood", s("lost")),
        ("named", named),
    ]
}

fn no_places() -> [(&'static str, Bytes); 5] {
    [
        ("places", hex("90")),
        ("counts", hex("80")),
        ("grid", hex("93 92 c0 c0 92 c0 c0 92 c0 c0")),
        ("mood", hex("c0")),
        ("named", hex("c0")),
    ]
}

/// Frames every codec decodes and encodes again byte for byte: the twenty-two of the first edition, then the
/// rest.
pub(crate) fn golden() -> Vec<(&'static str, Bytes)> {
    let bin16 = join(&[hex("c5 01 2c"), (0..300_u16).map(|n| (n & 0xff) as u8).collect()]);
    let str16 = join(&[hex("da 01 2c"), vec![b'x'; 300]]);
    let unicode = s("Grüße, 世界 🌊");
    let max = "cf ff ff ff ff ff ff ff ff";
    let values = hex("93 c4 01 01 c4 02 02 03 c4 00");
    let chain = join(&[hex("92"), digest(64), digest(96)]);
    let parts = hex("92 c4 01 aa c4 02 bb cc");
    let zero =
        ["00", "00", "00", "00", "00", "00", "00", "00", "ca 00 00 00 00", "cb 00 00 00 00 00 00 00 00"];
    let most = [
        "cc ff",
        "cd ff ff",
        "ce ff ff ff ff",
        max,
        "7f",
        "cd 7f ff",
        "ce 7f ff ff ff",
        "cf 7f ff ff ff ff ff ff ff",
        "ca 7f 7f ff ff",
        "cb 7f ef ff ff ff ff ff ff",
    ];
    let least = [
        "7f",
        "cc 80",
        "cd 01 00",
        "ce 00 01 00 00",
        "d0 80",
        "d1 80 00",
        "d2 80 00 00 00",
        "d3 80 00 00 00 00 00 00 00",
        "ca bf c0 00 00",
        "cb c0 09 21 fb 54 44 2d 18",
    ];
    let edge = [
        "cc 80",
        "cc ff",
        "ce 00 01 00 00",
        "cf 00 00 00 01 00 00 00 00",
        "e0",
        "d0 df",
        "d1 ff 7f",
        "d2 ff ff 7f ff",
        "ca 7f c0 00 00",
        "cb ff f0 00 00 00 00 00 00",
    ];
    vec![
        ("echo_bytes_request", request("EchoBytes", &[("data", b(&[1, 2, 3, 0, 255]))])),
        ("echo_bytes_response", response("EchoBytesResponse", &[("data", b(&[1, 2, 3, 0, 255]))])),
        ("echo_bytes_empty", request("EchoBytes", &[("data", b(&[]))])),
        ("echo_bytes_bin16", request("EchoBytes", &[("data", bin16)])),
        ("echo_fields_request", request("EchoFields", &fields("2a", "ce 00 01 86 a0", s("thalweg")))),
        (
            "echo_fields_response",
            response("EchoFieldsResponse", &fields("2a", "ce 00 01 86 a0", s("thalweg"))),
        ),
        ("echo_fields_max", request("EchoFields", &fields("ce ff ff ff ff", max, s("")))),
        ("echo_fields_uint_boundary", request("EchoFields", &fields("cc 80", "ce 00 01 00 00", s("edge")))),
        ("echo_fields_unicode", request("EchoFields", &fields("01", "02", unicode))),
        ("echo_fields_str16", request("EchoFields", &fields("7f", "cd 01 00", str16))),
        ("echo_nested_request", request("EchoNested", &[("inner", inner(values.clone(), "c3"))])),
        ("echo_nested_response", response("EchoNestedResponse", &[("inner", inner(values, "c3"))])),
        ("echo_nested_flag_none", request("EchoNested", &[("inner", inner(hex("90"), "c0"))])),
        ("echo_nested_flag_false", request("EchoNested", &[("inner", inner(hex("90"), "c2"))])),
        ("echo_aliases_request", request("EchoAliases", &aliases(digest(32), chain.clone()))),
        ("echo_aliases_response", response("EchoAliasesResponse", &aliases(hex("c0"), chain))),
        ("echo_blobs_request", request("EchoBlobs", &blobs(b(&[9]), parts.clone()))),
        ("echo_blobs_response", response("EchoBlobsResponse", &blobs(b(&[9]), parts))),
        ("echo_blobs_none", request("EchoBlobs", &blobs(hex("c0"), hex("92 c4 00 c4 00")))),
        ("echo_fail_request", request("EchoFail", &[("reason", s("because"))])),
        ("echo_fail_response", response("EchoFailResponse", &[])),
        ("echo_error_response", response("EchoErrorResponse", &[("message", s("no such thing"))])),
        ("echo_numbers_zero", request("EchoNumbers", &numbers(zero))),
        ("echo_numbers_max", request("EchoNumbers", &numbers(most))),
        ("echo_numbers_min", response("EchoNumbersResponse", &numbers(least))),
        ("echo_numbers_boundary", response("EchoNumbersResponse", &numbers(edge))),
        ("echo_places_request", request("EchoPlaces", &places())),
        ("echo_places_response", response("EchoPlacesResponse", &no_places())),
        ("echo_count_request", request("EchoCount", &[("first", hex("01")), ("last", hex("cd 03 e8"))])),
        ("echo_count_item", response("EchoCountItem", &[("value", hex("11"))])),
        ("echo_count_response", response("EchoCountResponse", &[("count", hex("cd 03 e8"))])),
        ("echo_put_request", request("EchoPut", &[("fork", s("main")), ("value", b(b"v"))])),
        ("echo_peek_response", response("EchoPeekResponse", &[("value", hex("c0"))])),
    ]
}

/// Frames nobody writes and everybody takes: what is taken for which golden frame.
pub(crate) fn accepted() -> Vec<(&'static str, &'static str, Bytes)> {
    let wide = fields(
        "d3 00 00 00 00 00 00 00 2a",
        "cf 00 00 00 00 00 01 86 a0",
        join(&[hex("d9 07"), b"thalweg".to_vec()]),
    );
    let [count, total, name] = fields("2a", "ce 00 01 86 a0", s("thalweg"));
    let long_map =
        join(&[hex("91 92"), s("EchoBytes"), hex("df 00 00 00 01"), s("data"), hex("c6 00 00 00 00")]);
    let long_list = inner(hex("dc 00 00"), "c0");
    let mut single = numbers([
        "00",
        "00",
        "00",
        "00",
        "00",
        "00",
        "00",
        "00",
        "ca 00 00 00 00",
        "cb 00 00 00 00 00 00 00 00",
    ]);
    single[9].1 = hex("ca 00 00 00 00");
    let mut nan = numbers([
        "cc 80",
        "cc ff",
        "ce 00 01 00 00",
        "cf 00 00 00 01 00 00 00 00",
        "e0",
        "d0 df",
        "d1 ff 7f",
        "d2 ff ff 7f ff",
        "ca ff 80 00 01",
        "cb ff f0 00 00 00 00 00 00",
    ]);
    nan.reverse();
    vec![
        ("echo_fields_request", "wide_integers", request("EchoFields", &wide)),
        ("echo_fields_request", "another_order", request("EchoFields", &[name, count, total])),
        ("echo_bytes_empty", "wide_lengths", long_map),
        ("echo_nested_flag_none", "wide_count", request("EchoNested", &[("inner", long_list)])),
        (
            "echo_nested_flag_none",
            "missing_optional",
            request("EchoNested", &[("inner", map(&[("values", hex("90"))]))]),
        ),
        ("echo_numbers_zero", "single_as_precise", request("EchoNumbers", &single)),
        ("echo_numbers_boundary", "another_nan_in_another_order", response("EchoNumbersResponse", &nan)),
    ]
}

/// Frames everybody refuses.
pub(crate) fn refused() -> Vec<(&'static str, Bytes)> {
    let with = |data: &str| request("EchoBytes", &[("data", hex(data))]);
    let field = |count: &str, total: &str, name: Bytes| request("EchoFields", &fields(count, total, name));
    let blob = |parts: &str| request("EchoBlobs", &blobs(hex("c0"), hex(parts)));
    let place = |n: usize, value: Bytes| {
        let mut all = no_places();
        all[n].1 = value;
        request("EchoPlaces", &all)
    };
    let number = |n: usize, value: &str| {
        let zero =
            ["00", "00", "00", "00", "00", "00", "00", "00", "ca 00 00 00 00", "cb 00 00 00 00 00 00 00 00"];
        let mut all = numbers(zero);
        all[n].1 = hex(value);
        request("EchoNumbers", &all)
    };
    let data = ("data", hex("c4 00"));
    let only = [data.clone()];
    vec![
        ("empty", hex("")),
        ("nil", hex("c0")),
        ("never_used_byte", hex("c1")),
        ("text", b"GET / HTTP/1.1".to_vec()),
        ("two_requests", join(&[hex("92 92"), s("EchoFail"), map(&[("reason", s(""))])])),
        ("envelope_of_one", join(&[hex("91 91"), s("EchoBytes")])),
        ("trailing_byte", join(&[request("EchoBytes", &only), hex("00")])),
        ("unknown_message", request("EchoNothing", &only)),
        ("empty_tag", request("", &only)),
        ("tag_as_bytes", join(&[hex("91 92"), b(b"EchoBytes"), map(&only)])),
        ("unknown_field", request("EchoBytes", &[data.clone(), ("more", hex("00"))])),
        ("field_of_no_fields", response("EchoFailResponse", &[("more", hex("00"))])),
        ("field_in_other_casing", request("EchoPut", &[("Fork", s("")), ("value", hex("c4 00"))])),
        ("missing_field", request("EchoBytes", &[])),
        ("field_twice", request("EchoBytes", &[data.clone(), data.clone()])),
        (
            "optional_field_twice",
            request(
                "EchoNested",
                &[("inner", map(&[("values", hex("90")), ("flag", hex("c0")), ("flag", hex("c0"))]))],
            ),
        ),
        ("fields_as_array", join(&[hex("91 92"), s("EchoBytes"), hex("91 c4 00")])),
        ("key_as_integer", join(&[hex("91 92"), s("EchoBytes"), hex("81 01 c4 00")])),
        ("string_as_bytes", with("a1 61")),
        ("nil_for_bytes", with("c0")),
        ("bytes_as_string", field("00", "00", b(b"a"))),
        ("negative_for_unsigned", field("ff", "00", s(""))),
        ("too_large_for_u32", field("cf 00 00 00 01 00 00 00 00", "00", s(""))),
        ("float_for_integer", field("ca 3f 80 00 00", "00", s(""))),
        ("boolean_for_integer", field("c3", "00", s(""))),
        ("integer_for_boolean", request("EchoNested", &[("inner", inner(hex("90"), "01"))])),
        ("not_utf8", field("00", "00", hex("a1 ff"))),
        ("surrogate_in_utf8", field("00", "00", hex("a3 ed a0 80"))),
        ("overlong_utf8", field("00", "00", hex("a2 c0 80"))),
        ("beyond_unicode", field("00", "00", hex("a4 f4 90 80 80"))),
        ("u8_256", number(0, "cd 01 00")),
        ("u16_65536", number(1, "ce 00 01 00 00")),
        ("i8_128", number(4, "cc 80")),
        ("i8_minus_129", number(4, "d1 ff 7f")),
        ("i16_32768", number(5, "cd 80 00")),
        ("i32_minus_2147483649", number(6, "d3 ff ff ff ff 7f ff ff ff")),
        ("i64_9223372036854775808", number(7, "cf 80 00 00 00 00 00 00 00")),
        ("precise_for_single", number(8, "cb 00 00 00 00 00 00 00 00")),
        ("integer_for_float", number(9, "00")),
        ("one_part_of_two", blob("91 c4 00")),
        ("three_parts_of_two", blob("93 c4 00 c4 00 c4 00")),
        ("digest_of_31", request("EchoAliases", &aliases(hex("c0"), join(&[hex("91"), b(&[0; 31])])))),
        ("digest_of_33", request("EchoAliases", &aliases(b(&[0; 33]), hex("90")))),
        ("unknown_word", place(3, s("furious"))),
        ("word_in_other_casing", place(3, s("Calm"))),
        ("key_twice", place(1, join(&[hex("82"), s("a"), hex("01"), s("a"), hex("02")]))),
        ("key_twice_and_wrong", place(1, join(&[hex("82"), s("a"), hex("01"), s("a"), hex("c0")]))),
        ("huge_list", place(0, hex("dd ff ff ff ff"))),
        ("huge_map", place(1, hex("df ff ff ff ff"))),
        ("huge_bytes", with("c6 ff ff ff ff")),
        ("huge_string", field("00", "00", hex("db ff ff ff ff"))),
        ("huge_struct", join(&[hex("91 92"), s("EchoBytes"), hex("df ff ff ff ff")])),
        ("nested_a_thousand_times", vec![0x91; 1000]),
    ]
}

/// A frame's meaning as JSON, laid out for people; bytes as hexadecimal, and a NaN and infinities by name.
pub(crate) fn meaning(frame: &[u8]) -> String {
    let mut out = String::new();
    let mut at = 0;
    value(frame, &mut at, 0, &mut out);
    assert_eq!(at, frame.len());
    out.push('\n');
    out
}

fn number(frame: &[u8], at: &mut usize, count: usize) -> u64 {
    *at += count;
    frame[*at - count..*at].iter().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn value(frame: &[u8], at: &mut usize, depth: usize, out: &mut String) {
    let tag = frame[*at];
    *at += 1;
    match tag {
        0x00..=0x7f => write!(out, "{tag}").unwrap(),
        0xe0..=0xff => write!(out, "{}", tag as i8).unwrap(),
        0xc0 => out.push_str("null"),
        0xc2 => out.push_str("false"),
        0xc3 => out.push_str("true"),
        0xcc..=0xcf => write!(out, "{}", number(frame, at, 1 << (tag - 0xcc))).unwrap(),
        0xd0..=0xd3 => {
            let bytes = 1 << (tag - 0xd0);
            let shift = 64 - 8 * bytes;
            write!(out, "{}", ((number(frame, at, bytes) << shift) as i64) >> shift).unwrap();
        }
        0xca => float(f64::from(f32::from_bits(number(frame, at, 4) as u32)), out),
        0xcb => float(f64::from_bits(number(frame, at, 8)), out),
        0xc4..=0xc6 => {
            let length = number(frame, at, 1 << (tag - 0xc4)) as usize;
            let digits: String = frame[*at..*at + length].iter().map(|byte| format!("{byte:02x}")).collect();
            *at += length;
            write!(out, "{{ \"hex\": \"{digits}\" }}").unwrap();
        }
        0xa0..=0xbf => text(frame, at, usize::from(tag & 31), out),
        0xda => {
            let length = number(frame, at, 2) as usize;
            text(frame, at, length, out);
        }
        0x80..=0x9f => several(frame, at, depth, tag, out),
        _ => panic!("no golden frame has a {tag:#x}"),
    }
}

fn float(value: f64, out: &mut String) {
    if value.is_finite() { write!(out, "{value:?}").unwrap() } else { write!(out, "\"{value}\"").unwrap() }
}

fn text(frame: &[u8], at: &mut usize, length: usize, out: &mut String) {
    write!(out, "{:?}", std::str::from_utf8(&frame[*at..*at + length]).unwrap()).unwrap();
    *at += length;
}

fn several(frame: &[u8], at: &mut usize, depth: usize, tag: u8, out: &mut String) {
    let is_map = tag & 0xf0 == 0x80;
    let count = tag & 15;
    let (open, close) = if is_map { ('{', '}') } else { ('[', ']') };
    out.push(open);
    for n in 0..count {
        out.push_str(if n == 0 { "\n" } else { ",\n" });
        out.push_str(&"  ".repeat(depth + 1));
        if is_map {
            value(frame, at, depth + 1, out);
            out.push_str(": ");
        }
        value(frame, at, depth + 1, out);
    }
    if count > 0 {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
    out.push(close);
}
