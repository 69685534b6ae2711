//! A service's frames and the JSON that says the same, in each direction, by the schema alone.
//!
//! So a program that has a schema can call without generated code, and generated code can call where JSON is
//! spoken ([`Carrier`](crate::Carrier)).

use crate::plan::{Method, Plan};
use crate::request::{self, FieldError};
use crate::response::{self, DecodedResponse};
use thalweg_schema as schema;
use thalweg_service::Error;
use thalweg_wire::fault::Fault;
use thalweg_wire::jsonrpc::Params;
use thalweg_wire::messagepack::DecodeError;

/// Translates between a service's frames and JSON.
///
/// ```
/// use thalweg_rpc::Translator;
/// let schema = thalweg_schema::parse(
///     "door.jsonc",
///     r#"{
///         "service": "Door",
///         "error": { "message": "string" },
///         "commands": { "Knock": { "request": { "times": "u8" }, "response": { "times": "u8" } } },
///     }"#,
/// )?;
/// let door = Translator::new(&schema);
/// let mut frame = Vec::new();
/// door.request("Knock", "[3]", &mut frame)?;
/// assert_eq!(frame, b"\x91\x92\xa9DoorKnock\x81\xa5times\x03");
/// let mut params = Vec::new();
/// assert_eq!(door.params(&frame, &mut params)?, "Knock");
/// assert_eq!(params, br#"{"times":3}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Translator {
    plan: Plan,
}

impl Translator {
    /// By the schema of a service.
    pub fn new(service: &schema::Service) -> Self {
        Self { plan: Plan::of(service) }
    }

    /// The hash of the schema, which both ends of a connection hold against each other's.
    pub fn hash(&self) -> [u8; 32] {
        self.plan.hash
    }

    fn method(&self, name: &str) -> Result<&Method, Error> {
        let place = self.plan.find(name).ok_or_else(|| {
            Error::new(Fault::UnknownCommand, format!("{} has no command {name:?}", self.plan.name))
        })?;
        Ok(&self.plan.methods[place])
    }

    /// Appends the frame of a request, from its parameters: an object, an array, or nothing.
    ///
    /// # Errors
    /// [`Fault::UnknownCommand`]; [`Fault::BadArgument`] and where the parameters do not fit. What was
    /// appended then is of no use.
    pub fn request(&self, method: &str, params: &str, frame: &mut Vec<u8>) -> Result<(), Error> {
        let given = match params.trim_start().bytes().next() {
            None => Params::Absent,
            Some(b'[') => Params::Positions(params),
            Some(b'{') => Params::Names(params),
            Some(_) => {
                return Err(Error::new(Fault::BadArgument, "parameters are a JSON array or object, or none"));
            }
        };
        let method = self.method(method)?;
        request::encode(&self.plan, method, given, frame).map_err(|error| wrong(Fault::BadArgument, &error))
    }

    /// Appends what a frame that answers a command says, as the object of a result.
    ///
    /// # Errors
    /// [`Fault::Refused`], in the service's words; [`Fault::BadAnswer`], also for a frame that would become
    /// more than 64 times its length and 16 MiB. Nothing was appended.
    pub fn result(&self, method: &str, frame: &[u8], json: &mut Vec<u8>) -> Result<(), Error> {
        let message = &self.method(method)?.response;
        match response::decode(&self.plan, message, frame, usize::MAX, json)
            .map_err(|error| nonsense(&error))?
        {
            DecodedResponse::Fields => Ok(()),
            DecodedResponse::Refusal(words) => Err(Error::new(Fault::Refused, words)),
        }
    }

    /// Appends what the frame of a request asks, as the object of its parameters, and says of which command.
    ///
    /// # Errors
    /// [`Fault::BadRequest`]; nothing was appended.
    pub fn params(&self, frame: &[u8], json: &mut Vec<u8>) -> Result<&str, Error> {
        let asked = response::decode_request(&self.plan, frame, json);
        asked.map(|(name, _)| name).map_err(|error| Error::new(Fault::BadRequest, error.to_string()))
    }

    /// Appends the frame that answers a command with a result.
    ///
    /// # Errors
    /// [`Fault::BadAnswer`] and where the result does not fit. What was appended then is of no use.
    pub fn response(&self, method: &str, result: &str, frame: &mut Vec<u8>) -> Result<(), Error> {
        let message = &self.method(method)?.response;
        request::encode_result(&self.plan, message, result, frame)
            .map_err(|error| wrong(Fault::BadAnswer, &error))
    }

    /// The frame by which the service refuses, in these words.
    pub fn refusal(&self, words: &str) -> Vec<u8> {
        thalweg_wire::service::error_frame(&self.plan.error_tag, words)
    }

    /// Whether a command answers with a stream.
    pub fn is_stream(&self, method: &str) -> bool {
        self.method(method).is_ok_and(|method| method.item.is_some())
    }
}

fn wrong(fault: Fault, error: &FieldError) -> Error {
    Error::new(fault, format!("{}: {}", error.field, error.what))
}

