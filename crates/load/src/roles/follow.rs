//! The follower: follows a stream from its beginning, and checks that each record is the next one.

use super::{Next, Role};
use crate::arguments::Via;
use crate::driver::{Follower, Shared};
use crate::record;
use crate::sse::{Events, SseLine};
use crate::target::Body;
use thalweg_sys::clock::monotonic_ns;
use thalweg_wire::http1::ResponseHead;
use thalweg_wire::sse::read::Control;

/// The role.
pub(crate) struct Follow {
    via: Via,
    stream: u64,
    /// Where to go on.
    offset: String,
    /// Where an answer ends whose body is still to come whole.
    answer_end: Option<String>,
    cursor: Option<String>,
    heard: RecordReader,
    events: Events,
    attached: bool,
    /// The answer is a refusal, whose body holds no records.
    refused: bool,
}

/// What was heard so far.
struct RecordReader {
    record_bytes: usize,
    /// The beginning of a record whose end has not come.
    partial: Vec<u8>,
    /// The number of the next record.
    next: u64,
    /// The number of the next record at the place to go on from.
    settled: u64,
    /// Records below this number came before a connection broke, and may come once more: nobody had said
    /// where they end.
    again_below: u64,
    /// Where the others see what it has, once it has begun.
    follower: Option<usize>,
}

impl RecordReader {
    fn take(&mut self, mut bytes: &[u8], now_ns: u64, shared: &mut Shared) {
        while self.partial.len() + bytes.len() >= self.record_bytes {
            let (head, rest) = bytes.split_at(self.record_bytes - self.partial.len());
            bytes = rest;
            if self.partial.is_empty() {
                self.record(head, now_ns, shared);
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(head);
                self.record(&whole, now_ns, shared);
                whole.clear();
                self.partial = whole;
            }
        }
        self.partial.extend_from_slice(bytes);
    }

    fn record(&mut self, record: &[u8], now_ns: u64, shared: &mut Shared) {
        let Some((sent_ns, serial)) = record::read(record) else {
            return shared.counts.fail(|| "follow: what came is no record".to_owned());
        };
        if self.next != serial {
            shared.counts.out_of_order += 1;
        }
        if let Some(follower) = self.follower.and_then(|at| shared.followers.get_mut(at))
            && serial >= follower.next
        {
            follower.records += 1;
            follower.next = serial + 1;
        }
        self.next = serial + 1;
        if serial >= self.again_below {
            shared.delivered += 1;
            shared.counts.done(now_ns.saturating_sub(sent_ns));
        }
    }

    /// It is known where to go on behind what was heard.
    fn settle(&mut self) {
        self.settled = self.next;
    }

    /// The connection broke: what was heard since the place to go on from comes again.
    fn unsettle(&mut self) {
        self.partial.clear();
        self.again_below = self.again_below.max(self.next);
        self.next = self.settled;
    }
}

impl Follow {
    /// From the very beginning of the stream, so that nothing may be missed.
    pub(crate) fn new(via: Via, stream: u64, record_bytes: usize) -> Self {
        let record_bytes = record_bytes.max(record::RECORD_BYTES_MIN);
        Self {
            via,
            stream,
            offset: "-1".to_owned(),
            answer_end: None,
            cursor: None,
            heard: RecordReader {
                record_bytes,
                partial: Vec::new(),
                next: 0,
                settled: 0,
                again_below: 0,
                follower: None,
            },
            events: Events::default(),
            attached: false,
            refused: false,
        }
    }

    fn attach(&mut self, shared: &mut Shared) {
        shared.attached += u64::from(!std::mem::replace(&mut self.attached, true));
    }
}

