//! Why a verb did not do what it should: every reason, its words, and whether it may be gone after a while.

use super::connection::Head;
use super::partly::PartialAppend;
use super::place;
use serde_json::Value;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::http1::ResponseError;
use thalweg_wire::problem;

/// Why a verb did not do what it should.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The URL is none.
    Url(String),
    /// No server answers there.
    Unreachable {
        /// Where.
        url: String,
        /// Why.
        error: io::Error,
    },
    /// The connection broke in the middle of an exchange.
    Broken(io::Error),
    /// What came of an exchange, or of the last of several, that was to change something and may have.
    Unsure(Box<Failure>),
    /// The server does not speak HTTP/1.1.
    Protocol(ResponseError),
    /// The server said no.
    Refused {
        /// Its status.
        status: u16,
        /// Its response head.
        head: Box<Head>,
        /// What it said.
        why: String,
        /// The rule that was broken, as a problem document names it; empty where none is named.
        rule: String,
    },
    /// The server's service said no.
    Said {
        /// The status that HTTP would give it.
        status: u16,
        /// The rule, and what to do.
        why: String,
    },
    /// The server's service was not reached, or its connection broke.
    Service(thalweg_service::Error),
    /// A name that no stream can have.
    Name {
        /// The name.
        name: String,
        /// The rule it breaks.
        why: String,
    },
    /// A message that is not JSON.
    Message {
        /// Where it stands: `line` or `argument`.
        what: &'static str,
        /// Which one, counted from 1.
        number: usize,
        /// Why.
        why: String,
    },
    /// One of several arguments was not taken.
    Argument {
        /// Which one, counted from 1.
        number: usize,
        /// Why.
        failure: Box<Failure>,
    },
    /// Some of what was to be appended is there, and more is not.
    Partly(Box<PartialAppend>),
    /// A header value that would break the request.
    Header(String),
    /// A file cannot be read.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file of certificates to trust cannot be read.
    Trust(io::Error),
    /// The stream ends before the offset asked for.
    PastEnd {
        /// The offset asked for.
        until: String,
        /// Where it ends.
        end: String,
    },
    /// An offset at which nothing that was appended ends.
    Until(String),
    /// There is no manual page of that verb.
    Verb {
        /// What was asked for.
        verb: String,
        /// What there is.
        known: String,
    },
    /// A copy cannot be made or gone on with.
    Copy(String),
    /// The command line asks for what there is not.
    Asked(&'static str),
    /// Some of several streams, each with its name.
    Several(Vec<(String, Failure)>),
    /// The system gives no random bytes.
    Random(io::Error),
    /// The system does not say when it is time to end.
    Signals(io::Error),
    /// Standard input cannot be read.
    Input(io::Error),
    /// Standard output cannot be written.
    Output(io::Error),
    /// An event that makes no sense.
    Event(String),
    /// What cannot be done, and why.
    Undone(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => {
                write!(
                    out,
                    "{url} is not a server's URL: expected http://host:port, https://host:port or unix:/path"
                )
            }
            Self::Unreachable { url, error } => {
                write!(out, "cannot reach {url}: {error}")?;
                if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) {
                    write!(out, "; is the server running? start it with `thalweg serve`")?;
                } else if url.starts_with("https:") && error.kind() == io::ErrorKind::InvalidData {
                    write!(out, "; {}", advice_on_tls(&error.to_string()))?;
                }
                Ok(())
            }
            Self::Broken(error) => write!(out, "the connection broke: {error}"),
            Self::Unsure(failure) => write!(out, "{failure}; what was sent may have been applied"),
            Self::Protocol(error) => write!(out, "{error}{}", advice_on_protocol(error)),
            Self::Refused { status, why, .. } => {
                write!(out, "the server refused ({status}): {}", in_verbs(why))?;
                if *status == 401 { write!(out, " Give one with --token or THALWEG_TOKEN.") } else { Ok(()) }
            }
            Self::Said { status, why } => write!(out, "the server refused ({status}): {}", in_verbs(why)),
            Self::Service(error) => {
                write!(out, "{error}")?;
                if error.fault == Fault::NoServer {
                    write!(
                        out,
                        "; start one with `thalweg serve`, and name its store's directory with --data"
                    )?;
                }
                Ok(())
            }
            Self::Name { name, why } => write!(out, "{name:?} cannot be a stream's name: {why}"),
            Self::Message { what, number, why } => write!(
                out,
                "{what} {number} is not a JSON message ({why}); everything before it is appended, nothing after it"
            ),
            Self::Argument { number, failure } => write!(out, "argument {number}: {failure}"),
            Self::Partly(partly) => write!(out, "{partly}"),
            Self::Header(name) => write!(out, "{name} holds a control character"),
            Self::File { path, error } => write!(out, "cannot read {}: {error}", path.display()),
            Self::PastEnd { until, end } => {
                write!(out, "the stream ends at {end}, before {until}; use --until tail for what there is")
            }
            Self::Random(error) => write!(out, "the system gives no random bytes: {error}"),
            Self::Until(until) => write!(
                out,
                "{until} is no offset at which this stream can be cut; give one that append, read or head printed"
            ),
            Self::Verb { verb, known } => write!(out, "there is no verb {verb}; the verbs are {known}"),
            Self::Copy(why) | Self::Undone(why) => write!(out, "{why}"),
            Self::Trust(error) => write!(out, "{error}; --tls-ca takes a file of certificates (PEM)"),
            Self::Asked(why) => write!(out, "{why}"),
            Self::Several(failures) => {
                let each = |(name, failure): &(String, Self)| format!("{name}: {failure}");
                write!(out, "{}", failures.iter().map(each).collect::<Vec<_>>().join("\n"))
            }
            Self::Signals(error) => write!(out, "cannot watch for signals: {error}"),
            Self::Input(error) => write!(out, "cannot read standard input: {error}"),
            Self::Output(error) => write!(out, "cannot write standard output: {error}"),
            Self::Event(why) => write!(out, "the server sent an event that cannot be understood: {why}"),
        }
    }
}

