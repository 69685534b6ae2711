//! Terms there and back, in every form they have, and bytes that are none.

use super::*;
use crate::messagepack::write as plain;
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq)]
enum Term {
    None,
    Boolean(bool),
    Integer(i128),
    Large(bool, Vec<u8>),
    Float(f64),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    List(Vec<Term>),
    Tuple(Vec<Term>),
    Map(Vec<Term>),
    Atom(Vec<u8>),
    Pid(Vec<u8>),
    Reference(Vec<u8>),
}

struct Model;

impl Build for Model {
    type Value = Term;
    type Error = TermError;

    fn none(&mut self) -> Term {
        Term::None
    }

    fn boolean(&mut self, value: bool) -> Term {
        Term::Boolean(value)
    }

    fn integer(&mut self, value: i64) -> Term {
        Term::Integer(value.into())
    }

    fn natural(&mut self, value: u64) -> Term {
        Term::Integer(value.into())
    }

    fn large(&mut self, is_negative: bool, magnitude: &[u8]) -> Result<Term, TermError> {
        Ok(Term::Large(is_negative, magnitude.to_vec()))
    }

    fn float(&mut self, value: f64) -> Term {
        Term::Float(value)
    }

    fn text(&mut self, text: &[u8]) -> Result<Term, TermError> {
        std::str::from_utf8(text).map_err(|_| TermError("no text"))?;
        Ok(Term::Text(text.to_vec()))
    }

    fn bytes(&mut self, bytes: &[u8]) -> Term {
        Term::Bytes(bytes.to_vec())
    }

    fn list(&mut self, items: Vec<Term>) -> Result<Term, TermError> {
        Ok(Term::List(items))
    }

    fn tuple(&mut self, items: Vec<Term>) -> Result<Term, TermError> {
        Ok(Term::Tuple(items))
    }

    fn map(&mut self, pairs: Vec<Term>) -> Result<Term, TermError> {
        Ok(Term::Map(pairs))
    }

    fn atom(&mut self, name: &[u8]) -> Result<Term, TermError> {
        Ok(Term::Atom(name.to_vec()))
    }

    fn pid(&mut self, form: &[u8]) -> Result<Term, TermError> {
        Ok(Term::Pid(form.to_vec()))
    }

    fn reference(&mut self, form: &[u8]) -> Result<Term, TermError> {
        Ok(Term::Reference(form.to_vec()))
    }
}

fn put(out: &mut Vec<u8>, term: &Term) {
    match term {
        Term::None => out.push(0xc0),
        Term::Boolean(value) => plain::boolean(out, value),
        Term::Integer(value) => match (i64::try_from(*value), u64::try_from(*value)) {
            (Ok(value), _) => plain::i64(out, &value),
            (_, Ok(value)) => plain::u64(out, &value),
            _ => unreachable!("the model's integers fit"),
        },
        Term::Large(is_negative, magnitude) => write::large(out, *is_negative, magnitude),
        Term::Float(value) => plain::f64(out, value),
        Term::Text(text) => plain::string(out, std::str::from_utf8(text).unwrap()),
        Term::Bytes(bytes) => plain::bytes(out, bytes),
        Term::List(items) => {
            plain::list_header(out, items.len());
            items.iter().for_each(|item| put(out, item));
        }
        Term::Tuple(items) => write::tuple(out, items.len(), |out| {
            items.iter().for_each(|item| put(out, item));
            Ok::<(), TermError>(())
        })
        .unwrap(),
        Term::Map(pairs) => {
            plain::map_header(out, pairs.len() / 2);
            pairs.iter().for_each(|item| put(out, item));
        }
        Term::Atom(name) => write::extended(out, extension::ATOM, name),
        Term::Pid(form) => write::extended(out, extension::PID, form),
        Term::Reference(form) => write::extended(out, extension::REFERENCE, form),
    }
}

