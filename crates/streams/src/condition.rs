//! Preconditions (RFC 9110 13): `If-Match`, then `If-None-Match`.
//!
//! A catch-up read is compared by the tag of what it returns. What else is asked of a stream, every write and
//! `HEAD`, is compared by the tags of reads that came to its end as it is: so a writer that says what it has
//! read appends behind that and nothing else. Writes are judged by the staged view, behind its version, so
//! that no other commit comes between the condition and the write.
//!
//! RFC 9110 13.2.1: what would be refused anyway is refused for that, so each verb judges the conditions
//! last. A producer's repeated append is not judged again: it was carried out (RFC 9110 13.1.1).

use crate::access::FoundStream;
use crate::cache::is_tag_of_end;
use crate::problem::Problem;
use crate::store::Store;
use thalweg_wire::etag::{self, Comparison};
use thalweg_wire::exchange::Request;
use thalweg_wire::field::{Field, Name};

/// The conditions of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conditions<'a>(&'a [Field<'a>]);

/// What conditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// They hold.
    Proceed,
    /// The client has what it asks for, if it asks to read: 304.
    Has,
    /// They do not hold: 412.
    Failed,
}

impl<'a> Conditions<'a> {
    pub(crate) fn of(request: &Request<'a>) -> Self {
        Self(request.fields)
    }

    /// RFC 9110 13.2.2, of a stream that is there and whose tags are `current`.
    pub(crate) fn judge(self, current: impl Fn(&[u8]) -> bool) -> Verdict {
        let matches =
            |name, comparison| self.values(name).any(|list| etag::matches(list, comparison, &current));
        if self.has(Name::IfMatch) && !matches(Name::IfMatch, Comparison::Strong) {
            return Verdict::Failed;
        }
        if matches(Name::IfNoneMatch, Comparison::Weak) { Verdict::Has } else { Verdict::Proceed }
    }

    /// The same by the tags of reads that came to the stream's end.
    pub(crate) fn judge_whole<S: Store>(self, found: &FoundStream<S>) -> Verdict {
        self.judge(|tag| is_tag_of_end(tag, found))
    }

    /// Why a write to a stream that is there is refused.
    pub(crate) fn refuse_write<S: Store>(self, found: &FoundStream<S>) -> Option<Problem> {
        match self.judge_whole(found) {
            Verdict::Proceed => None,
            Verdict::Has => Some(there()),
            Verdict::Failed => Some(changed()),
        }
    }

    /// Why a stream that is not there is not created.
    pub(crate) fn refuse_create(self) -> Option<Problem> {
        self.has(Name::IfMatch).then(|| {
            let detail = "no stream of that name exists, so If-Match cannot match, whatever it says";
            Problem::new(412, "precondition-failed", Name::IfMatch, detail)
        })
    }

    fn has(self, name: Name) -> bool {
        self.values(name).next().is_some()
    }

    fn values(self, name: Name) -> impl Iterator<Item = &'a [u8]> {
        self.0.iter().filter(move |field| field.name == name).map(|field| field.value)
    }
}

/// `If-Match` names no tag that the stream has.
pub(crate) fn changed() -> Problem {
    let detail = "no tag in If-Match is the stream's present ETag: read the stream again, and send the ETag of that response";
    Problem::new(412, "precondition-failed", Name::IfMatch, detail)
}

/// `If-None-Match` names the stream as it is.
fn there() -> Problem {
    let detail =
        "If-None-Match rules out the stream as it is: it exists (*), or its present ETag is one of the tags";
    Problem::new(412, "precondition-failed", Name::IfNoneMatch, detail)
}
