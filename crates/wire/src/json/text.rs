//! JSON text, walked: no tree, no recursion, no allocation. Strict as RFC 8259 writes it, and where it leaves
//! a choice: no byte order mark, no half of a surrogate pair, bounded nesting.

use super::lexeme::{self, Pass, ordinary};
use super::skim::{self, Rules};
use std::borrow::Cow;
use std::fmt;

/// How deep arrays and objects may be nested: one bit each.
pub const DEPTH_MAX: u32 = 64;

/// Why text is not the JSON it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// What is wrong.
    pub what: &'static str,
    /// At which byte.
    pub at: usize,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at byte {}", self.what, self.at)
    }
}

impl std::error::Error for SyntaxError {}

type Read<T> = Result<T, SyntaxError>;

/// What a value is, which its first byte says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl Kind {
    /// With its article, for messages.
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// A string as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    raw: &'a str,
    plain: bool,
}

impl<'a> Quoted<'a> {
    /// What stands between the quotes.
    pub fn raw(self) -> &'a str {
        self.raw
    }

    /// The text, if it is written without escapes.
    #[inline]
    pub fn plain(self) -> Option<&'a str> {
        self.plain.then_some(self.raw)
    }

    /// The text.
    #[inline]
    pub fn text(self) -> Cow<'a, str> {
        match self.plain() {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(unescape(self.raw)),
        }
    }
}

