//! The pool against servers that refuse, say nothing, or are not there.

use super::super::bearer::Bearer;
use super::super::connection::READS;
use super::super::target::ResolvedUrl;
use super::*;
use crate::Client;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use thalweg_sys::socket;

/// Nothing over TCP goes to everybody: connecting fails before it has begun.
const NOWHERE: &str = "http://255.255.255.255:9/x";

#[test]
fn a_client_may_be_handed_to_another_thread_and_shared() {
    fn is<T: Send + Sync>() {}
    is::<Client>();
}

fn at(pool: &mut Pool, target: Target) -> (ResolvedUrl, SiteId) {
    let (resolved, site) = pool.targets.at(target).unwrap();
    (resolved.clone(), site)
}

#[test]
fn what_waits_is_not_forgotten_where_nothing_can_be_dialed() {
    let mut pool = Pool::new(Options::default());
    let target = pool.target(NOWHERE).unwrap();
    let (resolved, site) = at(&mut pool, target);
    for number in 1..=3 {
        let name = CallId::from_number(number);
        let ask = Ask::one("m", "");
        let exchange = Exchange::new(name, number, &resolved, &ask, None, Vec::new()).unwrap();
        pool.waiting.add(site, exchange);
    }
    pool.free(site);
    assert_eq!((pool.waiting.len(), pool.done.len(), pool.in_flight()), (0, 3, 0));
}

/// A client of a host with these addresses, as if its name had resolved to them.
fn pool_of(addresses: &[SocketAddr], options: Options) -> (Pool, Target) {
    let mut pool = Pool::new(options);
    let resolved = ResolvedUrl { addresses: addresses.to_vec(), ..ResolvedUrl::of(NOWHERE, None).unwrap() };
    let target = pool.targets.add(NOWHERE, resolved);
    (pool, target)
}

fn answer(pool: &mut Pool, target: Target, turns: bool) -> Result<Answers, Failure> {
    answer_to(pool, target, &Ask::one("m", ""), turns)
}

fn answer_to(pool: &mut Pool, target: Target, ask: &Ask<'_>, turns: bool) -> Result<Answers, Failure> {
    let name = pool.begin(target, ask).unwrap();
    loop {
        if turns {
            pool.turn(None).unwrap();
            if let Some(done) = pool.next() {
                return done.outcome;
            }
        } else if let Some(outcome) = pool.listen(name) {
            return outcome;
        }
    }
}

/// Answers everything; where.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while answers_one(&mut stream) {}
        }
    });
    address
}

/// Reads a request to its end and answers it; whether there was one.
fn answers_one(stream: &mut TcpStream) -> bool {
    let (mut asked, mut text) = (Vec::new(), [0; 1 << 16]);
    while !asked.ends_with(b"}") {
        let Ok(count @ 1..) = stream.read(&mut text) else { return false };
        asked.extend_from_slice(&text[..count]);
    }
    let asked = String::from_utf8(asked).unwrap();
    let id = asked.rsplit("\"id\":").next().unwrap().trim_end_matches('}');
    let body = format!(r#"{{"jsonrpc":"2.0","result":1,"id":{id}}}"#);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    true
}

/// An address without a listener.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Where nothing is ever answered, as long as what comes back is kept.
fn silent() -> (SocketAddr, impl Sized) {
    let listener = socket::listen_tcp("127.0.0.1:0".parse().unwrap(), false, 0).unwrap();
    let address = socket::local_address(listener.as_fd()).unwrap();
    let queued: Vec<_> =
        (0..4).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(50))).collect();
    (address, (listener, queued))
}

#[test]
fn where_one_address_refuses_the_next_is_tried() {
    for turns in [false, true] {
        let (mut pool, target) = pool_of(&[closed(), closed(), echo()], Options::default());
        assert_eq!(answer(&mut pool, target, turns).unwrap().one().unwrap(), "1");
        assert_eq!((pool.statistics().opened, pool.statistics().connections), (1, 1));
    }
}

