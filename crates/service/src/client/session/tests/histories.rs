//! Random histories of calls over several connections, against a model of what the server saw.

use super::taken_back::disconnect_unread;
use super::*;
use std::collections::HashMap;

#[derive(Clone, Debug)]
enum Step {
    /// With a request of so many words.
    Ask(usize),
    Cancel(prop::sample::Index),
    Forget(prop::sample::Index),
    Grant(prop::sample::Index),
    Expire(prop::sample::Index),
    /// So many bytes leave, and lie where the server reads.
    Send(usize),
    /// The server reads so many of them.
    Read(usize),
    /// The server answers a request that it has whole.
    Answer(prop::sample::Index),
    Next,
    Take(prop::sample::Index),
    /// What the server has not read is lost, and it is known how much that is.
    Disconnect,
}

/// Short ones, and such as make the session rid itself of those that were taken back.
const WORDS_MAX: usize = 250;

fn session(plain: bool) -> Session {
    let frame_bytes_max = 8 * WORDS_MAX as u32;
    Session::new(Bounds { plain, frame_bytes_max, in_flight_max: 64, unsent_bytes_max: 1 << 20 })
}

/// A request that says nothing but the call's name.
fn request(name: u64, words: usize) -> Vec<u8> {
    name.to_le_bytes().repeat(words)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = any::<prop::sample::Index>;
    let words = prop_oneof![1 => 1..4_usize, 1 => 1..=WORDS_MAX];
    let count = prop_oneof![4 => 0..90_usize, 1 => 0..4_000_usize];
    let step = prop_oneof![
        8 => words.prop_map(Step::Ask),
        3 => which().prop_map(Step::Cancel),
        1 => which().prop_map(Step::Forget),
        1 => which().prop_map(Step::Grant),
        1 => which().prop_map(Step::Expire),
        5 => count.clone().prop_map(Step::Send),
        5 => count.prop_map(Step::Read),
        5 => which().prop_map(Step::Answer),
        3 => Just(Step::Next),
        2 => which().prop_map(Step::Take),
        1 => Just(Step::Disconnect),
    ];
    proptest::collection::vec(step, 1..120)
}

/// What a server has of one connection.
#[derive(Default)]
struct Server {
    /// What was written and not read.
    unread: Vec<u8>,
    bytes: Vec<u8>,
    /// The names of the requests that it has whole and has not answered.
    asked: Vec<u64>,
}

impl Server {
    /// Reads so many bytes, and takes whole frames of them; panics at what is none.
    fn read(&mut self, plain: bool, count: usize) -> Vec<u64> {
        let count = count.min(self.unread.len());
        self.bytes.extend(self.unread.drain(..count));
        let mut whole = Vec::new();
        loop {
            let (head, header) = if plain {
                let Some(length) = self.bytes.first_chunk::<LENGTH_BYTES>() else { break };
                (LENGTH_BYTES, Header::new(FrameKind::Request, 0, u32::from_le_bytes(*length)))
            } else {
                let Some(header) = Header::decode(&self.bytes, 8 * WORDS_MAX as u32).unwrap() else { break };
                (HEADER_BYTES, header)
            };
            let end = head + header.length as usize;
            if self.bytes.len() < end {
                break;
            }
            let frame: Vec<u8> = self.bytes.drain(..end).skip(head).collect();
            if header.kind == FrameKind::Request {
                let name = u64::from_le_bytes(*frame.first_chunk().unwrap());
                assert_eq!(frame, request(name, frame.len() / 8), "nobody asked this");
                whole.push(name);
            }
        }
        self.asked.extend(&whole);
        whole
    }
}

/// All calls that were made, and what each was told.
#[derive(Default)]
struct Model {
    calls: Vec<CallId>,
    forgotten: BTreeSet<u64>,
    ended: HashMap<u64, String>,
    /// Requests that some server had whole.
    seen: BTreeSet<u64>,
}

