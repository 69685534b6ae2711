//! The session without a socket: bytes are moved by hand.

mod histories;
mod taken_back;

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use thalweg_wire::service::error_frame;

fn session(plain: bool) -> Session {
    Session::new(Bounds { plain, frame_bytes_max: 1_000, in_flight_max: 64, unsent_bytes_max: 10_000 })
}

fn unsent(session: &Session) -> Vec<u8> {
    session.unsent().flatten().copied().collect()
}

fn ask(session: &mut Session, request: &[u8]) -> CallId {
    ask_with(session, request, &CallOptions::default())
}

fn ask_with(session: &mut Session, request: &[u8], options: &CallOptions) -> CallId {
    session.admit(request).unwrap();
    let (call, head) = session.begin(request.len(), None, options);
    session.queue(call, &head, request, 0);
    call
}

fn hear(session: &mut Session, header: Header, payload: &[u8]) {
    let room = session.room();
    room.extend_from_slice(&Header { length: payload.len() as u32, ..header }.encode());
    room.extend_from_slice(payload);
}

fn end(session: &mut Session, call: CallId, payload: &[u8]) {
    hear(session, Header::new(FrameKind::End, call.number(), 0), payload);
}

/// What came next, as text.
fn next(session: &mut Session) -> Option<(CallId, String)> {
    let found = session.next()?;
    Some((found.call, told(session, &found)))
}

fn told(session: &Session, found: &Found) -> String {
    let frame = String::from_utf8_lossy(session.frame(found)).into_owned();
    match &found.kind {
        EventKind::Item => format!("item {frame}"),
        EventKind::End => format!("end {frame}"),
        EventKind::Failed(error) => error.fault.word().to_owned(),
    }
}

fn disconnect(session: &mut Session) {
    session.disconnect(0, |left| Error::new(if left { Fault::Disconnected } else { Fault::NotSent }, ""));
}

#[test]
fn only_a_request_that_left_whole_may_have_been_begun() {
    let one = HEADER_BYTES + 5;
    for (sent, whole) in [(0, 0), (one - 1, 0), (one, 1), (2 * one - 1, 1), (2 * one, 2), (3 * one, 3)] {
        let mut session = session(false);
        let calls = [b"first", b"other", b"third"].map(|request| ask(&mut session, request));
        session.sent(sent);
        disconnect(&mut session);
        for (n, call) in calls.iter().enumerate() {
            let expected = if n < whole { "disconnected" } else { "not_sent" };
            assert_eq!(next(&mut session), Some((*call, expected.to_owned())), "{sent} bytes sent");
        }
        assert_eq!((next(&mut session), session.in_flight()), (None, 0));
        assert!(!session.has_unsent(), "nothing of the old connection goes to the next");
    }
}

/// The failure of a lost call waits to be taken, while requests of the next connection lie where its own lay.
#[test]
fn a_call_of_a_former_connection_touches_nothing_of_the_next() {
    type Act = dyn Fn(&mut Session, CallId);
    let ends: [&Act; 4] = [
        &|session, call| session.cancel(call),
        &|session, call| session.forget(call),
        &|session, call| {
            session.until(call, Instant::now());
            session.expire(Instant::now());
        },
        &|session, call| session.grant(call, 1),
    ];
    for (n, end_early) in ends.iter().enumerate() {
        for plain in [false, true] {
            let mut session = session(plain);
            let lost = ask(&mut session, b"lost");
            disconnect(&mut session);
            let next_one = ask(&mut session, b"next");
            let before = unsent(&session);
            end_early(&mut session, lost);
            assert_eq!(unsent(&session), before, "{n}: the request still leaves, and nothing beside it");
            session.sent(before.len());
            if plain {
                session.room().extend_from_slice(b"\x02\0\0\0ok");
            } else {
                end(&mut session, lost, b"a lie");
                end(&mut session, next_one, b"ok");
            }
            assert_eq!(next(&mut session), Some((next_one, "end ok".into())), "{n}");
            let forgets = n == 1;
            assert_eq!(next(&mut session), (!forgets).then(|| (lost, "not_sent".into())), "{n}");
            assert_eq!((next(&mut session), session.in_flight()), (None, 0), "{n}");
        }
    }
}

