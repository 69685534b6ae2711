//! Whether an HTTP request may be a call: judged by its method and fields, before its body is read.
//!
//! A browser may be made to send requests to this machine by any page it shows. It cannot read the answers,
//! and what it may send without asking first (a preflight, which is refused like every method but POST) has
//! no JSON content type. A page whose name is made to lead here after the fact is stopped by its `Host`.

use smallvec::smallvec;
use thalweg_wire::exchange::{Method, Request, Response};
use thalweg_wire::field::Name;
use thalweg_wire::host::{HOST_UNKNOWN, Hosts};
use thalweg_wire::lines::Lines;
use thalweg_wire::media;
use thalweg_wire::problem::{self, PROBLEM_MEDIA, Problem};

/// Where services are.
pub(crate) const PREFIX: &str = "/rpc/";

/// A refusal in the format of all others.
pub(crate) fn refusal(problem: &Problem<'_>, fields: &str) -> Response {
    let mut lines = Lines::new();
    lines.push(format!("Content-Type: {PROBLEM_MEDIA}\r\nX-Content-Type-Options: nosniff\r\n").as_bytes());
    lines.push(problem::lines(problem.status));
    lines.push(fields.as_bytes());
    let body = smallvec![problem.encode().into()];
    Response { status: problem.status, fields: lines, body }
}

/// What is answered where no service is, with the names of those there are.
pub(crate) fn no_service<'a>(path: &str, names: impl Iterator<Item = &'a str>) -> Response {
    let names = names.collect::<Vec<_>>().join(", ");
    let detail = match path.strip_prefix(PREFIX) {
        Some(name) if !name.is_empty() => format!("there is no service `{name}` here; there are: {names}"),
        _ => format!("a service is called at /rpc/<service>; there are: {names}"),
    };
    let detail = detail.as_str();
    refusal(&Problem { status: 404, rule: "path-unknown", field: "path", detail, error: None }, "")
}

/// Whether a request may be taken for JSON-RPC.
///
/// # Errors
/// What is to be answered instead.
pub(crate) fn admit(request: &Request<'_>, hosts: &mut Hosts) -> Result<(), Box<Response>> {
    let refuse = |status, rule, field, detail: &str, fields| {
        Err(Box::new(refusal(&Problem { status, rule, field, detail, error: None }, fields)))
    };
    if request.method != Method::Post {
        let detail = "a service is called with POST";
        return refuse(405, "method-not-allowed", "method", detail, "Allow: POST\r\n");
    }
    if !request.field(Name::Host).is_some_and(|host| hosts.include(host)) {
        return Err(Box::new(refusal(&Problem::from(&HOST_UNKNOWN), "")));
    }
    let content_type = request.field(Name::ContentType).and_then(media::parse);
    if !content_type.is_some_and(|media| media::kind(media) == media::Kind::Json) {
        let detail = "a call is sent as application/json";
        return refuse(415, "content-type", "Content-Type", detail, "");
    }
    // RFC 9110 15.5.16: what a body was packed in is told apart from what it says.
    if request.coding().is_some() {
        let detail = "a call is sent as it is, in no content coding";
        return refuse(415, "content-encoding", "Content-Encoding", detail, "Accept-Encoding: identity\r\n");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thalweg_wire::exchange::Refusal;

    /// `docs/problems.md`: every 429 and every 503, whichever layer refuses.
    #[test]
    fn what_passes_by_itself_says_when_to_come_again() {
        let refused = |status| {
            let full = Refusal { status, code: "full", field: "connection", detail: "come again" };
            let response = refusal(&Problem::from(&full), "Allow: POST\r\n");
            String::from_utf8(response.fields.to_vec()).unwrap()
        };
        for (status, again) in [(429, "Retry-After: 60\r\n"), (503, "Retry-After: 1\r\n"), (403, "")] {
            let fields = refused(status);
            let wanted = format!("Cache-Control: no-store\r\n{again}Allow: POST\r\n");
            assert!(fields.ends_with(&wanted), "{status}: {fields}");
            assert_eq!(fields.contains("Retry-After"), !again.is_empty(), "{status}: {fields}");
        }
    }
}