impl Model {
    fn name(&self, call: CallId) -> u64 {
        self.calls.iter().position(|known| *known == call).unwrap() as u64
    }

    fn hear(&mut self, session: &Session, found: &Found) {
        let name = self.name(found.call);
        assert!(!self.forgotten.contains(&name), "nothing is heard of a forgotten call");
        let told = match &found.kind {
            EventKind::Failed(error) => error.fault.word().to_owned(),
            _ => {
                assert_eq!(session.frame(found), name.to_le_bytes(), "each gets its own answer");
                "end".to_owned()
            }
        };
        assert!(told != "not_sent" || !self.seen.contains(&name), "{name} was not sent, and came");
        assert!(told != "disconnected" || self.seen.contains(&name), "{name} never came, and that is known");
        assert_eq!(self.ended.insert(name, told), None, "{name} ended before");
    }
}

fn run(plain: bool, steps: Vec<Step>) {
    let (mut session, mut server, mut model) = (session(plain), Server::default(), Model::default());
    for step in steps.into_iter().chain([Step::Disconnect]) {
        let calls = model.calls.clone();
        let which = |index: prop::sample::Index| (!calls.is_empty()).then(|| *index.get(&calls));
        match step {
            Step::Ask(words) if session.in_flight() < 60 => {
                let name = model.calls.len() as u64;
                model.calls.push(ask(&mut session, &request(name, words)));
            }
            Step::Ask(_) => {}
            Step::Cancel(index) => which(index).into_iter().for_each(|call| session.cancel(call)),
            Step::Grant(index) => which(index).into_iter().for_each(|call| session.grant(call, 1)),
            Step::Forget(index) => {
                let Some(call) = which(index) else { continue };
                session.forget(call);
                model.forgotten.insert(model.name(call));
            }
            Step::Expire(index) => {
                let Some(call) = which(index) else { continue };
                session.until(call, Instant::now());
                session.expire(Instant::now());
            }
            Step::Send(count) => {
                let sent = unsent(&session).into_iter().take(count);
                server.unread.extend(sent);
                session.sent(count.min(session.unsent_bytes()));
            }
            Step::Read(count) => {
                for name in server.read(plain, count) {
                    assert!(model.seen.insert(name), "{name} was sent twice");
                }
            }
            Step::Answer(index) if !server.asked.is_empty() => {
                let name = server.asked.remove(if plain { 0 } else { index.index(server.asked.len()) });
                if plain {
                    session.room().extend_from_slice(&8_u32.to_le_bytes());
                    session.room().extend_from_slice(&name.to_le_bytes());
                } else {
                    end(&mut session, model.calls[name as usize], &name.to_le_bytes());
                }
            }
            Step::Answer(_) => {}
            Step::Next => session.next().into_iter().for_each(|found| model.hear(&session, &found)),
            Step::Take(index) => {
                let Some(call) = which(index) else { continue };
                session.take(call).into_iter().for_each(|found| model.hear(&session, &found));
            }
            Step::Disconnect => {
                disconnect_unread(&mut session, server.unread.len());
                server = Server::default();
            }
        }
        assert!(session.broken.is_none(), "the server followed the rules");
    }
    while let Some(found) = session.next() {
        model.hear(&session, &found);
    }
    assert_eq!((session.in_flight(), session.is_ready(), session.stashed_bytes), (0, false, 0));
    let is_told = |name: &u64| model.ended.contains_key(name) || model.forgotten.contains(name);
    assert!((0..model.calls.len() as u64).all(|name| is_told(&name)), "every call ends");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// A server reads nothing but whole frames, each request once; every call ends once; what ends as not
    /// sent was never read, and what ends with its connection was, as it is known how much was not.
    #[test]
    fn calls_end_once_and_requests_arrive_whole_whatever_ends_before(steps in steps(), plain: bool) {
        run(plain, steps);
    }
}