impl Role for Follow {
    fn name(&self) -> &'static str {
        match self.via {
            Via::Sse => "sse",
            Via::LongPoll => "long-poll",
        }
    }

    fn stream(&self) -> u64 {
        self.stream
    }

    fn next(&mut self, shared: &mut Shared, out: &mut Vec<u8>) -> Next {
        if self.heard.follower.is_none() {
            self.heard.follower = Some(shared.followers.len());
            shared.followers.push(Follower { stream: self.stream, records: 0, next: 0 });
        }
        let mut query = format!("?offset={}&live={}", self.offset, self.name());
        if let Some(cursor) = &self.cursor {
            query += &format!("&cursor={cursor}");
        }
        self.events = Events::default();
        shared.target.request(out, "GET", self.stream, &query, &Body::None);
        if self.via == Via::LongPoll {
            // There is no answer before there is a record: it is attached as soon as it has asked.
            self.attach(shared);
        }
        Next::Sent
    }

    fn head(&mut self, shared: &mut Shared, head: &ResponseHead<'_>) {
        self.refused = !(200..300).contains(&head.status);
        if self.refused {
            return shared.refused(self.name(), self.stream, head);
        }
        let text = |name: &str| head.field(name).map(|value| String::from_utf8_lossy(value).into_owned());
        if self.via == Via::LongPoll {
            self.cursor = text("Stream-Cursor");
            self.answer_end = text("Stream-Next-Offset");
        }
    }

    fn body(&mut self, shared: &mut Shared, bytes: &[u8]) {
        if self.refused {
            return;
        }
        let now_ns = monotonic_ns();
        if self.via == Via::LongPoll {
            return self.heard.take(bytes, now_ns, shared);
        }
        let (heard, mut controlled) = (&mut self.heard, None);
        self.events.push(bytes, |said| match said {
            SseLine::Data(data) => heard.take(data, now_ns, shared),
            SseLine::Control(control) => {
                controlled = Some(control.to_vec());
                heard.settle();
            }
        });
        if let Some(control) = controlled {
            self.attach(shared);
            match Control::parse(&control) {
                Some(control) => self.offset = control.next_offset,
                None => shared.counts.fail(|| "sse: a control event without an offset".to_owned()),
            }
        }
    }

    fn answered(&mut self, _: &mut Shared) {
        // A record ends where its response ends.
        self.heard.partial.clear();
        if let Some(offset) = self.answer_end.take() {
            self.offset = offset;
            self.heard.settle();
        }
    }

    fn lost(&mut self, _: &mut Shared) -> bool {
        self.answer_end = None;
        self.heard.unsettle();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::tests::target;

    fn record(serial: u64) -> Vec<u8> {
        let mut record = record::blank(40);
        record::stamp(&mut record, 1, serial);
        record
    }

    #[test]
    fn every_record_is_counted_once_wherever_pieces_end() {
        let text = [record(0), record(1), record(2)].concat();
        for cut in 0..text.len() {
            let mut shared = Shared::new(target());
            let mut role = Follow::new(Via::LongPoll, 0, 40);
            role.body(&mut shared, &text[..cut]);
            role.body(&mut shared, &text[cut..]);
            assert_eq!((shared.delivered, shared.counts.out_of_order, role.heard.next), (3, 0, 3));
        }
    }

    #[test]
    fn what_is_passed_over_or_told_twice_is_noticed() {
        let mut shared = Shared::new(target());
        let mut role = Follow::new(Via::LongPoll, 0, 40);
        role.body(&mut shared, &[record(0), record(2), record(2)].concat());
        assert_eq!((shared.delivered, shared.counts.out_of_order), (3, 2));
    }

    #[test]
    fn a_refusal_is_one_failure_whatever_its_body_says() {
        for via in [Via::LongPoll, Via::Sse] {
            let mut shared = Shared::new(target());
            let mut role = Follow::new(via, 0, 40);
            let text = b"HTTP/1.1 503 Busy\r\nContent-Length: 90\r\n\r\n";
            role.head(&mut shared, &thalweg_wire::http1::parse_response(text, false).unwrap().unwrap());
            role.body(&mut shared, &[b"data: ", &[b'.'; 83][..], b"\n"].concat());
            role.answered(&mut shared);
            assert_eq!((shared.counts.failed, shared.delivered), (1, 0));
        }
    }

    #[test]
    fn what_a_follower_has_is_known() {
        let mut shared = Shared::new(target());
        shared.published = vec![4];
        let mut role = Follow::new(Via::LongPoll, 0, 40);
        assert_eq!(role.next(&mut shared, &mut Vec::new()), Next::Sent);
        role.body(&mut shared, &[record(0), record(2), record(2)].concat());
        assert_eq!((shared.missing(), shared.delivered), (2, 3));
    }

    /// What is asked for next.
    fn asked(role: &mut Follow, shared: &mut Shared) -> String {
        let mut out = Vec::new();
        assert_eq!(role.next(shared, &mut out), Next::Sent);
        String::from_utf8(out).unwrap().split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn what_a_connection_that_broke_brought_comes_again_and_counts_once() {
        let text = [record(0), record(1), record(2)].concat();
        let poll_head = |end: &str| {
            format!("HTTP/1.1 200 OK\r\nStream-Next-Offset: {end}\r\nContent-Length: 120\r\n\r\n")
                .into_bytes()
        };
        let event = |text: &[u8]| [b"event: data\ndata:", text, b"\n\n"].concat();
        let control = |end: &str| format!("event: control\ndata:{{\"streamNextOffset\":\"{end}\"}}\n\n");
        for via in [Via::LongPoll, Via::Sse] {
            let mut shared = Shared::new(target());
            shared.published = vec![4];
            let mut role = Follow::new(via, 0, 40);
            let first = asked(&mut role, &mut shared);
            let answer = |role: &mut Follow, shared: &mut Shared, text: &[u8], end: &str, is_whole: bool| {
                if via == Via::LongPoll {
                    let head = poll_head(end);
                    role.head(shared, &thalweg_wire::http1::parse_response(&head, false).unwrap().unwrap());
                    role.body(shared, text);
                } else {
                    role.body(shared, &event(text));
                    // The next event is under way when the end of this one is told.
                    let behind = if is_whole { control(end).into_bytes() } else { Vec::new() };
                    role.body(shared, &behind);
                }
                if is_whole {
                    role.answered(shared);
                } else {
                    assert!(role.lost(shared));
                }
            };
            // All but the last record came, and not where they end, or the end of the answer.
            answer(&mut role, &mut shared, &text[..80], "x3", false);
            assert_eq!(asked(&mut role, &mut shared), first, "{via:?}: nothing is passed over");
            answer(&mut role, &mut shared, &text, "x3", true);
            assert_eq!(
                (shared.delivered, shared.counts.out_of_order, shared.missing()),
                (3, 0, 1),
                "{via:?}"
            );
            assert!(asked(&mut role, &mut shared).contains("offset=x3&"), "{via:?}");
            // What came and was known to have come does not come again.
            assert!(role.lost(&mut shared));
            answer(&mut role, &mut shared, &text[80..], "x3", true);
            assert_eq!(shared.counts.out_of_order, 1, "{via:?}");
        }
    }

    #[test]
    fn events_say_where_to_go_on() {
        let mut shared = Shared::new(target());
        let mut role = Follow::new(Via::Sse, 3, 40);
        let data = String::from_utf8(record(0)).unwrap();
        let text =
            format!("event: data\ndata: {data}\n\nevent: control\ndata: {{\"streamNextOffset\":\"x1\"}}\n\n");
        role.body(&mut shared, text.as_bytes());
        assert_eq!((shared.delivered, shared.attached, shared.counts.failed), (1, 1, 0));
        let mut out = Vec::new();
        assert_eq!(role.next(&mut shared, &mut out), Next::Sent);
        assert!(
            String::from_utf8(out).unwrap().starts_with("GET /v1/stream/s-3?offset=x1&live=sse HTTP/1.1")
        );
    }
}