/// However many connections wait for their answers, or for nothing: what one of them has is one read.
#[test]
fn a_turn_reads_connections_that_have_something_and_no_others() {
    let options = Options { connections_max: 16, idle_max: 16, ..Options::default() };
    let (mut pool, target) = pool_of(&[echo()], options);
    // The server answers one connection after the other, so all others wait.
    let first = pool.begin(target, &Ask::one("m", "")).unwrap();
    for _ in 1..16 {
        pool.begin(target, &Ask::one("m", "")).unwrap();
    }
    let next = |pool: &mut Pool| {
        READS.set(0);
        loop {
            if let Some(done) = pool.next() {
                assert_eq!(done.outcome.unwrap().one().unwrap(), "1");
                return (done.call, READS.get());
            }
            pool.turn(None).unwrap();
        }
    };
    assert_eq!((next(&mut pool), pool.connections.len()), ((first, 1), 16));
    for _ in 0..10 {
        let again = pool.begin(target, &Ask::one("m", "")).unwrap();
        assert_eq!(next(&mut pool), (again, 1));
    }
    // Nor is anything read to find nothing.
    READS.set(0);
    pool.turn(Some(Instant::now())).unwrap();
    assert_eq!((READS.get(), pool.in_flight()), (0, 15));
}

/// There is nothing to be read where more of a request can be written, and that is all.
#[test]
fn what_can_only_be_written_to_is_not_read() {
    READS.set(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut pool, target) = pool_of(&[listener.local_addr().unwrap()], Options::default());
    // More than the kernel keeps for one that does not read.
    pool.begin(target, &Ask::one("m", &format!("[\"{}\"]", "x".repeat(16 << 20)))).unwrap();
    while pool.connections[0].is_untouched() {
        pool.turn(Some(Instant::now())).unwrap();
    }
    assert!(pool.connections[0].waits_to_write());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(answers_one(&mut stream));
        stream
    });
    let done = loop {
        pool.turn(None).unwrap();
        if let Some(done) = pool.next() {
            break done;
        }
    };
    assert_eq!(done.outcome.unwrap().one().unwrap(), "1");
    assert_eq!(READS.get(), 1);
    server.join().unwrap();
}

/// A loop may have been kept from its turn for longer than a call had, and a turn hears of some connections
/// before others.
#[test]
fn an_answer_that_is_there_is_taken_though_its_time_is_over() {
    for (turns, count) in [(true, 1), (true, 70), (false, 1)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Nor does a look for a moment come before the clock is looked at.
        let options = Options { connections_max: count, idle_max: count, spin: false, ..Options::default() };
        let (mut pool, target) = pool_of(&[listener.local_addr().unwrap()], options);
        let calls: Vec<_> = (0..count).map(|_| pool.begin(target, &Ask::one("m", "")).unwrap()).collect();
        while pool.connections.iter().any(Connection::waits_to_write) {
            pool.turn(Some(Instant::now())).unwrap();
        }
        let _streams: Vec<_> = (0..count)
            .map(|_| {
                let (mut stream, _) = listener.accept().unwrap();
                assert!(answers_one(&mut stream));
                stream
            })
            .collect();
        for connection in &mut pool.connections {
            let patience = Some(Duration::from_secs(60));
            assert!(socket::wait(connection.socket(), false, patience).unwrap().readable);
            connection.carries.as_mut().unwrap().until = Some(Instant::now());
        }
        if turns {
            pool.turn(Some(Instant::now())).unwrap();
            let outcomes = std::iter::from_fn(|| pool.next()).map(|done| done.outcome.unwrap());
            assert!(outcomes.map(|answers| answers.one().unwrap() == "1").eq(vec![true; count]));
        } else {
            assert_eq!(pool.listen(calls[0]).unwrap().unwrap().one().unwrap(), "1");
        }
        assert_eq!((pool.in_flight(), pool.statistics().idle), (0, count));
    }
}

#[test]
fn a_part_of_an_answer_is_none_when_its_time_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut pool, target) = pool_of(&[listener.local_addr().unwrap()], Options::default());
    pool.begin(target, &Ask::one("m", "")).unwrap();
    while pool.connections[0].waits_to_write() {
        pool.turn(Some(Instant::now())).unwrap();
    }
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Le").unwrap();
    let connection = &mut pool.connections[0];
    assert!(socket::wait(connection.socket(), false, Some(Duration::from_secs(60))).unwrap().readable);
    connection.carries.as_mut().unwrap().until = Some(Instant::now());
    pool.turn(Some(Instant::now())).unwrap();
    assert_eq!(pool.next().unwrap().outcome.unwrap_err().fault, Fault::DeadlineExceeded);
    assert_eq!((pool.in_flight(), pool.connections.len()), (0, 0));
}

