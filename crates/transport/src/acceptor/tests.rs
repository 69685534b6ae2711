use super::*;
use crate::Listener;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use thalweg_sys::epoll::wait_readable;

const ALONE: &str = "THALWEG_TEST_ALONE";

/// Has a test run in a process of its own, since it takes every descriptor there is. Whether this is that
/// process.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("acceptor::tests::{test}"), "--test-threads", "1", "--nocapture"])
        .env(ALONE, "1")
        .status()
        .unwrap();
    assert!(status.success());
    false
}

fn listener() -> (Listener, SocketAddr) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap().remove(0);
    let address = listener.local_address().unwrap();
    (listener, address)
}

fn all_descriptors() -> Vec<EventFd> {
    std::iter::from_fn(|| EventFd::new().ok()).collect()
}

#[test]
fn running_out_of_descriptors_sheds_connections_instead_of_spinning() {
    if !alone("running_out_of_descriptors_sheds_connections_instead_of_spinning") {
        return;
    }
    let (listener, address) = listener();
    let mut acceptor = Acceptor::new().unwrap();
    let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut hoard = all_descriptors();
    let accepted = acceptor.accept(listener.as_fd(), 100, |_| panic!("there is no descriptor")).unwrap();
    assert_eq!(accepted, Accepted { count: 0, shed: 3, exhausted: false });
    assert!(!wait_readable(listener.as_fd(), 0).unwrap(), "nothing is left to report");
    for client in &mut clients {
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "the peer learns at once");
    }
    // One descriptor is free again: connections are accepted again.
    hoard.truncate(hoard.len() - 2);
    let _client = TcpStream::connect(address).unwrap();
    let mut connections = Vec::new();
    let accepted = acceptor.accept(listener.as_fd(), 100, |one| connections.push(one)).unwrap();
    assert_eq!((accepted.count, accepted.shed), (1, 0));
    // Another thread snatched the reserve: nothing can be shed, and the caller is told to pause.
    acceptor.reserve = None;
    hoard.truncate(hoard.len() - 1);
    let _other = TcpStream::connect(address).unwrap();
    hoard.extend(all_descriptors());
    let accepted = acceptor.accept(listener.as_fd(), 100, |_| panic!("there is no descriptor")).unwrap();
    assert_eq!(accepted, Accepted { count: 0, shed: 0, exhausted: true });
}

#[test]
fn a_reserve_is_not_lost_to_another_acceptor() {
    if !alone("a_reserve_is_not_lost_to_another_acceptor") {
        return;
    }
    let (shedding, address) = listener();
    let (admitting, other_address) = listener();
    let mut acceptor = Acceptor::new().unwrap();
    let mut clients: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(address).unwrap()).collect();
    let waiting: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(other_address).unwrap()).collect();
    let hoard = all_descriptors();
    let (done, is_done) = channel::<()>();
    let neighbour = std::thread::spawn(move || {
        // Accepts every connection it can and sheds none.
        let mut mine = Vec::new();
        while is_done.try_recv().is_err() {
            if let Ok(Some(connection)) = accept(admitting.as_fd()) {
                mine.push(connection);
            }
        }
        mine.len()
    });
    let start = Instant::now();
    for round in 0..clients.len() {
        let shed = acceptor.accept(shedding.as_fd(), 1, |_| panic!("there is no descriptor")).unwrap();
        assert_eq!(shed, Accepted { count: 0, shed: 1, exhausted: false }, "round {round}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
    done.send(()).unwrap();
    assert_eq!(neighbour.join().unwrap(), 0, "none of its own by another's reserve");
    drop((hoard, waiting));
    for client in &mut clients {
        assert!(matches!(client.read(&mut [0]), Ok(0) | Err(_)), "the peer learns at once");
    }
}