/// What to do about an answer that cannot be read.
fn advice_on_protocol(error: &ResponseError) -> &'static str {
    match error {
        ResponseError::Malformed => {
            "; does `thalweg serve` listen at that address? A store's thalweg.sock is for `tail --via sock`"
        }
        _ => "",
    }
}

/// Whether a failure may be gone after a while.
pub(super) fn passes(failure: &Failure) -> bool {
    match failure {
        // A server that proved another identity would do so again.
        Failure::Unreachable { error, .. } => error.kind() != std::io::ErrorKind::InvalidData,
        Failure::Broken(_) => true,
        Failure::Service(error) => error.retry() != Retry::Never,
        Failure::Refused { status, .. } | Failure::Said { status, .. } => *status == 429 || *status == 503,
        _ => false,
    }
}

/// The rule of a stream that is damaged.
const STORE_DAMAGED: &str = "store-damaged";

/// The rule of an offset that the server did not give out.
const UNKNOWN_OFFSET: &str = "offset-malformed";

/// What a refusal was without a word.
pub(super) const UNSAID: &str = "it did not say why";

/// What a refusal without a body means, as every one of a HEAD is, where its head tells.
pub(super) fn unsaid(head: &Head) -> Option<&'static str> {
    match head.status {
        401 => Some("The server requires a token from its token file."),
        403 if head.field("www-authenticate").is_some() => Some("The token does not allow it."),
        404 => {
            Some("there is no such stream; `thalweg ls` lists those there are, `thalweg create` makes one")
        }
        410 => Some("the stream, or what it held at this offset, is gone"),
        _ => None,
    }
}

/// Why something was refused, and by which rule, where one is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reason {
    pub(super) why: String,
    pub(super) rule: String,
}

impl Reason {
    pub(super) fn said(why: &str) -> Self {
        Self { why: why.to_owned(), rule: String::new() }
    }
}

/// What a refusal says: the detail of a problem document (RFC 9457), behind the header or parameter at fault,
/// or its text.
pub(super) fn refusal(said: &[u8]) -> Reason {
    if let Some(detail) = problem::told(said) {
        let members: Value = serde_json::from_slice(said).unwrap_or_default();
        let text = |name: &str| members[name].as_str().unwrap_or_default().to_owned();
        return Reason { why: about(&text("field"), detail), rule: text("rule") };
    }
    let text = String::from_utf8_lossy(said).trim().to_owned();
    if text.starts_with('<') {
        return Reason::said(
            "it answered with an HTML page, so it is not a server of streams: is the URL right?",
        );
    }
    Reason::said(if text.is_empty() { UNSAID } else { &text })
}

/// What else than a header or a parameter a refusal may be about.
const PARTS: [&str; 6] = ["path", "body", "store", "connection", "method", "request"];

/// The detail, behind its field if that is a header or a parameter which the detail leaves out.
fn about(field: &str, detail: String) -> String {
    // Of who asks, the detail says all there is.
    let is_of_who_asks = field.eq_ignore_ascii_case("Authorization");
    let is_said = detail.to_lowercase().contains(&field.to_lowercase());
    if is_said || is_of_who_asks || PARTS.contains(&field) {
        return detail;
    }
    format!("{field}: {detail}")
}

impl Failure {
    /// Which of several arguments it is about.
    pub(crate) fn of_argument(self, number: usize) -> Self {
        Self::Argument { number, failure: Box::new(self) }
    }

    /// Where what was sent was to change something, by this exchange or by one before it that left open
    /// whether it did.
    pub(crate) fn of_change(self, left_open: bool) -> Self {
        if left_open || self.leaves_open() { Self::Unsure(Box::new(self)) } else { self }
    }