fn nonsense(error: &DecodeError) -> Error {
    Error::new(Fault::BadAnswer, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corners() -> Translator {
        let text = r#"{
            "service": "Corners",
            "error": { "message": "string" },
            "enums": { "Side": ["left", "right"] },
            "types": { "Point": { "x": "i64", "side": "Side", "tags": "string[]" } },
            "commands": { "Put": {
                "request": { "n": "u64", "data": "bytes", "at": "Point?", "by": "map<f64>" },
                "response": { "n": "u64", "data": "bytes", "at": "Point?", "by": "map<f64>" },
            } },
        }"#;
        Translator::new(&thalweg_schema::parse("corners.jsonc", text).unwrap())
    }

    const FIELDS: [&str; 2] = [
        r#"{"n":18446744073709551615,"data":"AP8=","at":{"x":-9223372036854775808,"side":"right","tags":["a\"","b"]},"by":{"k":0.5}}"#,
        r#"{"n":0,"data":"","at":null,"by":{}}"#,
    ];

    #[test]
    fn a_request_and_a_response_come_back_as_they_went() {
        let corners = corners();
        for fields in FIELDS {
            let (mut frame, mut json) = (Vec::new(), Vec::new());
            corners.request("Put", fields, &mut frame).unwrap();
            assert_eq!(corners.params(&frame, &mut json).unwrap(), "Put");
            assert_eq!(String::from_utf8(json.clone()).unwrap(), fields);
            let (mut frame, mut json) = (Vec::new(), Vec::new());
            corners.response("Put", fields, &mut frame).unwrap();
            corners.result("Put", &frame, &mut json).unwrap();
            assert_eq!(String::from_utf8(json).unwrap(), fields);
        }
    }

    #[test]
    fn what_does_not_fit_says_where() {
        let corners = corners();
        let request = |params: &str| {
            let error = corners.request("Put", params, &mut Vec::new()).unwrap_err();
            (error.fault, error.detail)
        };
        assert_eq!(request("{}"), (Fault::BadArgument, "n: it is missing".to_owned()));
        assert_eq!(request("7").0, Fault::BadArgument);
        assert_eq!(request(r#"[1, "", null, {}] 5"#).0, Fault::BadArgument);
        assert_eq!(request("{").0, Fault::BadArgument);
        let unknown = corners.request("Get", "", &mut Vec::new()).unwrap_err();
        assert_eq!(unknown.fault, Fault::UnknownCommand);
        for result in ["[]", "null", r#"{"n":1}"#, ""] {
            let error = corners.response("Put", result, &mut Vec::new()).unwrap_err();
            assert_eq!(error.fault, Fault::BadAnswer, "{result}");
        }
        let refused = corners.result("Put", &corners.refusal("not now"), &mut Vec::new()).unwrap_err();
        assert_eq!((refused.fault, refused.detail.as_str()), (Fault::Refused, "not now"));
        let mut json = vec![7];
        assert_eq!(corners.params(b"\x91\x92\xa3Put\x80", &mut json).unwrap_err().fault, Fault::BadRequest);
        assert_eq!(corners.result("Put", b"\x92", &mut json).unwrap_err().fault, Fault::BadAnswer);
        assert_eq!(json, [7]);
    }

    /// An absent field takes nothing of a frame, and its name in JSON.
    #[test]
    fn what_a_frame_may_become_is_bounded() {
        let fields: Vec<String> = (0..200).map(|n| format!("\"a_field_{n}\": \"u8?\"")).collect();
        let text = format!(
            r#"{{ "service": "Wide", "error": {{ "message": "string" }}, "types": {{ "Row": {{ {} }} }},
                "commands": {{ "Get": {{ "request": {{ "rows": "Row[]" }}, "response": {{ "rows": "Row[]" }} }} }} }}"#,
            fields.join(", ")
        );
        let wide = Translator::new(&thalweg_schema::parse("wide.jsonc", &text).unwrap());
        let frame = |head: &[u8], rows: u16| {
            let rows = [&rows.to_be_bytes()[..], &vec![0x80; rows.into()]].concat();
            [head, b"\x81\xa4rows\xdc", &rows].concat()
        };
        let answer = |rows| frame(b"\x92\xafWideGetResponse", rows);
        let mut json = vec![7];
        let error = wide.result("Get", &answer(20_000), &mut json).unwrap_err();
        assert_eq!(error.fault, Fault::BadAnswer);
        assert!(error.detail.contains("too much memory"), "{error}");
        let error = wide.params(&frame(b"\x91\x92\xa7WideGet", 20_000), &mut json).unwrap_err();
        assert_eq!(error.fault, Fault::BadRequest);
        assert_eq!(json, [7]);
        assert!(json.capacity() < 64 << 20, "{}", json.capacity());
        wide.result("Get", &answer(1_000), &mut json).unwrap();
        assert!(json.len() > 2_000_000);
    }
}