/// Walks JSON text, value by value.
///
/// ```
/// use thalweg_wire::json::Text;
/// let mut text = Text::new(r#" {"n": [1, 18446744073709551615]} "#);
/// assert!(text.begin_object()?);
/// assert_eq!(text.key()?.text(), "n");
/// assert!(text.begin_array()?);
/// assert_eq!(text.number()?, "1");
/// assert!(text.next_element()?);
/// assert_eq!(text.number()?, "18446744073709551615");
/// assert!(!text.next_element()? && !text.next_member()?);
/// text.finish()?;
/// # Ok::<(), thalweg_wire::json::SyntaxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Text<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Text<'a> {
    /// Begins at the text's first byte.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The byte that comes next.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Nothing but blanks may be left.
    ///
    /// # Errors
    /// Something is.
    pub fn finish(&mut self) -> Read<()> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.wrong("something behind the value")),
        }
    }

    /// What comes next.
    ///
    /// # Errors
    /// No value does.
    #[inline]
    pub fn kind(&mut self) -> Read<Kind> {
        match self.peek() {
            Some(b'"') => Ok(Kind::String),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            Some(_) => Err(self.wrong("no value")),
            None => Err(self.wrong("the text ends where a value should begin")),
        }
    }

    /// Passes what is written so to the byte, if that is next, without a blank in front; whether it was. For
    /// what nearly everybody writes alike: a string with its quotes, a name with its colon.
    #[inline(always)]
    pub fn passes(&mut self, written: &'static str) -> bool {
        let is_next = self.text.as_bytes()[self.at..].starts_with(written.as_bytes());
        if is_next {
            self.at += written.len();
        }
        is_next
    }

    /// Passes `null`, if that comes next.
    ///
    /// # Errors
    /// Another word that begins like it.
    #[inline]
    pub fn null(&mut self) -> Read<bool> {
        if self.peek() == Some(b'n') { self.word("null").map(|()| true) } else { Ok(false) }
    }

    /// A boolean.
    ///
    /// # Errors
    /// It is none.
    pub fn boolean(&mut self) -> Read<bool> {
        match self.peek() {
            Some(b't') => self.word("true").map(|()| true),
            Some(b'f') => self.word("false").map(|()| false),
            _ => Err(self.wrong("no boolean")),
        }
    }

    /// A number, as it is written.
    ///
    /// # Errors
    /// It is none.
    pub fn number(&mut self) -> Read<&'a str> {
        self.blanks();
        let start = self.at;
        self.at = lexeme::number(self.text.as_bytes(), start)?;
        Ok(&self.text[start..self.at])
    }

    /// An integer of at most 64 bits, if one comes next that is written without a sign; else nothing is
    /// passed.
    #[inline]
    pub fn unsigned(&mut self) -> Option<u64> {
        self.blanks();
        let (integer, end) = lexeme::unsigned(self.text.as_bytes(), self.at)?;
        self.at = end;
        Some(integer)
    }

    /// The same, as it is written.
    ///
    /// ```
    /// # use thalweg_wire::json::Text;
    /// let mut text = Text::new("[18446744073709551615, 1.0]");
    /// assert!(text.begin_array()?);
    /// assert_eq!(text.unsigned_written(), Some("18446744073709551615"));
    /// assert!(text.next_element()?);
    /// assert_eq!((text.unsigned_written(), text.number()?), (None, "1.0"));
    /// # Ok::<(), thalweg_wire::json::SyntaxError>(())
    /// ```
    #[inline]
    pub fn unsigned_written(&mut self) -> Option<&'a str> {
        self.blanks();
        let start = self.at;
        self.unsigned().map(|_| &self.text[start..self.at])
    }

    /// A string.
    ///
    /// # Errors
    /// It is none, or one with an escape or a control character that JSON does not have.
    #[inline]
    pub fn string(&mut self) -> Read<Quoted<'a>> {
        if self.peek() != Some(b'"') {
            return Err(self.wrong("no string"));
        }
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let first = start + ordinary(&bytes[start..]);
        let plain = bytes.get(first) == Some(&b'"');
        self.at = if plain { first + 1 } else { skim::string(bytes, first, escape)? };
        Ok(Quoted { raw: &self.text[start..self.at - 1], plain })
    }

    /// Enters an object; whether it has a member, whose [`Text::key`] comes next.
    ///
    /// # Errors
    /// There is none.
    pub fn begin_object(&mut self) -> Read<bool> {
        self.begin(b'{', b'}', "no object")
    }

    /// Enters an array; whether it has an element, which comes next.
    ///
    /// # Errors
    /// There is none.
    pub fn begin_array(&mut self) -> Read<bool> {
        self.begin(b'[', b']', "no array")
    }

    /// A member's name and the colon; its value comes next.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn key(&mut self) -> Read<Quoted<'a>> {
        let key = self.string()?;
        if self.peek() != Some(b':') {
            return Err(self.wrong("no colon behind a name"));
        }
        self.at += 1;
        Ok(key)
    }

    /// Behind a member's value: whether another member comes, or the object ended.
    ///
    /// # Errors
    /// Neither.
    #[inline]
    pub fn next_member(&mut self) -> Read<bool> {
        self.next(b'}', "neither a comma nor the end of the object")
    }

    /// Behind an element: whether another comes, or the array ended.
    ///
    /// # Errors
    /// Neither.
    #[inline]
    pub fn next_element(&mut self) -> Read<bool> {
        self.next(b']', "neither a comma nor the end of the array")
    }

    /// Passes one value, whatever it is, and says how it is written.
    ///
    /// # Errors
    /// It is no JSON, or nested too deep.
    pub fn value(&mut self) -> Read<&'a str> {
        self.pass(DEPTH_MAX, |_, _| true)
    }

    /// The same, nested no deeper than `depth_max`, which is [`DEPTH_MAX`] at most, and with no number but
    /// such as `is_number` takes: for what others are to read whose bounds are their own.
    ///
    /// # Errors
    /// It is no JSON, or not within that.
    pub fn value_within(&mut self, depth_max: u32, is_number: impl Fn(&str) -> bool) -> Read<&'a str> {
        let text = self.text;
        self.pass(depth_max.min(DEPTH_MAX), |start, end| is_number(&text[start..end]))
    }

    /// Passes one value within such bounds; of numbers by where they stand.
    #[inline]
    fn pass(&mut self, depth_max: u32, takes: impl Fn(usize, usize) -> bool) -> Read<&'a str> {
        self.blanks();
        let start = self.at;
        let mut within = Within { depth: 0, depth_max, objects: 0, takes };
        self.at = skim::value(self.text.as_bytes(), start, &mut within)?;
        Ok(&self.text[start..self.at])
    }

    #[inline]
    fn begin(&mut self, open: u8, close: u8, otherwise: &'static str) -> Read<bool> {
        if self.peek() != Some(open) {
            return Err(self.wrong(otherwise));
        }
        self.at += 1;
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        Ok(true)
    }

    #[inline]
    fn next(&mut self, close: u8, otherwise: &'static str) -> Read<bool> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.wrong(otherwise)),
        }
    }

    fn word(&mut self, word: &'static str) -> Read<()> {
        self.at = lexeme::word(self.text.as_bytes(), self.at, word.as_bytes())?;
        Ok(())
    }

    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no blank.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        self.blanks();
        self.byte()
    }

    #[inline]
    fn blanks(&mut self) {
        self.at = lexeme::blanks(self.text.as_bytes(), self.at);
    }

    #[cold]
    fn wrong(&self, what: &'static str) -> SyntaxError {
        SyntaxError { what, at: self.at }
    }
}

