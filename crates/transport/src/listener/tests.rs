use super::*;
use crate::{Accepted, Acceptor};
use std::collections::HashSet;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use thalweg_sys::epoll::wait_readable;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn accept_all(listener: &Listener, limit: usize) -> (Accepted, Vec<OwnedFd>) {
    let mut connections = Vec::new();
    let mut acceptor = Acceptor::new().unwrap();
    let accepted =
        acceptor.accept(listener.as_fd(), limit, |connection| connections.push(connection)).unwrap();
    (accepted, connections)
}

#[test]
fn every_reactor_listens_on_one_port_and_every_connection_finds_one() {
    let listeners = Listener::tcp(loopback(), 3).unwrap();
    let ports: HashSet<u16> = listeners.iter().map(|one| one.local_address().unwrap().port()).collect();
    assert_eq!((listeners.len(), ports.len()), (3, 1));
    let address = listeners[0].local_address().unwrap();
    let clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).unwrap()).collect();
    let accepted: Vec<usize> = listeners.iter().map(|one| accept_all(one, 100).0.count).collect();
    assert_eq!(accepted.iter().sum::<usize>(), clients.len());
    assert!(accepted.iter().filter(|count| **count > 0).count() > 1, "the kernel spreads: {accepted:?}");
}

#[test]
fn a_port_somebody_listens_on_is_refused_even_by_another_of_ours() {
    let ours = Listener::tcp(loopback(), 2).unwrap();
    let address = ours[0].local_address().unwrap();
    for reactors in [1, 2] {
        assert_eq!(Listener::tcp(address, reactors).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
    drop(ours);
    let theirs = TcpListener::bind(address).unwrap();
    assert_eq!(Listener::tcp(address, 2).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(theirs);
    assert!(Listener::tcp(address, 2).is_ok());
}

#[test]
fn of_servers_that_start_together_one_has_the_port() {
    let mut won = 0;
    for _ in 0..20 {
        let free = Listener::tcp(loopback(), 1).unwrap().remove(0).local_address().unwrap();
        let starts = std::sync::Barrier::new(3);
        let together = || {
            starts.wait();
            Listener::tcp(free, 2)
        };
        let had = std::thread::scope(|scope| {
            let started: Vec<_> = (0..3).map(|_| scope.spawn(together)).collect();
            started.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
        });
        let winners = had.iter().filter(|had| had.is_ok()).count();
        assert!(winners <= 1, "{had:?}");
        won += winners;
    }
    assert!(won > 0, "somebody has it");
}

#[test]
fn a_copy_of_a_process_takes_no_path_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kept.sock");
    let (_listener, bound) = Listener::unix(&path).unwrap().into_parts();
    let mut bound = bound.unwrap();
    let parent = bound.process;
    bound.process += 1;
    drop(bound);
    assert!(path.exists(), "{parent} has it");
}

#[test]
fn accepted_connections_are_non_blocking_and_send_at_once() {
    let listener = Listener::tcp(loopback(), 1).unwrap().remove(0);
    let client = TcpStream::connect(listener.local_address().unwrap()).unwrap();
    let (_, connections) = accept_all(&listener, 8);
    assert!(socket::no_delay(connections[0].as_fd()).unwrap(), "inherited from the listener");
    let mut buffer = Vec::with_capacity(4);
    assert_eq!(crate::read(connections[0].as_fd(), &mut buffer).unwrap(), crate::ReadOutcome::WouldBlock);
    let peer = socket::peer_address(connections[0].as_fd()).unwrap();
    assert_eq!(peer, Some(client.local_addr().unwrap()));
}

#[test]
fn a_batch_is_bounded_and_the_rest_stays_waiting() {
    let listener = Listener::tcp(loopback(), 1).unwrap().remove(0);
    let address = listener.local_address().unwrap();
    let _clients: Vec<TcpStream> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (first, kept) = accept_all(&listener, 7);
    assert_eq!((first.count, kept.len()), (7, 7));
    assert!(wait_readable(listener.as_fd(), 0).unwrap());
    let (second, _) = accept_all(&listener, 7);
    assert_eq!((second.count, second.shed, second.exhausted), (3, 0, false));
    assert!(!wait_readable(listener.as_fd(), 0).unwrap());
}

#[test]
fn a_unix_path_is_private_and_goes_with_its_listener() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    let listener = Listener::unix(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let _client = UnixStream::connect(&path).unwrap();
    let (accepted, connections) = accept_all(&listener, 8);
    assert_eq!(accepted.count, 1);
    let peer = socket::peer(connections[0].as_fd()).unwrap();
    assert_eq!(peer.process, std::process::id());
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_live_servers_path_is_never_stolen() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    let live = Listener::unix(&path).unwrap();
    let refused = Listener::unix(&path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
    assert!(refused.to_string().contains("server.sock"), "the message names the path: {refused}");
    // The live one is as it was, also after the refused one is gone.
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(&live, 8).0.count, 2, "the question whether it lives, and the client");
}

#[test]
fn a_dead_servers_path_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a plain listener leaves its path behind, as a killed server does");
    let listener = Listener::unix(&path).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(&listener, 8).0.count, 1);
}

#[test]
fn a_lock_that_somebody_goes_on_holding_keeps_no_ending_server_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ending.sock");
    let ending = Listener::unix(&path).unwrap();
    let lock = name::lock_directory_of(&path).unwrap();
    let began = std::time::Instant::now();
    drop(ending);
    assert!(began.elapsed() < name::PATIENCE, "it waited for as long as one that begins would");
    drop(lock);
    // What it left is what a dead server leaves.
    drop(Listener::unix(&path).unwrap());
    assert_eq!(name::identity(&path).unwrap(), None);
}

#[test]
fn what_is_not_a_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("precious");
    std::fs::write(&path, b"data").unwrap();
    assert_eq!(Listener::unix(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
    let missing = directory.path().join("missing/server.sock");
    assert_eq!(Listener::unix(&missing).unwrap_err().kind(), io::ErrorKind::NotFound);
    let long = directory.path().join("x".repeat(200));
    assert_eq!(Listener::unix(&long).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
}

#[test]
fn a_successors_path_is_not_removed_by_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    let (descriptor, bound) = Listener::unix(&path).unwrap().into_parts();
    // The path is still bound, but nobody answers behind it any more: the first server stopped listening
    // and has not cleaned up yet.
    drop(descriptor);
    let successor = Listener::unix(&path).unwrap();
    drop(bound);
    assert!(path.exists());
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(&successor, 8).0.count, 1);
}

#[test]
fn servers_that_start_together_leave_one_winner_who_can_be_reached() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    drop(UnixListener::bind(&path).unwrap());
    let start = std::sync::Barrier::new(8);
    let outcomes: Vec<io::Result<Listener>> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    Listener::unix(&path)
                })
            })
            .collect();
        starting.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let winners: Vec<&Listener> = outcomes.iter().flatten().collect();
    assert_eq!(winners.len(), 1);
    accept_all(winners[0], 100);
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(accept_all(winners[0], 8).0.count, 1);
}