fn terms() -> impl Strategy<Value = Term> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..300);
    let leaf = prop_oneof![
        Just(Term::None),
        any::<bool>().prop_map(Term::Boolean),
        any::<i64>().prop_map(|value| Term::Integer(value.into())),
        any::<u64>().prop_map(|value| Term::Integer(value.into())),
        (any::<i64>(), 0u32..64).prop_map(|(value, less)| Term::Integer((value >> less).into())),
        (any::<bool>(), bytes()).prop_map(|(is_negative, magnitude)| Term::Large(is_negative, magnitude)),
        (-1e300..1e300).prop_map(Term::Float),
        ".{0,40}".prop_map(|text| Term::Text(text.into_bytes())),
        bytes().prop_map(Term::Bytes),
        bytes().prop_map(Term::Atom),
        bytes().prop_map(Term::Pid),
        bytes().prop_map(Term::Reference),
    ];
    leaf.prop_recursive(4, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Term::List),
            prop::collection::vec(inner.clone(), 0..20).prop_map(Term::Tuple),
            prop::collection::vec((inner.clone(), inner), 0..20).prop_map(|pairs| Term::Map(
                pairs.into_iter().flat_map(|(key, value)| [key, value]).collect()
            )),
        ]
    })
}

proptest! {
    #[test]
    fn a_term_comes_back_and_none_of_its_prefixes_does(term in terms()) {
        let mut bytes = Vec::new();
        put(&mut bytes, &term);
        prop_assert_eq!(read(&mut Model, &bytes), Ok(term));
        for end in 0..bytes.len() {
            prop_assert!(read(&mut Model, &bytes[..end]).is_err());
        }
        bytes.push(0);
        prop_assert_eq!(read(&mut Model, &bytes), Err(TermError("bytes behind the value")));
    }

    #[test]
    fn noise_is_a_term_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&mut Model, &bytes);
        let _ = read_items(&mut Model, &bytes);
    }
}

#[test]
fn every_width_of_a_number_is_read() {
    let cases: [(&[u8], i128); 12] = [
        (&[0x7f], 127),
        (&[0xe0], -32),
        (&[0xcc, 0xff], 255),
        (&[0xcd, 0xff, 0xff], 65_535),
        (&[0xce, 0xff, 0xff, 0xff, 0xff], 4_294_967_295),
        (&[0xcf, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], u64::MAX as i128),
        (&[0xd0, 0x80], -128),
        (&[0xd1, 0x80, 0], -32_768),
        (&[0xd1, 0, 1], 1),
        (&[0xd2, 0x80, 0, 0, 0], -2_147_483_648),
        (&[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0], i64::MIN as i128),
        (&[0xd3, 0, 0, 0, 0, 0, 0, 0, 1], 1),
    ];
    for (bytes, value) in cases {
        assert_eq!(read(&mut Model, bytes), Ok(Term::Integer(value)));
    }
    assert_eq!(read(&mut Model, &[0xca, 0x3f, 0x80, 0, 0]), Ok(Term::Float(1.0)));
    assert_eq!(read(&mut Model, &[0xd4, extension::ATOM, b'a']), Ok(Term::Atom(b"a".to_vec())));
}

#[test]
fn what_is_no_term_says_why() {
    let deep = [vec![0x91; 256], vec![0xc0]].concat();
    let cases: [(&[u8], &str); 7] = [
        (&[], "a value is cut off"),
        (&[0xc1], "a byte that begins no value"),
        (&[0xdd, 0xff, 0xff, 0xff, 0xff], "a value is cut off"),
        (&[0xd4, 99, 0], "an extension that nobody declared"),
        (&[0xc7, 0, extension::INTEGER], "an integer without digits"),
        (&[0xc7, 2, extension::TUPLE, 0x90, 0], "bytes behind a tuple"),
        (&deep, "a value that is nested too deep"),
    ];
    for (bytes, why) in cases {
        assert_eq!(read(&mut Model, bytes), Err(TermError(why)), "{bytes:?}");
    }
    assert!(read(&mut Model, &deep[1..]).is_ok());
    assert_eq!(read_items(&mut Model, &[0xc0]), Err(TermError("no array where one belongs")));
    assert_eq!(read_items(&mut Model, &[0x92, 1, 2]), Ok(vec![Term::Integer(1), Term::Integer(2)]));
}