/// What is open of a value that is nested within a bound, and which numbers it may have.
struct Within<F> {
    depth: u32,
    depth_max: u32,
    /// The innermost of what is open is the lowest bit: 1 for an object.
    objects: u64,
    takes: F,
}

impl<F: Fn(usize, usize) -> bool> Rules for Within<F> {
    #[inline]
    fn has_room(&self) -> bool {
        self.depth < self.depth_max
    }

    #[inline]
    fn push(&mut self, is_object: bool) {
        self.depth += 1;
        self.objects = self.objects << 1 | u64::from(is_object);
    }

    #[inline]
    fn pop(&mut self) {
        self.depth -= 1;
        self.objects >>= 1;
    }

    #[inline]
    fn innermost(&self) -> Option<bool> {
        (self.depth > 0).then_some(self.objects & 1 == 1)
    }

    #[inline]
    fn takes_number(&self, start: usize, end: usize) -> bool {
        (self.takes)(start, end)
    }

    #[inline]
    fn escape(bytes: &[u8], at: usize) -> Pass {
        escape(bytes, at)
    }
}

/// Bytes of the escape at a backslash: two of them, if they are a surrogate pair.
fn escape(bytes: &[u8], at: usize) -> Pass {
    let unit_at = |at: usize| unit(bytes.get(at..)?);
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(2),
        Some(b'u') => match unit_at(at) {
            Some(0xd800..=0xdbff) if matches!(unit_at(at + 6), Some(0xdc00..=0xdfff)) => Ok(12),
            Some(0xd800..=0xdfff) => Err(lexeme::wrong(at, "half of a surrogate pair")),
            Some(_) => Ok(6),
            None => Err(lexeme::wrong(at, "an escape that JSON does not have")),
        },
        _ => Err(lexeme::wrong(at, "an escape that JSON does not have")),
    }
}

/// The UTF-16 unit that `\uXXXX` at the beginning stands for.
fn unit(bytes: &[u8]) -> Option<u16> {
    let digits = bytes.strip_prefix(b"\\u")?.get(..4)?;
    digits.iter().try_fold(0, |unit, digit| Some(unit << 4 | char::from(*digit).to_digit(16)? as u16))
}

/// The text of a string whose escapes have been checked.
fn unescape(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let (character, length) = escaped(rest);
        text.push(character);
        rest = rest.get(length..).unwrap_or_default();
    }
    text.push_str(rest);
    text
}