#[test]
fn a_call_is_told_once_of_its_end_however_many_connections_end_after_it() {
    let mut session = session(false);
    let calls: Vec<CallId> = (0..3)
        .map(|_| {
            let call = ask(&mut session, b"?");
            disconnect(&mut session);
            call
        })
        .collect();
    assert_eq!(session.failures.len(), calls.len(), "and nothing piles up");
    let told: Vec<_> = std::iter::from_fn(|| next(&mut session)).map(|(call, _)| call).collect();
    assert_eq!(told, calls);
}

#[test]
fn an_answer_that_came_before_the_end_counts() {
    let mut session = session(false);
    let (first, second) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
    session.sent(session.unsent_bytes());
    end(&mut session, second, b"there");
    disconnect(&mut session);
    assert_eq!(next(&mut session), Some((second, "end there".into())));
    assert_eq!(next(&mut session), Some((first, "disconnected".into())));
}

#[test]
fn a_late_answer_is_dropped_in_either_kind_of_connection() {
    for plain in [false, true] {
        let mut session = session(plain);
        let start = Instant::now();
        let (late, other) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
        session.sent(session.unsent_bytes());
        session.until(late, start);
        assert_eq!(session.next_deadline(), Some(start));
        assert_eq!(session.expire(start), 1);
        assert_eq!(next(&mut session), Some((late, "deadline_exceeded".into())));
        if plain {
            session.room().extend_from_slice(b"\x04\0\0\0late\x05\0\0\0other");
        } else {
            end(&mut session, late, b"late");
            end(&mut session, other, b"other");
        }
        assert_eq!(next(&mut session), Some((other, "end other".into())));
        assert_eq!((next(&mut session), session.next_deadline()), (None, None));
        assert_ne!(ask(&mut session, b"c"), late, "a number never comes again");
    }
}

#[test]
fn a_request_that_is_still_here_when_nobody_wants_it_never_leaves() {
    for plain in [false, true] {
        let mut session = session(plain);
        let names = [&b"sent"[..], b"begun", b"late", b"kept", b"cancelled", b"forgotten", b"last"];
        let [sent, begun, late, kept, cancelled, forgotten, last] = names.map(|name| ask(&mut session, name));
        let head = if plain { LENGTH_BYTES } else { HEADER_BYTES };
        session.sent(2 * head + 4 + 1);
        [sent, begun, late].into_iter().for_each(|call| session.until(call, Instant::now()));
        session.expire(Instant::now());
        session.cancel(cancelled);
        session.forget(forgotten);
        let unsent = unsent(&session);
        let has = |name: &[u8]| unsent.windows(name.len()).any(|window| window == name);
        assert_eq!(["late", "cancelled", "forgotten"].map(|name| has(name.as_bytes())), [false; 3]);
        // Of those that have begun to leave the server is told.
        let cancels = if plain { 0 } else { 2 * HEADER_BYTES };
        assert_eq!(unsent.len(), 4 + (head + 4) + (head + 4) + cancels, "and nothing is said of them");
        let told: Vec<_> = std::iter::from_fn(|| next(&mut session)).collect();
        let told: BTreeMap<_, _> = told.iter().map(|(call, what)| (*call, &what[..])).collect();
        let expected = [
            (sent, "deadline_exceeded"),
            (begun, "deadline_exceeded"),
            (late, "not_sent"),
            (cancelled, "cancelled"),
        ];
        assert_eq!(told, BTreeMap::from(expected));
        session.sent(4 + head + 4);
        if plain {
            // The two that ended have their places still.
            session.room().extend_from_slice(b"\0\0\0\0\0\0\0\0\x03\0\0\0one");
        } else {
            end(&mut session, kept, b"one");
        }
        assert_eq!(next(&mut session), Some((kept, "end one".into())));
        disconnect(&mut session);
        assert_eq!(next(&mut session), Some((last, "not_sent".into())), "it had not left");
    }
}

