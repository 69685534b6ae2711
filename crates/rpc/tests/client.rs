//! The client, with servers that behave and servers that do not.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, Running, in_time, numbered, until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use thalweg_rpc::client::{Ask, Error, RemoteError, Statistics};
use thalweg_rpc::{Bounds, Client, ClientOptions, ServerOptions};
use thalweg_service::Wait;
use thalweg_wire::fault::{Fault, Retry};
use thalweg_wire::http1::{BodyLength, HeadParser, Limits};

fn patient() -> ClientOptions {
    ClientOptions { deadline: Some(PATIENCE), ..ClientOptions::default() }
}

fn client(server: &Running) -> Client {
    Client::new(&server.url(), patient()).unwrap()
}

fn fault(error: &Error) -> Fault {
    match error {
        Error::Failed(failure) => failure.fault,
        Error::Remote(said) => panic!("said {said:?}"),
    }
}

/// What a scripted server does with a request.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Answers with this, whose `ID` stands for the first id that was asked.
    Say(&'static str),
    /// Answers with this body.
    Answer(&'static str),
    /// Says so much, and closes.
    SayAndClose(&'static str),
    /// Says nothing for so long that nobody waits.
    Sleep,
    /// Answers and closes, and tells of that as of a request.
    AnswerAndClose(&'static str),
}

const CLOSED: &str = "closed";

/// Serves one request after the other as the script says; what was asked, and on which connection.
fn scripted(script: &'static [Act]) -> (String, Receiver<(usize, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut script = script.iter();
        let mut slept = Vec::new();
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            while let Some(body) = request(&mut stream) {
                let id =
                    body.split("\"id\":").nth(1).map_or("0", |rest| rest.split([',', '}']).next().unwrap());
                let id = id.to_owned();
                if sender.send((number, body)).is_err() {
                    return;
                }
                let Some(act) = script.next() else { return };
                let answer = |body: &str| {
                    let body = body.replace("ID", &id);
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                };
                match act {
                    Act::Say(text) => stream.write_all(text.replace("ID", &id).as_bytes()).unwrap(),
                    Act::Answer(body) => stream.write_all(answer(body).as_bytes()).unwrap(),
                    Act::SayAndClose(text) => {
                        stream.write_all(text.as_bytes()).unwrap();
                        break;
                    }
                    Act::AnswerAndClose(body) => {
                        stream.write_all(answer(body).as_bytes()).unwrap();
                        drop(stream);
                        sender.send((number, CLOSED.to_owned())).unwrap();
                        break;
                    }
                    Act::Sleep => {
                        slept.push(stream);
                        break;
                    }
                }
            }
        }
    });
    (url, receiver)
}

/// Reads one request; its body.
fn request(stream: &mut TcpStream) -> Option<String> {
    let mut received = Vec::new();
    loop {
        let mut parser = HeadParser::default();
        if let Some(head) = parser.parse(&received, &Limits::default()).unwrap() {
            let BodyLength::Known(length) = head.body else { panic!("a body without a length") };
            let end = head.bytes + length as usize;
            if received.len() >= end {
                return Some(String::from_utf8(received[head.bytes..end].to_vec()).unwrap());
            }
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return None,
            Ok(count) => received.extend_from_slice(&chunk[..count]),
        }
    }
}

const RIGHT: &str = r#"{"jsonrpc":"2.0","result":"right","id":ID}"#;

