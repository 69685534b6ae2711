use super::*;
use crate::response::{self, DecodedResponse};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A command whose response has the fields of its request, of every type there is.
const SCHEMA: &str = r#"{
    "service": "All",
    "aliases": { "Digest": "bin32", "Version": "u64" },
    "enums": { "Kind": ["plain", "sealed"] },
    "types": { "Entry": { "key": "string", "kind": "Kind", "value": "bytes?" } },
    "error": { "message": "string" },
    "commands": {
        "Same": {
            "request": {
                "flag": "bool", "small": "u8", "large": "Version", "little": "i8", "huge": "i64", "single": "f32", "precise": "f64",
                "text": "string", "bytes": "bytes", "digest": "Digest", "kind": "Kind", "entry": "Entry?",
                "list": "u16?[]", "three": "i32[3]", "map": "map<Entry[]>", "none": "u8?",
            },
            "response": {
                "flag": "bool", "small": "u8", "large": "Version", "little": "i8", "huge": "i64", "single": "f32", "precise": "f64",
                "text": "string", "bytes": "bytes", "digest": "Digest", "kind": "Kind", "entry": "Entry?",
                "list": "u16?[]", "three": "i32[3]", "map": "map<Entry[]>", "none": "u8?",
            },
        },
        "Point": { "request": { "a": "f32", "b": "f64" }, "response": { "a": "f32", "b": "f64" } },
        "Pair": { "request": { "a": "u8", "b": "u8?" }, "response": {} },
    },
}"#;

fn plan() -> Plan {
    Plan::of(&thalweg_schema::parse("all.jsonc", SCHEMA).unwrap())
}

fn example() -> Value {
    json!({
        "flag": true, "small": 255, "large": u64::MAX, "little": -128, "huge": i64::MIN, "single": 0.5, "precise": 1e300,
        "text": "größer \"als\" \\ \u{1F600}\n", "bytes": "AP/+", "digest": STANDARD.encode([7; 32]), "kind": "sealed",
        "entry": { "key": "k", "kind": "plain", "value": null },
        "list": [1, null, 65535], "three": [0, -1, 2147483647],
        "map": { "a": [], "b/c": [{ "key": "", "kind": "sealed", "value": "" }] }, "none": null,
    })
}

/// A request's frame, as the frame of the response with the same fields.
fn same(plan: &Plan, params: Params<'_>) -> Result<Vec<u8>, Box<FieldError>> {
    let mut frame = Vec::new();
    encode(plan, &plan.methods[0], params, &mut frame)?;
    let mut answer = vec![0x92];
    write::string(&mut answer, &plan.methods[0].response.tag);
    answer.extend_from_slice(&frame[2 + 1 + "AllSame".len()..]);
    Ok(answer)
}

fn back(plan: &Plan, frame: &[u8]) -> Value {
    let mut out = Vec::new();
    assert_eq!(
        response::decode(plan, &plan.methods[0].response, frame, usize::MAX, &mut out).unwrap(),
        DecodedResponse::Fields
    );
    serde_json::from_slice(&out).unwrap()
}

fn refused(text: &str) -> (String, String) {
    let plan = plan();
    let error = same(&plan, Params::Names(text)).unwrap_err();
    (error.field, error.what.into_owned())
}

#[test]
fn every_type_comes_back_as_it_was_given_by_name_and_by_position() {
    let (plan, example) = (plan(), example());
    let by_name = example.to_string();
    assert_eq!(back(&plan, &same(&plan, Params::Names(&by_name)).unwrap()), example);
    let fields = plan.methods[0].request.fields.fields.iter();
    let by_position: Value = fields.map(|field| example[&field.name].clone()).collect();
    assert_eq!(back(&plan, &same(&plan, Params::Positions(&by_position.to_string())).unwrap()), example);
    // What is optional may be left out, and is null in every answer.
    let mut short = example.clone();
    short.as_object_mut().unwrap().retain(|name, _| name != "none" && name != "entry");
    assert_eq!(back(&plan, &same(&plan, Params::Names(&short.to_string())).unwrap())["entry"], Value::Null);
}