#[test]
fn an_answer_that_is_there_beats_a_deadline_that_passed() {
    let mut session = session(false);
    let call = ask(&mut session, b"a");
    session.until(call, Instant::now());
    end(&mut session, call, b"just in time");
    session.expire(Instant::now());
    assert_eq!(next(&mut session), Some((call, "end just in time".into())));
    assert_eq!(next(&mut session), None);
}

#[test]
fn nothing_is_left_to_say_of_a_call_that_ended_or_was_forgotten() {
    for plain in [false, true] {
        let mut session = session(plain);
        let (forgotten, answered) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
        session.sent(session.unsent_bytes());
        session.until(forgotten, Instant::now());
        session.expire(Instant::now());
        session.forget(forgotten);
        assert!(!session.is_ready(), "plain {plain}: a turn would not wait");
        session.cancel(answered);
        if plain {
            session.room().extend_from_slice(b"\0\0\0\0\x06\0\0\0faster");
        } else {
            end(&mut session, answered, b"faster");
        }
        let found = session.take(answered).unwrap();
        assert_eq!(told(&session, &found), "end faster");
        assert!(!session.is_ready() && session.in_flight() == 0, "plain {plain}: a turn would not wait");
    }
}

#[test]
fn what_others_were_sent_is_kept_for_them_in_order() {
    let mut session = session(false);
    let (stream, call) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
    hear(&mut session, Header::new(FrameKind::Item, stream.number(), 0), b"1");
    hear(&mut session, Header::new(FrameKind::Item, stream.number(), 0), b"2");
    end(&mut session, call, b"answer");
    end(&mut session, stream, b"3");
    let found = session.take(call).unwrap();
    assert_eq!(told(&session, &found), "end answer");
    assert!(session.take(call).is_none() && !session.knows(call) && session.knows(stream));
    for expected in ["item 1", "item 2", "end 3"] {
        let found = session.take(stream).unwrap();
        assert_eq!(told(&session, &found), expected);
    }
    assert!(!session.knows(stream) && !session.is_ready());
}

#[test]
fn a_fault_at_the_end_is_read_with_its_message() {
    let mut session = session(false);
    let calls = [0; 3].map(|_| ask(&mut session, b"a"));
    let frame = error_frame("EchoErrorResponse", "ten o'clock");
    let fault = |code| Header { fault: code, ..Header::new(FrameKind::End, 0, 0) };
    hear(&mut session, Header { id: calls[0].number(), ..fault(Fault::Draining as u16) }, &frame);
    hear(&mut session, Header { id: calls[1].number(), ..fault(Fault::Overloaded as u16) }, b"no frame");
    hear(&mut session, Header { id: calls[2].number(), ..fault(9_999) }, b"");
    let mut errors = std::iter::from_fn(|| session.next()).map(|found| match found.kind {
        EventKind::Failed(error) => (error.fault, error.detail),
        other => panic!("{other:?}"),
    });
    assert_eq!(errors.next(), Some((Fault::Draining, "ten o'clock".into())));
    assert_eq!(errors.next(), Some((Fault::Overloaded, String::new())));
    assert_eq!(errors.next().map(|error| error.0), Some(Fault::BadAnswer));
}

#[test]
fn an_answer_too_long_fails_its_call_and_no_other() {
    for plain in [false, true] {
        let mut session = session(plain);
        let (long, other) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
        let payload = [b'x'; 1_001];
        if plain {
            session.room().extend_from_slice(&1_001_u32.to_le_bytes());
            session.room().extend_from_slice(&payload);
            session.room().extend_from_slice(b"\x02\0\0\0ok");
        } else {
            end(&mut session, long, &payload);
            end(&mut session, other, b"ok");
        }
        assert_eq!(next(&mut session), Some((long, "frame_too_large".into())));
        assert_eq!(next(&mut session), Some((other, "end ok".into())));
    }
}

