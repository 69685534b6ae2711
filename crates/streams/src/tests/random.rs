//! Random histories against a plain model of what a client may expect.

use super::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Create { json: bool, closed: bool, body: u8 },
    Append { json: bool, close: bool, seq: Option<u8>, producer: Option<(u8, u8)>, body: u8 },
    Close,
    Delete,
    Read { from: usize },
    Head,
    Sleep,
}

/// What a client knows about one name.
#[derive(Clone, Debug)]
struct Known {
    json: bool,
    closed: bool,
    closed_by: Option<(u8, u8)>,
    /// Messages with the offset each was acknowledged at.
    messages: Vec<String>,
    offsets: Vec<String>,
    seq: Option<u8>,
    producer: Option<(u8, u8)>,
}

fn step() -> impl Strategy<Value = Step> {
    let producer = proptest::option::of((0..3_u8, 0..4_u8));
    prop_oneof![
        2 => (any::<bool>(), proptest::bool::weighted(0.1), 0..10_u8)
            .prop_map(|(json, closed, body)| Step::Create { json, closed, body }),
        8 => (any::<bool>(), proptest::bool::weighted(0.05), proptest::option::weighted(0.3, 0..9_u8), producer, 0..10_u8)
            .prop_map(|(json, close, seq, producer, body)| Step::Append { json, close, seq, producer, body }),
        1 => Just(Step::Close),
        1 => Just(Step::Delete),
        6 => (0..8_usize).prop_map(|from| Step::Read { from }),
        1 => Just(Step::Head),
        1 => Just(Step::Sleep),
    ]
}

fn media(json: bool) -> &'static str {
    if json { "application/json" } else { "text/plain" }
}

impl Known {
    /// The status of an append, by the protocol's order of precedence; changes what is known on success.
    fn append(
        &mut self,
        json: bool,
        close: bool,
        seq: Option<u8>,
        producer: Option<(u8, u8)>,
        body: u8,
    ) -> u16 {
        if self.closed {
            return match producer {
                Some(place) if self.closed_by == Some(place) => 204,
                _ => 409,
            };
        }
        if json != self.json {
            return 409;
        }
        if let Some((epoch, number)) = producer {
            let refused = match self.producer {
                None => (number != 0).then_some(409),
                Some((known, _)) if epoch < known => Some(403),
                Some((known, _)) if epoch > known => (number != 0).then_some(400),
                Some((_, last)) if number <= last => Some(204),
                Some((_, last)) => (number != last + 1).then_some(409),
            };
            if let Some(status) = refused {
                return status;
            }
        }
        if seq.is_some_and(|seq| self.seq.is_some_and(|last| seq <= last)) {
            return 409;
        }
        self.seq = seq.or(self.seq);
        self.producer = producer.or(self.producer);
        self.messages.push(body.to_string());
        if close {
            self.closed = true;
            self.closed_by = producer;
        }
        if producer.is_some() { 200 } else { 204 }
    }

    /// The body of a read from the `from`-th acknowledged offset.
    fn body(&self, from: usize) -> String {
        let messages = &self.messages[from..];
        if self.json { format!("[{}]", messages.join(",")) } else { messages.concat() }
    }
}

fn create(world: &mut World, known: &mut Option<Known>, json: bool, closed: bool, body: u8) {
    let body = body.to_string();
    let fields = [("Content-Type", media(json)), ("Stream-Closed", if closed { "true" } else { "" })];
    let reply = world.call(Method::Put, &path("s"), &fields, &body);
    match known {
        Some(known) => {
            let same = known.json == json && known.closed == closed;
            assert_eq!(reply.status, if same { 200 } else { 409 });
        }
        None => {
            assert_eq!(reply.status, 201);
            *known = Some(Known {
                json,
                closed,
                closed_by: None,
                messages: vec![body],
                offsets: vec!["-1".into(), reply.next().to_owned()],
                seq: None,
                producer: None,
            });
        }
    }
}

