//! A body: one call or a batch of them, judged whole before anything is carried out.

use super::{INVALID_REQUEST, PARSE_ERROR, VERSION};
use crate::json::{Kind, SyntaxError, Text};
use smallvec::SmallVec;
use std::borrow::Cow;

/// An id, as it was written: a string, an integer of up to 64 bits, or `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id<'a>(&'a str);

impl<'a> Id<'a> {
    /// What answers a request whose id cannot be told.
    pub const NULL: Self = Self("null");

    /// One that was kept as it was written.
    pub fn kept(written: &'a str) -> Self {
        Self(written)
    }

    /// As it is to be echoed.
    pub fn as_str(self) -> &'a str {
        self.0
    }
}

/// Parameters, still as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Params<'a> {
    /// None were given.
    Absent,
    /// An array: by position.
    Positions(&'a str),
    /// An object: by name.
    Names(&'a str),
}

/// A call that may be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// What its answer carries; without one it is a notification, which has no answer.
    pub id: Option<Id<'a>>,
    /// The method's name.
    pub method: Cow<'a, str>,
    /// Its parameters.
    pub params: Params<'a>,
}

/// An object that is no request: answered with an error, and nothing is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRequest<'a> {
    /// Its id, if that much is right; else `null`.
    pub id: Id<'a>,
    /// The member at fault, as it was written.
    pub field: &'a str,
    /// What is wrong with it.
    pub what: &'static str,
}

/// One of the things that a body holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// To be carried out.
    Call(Call<'a>),
    /// To be answered with an error.
    Invalid(InvalidRequest<'a>),
}

/// What a body asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calls<'a> {
    /// Whether it is an array, and so is its answer.
    pub is_batch: bool,
    /// In order; exactly one unless it is a batch.
    pub items: SmallVec<[Item<'a>; 1]>,
}

/// Why nothing of a body is carried out. The answer is one error, with the id `null`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Not UTF-8 from this byte on.
    Utf8(usize),
    /// Not JSON.
    Syntax(SyntaxError),
    /// An array without a call.
    EmptyBatch,
    /// More calls than this.
    TooMany(usize),
}

impl BodyError {
    /// The error's code.
    pub const fn code(self) -> i32 {
        match self {
            Self::Utf8(_) | Self::Syntax(_) => PARSE_ERROR,
            Self::EmptyBatch | Self::TooMany(_) => INVALID_REQUEST,
        }
    }
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Utf8(at) => write!(out, "the body is not JSON: no UTF-8 from byte {at} on"),
            Self::Syntax(syntax) => write!(out, "the body is not JSON: {syntax}"),
            Self::EmptyBatch => write!(out, "the batch is empty"),
            Self::TooMany(most) => write!(out, "the batch has more than {most} calls"),
        }
    }
}

impl From<SyntaxError> for BodyError {
    fn from(syntax: SyntaxError) -> Self {
        Self::Syntax(syntax)
    }
}

/// What `body` asks.
///
/// ```
/// use thalweg_wire::jsonrpc::{Item, Params, calls};
/// let asked = calls(br#"{"jsonrpc":"2.0","method":"Add","params":[1,2],"id":"7"}"#, 100)?;
/// let [Item::Call(call)] = &asked.items[..] else { panic!() };
/// assert_eq!((call.method.as_ref(), call.params), ("Add", Params::Positions("[1,2]")));
/// assert_eq!(call.id.unwrap().as_str(), "\"7\"");
/// # Ok::<(), thalweg_wire::jsonrpc::BodyError>(())
/// ```
///
/// # Errors
/// [`BodyError`]: nothing of it is to be carried out.
pub fn calls(body: &[u8], calls_max: usize) -> Result<Calls<'_>, BodyError> {
    let text = std::str::from_utf8(body).map_err(|error| BodyError::Utf8(error.valid_up_to()))?;
    let mut text = Text::new(text);
    let mut items = SmallVec::new();
    let is_batch = text.kind()? == Kind::Array;
    if !is_batch {
        items.push(item(&mut text)?);
        text.finish()?;
        return Ok(Calls { is_batch, items });
    }
    let mut more = text.begin_array()?;
    let mut count = 0_usize;
    while more {
        count += 1;
        // A batch that is too long is still told from one that is no JSON, by the same rules to its end.
        let item = item(&mut text)?;
        if count <= calls_max {
            items.push(item);
        }
        more = text.next_element()?;
    }
    text.finish()?;
    match count {
        0 => Err(BodyError::EmptyBatch),
        _ if count > calls_max => Err(BodyError::TooMany(calls_max)),
        _ => Ok(Calls { is_batch, items }),
    }
}

/// The members of a request, as far as they were read.
#[derive(Default)]
struct Members<'a> {
    version: Option<Result<(), &'static str>>,
    id: Option<Result<Id<'a>, &'static str>>,
    method: Option<Result<Cow<'a, str>, &'static str>>,
    params: Option<Result<Params<'a>, &'static str>>,
    wrong: Option<(&'a str, &'static str)>,
}