#[test]
fn an_address_that_says_nothing_has_its_share_of_the_deadline_and_is_not_tried_first_again() {
    for turns in [false, true] {
        let (nobody, _kept) = silent();
        // A half is for each, and that is enough to be answered in on however slow a machine.
        let options = Options { deadline: Some(Duration::from_secs(8)), ..Options::default() };
        let (mut pool, target) = pool_of(&[nobody, echo()], options);
        let began = Instant::now();
        assert_eq!(answer(&mut pool, target, turns).unwrap().one().unwrap(), "1");
        assert!(began.elapsed() >= Duration::from_millis(3_900), "{:?}", began.elapsed());
        pool.close(&never_sent(""));
        // Tried first, it would have two minutes.
        let longer = Ask { deadline: Some(Duration::from_secs(240)), ..Ask::one("m", "") };
        let again = Instant::now();
        assert_eq!(answer_to(&mut pool, target, &longer, turns).unwrap().one().unwrap(), "1");
        assert!(again.elapsed() < Duration::from_secs(60), "{:?}", again.elapsed());
    }
}

/// However recently it was used: it is not looked at then, and the write finds it.
#[test]
fn a_connection_that_the_server_had_closed_is_not_counted_as_reused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut pool, target) = pool_of(&[listener.local_addr().unwrap()], Options::default());
    let (close, may_close) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(answers_one(&mut stream));
        may_close.recv().unwrap();
        // With a reset nothing can be written any more.
        socket::close_abruptly(stream.as_fd()).unwrap();
        drop(stream);
        let (mut stream, _) = listener.accept().unwrap();
        assert!(answers_one(&mut stream));
        stream
    });
    assert_eq!(answer(&mut pool, target, false).unwrap().one().unwrap(), "1");
    close.send(()).unwrap();
    let connection = &mut pool.connections[0];
    assert!(socket::wait(connection.socket(), false, Some(Duration::from_secs(60))).unwrap().readable);
    connection.idle_since = Instant::now() + Duration::from_secs(60);
    assert_eq!(answer(&mut pool, target, false).unwrap().one().unwrap(), "1");
    let told = pool.statistics();
    assert_eq!((told.opened, told.closed, told.reused, told.retried), (2, 1, 0, 1));
    server.join().unwrap();
}

#[test]
fn a_connection_that_nothing_more_went_over_is_not_counted_as_reused() {
    type End = (&'static str, fn(&mut Pool, CallId));
    let ends: [End; 3] = [
        ("its time was over", |pool, _| pool.turn(Some(Instant::now())).unwrap()),
        ("it was cancelled", |pool, call| pool.cancel(call)),
        ("the client was closed", |pool, _| pool.close(&never_sent(""))),
    ];
    for (why, end) in ends {
        let (mut pool, target) = pool_of(&[echo()], Options::default());
        assert_eq!(answer(&mut pool, target, false).unwrap().one().unwrap(), "1");
        let ask = Ask { deadline: Some(Duration::ZERO), ..Ask::one("m", "") };
        let call = pool.begin(target, &ask).unwrap();
        end(&mut pool, call);
        let told = pool.statistics();
        assert_eq!((told.opened, told.closed, told.reused), (1, 1, 0), "{why}");
    }
}

/// Nor that it may safely be repeated: the server has it, and may have done it.
#[test]
fn a_call_that_left_is_not_said_to_have_stayed_where_it_cannot_be_sent_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut pool, target) = pool_of(&[listener.local_addr().unwrap()], Options::default());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        assert!(answers_one(&mut stream));
        assert!(stream.read(&mut [0; 1 << 16]).unwrap() > 0);
    });
    assert_eq!(answer(&mut pool, target, false).unwrap().one().unwrap(), "1");
    let ask = Ask { is_idempotent: true, ..Ask::one("m", "") };
    let failure = answer_to(&mut pool, target, &ask, false).unwrap_err();
    assert_eq!((failure.fault, pool.statistics().retried), (Fault::Disconnected, 1), "{failure}");
    server.join().unwrap();
}