#[test]
fn the_field_at_fault_is_named() {
    for (pointer, value, field, says) in [
        ("/small", json!(256), "small", "8 bits"),
        ("/small", json!(-1), "small", "8 bits"),
        ("/small", json!(1.0), "small", "without point"),
        ("/small", json!("1"), "small", "expected a number, found a string"),
        ("/little", json!(128), "little", "8 bits"),
        ("/flag", json!(1), "flag", "expected a boolean"),
        ("/text", Value::Null, "text", "found null"),
        ("/bytes", json!("A"), "bytes", "base64"),
        ("/bytes", json!("AA"), "bytes", "base64"),
        ("/bytes", json!("AB=="), "bytes", "base64"),
        ("/digest", json!("AAAA"), "digest", "32 bytes"),
        ("/kind", json!("other"), "kind", "plain, sealed"),
        ("/entry/kind", json!(7), "entry.kind", "expected a string"),
        ("/entry", json!({ "key": "k" }), "entry.kind", "missing"),
        ("/entry/key", json!({}), "entry.key", "expected a string"),
        ("/list/1", json!("x"), "list[1]", "expected a number"),
        ("/three", json!([1, 2]), "three", "expected 3"),
        ("/three/2", json!(2_147_483_648_u32), "three[2]", "32 bits"),
        ("/map/b~1c/0/value", json!(0), "map.b/c[0].value", "expected a string"),
        ("/precise", json!("nan"), "precise", "NaN"),
    ] {
        let mut wrong = example();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let (at, what) = refused(&wrong.to_string());
        assert!(at == field && what.contains(says), "{pointer}: {at}: {what}");
    }
}

#[test]
fn what_only_text_can_say_is_refused_too() {
    let text = |from: &str, to: &str| refused(&example().to_string().replace(from, to)).0;
    assert_eq!(text("\"large\":18446744073709551615", "\"large\":18446744073709551616"), "large");
    assert_eq!(text("\"precise\":1e+300", "\"precise\":1e999"), "precise");
    assert_eq!(text("\"single\":0.5", "\"single\":1e39"), "single");
    assert_eq!(text("\"small\":255", "\"small\":255,\"small\":255"), "small");
    assert_eq!(text("\"small\":255", "\"small\":255,\"more\":1"), "more");
    assert_eq!(text("\"a\":[]", "\"a\":[],\"\\u0061\":[]"), "map.a");
    assert_eq!(text("\"small\":255,", ""), "small");
}

#[test]
fn positions_may_end_early_where_the_rest_is_optional() {
    let plan = plan();
    let pair = |params| {
        let mut frame = Vec::new();
        encode(&plan, &plan.methods[2], params, &mut frame).map(|()| frame).map_err(|error| error.field)
    };
    let head = b"\x91\x92\xa7AllPair".to_vec();
    let frame = |fields: &[u8]| Ok([&head[..], fields].concat());
    assert_eq!(pair(Params::Positions("[1]")), frame(b"\x81\xa1a\x01"));
    assert_eq!(pair(Params::Positions("[1,2]")), frame(b"\x82\xa1a\x01\xa1b\x02"));
    assert_eq!(pair(Params::Names("{\"b\":null,\"a\":1}")), frame(b"\x82\xa1b\xc0\xa1a\x01"));
    assert_eq!(pair(Params::Positions("[1,2,3]")), Err("params".to_owned()));
    assert_eq!(pair(Params::Names("{\"\":1}")), Err("\"\"".to_owned()), "a name of no letters is one");
    assert_eq!(pair(Params::Positions("[]")), Err("a".to_owned()));
    assert_eq!(pair(Params::Absent), Err("a".to_owned()));
}

#[test]
fn numbers_that_are_none_are_words() {
    let plan = plan();
    for word in ["NaN", "Infinity", "-Infinity"] {
        let mut example = example();
        (example["single"], example["precise"]) = (json!(word), json!(word));
        assert_eq!(back(&plan, &same(&plan, Params::Names(&example.to_string())).unwrap()), example);
    }
}

/// A solidus may be escaped, and some encoders do.
#[test]
fn bytes_are_read_through_their_escapes() {
    let plan = plan();
    let text = example().to_string().replace("AP/+", "AP\\/\\u002b");
    assert_eq!(back(&plan, &same(&plan, Params::Names(&text)).unwrap()), example());
}

