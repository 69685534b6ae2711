//! The client, with servers that answer too early, too late, too much, or never.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, Running, until};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use thalweg_rpc::client::{Ask, Error};
use thalweg_rpc::{Client, ClientOptions, ServerOptions};
use thalweg_service::Wait;
use thalweg_sys::clock::thread_processor_ns;
use thalweg_wire::fault::{Fault, Retry};

fn patient() -> ClientOptions {
    ClientOptions { deadline: Some(PATIENCE), ..ClientOptions::default() }
}

fn failed(error: Error) -> thalweg_service::Error {
    match error {
        Error::Failed(failure) => failure,
        Error::Remote(said) => panic!("said {said:?}"),
    }
}

/// A server of one connection, which may do what it likes with it.
fn serves(how: impl FnOnce(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || how(listener.accept().unwrap().0));
    url
}

/// Reads what is there of a request.
fn hear(stream: &mut TcpStream) {
    let mut some = [0; 4096];
    assert!(stream.read(&mut some).unwrap() > 0);
}

/// Stays until the client is gone.
fn stay(mut stream: TcpStream) {
    let mut some = [0; 4096];
    while stream.read(&mut some).is_ok_and(|count| count > 0) {}
}

/// Refuses once it has read a little, and reads nothing more for good: only the answer, or the deadline, ends
/// such a call.
fn answers_early() -> String {
    serves(|mut stream| {
        hear(&mut stream);
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nlong").unwrap();
        loop {
            std::thread::park();
        }
    })
}

fn long() -> String {
    format!("[\"{}\"]", "x".repeat(32 << 20))
}

#[test]
fn an_answer_that_comes_before_the_request_is_written_is_heard() {
    let mut client = Client::new(&answers_early(), patient()).unwrap();
    let failure = failed(client.call("m", &long()).unwrap_err());
    assert_eq!((failure.fault, failure.retry()), (Fault::FrameTooLarge, Retry::Never), "{failure}");
    assert_eq!(client.statistics().connections, 0, "a connection that is owed half a request is of no use");
}

#[test]
fn so_it_is_by_turns() {
    let mut client = Client::new(&answers_early(), patient()).unwrap();
    client.begin(&Ask::one("m", &long())).unwrap();
    let done = loop {
        client.turn(Wait::Block).unwrap();
        if let Some(done) = client.next() {
            break done;
        }
    };
    assert_eq!(done.outcome.unwrap_err().fault, Fault::FrameTooLarge);
}

#[test]
fn a_body_over_the_servers_bound_is_a_refusal_and_no_broken_connection() {
    let http = thalweg_http::Config { body_bytes_max: 1_000, ..thalweg_http::Config::default() };
    let server = Running::start(ServerOptions { http, ..ServerOptions::default() });
    let mut client = Client::new(&server.url(), patient()).unwrap();
    for _ in 0..3 {
        let failure = failed(client.call("Same", &long()).unwrap_err());
        assert_eq!((failure.fault, failure.retry()), (Fault::FrameTooLarge, Retry::Never), "{failure}");
    }
    assert!(server.asked().is_empty());
}

#[test]
fn whoever_waits_by_turns_sleeps() {
    let server = Running::start(ServerOptions::default());
    let mut client = Client::new(&server.url(), patient()).unwrap();
    // One that has come leaves nothing behind that looks like something to do.
    client.begin(&Ask::one("Same", "[1]")).unwrap();
    while client.next().is_none() {
        client.turn(Wait::Block).unwrap();
    }
    let call = client.begin(&Ask::one("Later", "[1]")).unwrap();
    let (begun, begun_ns) = (Instant::now(), thread_processor_ns());
    while begun.elapsed() < Duration::from_millis(500) {
        client.turn(Wait::Until(begun + Duration::from_millis(500))).unwrap();
    }
    let used = Duration::from_nanos(thread_processor_ns() - begun_ns);
    assert!(used < Duration::from_millis(100), "{used:?}");
    client.cancel(call);
}

#[test]
fn a_server_that_dribbles_does_not_draw_the_deadline_out() {
    let url = serves(|mut stream| {
        hear(&mut stream);
        // An answer without end, a byte now and then, each long before the deadline is over.
        let dribble = b"HTTP/1.1 200 OK\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
        for byte in dribble {
            std::thread::sleep(Duration::from_millis(350));
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
    let deadline = Duration::from_secs(3);
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let options = ClientOptions { deadline: Some(deadline), ..ClientOptions::default() };
        let mut client = Client::new(&url, options).unwrap();
        let begun = Instant::now();
        let fault = failed(client.call("m", "").unwrap_err()).fault;
        sender.send((fault, begun.elapsed()))
    });
    let (fault, took) = receiver.recv_timeout(PATIENCE).expect("the deadline is drawn out");
    assert_eq!(fault, Fault::DeadlineExceeded);
    assert!(took >= deadline, "{took:?}");
}

#[test]
fn answers_in_between_without_end_are_none() {
    let url = serves(|mut stream| {
        hear(&mut stream);
        let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
        while stream.write_all(&many).is_ok() {}
    });
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut client = Client::new(&url, patient()).unwrap();
        sender.send(failed(client.call("m", "").unwrap_err()).fault)
    });
    assert_eq!(receiver.recv_timeout(2 * PATIENCE), Ok(Fault::BadAnswer));
}