fn item<'a>(text: &mut Text<'a>) -> Result<Item<'a>, SyntaxError> {
    if text.kind()? != Kind::Object {
        text.value()?;
        return Ok(Item::Invalid(InvalidRequest {
            id: Id::NULL,
            field: "request",
            what: "a request is an object",
        }));
    }
    let mut members = Members::default();
    let mut more = text.begin_object()?;
    while more {
        match name(text)? {
            Name::Version => once(&mut members.version, "jsonrpc", &mut members.wrong, version(text)?),
            Name::Id => once(&mut members.id, "id", &mut members.wrong, id(text)?),
            Name::Method => once(&mut members.method, "method", &mut members.wrong, method(text)?),
            Name::Params => once(&mut members.params, "params", &mut members.wrong, params(text)?),
            Name::Other(raw) => {
                text.value()?;
                members.wrong = Some((raw, "a member that no request has"));
            }
        }
        more = text.next_member()?;
    }
    Ok(members.judge())
}

/// The name of a member.
enum Name<'a> {
    Version,
    Id,
    Method,
    Params,
    /// As it is written.
    Other(&'a str),
}

/// The next member's name, and the colon.
#[inline]
fn name<'a>(text: &mut Text<'a>) -> Result<Name<'a>, SyntaxError> {
    if text.passes(r#""jsonrpc":"#) {
        return Ok(Name::Version);
    }
    if text.passes(r#""method":"#) {
        return Ok(Name::Method);
    }
    if text.passes(r#""params":"#) {
        return Ok(Name::Params);
    }
    if text.passes(r#""id":"#) {
        return Ok(Name::Id);
    }
    // Blanks and escapes may stand in any.
    let key = text.key()?;
    Ok(match key.text().as_ref() {
        "jsonrpc" => Name::Version,
        "method" => Name::Method,
        "params" => Name::Params,
        "id" => Name::Id,
        _ => Name::Other(key.raw()),
    })
}

/// Notes a member, which may be there once.
fn once<T>(
    slot: &mut Option<Result<T, &'static str>>,
    field: &'static str,
    wrong: &mut Option<(&str, &'static str)>,
    value: Result<T, &'static str>,
) {
    if slot.is_some() {
        *wrong = Some((field, "it is there twice"));
    }
    // Of an id that is there twice neither is to be echoed.
    *slot = Some(if slot.is_some() { Err("it is there twice") } else { value });
}

fn version(text: &mut Text<'_>) -> Result<Result<(), &'static str>, SyntaxError> {
    let is_ours = text.passes(VERSION)
        || match text.kind()? {
            Kind::String => text.string()?.text() == VERSION.trim_matches('"'),
            _ => text.value().map(|_| false)?,
        };
    Ok(if is_ours { Ok(()) } else { Err("it has to be \"2.0\"") })
}

fn id<'a>(text: &mut Text<'a>) -> Result<Result<Id<'a>, &'static str>, SyntaxError> {
    // As nearly everybody has them.
    if let Some(written) = text.unsigned_written() {
        return Ok(Ok(Id(written)));
    }
    let kind = text.kind()?;
    let raw = text.value()?;
    Ok(match kind {
        Kind::String | Kind::Null => Ok(Id(raw)),
        Kind::Number if raw.parse::<i64>().is_ok() => Ok(Id(raw)),
        Kind::Number => Err("a number has to be an integer of at most 64 bits"),
        _ => Err("it has to be a string, an integer or null"),
    })
}

fn method<'a>(text: &mut Text<'a>) -> Result<Result<Cow<'a, str>, &'static str>, SyntaxError> {
    if text.kind()? == Kind::String {
        return Ok(Ok(text.string()?.text()));
    }
    text.value()?;
    Ok(Err("it has to be a string"))
}

fn params<'a>(text: &mut Text<'a>) -> Result<Result<Params<'a>, &'static str>, SyntaxError> {
    let kind = text.kind()?;
    let raw = text.value()?;
    Ok(match kind {
        Kind::Array => Ok(Params::Positions(raw)),
        Kind::Object => Ok(Params::Names(raw)),
        _ => Err("they have to be an array or an object"),
    })
}