/// On a plain connection only the tag says whether more comes of the call, also of what is too long to take.
#[test]
fn a_plain_item_too_long_fails_its_call_and_the_rest_of_the_stream_reaches_no_other() {
    let frame = |tag: &str, text: &str| {
        let frame = error_frame(tag, text);
        [&(frame.len() as u32).to_le_bytes()[..], &frame].concat()
    };
    let long = "x".repeat(1_001);
    let mut bytes = frame("EchoCountItem", &long);
    bytes.extend(frame("EchoCountItem", "left over"));
    bytes.extend(frame("EchoCountItem", &long));
    bytes.extend(frame("EchoCountResponse", "left over"));
    bytes.extend(frame("EchoFieldsResponse", "ok"));
    for piece_bytes in [1, 3, 700, bytes.len()] {
        let mut session = session(true);
        let (stream, other) = (ask(&mut session, b"a"), ask(&mut session, b"b"));
        let mut told = Vec::new();
        for piece in bytes.chunks(piece_bytes) {
            session.room().extend_from_slice(piece);
            told.extend(std::iter::from_fn(|| next(&mut session)));
            assert!(!session.is_ready(), "all was taken that is there: a wait waits");
        }
        assert_eq!(told[0], (stream, "frame_too_large".into()));
        assert!(told[1].0 == other && told[1].1.contains("FieldsResponse"), "{told:?}");
        assert_eq!((told.len(), session.in_flight(), session.take_broken().is_none()), (2, 0, true));
    }
}

#[test]
fn nonsense_ends_the_connection_and_not_the_program() {
    let frames: [&dyn Fn(&mut Session); 4] = [
        &|session| hear(session, Header::new(FrameKind::Request, 1, 0), b""),
        &|session| hear(session, Header::new(FrameKind::Credit, 1, 0), b""),
        &|session| session.room().extend_from_slice(&[0xff; HEADER_BYTES]),
        &|session| session.room().extend_from_slice(&[0, 0, 0, 0, 3, 9, 0, 0].repeat(3)),
    ];
    for frame in frames {
        let mut session = session(false);
        ask(&mut session, b"a");
        frame(&mut session);
        assert!(session.is_ready() && session.next().is_none());
        assert_eq!(session.take_broken().unwrap().fault, Fault::BadFrame);
    }
    let mut session = session(true);
    session.room().extend_from_slice(b"\x01\0\0\0?");
    assert!(session.next().is_none());
    assert_eq!(session.take_broken().unwrap().fault, Fault::BadFrame, "an answer to no question");
}

#[test]
fn bounds_refuse_and_leave_everything_as_it_was() {
    let mut session = session(false);
    let fault = |session: &Session, request: &[u8]| session.admit(request).unwrap_err().fault;
    assert_eq!(fault(&session, &[0; 1_001]), Fault::FrameTooLarge);
    let first = ask(&mut session, &[0; 1_000]);
    for _ in 0..8 {
        ask(&mut session, &[0; 1_000]);
    }
    assert_eq!(fault(&session, &[0; 1_000]), Fault::Overloaded, "too much is unsent");
    session.sent(session.unsent_bytes());
    for _ in 9..64 {
        ask(&mut session, b"");
    }
    assert_eq!(fault(&session, b""), Fault::Overloaded, "too many are in flight");
    end(&mut session, first, b"");
    assert_eq!(next(&mut session), Some((first, "end ".into())));
    session.admit(b"").unwrap();
}

#[test]
fn a_cancelled_call_still_ends_and_a_forgotten_one_is_never_heard_of() {
    let mut session = session(false);
    let (cancelled, forgotten) = (ask(&mut session, b""), ask(&mut session, b""));
    session.sent(session.unsent_bytes());
    session.cancel(cancelled);
    session.forget(forgotten);
    session.grant(forgotten, 5);
    let told: Vec<(FrameKind, u64)> = unsent(&session)
        .chunks(HEADER_BYTES)
        .map(|bytes| Header::decode(bytes, 0).unwrap().unwrap())
        .map(|header| (header.kind, header.id))
        .collect();
    assert_eq!(told, [(FrameKind::Cancel, cancelled.number()), (FrameKind::Cancel, forgotten.number())]);
    end(&mut session, forgotten, b"late");
    end(&mut session, cancelled, b"anyway");
    assert_eq!(next(&mut session), Some((cancelled, "end anyway".into())));
    assert_eq!(next(&mut session), None);
}

