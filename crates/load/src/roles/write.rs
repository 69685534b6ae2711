//! The writer: appends or creates, one request after the other or at a fixed rate.

use super::{Next, Role};
use crate::counts::Counts;
use crate::driver::Shared;
use crate::record;
use crate::target::Body;
use std::sync::Arc;
use thalweg_sys::clock::monotonic_ns;
use thalweg_wire::http1::ResponseHead;

/// Different ages that are told apart among the requests that a connection did not get to.
const UNANSWERED_GROUPS_MAX: u64 = 100_000;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Appends to streams in turn, counted from `first`.
    Append { first: u64, streams: u64, record: Vec<u8> },
    /// Appends numbered records to one stream.
    Publish { stream: u64, record: Vec<u8> },
    /// Fills streams, counted from zero, with `times` chunks each; `left` of them are still to come for the
    /// current stream.
    Fill { chunk: Arc<[u8]>, times: u64, left: u64 },
    /// Creates streams, counted from `first`.
    Create { first: u64 },
    /// The same as forks.
    Fork { first: u64, fields: String },
}

/// A rate of requests of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval_ns: u64,
    due_ns: u64,
}

impl Pace {
    /// `per_second` requests, the first of them due after `share` of the interval.
    pub(crate) fn new(per_second: f64, share: f64) -> Self {
        let interval_ns = ((1e9 / per_second.max(1e-3)) as u64).max(1);
        Self { interval_ns, due_ns: monotonic_ns() + (interval_ns as f64 * share) as u64 }
    }
}

/// What became of the last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It was answered, or there was none.
    Answered,
    UnderWay,
    /// Its connection broke before the answer.
    Lost,
}

/// The role.
pub(crate) struct Write {
    work: Work,
    media: &'static str,
    pace: Option<Pace>,
    sent_ns: u64,
    answered_ns: u64,
    refused: bool,
    last: Last,
    /// The stream that the last request is about.
    stream: u64,
}

impl Write {
    pub(crate) fn new(work: Work, media: &'static str, pace: Option<Pace>) -> Self {
        let last = Last::Answered;
        Self { work, media, pace, sent_ns: 0, answered_ns: 0, refused: false, last, stream: 0 }
    }

    fn creates(&self) -> bool {
        matches!(self.work, Work::Create { .. } | Work::Fork { .. })
    }

    /// Whether the next request is the last one again: a create whose answer did not come.
    fn repeats(&self) -> bool {
        self.last == Last::Lost && self.creates()
    }

    fn request(&mut self, shared: &Shared, out: &mut Vec<u8>) {
        let repeats = self.repeats();
        let (number, target) = (shared.issued, &shared.target);
        match &mut self.work {
            Work::Append { first, streams, record } => {
                self.stream = *first + number % *streams;
                target.request(out, "POST", self.stream, "", &Body::Bytes(record, self.media));
            }
            Work::Publish { stream, record } => {
                // The next one that is taken has this number: the stream has no other request under way.
                let serial = usize::try_from(*stream).ok().and_then(|at| shared.published.get(at));
                record::stamp(record, self.sent_ns, serial.copied().unwrap_or(0));
                self.stream = *stream;
                target.request(out, "POST", *stream, "", &Body::Bytes(record, self.media));
            }
            Work::Fill { chunk, times, left } => {
                if *left == 0 {
                    (self.stream, *left) = (number, *times);
                }
                *left -= 1;
                target.request(out, "POST", self.stream, "", &Body::Bytes(chunk, self.media));
            }
            Work::Create { first } => {
                let fields = format!("Content-Type: {}\r\n", self.media);
                if !repeats {
                    self.stream = *first + number;
                }
                target.request(out, "PUT", self.stream, "", &Body::Empty(&fields));
            }
            Work::Fork { first, fields } => {
                if !repeats {
                    self.stream = *first + number;
                }
                target.request(out, "PUT", self.stream, "", &Body::Empty(fields));
            }
        }
    }
}