impl<'a> Members<'a> {
    fn judge(self) -> Item<'a> {
        let Self { version, id, method, params, wrong } = self;
        // The version says by which rules all else is to be judged, and an id that cannot be told answers
        // nothing.
        let echoed = match id {
            Some(Ok(id)) => id,
            _ => Id::NULL,
        };
        let invalid = |field, what| Item::Invalid(InvalidRequest { id: echoed, field, what });
        let (version, method) =
            (version.unwrap_or(Err("it is missing")), method.unwrap_or(Err("it is missing")));
        if let Err(what) = version {
            return invalid("jsonrpc", what);
        }
        let id = match id.transpose() {
            Ok(id) => id,
            Err(what) => return invalid("id", what),
        };
        if let Some((field, what)) = wrong {
            return invalid(field, what);
        }
        match (method, params.unwrap_or(Ok(Params::Absent))) {
            (Ok(method), Ok(params)) => Item::Call(Call { id, method, params }),
            (Err(what), _) => invalid("method", what),
            (_, Err(what)) => invalid("params", what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(body: &str) -> Item<'_> {
        let asked = calls(body.as_bytes(), 10).unwrap();
        assert!(!asked.is_batch);
        asked.items.into_iter().next().unwrap()
    }

    fn invalid(body: &str) -> (&str, &str) {
        match one(body) {
            Item::Invalid(InvalidRequest { id, field, .. }) => (id.as_str(), field),
            Item::Call(call) => panic!("{body} is {call:?}"),
        }
    }

    #[test]
    fn ids_are_kept_as_they_are_written() {
        for id in ["null", "\"\"", "\"\\u0041\"", "0", "-7", "18446744073709551615", "-9223372036854775808"] {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","id": {id} }}"#);
            let Item::Call(call) = one(&body) else { panic!("{body}") };
            assert_eq!(call.id, Some(Id(id)));
        }
        let Item::Call(notification) = one(r#"{"jsonrpc":"\u0032.0","\u006dethod" :"\u006d"}"#) else {
            panic!()
        };
        assert_eq!((notification.id, notification.method.as_ref()), (None, "m"));
    }

    #[test]
    fn an_id_that_cannot_be_told_is_null_and_nothing_is_carried_out() {
        for id in ["{}", "[1]", "true", "1.5", "1e2", "18446744073709551616", "-9223372036854775809", "1e999"]
        {
            let body = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#);
            assert_eq!(invalid(&body), ("null", "id"), "{id}");
        }
        assert_eq!(invalid(r#"{"jsonrpc":"2.0","method":"m","id":1,"id":2}"#), ("null", "id"));
    }

    #[test]
    fn a_member_that_is_wrong_is_named() {
        for (body, expected) in [
            (r#"{"method":"m","id":1}"#, ("1", "jsonrpc")),
            (r#"{"jsonrpc":"1.0","method":"m","id":1}"#, ("1", "jsonrpc")),
            (r#"{"jsonrpc":2.0,"method":"m","id":1}"#, ("1", "jsonrpc")),
            (r#"{"jsonrpc":"2.0","id":1}"#, ("1", "method")),
            (r#"{"jsonrpc":"2.0","method":1,"id":1}"#, ("1", "method")),
            (r#"{"jsonrpc":"2.0","method":"m","params":1,"id":1}"#, ("1", "params")),
            (r#"{"jsonrpc":"2.0","method":"m","params":null,"id":1}"#, ("1", "params")),
            (r#"{"jsonrpc":"2.0","method":"m","method":"n","id":1}"#, ("1", "method")),
            (r#"{"jsonrpc":"2.0","method":"m","meta":{},"id":1}"#, ("1", "meta")),
            (r#"{"foo":"boo"}"#, ("null", "jsonrpc")),
            ("1", ("null", "request")),
        ] {
            assert_eq!(invalid(body), expected, "{body}");
        }
    }

    #[test]
    fn a_batch_is_judged_whole() {
        let asked =
            calls(br#"[{"jsonrpc":"2.0","method":"m","id":1},1,{"jsonrpc":"2.0","method":"n"}]"#, 3).unwrap();
        assert!(asked.is_batch && asked.items.len() == 3);
        assert!(matches!(asked.items[1], Item::Invalid(InvalidRequest { id: Id("null"), .. })));
        assert_eq!(calls(b"[]", 3), Err(BodyError::EmptyBatch));
        assert_eq!(calls(b"[1,2,3,4]", 3), Err(BodyError::TooMany(3)));
        for torn in ["[1,2,3,4", "[1,2,3,x]", r#"[{"jsonrpc":"2.0","method":"m","id":1},"#, "{} {}"] {
            assert_eq!(calls(torn.as_bytes(), 3).unwrap_err().code(), PARSE_ERROR, "{torn}");
        }
        assert_eq!(calls(b"{\"a\":\"\xff\"}", 3), Err(BodyError::Utf8(6)));
    }

    /// A value may be nested as deep behind the last call that is taken as in front of it.
    #[test]
    fn a_batch_that_is_too_long_is_told_from_what_is_nested_too_deep() {
        let code = |depth| {
            let params = "[".repeat(depth) + &"]".repeat(depth);
            let body = format!(r#"[1,{{"jsonrpc":"2.0","method":"m","params":{params}}}]"#);
            calls(body.as_bytes(), 1).unwrap_err().code()
        };
        let deepest = crate::json::DEPTH_MAX as usize;
        assert_eq!((code(deepest), code(deepest + 1)), (INVALID_REQUEST, PARSE_ERROR));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(asked) = calls(&body, 4) {
                prop_assert!((1..=4).contains(&asked.items.len()));
            }
        }

        /// Whatever is cut off, what is left is never taken for a call.
        #[test]
        fn a_prefix_is_no_body(method in "[a-z]{1,4}", id in any::<u64>(), batch in any::<bool>()) {
            let call = format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{{"a":[1]}},"id":{id}}}"#);
            let body = if batch { format!("[{call},{call}]") } else { call };
            for cut in 0..body.len() {
                prop_assert!(calls(&body.as_bytes()[..cut], 4).is_err());
            }
            prop_assert!(calls(body.as_bytes(), 4).is_ok());
        }
    }
}