#[test]
fn every_address_is_named_where_nobody_answers() {
    let (one, other) = (closed(), closed());
    let (mut pool, target) = pool_of(&[one, other], Options::default());
    let failure = answer(&mut pool, target, false).unwrap_err();
    assert_eq!(failure.fault, Fault::NoServer);
    for address in [one, other] {
        assert!(failure.to_string().contains(&address.to_string()), "{failure}");
    }
    let (nobody, _kept) = silent();
    let options = Options { deadline: Some(Duration::from_millis(100)), ..Options::default() };
    let (mut pool, target) = pool_of(&[one, nobody], options);
    let failure = answer(&mut pool, target, true).unwrap_err();
    assert_eq!(failure.fault, Fault::ConnectTimeout);
    for address in [one, nobody] {
        assert!(failure.to_string().contains(&address.to_string()), "{failure}");
    }
}

#[test]
fn a_token_is_not_printed_with_what_it_goes_in() {
    let token = "tw_4fPq";
    let options = Options { token: Some(Bearer::new(token).unwrap()), ..Options::default() };
    let mut pool = Pool::new(options);
    let target = pool.target(NOWHERE).unwrap();
    let (resolved, site) = at(&mut pool, target);
    let ask = Ask::one("m", "");
    let exchange = Exchange::new(CallId::from_number(1), 1, &resolved, &ask, None, Vec::new()).unwrap();
    pool.room.clone_from(&exchange.text);
    pool.waiting.add(site, exchange);
    let printed = format!("{pool:?}");
    // Memory is printed as numbers.
    let numbers = format!("{:?}", token.as_bytes());
    assert!(!printed.contains(token) && !printed.contains(numbers.trim_matches(['[', ']'])), "{printed}");
    assert!(printed.contains(NOWHERE) && printed.contains("in_flight: 1"), "{printed}");
}

#[test]
fn a_long_request_does_not_keep_its_memory() {
    let mut pool = Pool::new(Options::default());
    let target = pool.target(NOWHERE).unwrap();
    pool.begin(target, &Ask::one("m", &format!("[\"{}\"]", "x".repeat(8 << 20)))).unwrap();
    assert!(pool.next().unwrap().outcome.is_err());
    assert!(pool.room.capacity() <= KEPT_BYTES, "{}", pool.room.capacity());
}

#[test]
fn a_client_that_follows_a_service_from_port_to_port_keeps_no_more_places_than_it_may() {
    let mut pool = Pool::new(Options { targets_max: 100, ..Options::default() });
    let url = |number: usize| format!("http://127.{}.{}.1:9/x", number / 250, number % 250);
    let own = pool.target(NOWHERE).unwrap();
    let early = pool.target(&url(0)).unwrap();
    let mut last = early;
    for number in 1..10_000 {
        last = pool.target(&url(number)).unwrap();
        // Called all along.
        assert_eq!(pool.target(&url(0)).unwrap(), early);
        assert!(pool.targets.len() <= 101 && pool.targets.sites.len() <= 101, "{number}");
    }
    assert_eq!((own.number(), last.number(), pool.targets.len()), (0, 9_999 + 1, 101));
    for kept in [own, early, last] {
        pool.targets.at(kept).unwrap();
    }
    // What was dropped is refused, and never another's; named anew it has another number.
    let refused = pool.begin(Target::from_number(7), &Ask::one("m", "")).unwrap_err();
    assert!(refused.fault == Fault::BadArgument && refused.detail.contains("7 is no target"), "{refused}");
    assert_eq!(pool.target(&url(6)).unwrap().number(), 10_001);
}

#[test]
fn what_a_call_is_under_way_to_or_waits_for_is_not_dropped() {
    let mut pool = Pool::new(Options { targets_max: 2, connections_max: 1, ..Options::default() });
    pool.target(NOWHERE).unwrap();
    let (address, _kept) = silent();
    let busy = pool.target(&format!("http://{address}/x")).unwrap();
    for _ in 0..2 {
        pool.begin(busy, &Ask::one("m", "")).unwrap();
    }
    assert_eq!((pool.connections.len(), pool.waiting.len()), (1, 1));
    for number in 0..50 {
        // At the same host under another name, and elsewhere.
        pool.target(&format!("http://{address}/{number}")).unwrap();
        pool.target(&format!("http://127.0.1.{number}:9/x")).unwrap();
        assert!(pool.targets.len() <= 3);
    }
    let sites: Vec<_> = pool.connections.iter().map(|of| of.site).chain(pool.waiting.sites()).collect();
    for site in sites {
        assert_eq!(pool.targets.sites.addresses(site), [address]);
    }
}