    /// Where a beginning was asked for and the server knows no such offset: with what `--from` takes.
    pub(super) fn of_beginning(mut self, from: &str) -> Self {
        let why = match &mut self {
            Self::Refused { why, rule, .. } if rule == UNKNOWN_OFFSET => why,
            // Its service says the rule in front of the sentence.
            Self::Said { why, .. } if why.starts_with(UNKNOWN_OFFSET) => why,
            _ => return self,
        };
        *why = format!("--from {from}: {}", place::FROM);
        self
    }

    /// What it comes down to, whatever is said around it.
    pub(crate) fn cause(&self) -> &Self {
        match self {
            Self::Argument { failure, .. } => failure.cause(),
            Self::Partly(partly) => partly.failure.cause(),
            Self::Unsure(failure) => failure.cause(),
            _ => self,
        }
    }

    /// Whether what was sent may have been applied nevertheless. A server that is overloaded (503) or full
    /// (507) has applied nothing, and none applies anything to a stream that is damaged.
    pub(crate) fn leaves_open(&self) -> bool {
        match self {
            Self::Broken(_) | Self::Unsure(_) | Self::Protocol(_) => true,
            Self::Refused { status, rule, .. } => {
                *status >= 500 && !matches!(status, 503 | 507) && rule != STORE_DAMAGED
            }
            Self::Argument { failure, .. } => failure.leaves_open(),
            Self::Partly(partly) => partly.failure.leaves_open(),
            _ => false,
        }
    }
}

/// What a server says to do, in the words of this program.
fn in_verbs(why: &str) -> String {
    let advice = ["create it with PUT", "make it with Create"];
    advice.iter().fold(why.to_owned(), |why, advice| why.replace(advice, "`thalweg create` makes one"))
}

/// What to do about a server that did not prove itself, for what rustls says of it.
fn advice_on_tls(error: &str) -> &'static str {
    if error.contains("corrupt message") {
        "does the server speak TLS? If not, use http://"
    } else if error.contains("not valid for name") || error.contains("NotValidForName") {
        "use a name that the server's certificate has"
    } else if error.contains("CaUsedAsEndEntity") {
        "the server's certificate is an authority's, which no server may use: make one with CA:FALSE in basicConstraints"
    } else {
        "name the certificates to trust with --tls-ca"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_said_if_it_is_one_of_the_request_and_the_detail_leaves_it_out() {
        for (field, detail, wanted) in [
            ("Content-Type", "it is no type", "Content-Type: it is no type"),
            ("limit", "it is too large", "limit: it is too large"),
            ("Stream-TTL", "Stream-TTL and another", "Stream-TTL and another"),
            ("offset", "The Offset is malformed", "The Offset is malformed"),
            ("path", "there is none", "there is none"),
            ("Authorization", "This takes a token", "This takes a token"),
            ("", "so", "so"),
        ] {
            let said = format!(r#"{{"detail":"{detail}","field":"{field}","rule":"r"}}"#);
            let reason = refusal(said.as_bytes());
            assert_eq!((reason.why.as_str(), reason.rule.as_str()), (wanted, "r"));
        }
    }

    #[test]
    fn a_server_that_did_not_prove_itself_is_told_of_by_what_was_wrong() {
        assert_eq!(
            advice_on_tls("invalid peer certificate: certificate not valid for name \"localhost\""),
            "use a name that the server's certificate has"
        );
        assert!(advice_on_tls("invalid peer certificate: UnknownIssuer").contains("--tls-ca"));
    }

    #[test]
    fn what_was_sent_may_have_been_applied_unless_the_server_says_why_not() {
        for (status, rule, may) in [
            (500, "outcome-unknown", true),
            (500, "", true),
            (502, "", true),
            (500, "store-damaged", false),
            (503, "store-poisoned", false),
            (507, "store-full", false),
            (409, "conflict", false),
        ] {
            let head = Box::new(Head { status, fields: Vec::new(), keep_alive: true });
            let refused = Failure::Refused { status, head, why: String::new(), rule: rule.to_owned() };
            assert_eq!(refused.leaves_open(), may, "{status} {rule}");
        }
    }

    #[test]
    fn refusals_are_told_in_their_own_words() {
        let why = |said: &[u8]| refusal(said).why;
        assert_eq!(
            why(br#"{"title":"Bad","detail":"The offset is malformed."}"#),
            "The offset is malformed."
        );
        assert_eq!(why(br#"{"title":"Bad"}"#), "Bad");
        assert_eq!(why(b" plain words\n"), "plain words");
        assert_eq!(why(b""), "it did not say why");
        assert!(why(b"<!DOCTYPE html><title>Not found</title>").contains("is the URL right?"));
        let unsaid = |status, fields: &[(&str, &str)]| {
            let fields =
                fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            unsaid(&Head { status, fields, keep_alive: true })
        };
        assert!(unsaid(404, &[]).unwrap().contains("thalweg ls"));
        assert!(unsaid(401, &[]).unwrap().contains("token"));
        assert!(unsaid(403, &[("WWW-Authenticate", "Bearer")]).unwrap().contains("token"));
        assert_eq!([unsaid(403, &[]), unsaid(418, &[])], [None, None]);
    }
}
