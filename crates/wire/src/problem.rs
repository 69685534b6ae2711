//! Problem details (RFC 9457): the body of every refusal, naming the field at fault and the rule it broke.

use crate::exchange::Refusal;
use crate::http1::reason;
use serde::Serialize;

/// The media type of the body.
pub const PROBLEM_MEDIA: &str = "application/problem+json";

/// One refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem<'a> {
    /// HTTP status.
    pub status: u16,
    /// Stable word for the rule that was broken, for machines.
    pub rule: &'a str,
    /// The header, parameter or part of the request at fault.
    pub field: &'a str,
    /// One sentence for people: what is wrong and what to do.
    pub detail: &'a str,
    /// The code of an `error` member beside those, where a protocol has one.
    pub error: Option<&'a str>,
}

impl From<&Refusal> for Problem<'static> {
    fn from(refusal: &Refusal) -> Self {
        let Refusal { status, code, field, detail } = *refusal;
        Self { status, rule: code, field, detail, error: None }
    }
}

/// The lines of every refusal with that status: that it is not cached, and when to come again: after a second
/// for what a moment changes (503), after a minute where room has to be made first (429).
pub const fn lines(status: u16) -> &'static [u8] {
    match status {
        429 => b"Cache-Control: no-store\r\nRetry-After: 60\r\n",
        503 => b"Cache-Control: no-store\r\nRetry-After: 1\r\n",
        _ => b"Cache-Control: no-store\r\n",
    }
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: Type<'a>,
    title: &'a str,
    status: u16,
    detail: &'a str,
    field: &'a str,
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Code<'a>>,
}

#[derive(Serialize)]
struct Code<'a> {
    code: &'a str,
}

/// The problem type's identifier, written without building a string.
struct Type<'a>(&'a str);

impl Serialize for Type<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("urn:thalweg:problem:{}", self.0))
    }
}

/// What a problem document of any server says to people: its detail, else its title. `None` where the body is
/// no problem document, or has neither.
pub fn told(body: &[u8]) -> Option<String> {
    let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
    ["detail", "title"].iter().find_map(|name| Some(members.get(*name)?.as_str()?.to_owned()))
}

impl Problem<'_> {
    /// The body as JSON.
    pub fn encode(&self) -> Vec<u8> {
        let body = Body {
            r#type: Type(self.rule),
            title: reason(self.status),
            status: self.status,
            detail: self.detail,
            field: self.field,
            rule: self.rule,
            error: self.error.map(|code| Code { code }),
        };
        let mut out = Vec::with_capacity(192 + self.detail.len());
        // Writing strings and an integer to memory cannot fail; an empty body would still be an answer.
        if serde_json::to_writer(&mut out, &body).is_err() {
            out.clear();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_members_are_those_of_the_rfc_and_ours() {
        let (field, detail) = ("Stream-TTL", "say \"why\"");
        let problem = Problem { status: 400, rule: "ttl", field, detail, error: None };
        let common = r#"{"type":"urn:thalweg:problem:ttl","title":"Bad Request","status":400,"#.to_owned()
            + r#""detail":"say \"why\"","field":"Stream-TTL","rule":"ttl""#;
        let text = |problem: Problem<'_>| String::from_utf8(problem.encode()).unwrap();
        assert_eq!(text(problem), format!("{common}}}"));
        let beside = Problem { error: Some("TTL"), ..problem };
        assert_eq!(text(beside), common + r#","error":{"code":"TTL"}}"#);
    }

    #[test]
    fn whoever_reads_one_is_told_its_detail_or_its_title() {
        let says = |body: &str| told(body.as_bytes());
        assert_eq!(
            says(r#"{"title":"Bad","detail":"It is malformed."}"#).as_deref(),
            Some("It is malformed.")
        );
        assert_eq!(says(r#"{"title":"Bad","detail":7}"#).as_deref(), Some("Bad"));
        for none in ["", "{}", "[]", "plain words", r#"{"title":null}"#] {
            assert_eq!(says(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_text_stays_inside_its_member(detail in ".*", field in ".*") {
            let body = Problem { status: 404, rule: "r", field: &field, detail: &detail, error: None }.encode();
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            prop_assert_eq!(value["detail"].as_str(), Some(detail.as_str()));
            let told = told(&body);
            prop_assert_eq!(told.as_deref(), Some(detail.as_str()));
            prop_assert_eq!(value["field"].as_str(), Some(field.as_str()));
            prop_assert_eq!(value.as_object().unwrap().len(), 6);
        }
    }
}