/// A client that keeps long integers exact knows them by their digits; and one that has integers has no
/// negative zero among them.
#[test]
fn a_float_that_would_be_another_as_an_integer_is_written_as_none() {
    let plan = plan();
    let method = &plan.methods[1];
    for (number, written) in [
        (9_007_199_254_740_991.0, "9007199254740991"),
        (9_007_199_254_740_992.0, "9.007199254740992e15"),
        (-9_007_199_254_740_994.0, "-9.007199254740994e15"),
        (1e16, "1e16"),
        (0.0, "0"),
        (-0.0, "-0.0"),
    ] {
        let mut frame = b"\x92\xb0AllPointResponse\x82\xa1a".to_vec();
        write::f32(&mut frame, &1.0);
        frame.extend_from_slice(b"\xa1b");
        write::f64(&mut frame, &number);
        let mut out = Vec::new();
        response::decode(&plan, &method.response, &frame, usize::MAX, &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("{{\"a\":1,\"b\":{written}}}"));
    }
}

proptest! {
    /// However a number is written, the nearest float is taken; and what is written is read back as the same
    /// float.
    #[test]
    fn floats_come_back_to_the_last_bit(single in any::<f32>(), precise in any::<f64>(), short in any::<bool>()) {
        prop_assume!(single.is_finite() && precise.is_finite());
        let plan = plan();
        let method = &plan.methods[1];
        let text = if short { format!("[{single:e},{precise:e}]") } else { format!("[{single},{precise}]") };
        let mut frame = Vec::new();
        encode(&plan, method, Params::Positions(&text), &mut frame).unwrap();
        let mut expected = b"\x91\x92\xa8AllPoint\x82\xa1a".to_vec();
        write::f32(&mut expected, &single);
        expected.extend_from_slice(b"\xa1b");
        write::f64(&mut expected, &precise);
        prop_assert_eq!(&frame, &expected);
        let answer = [b"\x92\xb0AllPointResponse", &frame[11..]].concat();
        let mut out = Vec::new();
        response::decode(&plan, &method.response, &answer, usize::MAX, &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        let (a, b) = out.trim_matches(['{', '}']).split_once(',').unwrap();
        let (a, b) = (a.trim_start_matches("\"a\":"), b.trim_start_matches("\"b\":"));
        prop_assert_eq!((a.parse::<f32>().unwrap().to_bits(), b.parse::<f64>().unwrap().to_bits()), (single.to_bits(), precise.to_bits()));
        prop_assert!(a.len() <= 18 && b.len() <= 25, "{}", out);
    }

    #[test]
    fn any_values_come_back(
        u8 in any::<u8>(), u64 in any::<u64>(), i8 in any::<i8>(), i64 in any::<i64>(),
        text in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 0..300),
        list in proptest::collection::vec(any::<Option<u16>>(), 0..40),
        map in proptest::collection::btree_map(any::<String>(), Just(json!([])), 0..20),
    ) {
        let plan = plan();
        let mut example = example();
        for (name, value) in [
            ("small", json!(u8)), ("large", json!(u64)), ("little", json!(i8)), ("huge", json!(i64)), ("text", json!(text)), ("bytes", json!(STANDARD.encode(bytes))), ("list", json!(list)), ("map", json!(map)),
        ] {
            example[name] = value;
        }
        prop_assert_eq!(back(&plan, &same(&plan, Params::Names(&example.to_string())).unwrap()), example);
    }

    /// A frame that was cut or changed is read as some answer or refused, and leaves nothing behind when it
    /// is.
    #[test]
    fn any_frame_is_survived(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let plan = plan();
        let mut frame = same(&plan, Params::Names(&example().to_string())).unwrap();
        let at = at.index(frame.len());
        frame[at] = byte;
        frame.truncate(cut.index(frame.len()) + 1);
        let mut out = b"before".to_vec();
        match response::decode(&plan, &plan.methods[0].response, &frame, usize::MAX, &mut out) {
            Ok(DecodedResponse::Fields) => drop(serde_json::from_slice::<Value>(&out[6..]).unwrap()),
            _ => prop_assert_eq!(out, b"before"),
        }
    }
}