#[test]
fn an_item_beyond_its_credit_ends_the_connection() {
    let mut session = session(false);
    let early = ask(&mut session, b"");
    session.welcome(2);
    let later = ask(&mut session, b"");
    let item = |call: CallId| Header::new(FrameKind::Item, call.number(), 0);
    (0..2).for_each(|_| hear(&mut session, item(early), b""));
    (0..2).for_each(|_| hear(&mut session, item(later), b""));
    session.grant(later, 1);
    hear(&mut session, item(later), b"");
    assert_eq!(std::iter::from_fn(|| session.next()).count(), 5);
    assert!(session.take_broken().is_none());
    hear(&mut session, item(later), b"");
    assert!(session.next().is_none());
    assert_eq!(session.take_broken().unwrap().fault, Fault::BadFrame);
}

#[test]
fn a_stream_that_was_begun_before_the_welcome_has_the_credit_that_this_says() {
    for granted in [0, 2] {
        let mut session = session(false);
        let call = ask(&mut session, b"a stream");
        session.grant(call, granted);
        session.welcome(3);
        for _ in 0..3 + granted {
            hear(&mut session, Header::new(FrameKind::Item, call.number(), 0), b"x");
            assert_eq!(next(&mut session), Some((call, "item x".into())));
        }
        hear(&mut session, Header::new(FrameKind::Item, call.number(), 0), b"x");
        assert_eq!(next(&mut session), None);
        assert!(
            session.take_broken().is_some_and(|why| why.fault == Fault::BadFrame),
            "{granted} were granted"
        );
    }
}

#[test]
fn a_length_beyond_the_bound_is_told_before_its_bytes_come() {
    for plain in [false, true] {
        let mut session = session(plain);
        let call = ask(&mut session, b"a");
        assert!(!session.is_ready());
        if plain {
            session.room().extend_from_slice(&2_000_u32.to_le_bytes());
        } else {
            session.room().extend_from_slice(&Header::new(FrameKind::End, call.number(), 2_000).encode());
        }
        assert!(session.is_ready() && session.is_ready_for(call), "who waits is told");
        assert_eq!(next(&mut session), Some((call, "frame_too_large".into())));
        // What comes of it is passed over.
        session.room().extend_from_slice(&[0; 1_999]);
        assert!(!session.is_ready());
        session.room().push(0);
        let other = ask(&mut session, b"b");
        if plain {
            session.room().extend_from_slice(b"\x05\0\0\0other");
        } else {
            end(&mut session, other, b"other");
        }
        assert_eq!(next(&mut session), Some((other, "end other".into())));
    }
}

#[test]
fn the_next_connection_has_a_credit_of_its_own() {
    let mut session = session(false);
    session.welcome(2);
    disconnect(&mut session);
    assert_eq!(session.credit(), 0, "nobody has said anything yet");
    let call = ask(&mut session, b"");
    session.welcome(3);
    (0..3).for_each(|_| hear(&mut session, Header::new(FrameKind::Item, call.number(), 0), b""));
    assert_eq!(std::iter::from_fn(|| session.next()).count(), 3);
    assert!(session.take_broken().is_none());
    assert_eq!(session.credit(), 3);
}

/// What this side told the server since it last sent.
fn said(session: &mut Session) -> Vec<(FrameKind, u64)> {
    let unsent = unsent(session);
    let headers = unsent.chunks(HEADER_BYTES).map(|bytes| Header::decode(bytes, 0).unwrap().unwrap());
    let said = headers.map(|header| (header.kind, header.id)).collect();
    session.sent(unsent.len());
    said
}

/// Its server may have answered by then, or may work on for nobody.
#[test]
fn a_server_is_told_of_each_call_that_is_given_up_in_front_of_the_next_request() {
    type Act = dyn Fn(&mut Session, CallId);
    let ends: [&Act; 3] =
        [&|session, call| session.cancel(call), &|session, call| session.forget(call), &|session, call| {
            session.until(call, Instant::now());
            session.expire(Instant::now());
        }];
    for give_up in ends {
        let mut session = session(false);
        let call = ask(&mut session, b"");
        session.sent(session.unsent_bytes());
        give_up(&mut session, call);
        let later = ask(&mut session, b"");
        let expected = [(FrameKind::Cancel, call.number()), (FrameKind::Request, later.number())];
        assert_eq!(said(&mut session), expected);
        // Once it was told.
        session.until(call, Instant::now());
        session.expire(Instant::now());
        session.forget(call);
        session.cancel(call);
        let repeats = said(&mut session);
        assert!(repeats.iter().all(|again| *again == expected[0]), "{repeats:?}");
    }
}