fn append(world: &mut World, known: &mut Option<Known>, step: &Step) {
    let Step::Append { json, close, seq, producer, body } = step.clone() else { return };
    let seq_text = seq.map(|seq| seq.to_string());
    let place = producer.map(|(epoch, seq)| (epoch.to_string(), seq.to_string()));
    let mut fields = vec![("Content-Type", media(json))];
    fields.extend(seq_text.iter().map(|seq| ("Stream-Seq", seq.as_str())));
    if let Some((epoch, seq)) = &place {
        fields.extend([
            ("Producer-Id", "p"),
            ("Producer-Epoch", epoch.as_str()),
            ("Producer-Seq", seq.as_str()),
        ]);
    }
    if close {
        fields.push(("Stream-Closed", "true"));
    }
    let reply = world.call(Method::Post, &path("s"), &fields, body.to_string());
    let Some(known) = known else {
        assert_eq!(reply.status, 404);
        return;
    };
    let count = known.messages.len();
    assert_eq!(reply.status, known.append(json, close, seq, producer, body), "{step:?} {known:?}");
    if reply.status < 400 {
        assert_eq!(reply.is_closed(), known.closed);
    }
    if known.messages.len() > count {
        assert!(reply.next() > known.offsets[count].as_str());
        known.offsets.push(reply.next().to_owned());
    }
}

fn run(world: &mut World, known: &mut Option<Known>, step: &Step) {
    match step {
        Step::Create { json, closed, body } => create(world, known, *json, *closed, *body),
        Step::Append { .. } => append(world, known, step),
        Step::Close => {
            let reply = world.close("s");
            assert_eq!(reply.status, if known.is_some() { 204 } else { 404 });
            if let Some(known) = known {
                known.closed = true;
            }
        }
        Step::Delete => {
            let reply = world.call(Method::Delete, &path("s"), &[], "");
            assert_eq!(reply.status, if known.take().is_some() { 204 } else { 404 });
        }
        Step::Read { from } => {
            let Some(known) = known else {
                assert_eq!(world.get("s", "").status, 404);
                return;
            };
            let from = from % known.offsets.len();
            let reply = world.get("s", &format!("?offset={}", known.offsets[from]));
            assert_eq!((reply.status, &reply.body), (200, &known.body(from)));
            assert_eq!(
                (reply.next(), reply.is_closed()),
                (known.offsets.last().unwrap().as_str(), known.closed)
            );
        }
        Step::Head => {
            let reply = world.head("s");
            assert_eq!(reply.status, if known.is_some() { 200 } else { 404 });
            assert!(known.as_ref().is_none_or(|known| reply.next() == known.offsets.last().unwrap()));
        }
        Step::Sleep => world.sleep_ms(100_000),
    }
}

proptest! {
    #[test]
    fn every_history_is_what_a_client_expects(steps in proptest::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        let mut known = None;
        for step in &steps {
            run(&mut world, &mut known, step);
        }
    }

    #[test]
    fn any_request_is_answered(
        method in prop_oneof![Just(Method::Get), Just(Method::Put), Just(Method::Post), Just(Method::Delete)],
        path in "(/v1/stream/[a-z%./0-9]{0,8}|/[a-z]{0,4})",
        query in proptest::option::of("(offset|live|cursor|x)=[a-z0-9%&=_-]{0,12}"),
        name in "(Stream-TTL|Stream-Seq|Producer-Id|Producer-Epoch|If-None-Match|Content-Type|Stream-Expires-At|Host)",
        value in "[ -~]{0,20}",
        body in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        let mut world = World::new();
        world.put("s", "application/json", "[1]");
        let target = query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"));
        let fields = [("Content-Type", "application/json"), (name.as_str(), value.as_str())];
        match world.answer(method, &target, &fields, &body) {
            Answer::Respond(response) => {
                Reply::new(response, 0);
            }
            Answer::Live { .. } => prop_assert!(target.contains("live=")),
            Answer::After(..) | Answer::Cold(_) | Answer::Later(_) => prop_assert!(false, "nothing waits in memory"),
        }
    }
}
