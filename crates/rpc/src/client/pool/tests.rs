//! The pool against servers that refuse, say nothing, or are not there.

use super::super::bearer::Bearer;
use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use thalweg_sys::socket;

/// Nothing over TCP goes to everybody: connecting fails before it has begun.
const NOWHERE: &str = "http://255.255.255.255:9/x";

#[test]
fn what_waits_is_not_forgotten_where_nothing_can_be_dialed() {
    let mut pool = Pool::new(Options::default());
    let target = pool.target(NOWHERE).unwrap();
    let (place, site) = (pool.places[target.0].place.clone(), pool.places[target.0].site);
    for number in 1..=3 {
        let name = CallId::from_number(number);
        let ask = Ask::one("m", "");
        let exchange = Exchange::new(name, number, &place, &ask, None, Vec::new()).unwrap();
        pool.queue.push_back((site, exchange));
    }
    pool.free(site);
    assert_eq!((pool.queue.len(), pool.done.len(), pool.in_flight()), (0, 3, 0));
}

/// A client of whoever answers at one of these addresses, as a host's name would have them.
fn pool_of(addresses: &[SocketAddr], options: Options) -> (Pool, Target) {
    let mut pool = Pool::new(options);
    let place = Place { addresses: addresses.to_vec(), ..Place::of(NOWHERE, None).unwrap() };
    let site = pool.sites.with(&place.addresses);
    pool.places.push(Named { url: NOWHERE.to_owned(), place, site });
    (pool, Target(0))
}

fn answer(pool: &mut Pool, target: Target, turns: bool) -> Result<Answers, Failure> {
    let name = pool.begin(target, &Ask::one("m", "")).unwrap();
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
            let (mut stream, mut text) = (stream.unwrap(), [0; 4096]);
            while let Ok(count @ 1..) = stream.read(&mut text) {
                let asked = String::from_utf8_lossy(&text[..count]).into_owned();
                let id = asked.split("\"id\":").nth(1).unwrap().trim_end_matches('}');
                let body = format!(r#"{{"jsonrpc":"2.0","result":1,"id":{id}}}"#);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        }
    });
    address
}

/// Where nobody listens.
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

#[test]
fn an_address_that_says_nothing_has_its_share_of_the_deadline_and_is_not_tried_first_again() {
    for turns in [false, true] {
        let (nobody, _kept) = silent();
        let options = Options { deadline: Some(Duration::from_secs(2)), ..Options::default() };
        let (mut pool, target) = pool_of(&[nobody, echo()], options);
        let began = Instant::now();
        assert_eq!(answer(&mut pool, target, turns).unwrap().one().unwrap(), "1");
        assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
        pool.close(&never_sent(""));
        let again = Instant::now();
        assert_eq!(answer(&mut pool, target, turns).unwrap().one().unwrap(), "1");
        assert!(again.elapsed() < Duration::from_millis(900), "{:?}", again.elapsed());
    }
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
    let (place, site) = (pool.places[target.0].place.clone(), pool.places[target.0].site);
    let ask = Ask::one("m", "");
    let exchange = Exchange::new(CallId::from_number(1), 1, &place, &ask, None, Vec::new()).unwrap();
    pool.room.clone_from(&exchange.text);
    pool.queue.push_back((site, exchange));
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