/// The server was told, and may have taken back what the answer names.
#[test]
fn an_answer_that_comes_after_the_deadline_is_none_also_while_the_failure_is_not_taken() {
    for is_here in [true, false] {
        let mut session = session(false);
        let (call, other) = (ask(&mut session, b""), ask(&mut session, b""));
        session.sent(session.unsent_bytes());
        session.until(call, Instant::now());
        if is_here {
            end(&mut session, call, b"answer");
        }
        assert_eq!(session.expire(Instant::now()), usize::from(!is_here));
        if !is_here {
            end(&mut session, call, b"answer");
        }
        end(&mut session, other, b"other");
        let (cancels, told) = if is_here {
            (vec![], vec![(call, "end answer"), (other, "end other")])
        } else {
            let cancel = (FrameKind::Cancel, call.number());
            (vec![cancel], vec![(other, "end other"), (call, "deadline_exceeded")])
        };
        assert_eq!(said(&mut session), cancels);
        let told: Vec<_> = told.into_iter().map(|(call, what)| (call, what.to_owned())).collect();
        assert_eq!(std::iter::from_fn(|| next(&mut session)).collect::<Vec<_>>(), told);
        assert_eq!((session.in_flight(), session.is_ready()), (0, false));
    }
}

#[test]
fn a_server_is_told_of_an_answer_that_came_and_is_not_read() {
    let mut session = session(false);
    let [forgotten, taken, long] = [0; 3].map(|_| ask(&mut session, b""));
    session.sent(session.unsent_bytes());
    end(&mut session, forgotten, b"unread");
    end(&mut session, taken, b"read");
    let found = session.take(taken).unwrap();
    assert_eq!(told(&session, &found), "end read");
    session.forget(taken);
    assert_eq!(said(&mut session), []);
    session.forget(forgotten);
    assert_eq!(said(&mut session), [(FrameKind::Cancel, forgotten.number())]);
    end(&mut session, long, &[b'x'; 1_001]);
    assert_eq!(next(&mut session), Some((long, "frame_too_large".into())));
    assert_eq!(said(&mut session), [(FrameKind::Cancel, long.number())]);
    // The server of another connection knows nothing of it.
    let kept = ask(&mut session, b"");
    session.sent(session.unsent_bytes());
    end(&mut session, kept, b"unread");
    disconnect(&mut session);
    session.forget(kept);
    assert_eq!((said(&mut session), session.is_ready()), (vec![], false));
}

/// To the server it is all the same where the answer lies here.
#[test]
fn a_server_is_told_of_a_cancel_also_where_the_answer_was_kept_for_a_later_turn() {
    let mut session = session(false);
    let [answered, refused, streaming, other] = [0; 4].map(|_| ask(&mut session, b""));
    session.sent(session.unsent_bytes());
    end(&mut session, answered, b"unread");
    hear(&mut session, Header { fault: 1, ..Header::new(FrameKind::End, refused.number(), 0) }, b"");
    hear(&mut session, Header::new(FrameKind::Item, streaming.number(), 0), b"item");
    end(&mut session, streaming, b"unread");
    // A wait for one call keeps what comes of others.
    assert!(session.take(other).is_none());
    for (call, told) in [(answered, true), (refused, false), (streaming, true)] {
        session.cancel(call);
        let expected = [(FrameKind::Cancel, call.number())];
        assert_eq!(said(&mut session), expected[..usize::from(told)]);
    }
    // It is the answer all the same, and once it was taken nobody is told again.
    assert_eq!(next(&mut session), Some((answered, "end unread".into())));
    session.cancel(answered);
    assert_eq!(said(&mut session), []);
    // The server of another connection knows nothing of it.
    disconnect(&mut session);
    session.cancel(streaming);
    assert_eq!(said(&mut session), []);
}

