//! Whoever appends or creates: one request after the other, or at a pace.

use super::{Next, Role};
use crate::driver::Shared;
use crate::record;
use crate::target::Body;
use thalweg_sys::clock::monotonic_ns;
use thalweg_wire::http1::ResponseHead;

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Appends to streams in turn, counted from `first`.
    Append { first: u64, streams: u64, record: Vec<u8> },
    /// Appends numbered records to one stream.
    Publish { stream: u64, record: Vec<u8> },
    /// Appends to one stream without saying when.
    Fill { stream: u64, chunk: Vec<u8>, times: u64 },
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
        let interval_ns = (1e9 / per_second.max(1e-3)) as u64;
        Self { interval_ns, due_ns: monotonic_ns() + (interval_ns as f64 * share) as u64 }
    }
}

/// The role.
pub(crate) struct Write {
    work: Work,
    media: &'static str,
    pace: Option<Pace>,
    sent_ns: u64,
    answered_ns: u64,
    refused: bool,
    /// The stream that the request under way is about.
    stream: u64,
}

impl Write {
    pub(crate) fn new(work: Work, media: &'static str, pace: Option<Pace>) -> Self {
        Self { work, media, pace, sent_ns: 0, answered_ns: 0, refused: false, stream: 0 }
    }

    fn request(&mut self, shared: &mut Shared, out: &mut Vec<u8>, now_ns: u64) {
        let (number, target) = (shared.issued, &shared.target);
        match &mut self.work {
            Work::Append { first, streams, record } => {
                self.stream = *first + number % *streams;
                target.request(out, "POST", self.stream, "", &Body::Bytes(record, self.media));
            }
            Work::Publish { stream, record } => {
                let serial = usize::try_from(*stream).ok().and_then(|at| shared.published.get_mut(at));
                let serial = serial.map_or(0, |next| {
                    *next += 1;
                    *next - 1
                });
                record::stamp(record, now_ns, serial);
                self.stream = *stream;
                target.request(out, "POST", *stream, "", &Body::Bytes(record, self.media));
            }
            Work::Fill { stream, chunk, times } => {
                *times -= 1;
                self.stream = *stream;
                target.request(out, "POST", *stream, "", &Body::Bytes(chunk, self.media));
            }
            Work::Create { first } => {
                let fields = format!("Content-Type: {}\r\n", self.media);
                self.stream = *first + number;
                target.request(out, "PUT", self.stream, "", &Body::Empty(&fields));
            }
            Work::Fork { first, fields } => {
                self.stream = *first + number;
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
        if shared.writing_ends
            || shared.issued >= shared.limit
            || matches!(self.work, Work::Fill { times: 0, .. })
        {
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
        self.request(shared, out, now_ns);
        shared.issued += 1;
        Next::Sent
    }

    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        let creates = matches!(self.work, Work::Create { .. } | Work::Fork { .. });
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
        if !self.refused {
            match self.work {
                Work::Create { .. } | Work::Fork { .. } => shared.counts.created += 1,
                _ => shared.counts.appended += 1,
            }
            // Where records are delivered, it is deliveries that are counted.
            if !matches!(self.work, Work::Publish { .. }) {
                shared.counts.done(self.answered_ns - self.sent_ns);
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
        assert_eq!((role.sent_ns, shared.published[0]), (due_ns, 6));
        let body = out.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        assert_eq!(record::read(&out[body..]).unwrap().1, 5);
    }
}