/// What an escape stands for, and its length.
fn escaped(escape: &str) -> (char, usize) {
    let bytes = escape.as_bytes();
    let character = match bytes.get(1) {
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'u') => {
            let second = bytes.get(6..).and_then(unit);
            let units = [unit(bytes), second.filter(|_| matches!(unit(bytes), Some(0xd800..=0xdbff)))];
            let decoded = char::decode_utf16(units.into_iter().flatten()).next().and_then(Result::ok);
            let length = if units[1].is_some() { 12 } else { 6 };
            return (decoded.unwrap_or(char::REPLACEMENT_CHARACTER), length);
        }
        Some(byte) => char::from(*byte),
        None => char::REPLACEMENT_CHARACTER,
    };
    (character, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::de::IgnoredAny;

    fn whole(text: &str) -> Result<&str, SyntaxError> {
        let mut walk = Text::new(text);
        let value = walk.value()?;
        walk.finish().map(|()| value)
    }

    #[test]
    fn what_is_json_is_passed_as_it_is_written() {
        for text in [
            "null",
            "true",
            "-0.5e+10",
            "\"\"",
            "[]",
            "{}",
            r#"{"a":[1,{"b":null}],"c":"\u00e9\n"}"#,
            "[[],{}]",
            r#""\ud83d\ude00 \" \/""#,
            "1e999999",
            "123456789012345678901234567890",
        ] {
            assert_eq!(whole(text), Ok(text));
            assert_eq!(whole(&format!(" \t{text}\r\n")).unwrap(), text);
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "nul",
            "truee",
            "01",
            "+1",
            "1.",
            ".5",
            "1e",
            "-",
            "'a'",
            "\"",
            "\"\\x\"",
            "\"\u{1}\"",
            "[1,]",
            "[,1]",
            "[1 2]",
            "{\"a\":1,}",
            "{a:1}",
            "{\"a\" 1}",
            "{\"a\"}",
            "[1",
            "1 2",
            "\u{feff}1",
            "NaN",
            "[}",
            "{]",
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\ud800\u0041""#,
            r#""\u00g0""#,
            r#""\u00e""#,
        ] {
            assert!(whole(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nesting_has_a_bound_and_costs_no_stack() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(whole(&deep(DEPTH_MAX as usize)).is_ok());
        assert_eq!(whole(&deep(DEPTH_MAX as usize + 1)).unwrap_err().what, "nested too deep");
        let within = |text: &str| {
            Text::new(text).value_within(3, |number| number != "7").map(drop).map_err(|error| error.what)
        };
        assert_eq!(
            [within("[[{}]]"), within("[{\"a\":[6,77]}]"), within("\"7[[[[\"")],
            [Ok(()), Ok(()), Ok(())]
        );
        assert_eq!(
            [within("[[{\"a\":{}}]]"), within("[[[[]]]]")],
            [Err("nested too deep"), Err("nested too deep")]
        );
        assert_eq!([within("7"), within("[6,[7]]")], [Err("a number beyond what is taken"); 2]);
        assert!(whole(&"{\"a\":[".repeat(1_000_000)).is_err());
    }

    proptest! {
        #[test]
        fn it_agrees_with_another_parser(text in r#"[\[\]{},:0-9ae" \n\\.u+-]{0,24}"#) {
            prop_assert_eq!(whole(&text).is_ok(), serde_json::from_str::<IgnoredAny>(&text).is_ok(), "{:?}", text);
        }

        #[test]
        fn strings_come_back(text in any::<String>()) {
            let written = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(Text::new(&written).string().unwrap().text(), text.as_str());
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            let escaped = format!("\"{escaped}\"");
            prop_assert_eq!(Text::new(&escaped).string().unwrap().text(), text.as_str());
        }

        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let mut walk = Text::new(&text);
            if let Err(syntax) = walk.value() {
                prop_assert!(syntax.at <= text.len());
            }
            let _ = (walk.key(), walk.next_member(), walk.begin_array(), walk.number(), walk.finish());
        }
    }
}