impl Role for Write {
    fn name(&self) -> &'static str {
        match self.work {
            Work::Append { .. } | Work::Publish { .. } | Work::Fill { .. } => "append",
            Work::Create { .. } | Work::Fork { .. } => "create",
        }
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next {
        // A stream that is being filled, or is created again, was handed out once.
        let goes_on = matches!(self.work, Work::Fill { left: 1.., .. }) || self.repeats();
        if shared.writing_ends || !goes_on && shared.issued >= shared.limit {
            return Next::Over;
        }
        let now_ns = monotonic_ns();
        self.sent_ns = now_ns;
        if let Some(pace) = &mut self.pace {
            if pace.due_ns > now_ns {
                return Next::Wait(u32::try_from((pace.due_ns - now_ns) / 1_000_000).unwrap_or(u32::MAX));
            }
            // What became due while the answer was outstanding waits since then; a timer's lateness is our
            // own.
            if pace.due_ns < self.answered_ns {
                self.sent_ns = pace.due_ns;
            }
            pace.due_ns += pace.interval_ns;
        }
        self.refused = false;
        self.request(shared, out);
        self.last = Last::UnderWay;
        shared.issued += u64::from(!goes_on);
        Next::Sent
    }

    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        let creates = self.creates();
        shared.counts.existed += u64::from(creates && matches!(head.status, 200 | 409));
        if !(200..300).contains(&head.status) {
            self.refused = true;
            if creates && head.status == 409 {
                // The next one is another stream's.
                let stream = shared.target.name(self.stream);
                shared.counts.fail(|| format!("the stream {stream} exists otherwise"));
            } else {
                shared.refused(self.name(), self.stream, head);
            }
        }
    }

    fn answered(&mut self, shared: &mut Shared) {
        self.answered_ns = monotonic_ns();
        self.last = Last::Answered;
        if !self.refused {
            match self.work {
                Work::Create { .. } | Work::Fork { .. } => shared.counts.created += 1,
                _ => shared.counts.appended += 1,
            }
            if let Work::Publish { stream, .. } = self.work
                && let Some(published) =
                    usize::try_from(stream).ok().and_then(|at| shared.published.get_mut(at))
            {
                *published += 1;
            }
            // Where records are delivered, it is deliveries that are counted.
            if !matches!(self.work, Work::Publish { .. }) {
                shared.counts.done(self.answered_ns - self.sent_ns);
            }
        }
    }

    /// The writer goes on, on another connection. A create is repeated there, so that no stream is left out
    /// and it does not matter whether it was taken. An append is not repeated: the writer goes on with the
    /// next one. The writer of records that followers look for ends, because they would wait for a record of
    /// which nobody knows whether it was taken; and so does one that fills a stream, with what it prepares.
    fn lost(&mut self, _: &mut Shared) -> bool {
        // The connection was busy until now, so what became due meanwhile waits since it was due.
        self.answered_ns = monotonic_ns();
        if self.last == Last::UnderWay {
            self.last = Last::Lost;
        }
        matches!(self.work, Work::Append { .. } | Work::Create { .. } | Work::Fork { .. })
    }

    fn unanswered(&self, now_ns: u64, counts: &mut Counts) {
        // While the writer waits for another connection nothing is under way: what was lost is a failure
        // already.
        if self.last == Last::UnderWay {
            counts.unanswered(now_ns.saturating_sub(self.sent_ns), 1);
        }
        // What became due meanwhile waits for that answer, or for the connection: counted a group at a time,
        // with the age of its oldest, where there are more than could be sent.
        if let Some(Pace { interval_ns, due_ns }) = self.pace {
            let mut left = now_ns.saturating_sub(due_ns).div_ceil(interval_ns);
            let (group, mut due_ns) = (left.div_ceil(UNANSWERED_GROUPS_MAX), due_ns);
            while left > 0 {
                let count = group.min(left);
                counts.unanswered(now_ns - due_ns, count);
                due_ns += count * interval_ns;
                left -= count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::target;

    #[test]
    fn streams_have_their_turn_and_the_limit_ends_it() {
        let mut shared = Shared::new(target());
        shared.limit = 3;
        let work = Work::Append { first: 0, streams: 2, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", None);
        let mut asked = Vec::new();
        loop {
            let mut out = Vec::new();
            if role.next(&mut shared, &mut out) == Next::Over {
                break;
            }
            asked.push(String::from_utf8(out).unwrap().lines().next().unwrap().to_owned());
        }
        let wanted = ["s-0", "s-1", "s-0"].map(|name| format!("POST /v1/stream/{name} HTTP/1.1"));
        assert_eq!(asked, wanted);
    }

    #[test]
    fn what_was_due_while_the_server_was_busy_waits_since_then() {
        let mut shared = Shared::new(target());
        let work = Work::Publish { stream: 0, record: record::blank(40) };
        shared.published = vec![5];
        let mut role = Write::new(work, "text/plain", Some(Pace::new(1e-3, 1.0)));
        let mut out = Vec::new();
        assert!(matches!(role.next(&mut shared, &mut out), Next::Wait(ms) if ms > 900_000));
        let due_ns = monotonic_ns() - 1_000;
        role.pace = Some(Pace { interval_ns: 10, due_ns });
        role.answered_ns = due_ns + 1;
        assert_eq!(role.next(&mut shared, &mut out), Next::Sent);
        assert_eq!((role.sent_ns, shared.published[0]), (due_ns, 5));
        let body = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(record::read(&out[body..]).unwrap(), (due_ns, 5), "a delivery is timed from then, too");
    }

    #[test]
    fn what_was_due_while_a_connection_that_broke_was_busy_waits_since_then() {
        let mut shared = Shared::new(target());
        let work = Work::Append { first: 0, streams: 1, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", Some(Pace { interval_ns: 1_000, due_ns: 0 }));
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        let due_ns = role.sent_ns + 1_000;
        role.pace = Some(Pace { interval_ns: 1_000, due_ns });
        while monotonic_ns() <= due_ns {}
        assert!(role.lost(&mut shared), "a writer goes on with another connection");
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        assert_eq!(role.sent_ns, due_ns);
    }

    #[test]
    fn a_record_that_may_have_been_taken_is_not_written_again() {
        let mut shared = Shared::new(target());
        shared.published = vec![0];
        let work = Work::Publish { stream: 0, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", None);
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        assert!(!role.lost(&mut shared));
    }

    #[test]
    fn what_is_due_behind_an_answer_that_does_not_come_is_counted() {
        let mut shared = Shared::new(target());
        shared.counts.measuring = true;
        let work = Work::Append { first: 0, streams: 1, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", Some(Pace { interval_ns: 1_000_000, due_ns: 0 }));
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        let sent_ns = role.sent_ns;
        role.pace = Some(Pace { interval_ns: 1_000_000, due_ns: sent_ns + 1_000_000 });
        role.unanswered(sent_ns + 3_500_000, &mut shared.counts);
        let report = shared.counts.report(1_000_000, None);
        assert_eq!((&report["unanswered"], &report["operations"]), (&4.into(), &0.into()));
        let max_us = report["maxUs"].as_f64().unwrap();
        assert!((3_490.0..3_510.0).contains(&max_us), "{max_us}");
    }

    #[test]
    fn what_was_lost_is_not_unanswered_too() {
        let mut shared = Shared::new(target());
        shared.counts.measuring = true;
        let unanswered = |role: &Write, now_ns: u64, shared: &mut Shared| {
            role.unanswered(now_ns, &mut shared.counts);
            shared.counts.unanswered
        };
        let work = Work::Append { first: 0, streams: 1, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", None);
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        assert!(role.lost(&mut shared));
        assert_eq!(unanswered(&role, role.sent_ns + 9_000_000, &mut shared), 0);
        // What became due since then has not been sent yet.
        role.pace = Some(Pace { interval_ns: 1_000_000, due_ns: role.sent_ns + 1_000_000 });
        assert_eq!(unanswered(&role, role.sent_ns + 3_500_000, &mut shared), 3);
        let max_us = shared.counts.report(1_000_000, None)["maxUs"].as_f64().unwrap();
        assert!((2_490.0..2_510.0).contains(&max_us), "{max_us}");
        // On the other connection there is a request under way again.
        role.pace = None;
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        assert_eq!(unanswered(&role, role.sent_ns, &mut shared), 4);
    }

    #[test]
    fn a_create_whose_connection_broke_is_asked_for_again_and_an_append_is_not() {
        let create = Work::Create { first: 5 };
        let fork = Work::Fork { first: 5, fields: String::new() };
        let append = Work::Append { first: 5, streams: 9, record: record::blank(40) };
        for (work, wanted) in [(create, &[5, 5, 5, 6][..]), (fork, &[5, 5, 5, 6]), (append, &[5, 6])] {
            let mut shared = Shared::new(target());
            shared.limit = 2;
            let mut role = Write::new(work, "text/plain", None);
            let mut asked = Vec::new();
            let mut out = Vec::new();
            while role.next(&mut shared, &mut out) == Next::Sent {
                let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
                assert!(text.contains(&format!("/s-{} HTTP", role.stream())), "{text}");
                asked.push(role.stream());
                if asked.len() < 3 {
                    assert!(role.lost(&mut shared));
                } else {
                    role.answered(&mut shared);
                }
            }
            assert_eq!((asked.as_slice(), shared.issued), (wanted, 2));
        }
    }

    #[test]
    fn what_is_due_faster_than_it_can_be_counted_is_counted() {
        let mut shared = Shared::new(target());
        shared.counts.measuring = true;
        let work = Work::Append { first: 0, streams: 1, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", Some(Pace::new(4e9, 0.0)));
        let Some(Pace { due_ns, .. }) = role.pace else { panic!("no pace") };
        (role.sent_ns, role.last) = (due_ns, Last::UnderWay);
        role.unanswered(due_ns + 5_000_000_000, &mut shared.counts);
        let report = shared.counts.report(5_000_000, None);
        assert_eq!(report["unanswered"], 5_000_000_001_u64);
        let p50_us = report["p50Us"].as_f64().unwrap();
        assert!((2_490_000.0..2_510_000.0).contains(&p50_us), "{p50_us}");
    }

    #[test]
    fn a_filler_takes_one_stream_after_the_other() {
        let mut shared = Shared::new(target());
        shared.limit = 2;
        let chunk: Arc<[u8]> = [b'x'; 8].into();
        let mut role = Write::new(Work::Fill { chunk, times: 2, left: 0 }, "text/plain", None);
        let mut filled = Vec::new();
        while role.next(&mut shared, &mut Vec::new()) != Next::Over {
            filled.push(role.stream());
        }
        assert_eq!(filled, [0, 0, 1, 1]);
    }

    #[test]
    fn only_what_was_taken_is_published() {
        let mut shared = Shared::new(target());
        shared.published = vec![0];
        let work = Work::Publish { stream: 0, record: record::blank(40) };
        let mut role = Write::new(work, "text/plain", None);
        for (status, published) in [("503 Busy", 0), ("204 Done", 1), ("429 Often", 1), ("200 OK", 2)] {
            assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
            let text = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            let head = thalweg_wire::http1::parse_response(text.as_bytes(), false).unwrap().unwrap();
            role.head(&mut shared, &head);
            role.answered(&mut shared);
            assert_eq!(shared.published, [published], "{status}");
        }
    }
}