/// Else each deadline that passes would let as much again be read.
#[test]
fn what_a_deadline_sets_aside_keeps_reading_paused_until_it_is_taken() {
    let mut session = session(false);
    let [stream, overdue, other] = [0; 3].map(|_| ask(&mut session, b""));
    session.sent(session.unsent_bytes());
    while !session.is_full() {
        hear(&mut session, Header::new(FrameKind::Item, stream.number(), 0), &[b'x'; 1_000]);
    }
    session.until(overdue, Instant::now());
    assert_eq!(session.expire(Instant::now()), 1);
    assert!(session.is_full());
    // Who looks for one call is not kept from it by what came of others.
    assert!(session.take(other).is_none() && !session.is_full());
    assert!(session.next().is_some() && session.is_full());
    while session.is_full() {
        assert!(session.next().is_some());
    }
    session.forget(stream);
    assert_eq!((session.set_aside_bytes, session.stashed_bytes), (0, 0));
}

#[test]
fn nonsense_that_is_found_at_a_deadline_is_not_waited_behind() {
    let mut session = session(false);
    session.welcome(1);
    let (stream, call, other) = (ask(&mut session, b""), ask(&mut session, b""), ask(&mut session, b""));
    session.sent(session.unsent_bytes());
    (0..2).for_each(|_| hear(&mut session, Header::new(FrameKind::Item, stream.number(), 0), b""));
    session.until(call, Instant::now());
    session.expire(Instant::now());
    assert!(session.is_ready_for(other), "the connection is beyond understanding");
    assert_eq!(session.take_broken().unwrap().fault, Fault::BadFrame);
}

#[test]
fn an_item_of_a_call_that_one_frame_answers_fails_and_cancels_it() {
    let (item, response) = (error_frame("EchoCountItem", "x"), error_frame("EchoFieldsResponse", "x"));
    for frame in [item.as_slice(), &response, b"no frame"] {
        let mut session = session(false);
        let call = ask_with(&mut session, b"", &CallOptions { unary: true, ..CallOptions::default() });
        let other = ask(&mut session, b"");
        session.sent(session.unsent_bytes());
        for _ in 0..3 {
            hear(&mut session, Header::new(FrameKind::Item, call.number(), 0), frame);
        }
        end(&mut session, call, &response);
        end(&mut session, other, b"ok");
        let told = session.take(other).map(|found| told(&session, &found));
        assert_eq!(told, Some("end ok".into()));
        assert_eq!(next(&mut session), Some((call, "bad_answer".into())));
        assert_eq!((next(&mut session), session.in_flight(), session.knows(call)), (None, 0, false));
        assert_eq!(said(&mut session), [(FrameKind::Cancel, call.number())]);
    }
}

#[test]
fn a_frame_whose_kind_and_tag_differ_is_a_bad_answer() {
    let (item, response) = (error_frame("EchoCountItem", "x"), error_frame("EchoCountResponse", "x"));
    for (kind, frame, cancels) in [(FrameKind::Item, &response, true), (FrameKind::End, &item, false)] {
        let mut session = session(false);
        let call = ask(&mut session, b"");
        session.sent(session.unsent_bytes());
        hear(&mut session, Header::new(FrameKind::Item, call.number(), 0), &item);
        hear(&mut session, Header::new(kind, call.number(), 0), frame);
        end(&mut session, call, &response);
        assert!(next(&mut session).is_some_and(|(of, what)| of == call && what.starts_with("item")));
        assert_eq!(next(&mut session), Some((call, "bad_answer".into())));
        assert_eq!((next(&mut session), session.in_flight()), (None, 0));
        assert_eq!(said(&mut session).len(), usize::from(cancels));
    }
}