/// A length is what the server says; memory is given to what has come.
#[test]
fn a_length_that_no_answer_has_is_not_believed() {
    for (length, fault) in [(u64::MAX, Fault::FrameTooLarge), (1 << 62, Fault::Disconnected)] {
        let url = serves(move |mut stream| {
            hear(&mut stream);
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{{").unwrap();
        });
        let options = ClientOptions { answer_bytes_max: usize::MAX, ..patient() };
        let mut client = Client::new(&url, options).unwrap();
        assert_eq!(failed(client.call("m", "").unwrap_err()).fault, fault, "{length}");
    }
}

/// Each byte of it is looked at once, however many pieces it comes in.
#[test]
fn a_long_answer_in_chunks_is_read_in_one_pass() {
    const LONG: usize = 8 << 20;
    const SHORT: usize = 1_000;
    let [whole, in_pieces] = [0, SHORT].map(|short| ns_for_a_long_answer(LONG, short));
    // Were all of it looked at with each piece, it would be as many times what it takes in one.
    assert!(in_pieces < whole * SHORT as u64 / 10, "{in_pieces} ns for what takes {whole} in one piece");
}

/// How much of a processor it takes to read so much, and so many pieces of one byte behind it.
fn ns_for_a_long_answer(long: usize, short: usize) -> u64 {
    let url = serves(move |mut stream| {
        hear(&mut stream);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
        stream.write_all(b"21\r\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\r\n").unwrap();
        let text = format!("{long:x}\r\n\"{}\r\n", "x".repeat(long - 1));
        stream.write_all(text.as_bytes()).unwrap();
        for _ in 0..short {
            stream.write_all(b"1\r\nx\r\n").unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
        stream.write_all(b"2\r\n\"}\r\n0\r\n\r\n").unwrap();
        stay(stream);
    });
    let mut client = Client::new(&url, patient()).unwrap();
    let begun_ns = thread_processor_ns();
    assert_eq!(client.call("m", "").unwrap().len(), long + short + 1);
    let used_ns = thread_processor_ns() - begun_ns;
    assert_eq!(client.statistics().idle, 1);
    used_ns
}

#[test]
fn a_notification_that_the_server_refused_is_no_success() {
    let says = r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"no JSON"},"id":null}"#;
    let url = serves(move |mut stream| {
        hear(&mut stream);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", says.len());
        stream.write_all(format!("{head}{says}").as_bytes()).unwrap();
        stay(stream);
    });
    let failure = failed(Client::new(&url, patient()).unwrap().notify("Same", "[1]").unwrap_err());
    assert_eq!((failure.fault, failure.retry()), (Fault::BadRequest, Retry::Never));
    assert!(failure.detail.contains("-32700"), "{failure}");
    let server = Running::start(ServerOptions::default());
    let mut client = Client::new(&server.url(), patient()).unwrap();
    let many = [("Same", "[1]"); 1_001];
    let ask = Ask { calls: &many, is_batch: true, notifies: true, ..Ask::default() };
    assert_eq!(failed(client.ask(&ask).map(drop).unwrap_err()).fault, Fault::BadRequest);
    assert!(server.asked().is_empty());
    assert!(client.ask(&Ask { calls: &many[1..], ..ask }).unwrap().is_empty());
    until("carried out", || server.asked().len() == 1_000);
    assert_eq!(client.statistics().opened, 1);
}

#[test]
fn what_answers_a_notification_with_a_result_is_no_server() {
    let url = serves(|mut stream| {
        hear(&mut stream);
        let body = r#"{"jsonrpc":"2.0","result":1,"id":1}"#;
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        stay(stream);
    });
    let mut client = Client::new(&url, patient()).unwrap();
    assert_eq!(failed(client.notify("m", "").unwrap_err()).fault, Fault::BadAnswer);
    assert_eq!(client.statistics().connections, 0);
}

#[test]
fn whoever_waits_keeps_no_connection_for_longer_than_was_said() {
    let server = Running::start(ServerOptions::default());
    let options = ClientOptions { idle_for: Duration::from_millis(5), ..patient() };
    let mut client = Client::new(&server.url(), options).unwrap();
    for _ in 0..2 {
        client.call("Same", "[1]").unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((client.statistics().opened, client.statistics().closed), (2, 1));
}

/// Between its beginning and the first turn its time was over.
#[test]
fn what_nobody_waits_for_any_more_is_not_sent() {
    let server = Running::start(ServerOptions::default());
    let mut client = Client::new(&server.url(), patient()).unwrap();
    client.call("Same", "[1]").unwrap();
    for waits in [false, true] {
        let soon = Ask { deadline: Some(Duration::from_millis(1)), ..Ask::one("Same", "[2]") };
        let call = client.begin(&soon).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let outcome = if waits {
            client.wait(call)
        } else {
            client.turn(Wait::Block).unwrap();
            client.next().unwrap().outcome
        };
        let failure = outcome.unwrap_err();
        assert_eq!((failure.fault, failure.retry()), (Fault::ConnectTimeout, Retry::Safe), "{failure}");
    }
    client.call("Same", "[3]").unwrap();
    assert_eq!(server.asked(), ["TrialSame 1", "TrialSame 3"]);
}

#[test]
fn a_server_that_takes_no_connection_in_time_has_carried_nothing_out() {
    // Room for one in the queue, and nobody takes it out.
    let listener = thalweg_sys::socket::listen_tcp("127.0.0.1:0".parse().unwrap(), false, 0).unwrap();
    let address = thalweg_sys::socket::local_address(std::os::fd::AsFd::as_fd(&listener)).unwrap();
    let _queued: Vec<_> =
        (0..4).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(50))).collect();
    let options = ClientOptions { deadline: Some(Duration::from_millis(100)), ..ClientOptions::default() };
    let mut client = Client::new(&format!("http://{address}/x"), options).unwrap();
    let failure = failed(client.call("m", "").unwrap_err());
    assert_eq!((failure.fault, failure.retry()), (Fault::ConnectTimeout, Retry::Safe), "{failure}");
}