#[test]
fn calls_go_over_one_connection_that_is_kept() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    for number in 0..100_u64 {
        let answer = client.call("Same", &format!("[{number}]")).unwrap();
        assert_eq!(answer, format!(r#"{{"number":{number},"text":null}}"#));
    }
    client.notify("Same", r#"{"number":7}"#).unwrap();
    let expected = Statistics { opened: 1, reused: 100, connections: 1, idle: 1, ..Statistics::default() };
    assert_eq!(client.statistics(), expected);
    assert_eq!(server.asked().len(), 101);
}

#[test]
fn what_the_server_says_is_told_from_what_went_wrong() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    let Error::Remote(said) = client.call("Refuse", r#"["no"]"#).unwrap_err() else { panic!() };
    assert_eq!((said.code, said.message.as_str(), said.fault()), (-32000, "no", Some(Fault::Refused)));
    let Error::Remote(said) = client.call("Same", "[]").unwrap_err() else { panic!() };
    assert_eq!((said.code, said.fault()), (-32602, Some(Fault::BadRequest)));
    assert_eq!(client.call("Same", "[]").unwrap_err().retry(), Retry::Never);
    assert_eq!(client.call("Refuse", r#"["no"]"#).unwrap_err().retry(), Retry::Never);
    assert_eq!(fault(&client.call("Same", "7").unwrap_err()), Fault::BadArgument);
    assert_eq!(client.call("Same", "[1]").unwrap(), r#"{"number":1,"text":null}"#);
    assert_eq!(client.statistics().opened, 1);
}

/// Sixty-four zeros, as a hash of zeros is written.
macro_rules! zeros {
    () => {
        "0000000000000000000000000000000000000000000000000000000000000000"
    };
}

#[test]
fn a_schema_is_what_the_version_itself_says_however_it_is_written() {
    const SPACED: &str = concat!(r#"{"jsonrpc":"2.0","result":{ "schema" : ""#, zeros!(), r#"" },"id":ID}"#);
    const INSIDE: &str =
        concat!(r#"{"jsonrpc":"2.0","result":{"of":{"schema":""#, zeros!(), r#""}},"id":ID}"#);
    let (url, _asked) = scripted(&[Act::Answer(SPACED), Act::Answer(INSIDE)]);
    let mut client = Client::new(&url, patient()).unwrap();
    client.expect_schema(&[0; 32]).unwrap();
    assert_eq!(fault(&client.expect_schema(&[0; 32]).unwrap_err()), Fault::SchemaMismatch);
}

#[test]
fn a_server_of_another_schema_is_told_from_the_right_one() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    client.expect_schema(&common::schema().hash).unwrap();
    let error = client.expect_schema(&[7; 32]).unwrap_err();
    assert!(matches!(&error, Error::Failed(failure) if failure.fault == Fault::SchemaMismatch), "{error}");
}

#[test]
fn a_batch_is_answered_in_its_order() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    let calls = [("Same", "[1]"), ("None", ""), ("Same", "[2]")];
    let answers = client.batch(&calls).unwrap();
    assert_eq!(answers.len(), 3);
    assert_eq!(answers.at(0).unwrap().unwrap(), r#"{"number":1,"text":null}"#);
    assert_eq!(answers.at(1).unwrap().unwrap_err().code, -32601);
    assert_eq!(answers.at(2).unwrap().unwrap(), r#"{"number":2,"text":null}"#);
    let (url, _asked) = scripted(&[Act::Answer(
        r#"[{"jsonrpc":"2.0","result":"b","id":2},{"jsonrpc":"2.0","result":"a","id":1}]"#,
    )]);
    let mut client = Client::new(&url, patient()).unwrap();
    let answers = client.batch(&calls[..2]).unwrap();
    let all: Vec<&str> = answers.iter().map(Result::unwrap).collect();
    assert_eq!(all, ["\"a\"", "\"b\""]);
}

#[test]
fn an_answer_that_cannot_be_one_is_not_taken_and_its_connection_closed() {
    const BAD: &[Act] = &[
        Act::Answer(r#"{"jsonrpc":"2.0","result":1,"id":"ID"}"#),
        Act::Answer(r#"{"jsonrpc":"2.0","result":1,"id":99}"#),
        Act::Answer(r#"{"jsonrpc":"2.0","result":1,"id":null}"#),
        Act::Answer(r#"{"jsonrpc":"1.0","result":1,"id":ID}"#),
        Act::Answer(r#"{"jsonrpc":"2.0","id":ID}"#),
        Act::Answer(r#"[{"jsonrpc":"2.0","result":1,"id":ID}]"#),
        Act::Answer("nothing"),
        Act::Answer(""),
        Act::Say("HTTP/1.1 200 OK\r\n\r\n"),
        Act::Say("HTTP/1.1 204 No Content\r\n\r\n"),
        Act::Say("SSH-2.0-x\r\n\r\n"),
        Act::Say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more"),
        Act::Say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"),
        Act::Say("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 3\r\n\r\nwhy"),
    ];
    let (url, asked) = scripted(BAD);
    let mut client = Client::new(&url, patient()).unwrap();
    for (number, act) in BAD.iter().enumerate() {
        assert_eq!(fault(&client.call("m", "").unwrap_err()), Fault::BadAnswer, "{act:?}");
        assert_eq!(asked.recv().unwrap().0, number, "{act:?}: a connection of its own");
    }
    assert_eq!(client.statistics().closed, BAD.len() as u64);
}

#[test]
fn what_is_odd_but_right_is_taken() {
    let (url, asked) = scripted(&[
        Act::Say(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 42\r\n\r\n {\"jsonrpc\":\"2.0\",\"result\":\"right\",\"id\":1}",
        ),
        Act::Say(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"jsonrpc\":\"2.0\"\r\n1c\r\n,\"result\":\"right\",\"id\":   2}\r\n0\r\n\r\n",
        ),
        Act::Answer(r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"what?"},"id":null}"#),
        Act::Answer(RIGHT),
    ]);
    let mut client = Client::new(&url, patient()).unwrap();
    for _ in 0..2 {
        assert_eq!(client.call("m", "").unwrap(), "\"right\"");
    }
    assert!(matches!(client.call("m", "").unwrap_err(), Error::Remote(said) if said.code == -32700));
    assert_eq!(client.call("m", "").unwrap(), "\"right\"");
    assert!(asked.iter().take(4).all(|(connection, _)| connection == 0));
}

#[test]
fn half_an_answer_is_none_and_is_not_asked_for_again() {
    let (url, asked) = scripted(&[
        Act::SayAndClose(""),
        Act::SayAndClose("HTTP/1.1 200 OK\r\nContent-Le"),
        Act::SayAndClose("HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{\"jsonrpc\":"),
        Act::Answer(RIGHT),
    ]);
    let mut client = Client::new(&url, patient()).unwrap();
    for number in 0..3 {
        let error = client.call("m", "").unwrap_err();
        assert_eq!((fault(&error), error.retry()), (Fault::Disconnected, Retry::Unknown));
        assert_eq!(asked.recv().unwrap().0, number);
    }
    assert_eq!(client.call("m", "").unwrap(), "\"right\"");
    assert_eq!(client.statistics().retried, 0);
}

/// A server may close a connection that was kept, at any time. What was never written is written elsewhere;
/// what may have been read is repeated only where that does no harm.
#[test]
fn a_kept_connection_that_was_closed_meanwhile_is_replaced() {
    let (url, asked) = scripted(&[Act::AnswerAndClose(RIGHT), Act::Answer(RIGHT)]);
    let mut client = Client::new(&url, patient()).unwrap();
    assert_eq!(client.call("m", "").unwrap(), "\"right\"");
    assert_eq!(asked.recv().unwrap().0, 0);
    assert_eq!(asked.recv().unwrap(), (0, CLOSED.to_owned()));
    // One that was in use a moment ago is not looked at.
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.call("m", "").unwrap(), "\"right\"");
    assert_eq!(asked.recv().unwrap().0, 1);
    assert_eq!((client.statistics().opened, client.statistics().closed), (2, 1));
}

/// Of so many calls in a row one fails at most, and none of those that pause: the end of the connection lies
/// there to be read, before each of them.
#[test]
fn a_server_that_closes_after_each_answer_fails_one_call_at_most() {
    const CALLS: usize = 200;
    let row = |pause: Duration| {
        let (url, asked) = scripted(&[Act::AnswerAndClose(RIGHT); CALLS]);
        let mut client = Client::new(&url, patient()).unwrap();
        let mut failed = 0;
        for _ in 0..CALLS {
            match client.call("m", "") {
                Ok(answer) => {
                    assert_eq!(answer, "\"right\"");
                    asked.recv().unwrap();
                    assert_eq!(asked.recv().unwrap().1, CLOSED);
                }
                Err(error) => {
                    assert_eq!((fault(&error), error.retry()), (Fault::Disconnected, Retry::Unknown));
                    failed += 1;
                }
            }
            std::thread::sleep(pause);
        }
        let told = client.statistics();
        assert_eq!((told.opened, told.reused, told.retried), (CALLS as u64 - failed, failed, 0));
        assert_eq!(told.opened - told.closed, told.connections as u64);
        failed
    };
    assert!(row(Duration::ZERO) <= 1);
    assert_eq!(row(Duration::from_micros(500)), 0);
}

#[test]
fn only_what_may_be_repeated_is_repeated_and_once() {
    const SCRIPT: &[Act] = &[
        Act::Answer(RIGHT),
        Act::SayAndClose(""),
        Act::Answer(RIGHT),
        Act::SayAndClose(""),
        Act::SayAndClose(""),
    ];
    let (url, asked) = scripted(SCRIPT);
    let mut client = Client::new(&url, patient()).unwrap();
    let call = Ask { is_idempotent: true, ..Ask::one("m", "") };
    assert_eq!(client.ask(&call).unwrap().one().unwrap(), "\"right\"");
    assert_eq!(client.ask(&call).unwrap().one().unwrap(), "\"right\"", "by a new connection");
    assert_eq!(client.statistics().retried, 1);
    assert_eq!(fault(&client.ask(&call).unwrap_err()), Fault::Disconnected, "twice is enough");
    assert_eq!((client.statistics().retried, asked.try_iter().count()), (2, SCRIPT.len()));
}

#[test]
fn nobody_waits_longer_than_the_deadline() {
    let (url, _asked) = scripted(&[Act::Sleep, Act::Sleep]);
    for is_asked_for in [false, true] {
        let late = in_time(Duration::from_millis(20), |deadline| {
            let (longer, asked) =
                if is_asked_for { (deadline / 2, Some(deadline)) } else { (deadline, None) };
            let options = ClientOptions { deadline: Some(longer), ..ClientOptions::default() };
            let mut client = Client::new(&url, options).unwrap();
            let begun = Instant::now();
            let error = client.ask(&Ask { deadline: asked, ..Ask::one("m", "") }).map(drop).unwrap_err();
            assert!(begun.elapsed() >= deadline);
            assert_eq!(client.statistics().connections, 0, "an answer that comes late comes to nobody");
            Some(fault(&error)).filter(|fault| *fault != Fault::ConnectTimeout)
        });
        assert_eq!(late, Fault::DeadlineExceeded);
    }
}

#[test]
fn nobody_there_is_said_at_once_and_may_be_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    drop(listener);
    let mut client = Client::new(&url, patient()).unwrap();
    let error = client.call("m", "").unwrap_err();
    assert_eq!((fault(&error), error.retry()), (Fault::NoServer, Retry::Safe));
}

#[test]
fn an_answer_has_a_bound() {
    let server = Running::start(ServerOptions::default());
    let mut client =
        Client::new(&server.url(), ClientOptions { answer_bytes_max: 1_000, ..patient() }).unwrap();
    let params = |length: usize| format!(r#"[1,"{}"]"#, "x".repeat(length));
    assert!(client.call("Same", &params(100)).is_ok());
    assert_eq!(fault(&client.call("Same", &params(1_000)).unwrap_err()), Fault::FrameTooLarge);
    assert!(client.call("Same", &params(100)).is_ok());
}

/// Long texts go out and come back in many pieces.
#[test]
fn large_messages_go_both_ways() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    for length in [1, 4_000, 16_384, 100_000, 8_000_000] {
        let text = "ü".repeat(length / 2);
        let answer = client.call("Same", &format!(r#"[1,"{text}"]"#)).unwrap();
        assert_eq!(answer.len(), text.len() + r#"{"number":1,"text":""}"#.len());
        assert!(answer.ends_with(&format!("{text}\"}}")));
    }
}

#[test]
fn many_at_once_share_a_bounded_number_of_connections() {
    let server = Running::start(ServerOptions::default());
    let options = ClientOptions { connections_max: 3, ..patient() };
    let mut client = Client::new(&server.url(), options).unwrap();
    let calls: Vec<_> =
        (0..10_u64).map(|number| client.begin(&Ask::one("Later", &format!("[{number}]"))).unwrap()).collect();
    assert_eq!((client.statistics().connections, client.statistics().waits), (3, 7));
    let mut seen = Vec::new();
    let begun = Instant::now();
    while seen.len() < calls.len() {
        assert!(begun.elapsed() < PATIENCE);
        client.turn(Wait::Until(Instant::now() + Duration::from_millis(1))).unwrap();
        for (number, reply) in std::mem::take(&mut server.shared.lock().unwrap().later) {
            reply.end(&numbered("TrialLaterResponse", number, None));
        }
        while let Some(done) = client.next() {
            let number = calls.iter().position(|call| *call == done.call).unwrap();
            assert_eq!(done.outcome.unwrap().one().unwrap(), format!(r#"{{"number":{number},"text":null}}"#));
            seen.push(number);
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    let statistics = client.statistics();
    assert_eq!((statistics.idle, statistics.connections, statistics.opened), (2, 2, 3), "two are kept");
}

/// Turns until the server has a call that waits.
fn until_waiting(server: &Running, client: &mut Client) {
    let begun = Instant::now();
    while server.shared.lock().unwrap().later.is_empty() {
        assert!(begun.elapsed() < PATIENCE);
        client.turn(Wait::Until(Instant::now() + Duration::from_millis(1))).unwrap();
    }
}

#[test]
fn a_foreign_loop_is_told_when_to_take_a_turn() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    let readable = |client: &mut Client, within_ms| {
        thalweg_sys::epoll::wait_readable(client.descriptor().unwrap(), within_ms).unwrap()
    };
    client.turn(Wait::Poll).unwrap();
    assert!(!readable(&mut client, 0));
    let call = client.begin(&Ask::one("Later", "[1]")).unwrap();
    let begun = Instant::now();
    while server.shared.lock().unwrap().later.is_empty() {
        assert!(begun.elapsed() < PATIENCE);
        if readable(&mut client, 1) {
            client.turn(Wait::Poll).unwrap();
        }
    }
    client.turn(Wait::Poll).unwrap();
    assert!(client.next().is_none() && !readable(&mut client, 0));
    server
        .waiting(1)
        .into_iter()
        .for_each(|(number, reply)| reply.end(&numbered("TrialLaterResponse", number, None)));
    assert!(readable(&mut client, 60_000));
    client.turn(Wait::Poll).unwrap();
    let done = client.next().unwrap();
    assert_eq!((done.call, done.outcome.unwrap().one().unwrap()), (call, r#"{"number":1,"text":null}"#));
    // A deadline is told of, too.
    let late = in_time(Duration::from_millis(5), |deadline| {
        client.begin(&Ask { deadline: Some(deadline), ..Ask::one("Later", "[2]") }).unwrap();
        let begun = Instant::now();
        let late = loop {
            assert!(begun.elapsed() < PATIENCE);
            client.turn(Wait::Poll).unwrap();
            if let Some(done) = client.next() {
                break done;
            }
            readable(&mut client, 60_000);
        };
        Some(late.outcome.unwrap_err().fault).filter(|fault| *fault != Fault::ConnectTimeout)
    });
    assert_eq!(late, Fault::DeadlineExceeded);
}

#[test]
fn a_turn_does_not_wait_for_more_where_an_outcome_is_there() {
    let server = Running::start(ServerOptions::default());
    let options = ClientOptions { deadline: Some(Duration::from_secs(3_600)), ..patient() };
    let mut client = Client::new(&server.url(), options).unwrap();
    let late = client.begin(&Ask::one("Later", "[1]")).unwrap();
    until_waiting(&server, &mut client);
    // Nothing over TCP goes to everybody: connecting fails before it has begun.
    let nowhere = client.target("http://255.255.255.255:9/x").unwrap();
    let failed = client.begin(&Ask { target: Some(nowhere), ..Ask::one("m", "") }).unwrap();
    // Each would wait a second for the answer that nobody gives.
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(client.turn(Wait::Until(begun + Duration::from_secs(3_600))).unwrap(), 1);
        assert_eq!(client.turn(Wait::Block).unwrap(), 1);
        assert!(begun.elapsed() < PATIENCE);
    }
    let done = client.next().unwrap();
    assert!(done.call == failed && done.outcome.is_err() && client.knows(late));
    client.cancel(late);
}

#[test]
fn what_was_taken_for_no_request_may_be_made_again() {
    let bounds = Bounds { batch_calls_max: 2, ..Bounds::default() };
    let server = Running::start(ServerOptions { bounds, ..ServerOptions::default() });
    let mut client = client(&server);
    let answers = client.batch(&[("Same", "[1]"); 3]).unwrap();
    for said in answers.iter().map(Result::unwrap_err) {
        assert_eq!((said.code, said.fault(), said.retry()), (-32600, None, Retry::Safe));
    }
    assert_eq!(answers.len(), 3);
    // What another server says by another number tells nothing, and a fault that is named counts.
    let said = |code, data: &str| RemoteError { code, message: String::new(), data: data.to_owned() }.retry();
    assert_eq!((said(-32603, ""), said(-32700, "")), (Retry::Unknown, Retry::Safe));
    assert_eq!(said(-32600, r#"{"fault":"frame_too_large"}"#), Retry::Never);
}

/// A fault is the member of that name of the object itself, however that is written.
#[test]
fn what_stands_inside_of_an_errors_data_is_no_fault_of_it() {
    let fault = |data: &str| RemoteError { code: 1, message: String::new(), data: data.to_owned() }.fault();
    for (data, expected) in [
        (r#"{"cause":{"fault":"overloaded"}}"#, None),
        (r#"[{"fault":"overloaded"}]"#, None),
        (r#"{"text":"\"fault\":\"overloaded\""}"#, None),
        (r#""fault""#, None),
        ("", None),
        (r#"{"fault":["overloaded"]}"#, None),
        (r#"{"fault":"no such word"}"#, None),
        (r#"{ "cause": {"fault":"refused"}, "fault" : "overloaded" }"#, Some(Fault::Overloaded)),
        (r#"{"\u0066ault":"over\u006coaded"}"#, Some(Fault::Overloaded)),
        // As JSON is read nearly everywhere.
        (r#"{"fault":"refused","fault":"overloaded"}"#, Some(Fault::Overloaded)),
        (r#"{"fault":"refused","fault":null}"#, None),
    ] {
        assert_eq!(fault(data), expected, "{data}");
    }
}

#[test]
fn a_call_that_is_cancelled_is_told_to_the_server_and_to_nobody_else() {
    let server = Running::start(ServerOptions::default());
    let mut client = client(&server);
    let call = client.begin(&Ask::one("Later", "[1]")).unwrap();
    until_waiting(&server, &mut client);
    client.cancel(call);
    let waiting = server.waiting(1);
    until("told", || waiting[0].1.is_cancelled());
    client.turn(Wait::Poll).unwrap();
    assert!(client.next().is_none() && client.in_flight() == 0);
    assert_eq!(client.call("Same", "[1]").unwrap(), r#"{"number":1,"text":null}"#);
}

#[test]
fn what_is_in_flight_has_a_bound_and_ends_with_the_client() {
    let server = Running::start(ServerOptions::default());
    let mut client = Client::new(&server.url(), ClientOptions { in_flight_max: 2, ..patient() }).unwrap();
    for _ in 0..2 {
        client.begin(&Ask::one("Later", "[1]")).unwrap();
    }
    assert_eq!(client.begin(&Ask::one("Later", "[1]")).unwrap_err().fault, Fault::Overloaded);
    client.close();
    let ends: Vec<Fault> =
        std::iter::from_fn(|| client.next()).map(|done| done.outcome.unwrap_err().fault).collect();
    assert_eq!(ends, [Fault::Closed, Fault::Closed]);
}

/// The connections at a port, each by both its ends and with its state.
fn connections_at(port: u16) -> Vec<(String, String)> {
    let place = format!("0100007F:{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let columns = table.lines().map(|line| line.split_whitespace().skip(1).take(3).collect::<Vec<_>>());
    let here = columns.filter(|columns| columns[..2].contains(&&*place));
    here.map(|columns| (columns[..2].join(" "), columns[2].to_owned())).collect()
}

/// Thousands of connections come and go, and no address is left that cannot be used again.
#[test]
fn connections_leave_nothing_behind() {
    let server = Running::start(ServerOptions::default());
    // The port may be one that somebody else had a moment ago, whose connections last longer.
    let before = connections_at(server.address.port());
    // 0A is LISTEN.
    assert!(before.iter().any(|(_, state)| state == "0A"), "the listener is found: {before:?}");
    let mut client = Client::new(&server.url(), ClientOptions { idle_max: 0, ..patient() }).unwrap();
    for _ in 0..2_000 {
        client.call("Same", "[1]").unwrap();
    }
    assert_eq!((client.statistics().opened, client.statistics().closed), (2_000, 2_000));
    let mut left = connections_at(server.address.port());
    // 06 is TIME_WAIT.
    left.retain(|(ends, state)| state == "06" && before.iter().all(|(others, _)| others != ends));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn idle_connections_are_closed_by_this_end() {
    let server = Running::start(ServerOptions::default());
    let options = ClientOptions { idle_for: Duration::from_millis(5), ..patient() };
    let mut client = Client::new(&server.url(), options).unwrap();
    client.call("Same", "[1]").unwrap();
    let begun = Instant::now();
    while client.statistics().connections > 0 {
        assert!(begun.elapsed() < PATIENCE);
        client.turn(Wait::Until(Instant::now() + Duration::from_millis(1))).unwrap();
    }
    assert_eq!(client.statistics().closed, 1);
}