#[test]
fn a_plain_item_of_a_call_that_one_frame_answers_fails_it_and_no_other() {
    let mut session = session(true);
    let call = ask_with(&mut session, b"", &CallOptions { unary: true, ..CallOptions::default() });
    let other = ask(&mut session, b"");
    for tag in ["EchoCountItem", "EchoCountItem", "EchoCountResponse", "EchoFieldsResponse"] {
        let frame = error_frame(tag, "x");
        session.room().extend_from_slice(&(frame.len() as u32).to_le_bytes());
        session.room().extend_from_slice(&frame);
    }
    assert_eq!(next(&mut session), Some((call, "bad_answer".into())));
    assert!(next(&mut session).is_some_and(|(of, what)| of == other && what.starts_with("end")));
    assert_eq!((next(&mut session), session.in_flight()), (None, 0));
}

#[test]
fn plain_items_are_known_by_their_tag() {
    let mut session = session(true);
    let (stream, other) = (ask(&mut session, b""), ask(&mut session, b""));
    let frame = |tag: &str| error_frame(tag, "x");
    for tag in ["EchoCountItem", "EchoCountItem", "EchoCountResponse", "EchoErrorResponse"] {
        let frame = frame(tag);
        session.room().extend_from_slice(&(frame.len() as u32).to_le_bytes());
        session.room().extend_from_slice(&frame);
    }
    let kinds: Vec<(CallId, bool)> = std::iter::from_fn(|| session.next())
        .map(|found| (found.call, matches!(found.kind, EventKind::Item)))
        .collect();
    assert_eq!(kinds, [(stream, true), (stream, true), (stream, false), (other, false)]);
}

proptest! {
    /// Any answers in any order, cut anywhere, taken by name or in turn: each call gets its own, once.
    #[test]
    fn every_call_gets_its_own_answers_once(
        items in proptest::collection::vec(0_usize..4, 1..20),
        order in any::<Vec<prop::sample::Index>>(),
        cuts in proptest::collection::vec(1_usize..90, 1..30),
        by_name in proptest::collection::vec(any::<bool>(), 1..30),
    ) {
        let mut session = session(false);
        let calls: Vec<CallId> = items.iter().map(|_| ask(&mut session, b"?")).collect();
        let mut left: Vec<(CallId, usize)> = calls.iter().copied().zip(items.iter().copied()).collect();
        let mut order = order.iter();
        let mut stream = Vec::new();
        while !left.is_empty() {
            let at = order.next().map_or(0, |index| index.index(left.len()));
            let (call, items) = left[at];
            let kind = if items == 0 { FrameKind::End } else { FrameKind::Item };
            let payload = format!("{} {items}", call.number());
            stream.extend(Header::new(kind, call.number(), payload.len() as u32).encode());
            stream.extend(payload.as_bytes());
            if items == 0 { left.remove(at); } else { left[at].1 -= 1; }
        }
        let mut got: BTreeMap<CallId, Vec<String>> = BTreeMap::new();
        let (mut open, mut at): (BTreeSet<CallId>, usize) = (calls.iter().copied().collect(), 0);
        let (mut cuts, mut by_name) = (cuts.iter().cycle(), by_name.iter().cycle());
        while !open.is_empty() {
            let found = if *by_name.next().unwrap() {
                session.take(*open.last().unwrap())
            } else {
                session.next()
            };
            if let Some(found) = found {
                prop_assert!(open.contains(&found.call));
                let frame = String::from_utf8(session.frame(&found).to_vec()).unwrap();
                got.entry(found.call).or_default().push(frame);
                if matches!(found.kind, EventKind::End) {
                    open.remove(&found.call);
                }
            } else {
                let end = stream.len().min(at + cuts.next().unwrap());
                session.room().extend_from_slice(&stream[at..end]);
                at = end;
            }
        }
        for (call, items) in calls.iter().zip(items) {
            let expected: Vec<String> = (0..=items).rev().map(|left| format!("{} {left}", call.number())).collect();
            prop_assert_eq!(&got[call], &expected);
        }
        prop_assert_eq!(session.in_flight(), 0);
    }

    #[test]
    fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), plain: bool) {
        let mut session = session(plain);
        for _ in 0..5 {
            ask(&mut session, b"?");
        }
        session.room().extend_from_slice(&bytes);
        let mut ended = 0;
        while let Some(found) = session.next() {
            ended += usize::from(!matches!(found.kind, EventKind::Item));
        }
        prop_assert_eq!(session.in_flight(), 5 - ended);
    }
}
