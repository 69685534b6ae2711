//! Shared memory between real threads and real processes: in numbers, and with a peer that dies.
//!
//! A test with a second process is both sides: it runs itself again in a child, which finds in its
//! environment where to connect. `THALWEG_MESSAGES` says how many messages travel, for a longer run.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use thalweg_sys::{epoll, socket};
use thalweg_transport::{
    Acceptor, Listener, PeerWait, ReadOutcome, SharedEnd, WaitOutcome, Wanted, WriteOutcome,
    receive_with_descriptor, ring_bell, same_user, send_with_descriptor,
};

const PATH: &str = "THALWEG_TEST_SHARED_PATH";
/// Who waits for longer is taken for a side that was never woken.
const STANDSTILL: Duration = Duration::from_secs(60);

fn messages(usual: usize) -> usize {
    std::env::var("THALWEG_MESSAGES").map_or(usual, |text| text.parse().unwrap())
}

/// An end, its socket, and what was read and not yet looked at.
struct Side {
    end: SharedEnd,
    socket: OwnedFd,
    spin: bool,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
}

impl Side {
    fn new(end: SharedEnd, socket: OwnedFd, spin: bool) -> Side {
        Side { end, socket, spin, inbox: Vec::with_capacity(3000), outbox: Vec::new() }
    }

    fn wait(&mut self) -> WaitOutcome {
        let (end, socket, spin) = (&mut self.end, self.socket.as_fd(), self.spin);
        let wanted = Wanted::beside_unsent(!self.outbox.is_empty());
        let deadline = Some(Instant::now() + STANDSTILL);
        let waited = PeerWait { end, socket, wanted, deadline, spin }.wait().unwrap();
        assert_ne!(waited, WaitOutcome::TimedOut, "somebody was not woken");
        waited
    }

    /// Moves what can be moved either way; waits if that is nothing. `false` when the peer is gone.
    fn turn(&mut self) -> bool {
        let written = match self.end.write_gathered(&[IoSlice::new(&self.outbox)]).unwrap() {
            WriteOutcome::Bytes(count) => count,
            WriteOutcome::WouldBlock => 0,
        };
        self.outbox.drain(..written);
        let read = self.end.read(&mut self.inbox).unwrap();
        if self.end.bell_wanted() {
            let _ = ring_bell(self.socket.as_fd());
        }
        written > 0 || matches!(read, ReadOutcome::Bytes(1..)) || self.wait() != WaitOutcome::Ended
    }

    /// Sends back what comes, until the peer is gone. Takes in no more than it has got rid of.
    fn echo(mut self) {
        while self.turn() {
            if self.outbox.is_empty() {
                std::mem::swap(&mut self.outbox, &mut self.inbox);
                self.inbox.reserve_exact(3000);
            }
        }
    }
}

/// Message `n`: a length, and bytes that belong to this message alone.
fn message(n: usize, into: &mut Vec<u8>) {
    let length = n % 29;
    into.push(u8::try_from(length).unwrap());
    into.extend_from_slice(
        &[n.to_le_bytes(), (!n).to_be_bytes(), n.to_be_bytes(), [7; 8]].concat()[..length],
    );
}

/// Sends so many messages to an echo, in bursts of changing size, and compares each that comes back.
fn converse(side: &mut Side, count: usize) {
    let (mut sent, mut heard, mut expected) = (0, 0, Vec::new());
    while heard < count {
        // Never more under way than both rings and both sides hold, and sometimes nothing.
        let burst = [1, 3, 40, 200][heard / 1000 % 4];
        while sent < count && sent - heard < burst {
            message(sent, &mut side.outbox);
            sent += 1;
        }
        assert!(side.turn(), "the peer is gone");
        let mut rest = &side.inbox[..];
        while let Some(length) = rest.first() {
            let Some((whole, behind)) = rest.split_at_checked(1 + usize::from(*length)) else { break };
            expected.clear();
            message(heard, &mut expected);
            assert_eq!(whole, expected, "message {heard}");
            (rest, heard) = (behind, heard + 1);
        }
        let looked_at = side.inbox.len() - rest.len();
        side.inbox.drain(..looked_at);
    }
    assert_eq!((side.inbox.len(), side.outbox.len()), (0, 0));
}

#[test]
fn messages_go_through_a_small_ring_between_threads() {
    for (ours_spins, theirs_spins) in [(true, true), (true, false), (false, false)] {
        let (end, memory) = SharedEnd::create(4096).unwrap();
        let (here, there) = socket::pair().unwrap();
        let theirs = Side::new(SharedEnd::adopt(memory).unwrap(), there, theirs_spins);
        let echo = std::thread::spawn(move || theirs.echo());
        let mut ours = Side::new(end, here, ours_spins);
        converse(&mut ours, messages(60_000));
        drop(ours);
        echo.join().unwrap();
    }
}

/// One direction, as fast as it goes: the writer is held back by a full ring all the time.
#[test]
fn a_flood_through_a_small_ring_loses_nothing() {
    const BURST: usize = 64;
    let count = messages(500_000);
    let (end, memory) = SharedEnd::create(4096).unwrap();
    let (here, there) = socket::pair().unwrap();
    let mut writer = Side::new(SharedEnd::adopt(memory).unwrap(), there, false);
    let flood = std::thread::spawn(move || {
        for first in (0..count).step_by(BURST) {
            (first..count.min(first + BURST)).for_each(|n| message(n, &mut writer.outbox));
            while !writer.outbox.is_empty() {
                assert!(writer.turn());
            }
        }
    });
    let mut reader = Side::new(end, here, true);
    let (mut heard, mut expected) = (0, Vec::new());
    while reader.turn() {
        let mut rest = &reader.inbox[..];
        while let Some((whole, behind)) =
            rest.first().and_then(|n| rest.split_at_checked(1 + usize::from(*n)))
        {
            expected.clear();
            message(heard, &mut expected);
            assert_eq!(whole, expected, "message {heard}");
            (rest, heard) = (behind, heard + 1);
        }
        let looked_at = reader.inbox.len() - rest.len();
        reader.inbox.drain(..looked_at);
    }
    flood.join().unwrap();
    assert_eq!((heard, reader.inbox.len()), (count, 0));
}

/// A child process that does not outlive its test.
struct Peer(Child);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Peer {
    /// Runs the test of this name in a process of its own.
    fn start(test: &str, path: &Path) -> Peer {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]).env(PATH, path).stdout(Stdio::null());
        Peer(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// In a child: joins what the parent hands over.
fn as_child() -> Option<Side> {
    let path = PathBuf::from(std::env::var_os(PATH)?);
    let socket = socket::connect_unix(&path).unwrap();
    let mut welcome = Vec::with_capacity(64);
    loop {
        assert!(epoll::wait_readable(socket.as_fd(), 60_000).unwrap());
        let (read, memory) = receive_with_descriptor(socket.as_fd(), &mut welcome).unwrap();
        assert_ne!(read, ReadOutcome::End);
        if let Some(memory) = memory {
            assert_eq!(welcome, b"welcome");
            return Some(Side::new(SharedEnd::adopt(memory).unwrap(), socket, true));
        }
    }
}

/// In the parent: a child that has joined, and our side.
fn with_child(test: &str) -> (Peer, Side) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.shm");
    let listener = Listener::unix(&path).unwrap();
    let peer = Peer::start(test, &path);
    let mut connections = Vec::new();
    while connections.is_empty() {
        assert!(epoll::wait_readable(listener.as_fd(), 60_000).unwrap());
        Acceptor::new()
            .unwrap()
            .accept(listener.as_fd(), 1, |connection| connections.push(connection))
            .unwrap();
    }
    let socket = connections.remove(0);
    assert!(same_user(socket.as_fd()).unwrap());
    let (end, memory) = SharedEnd::create(4096).unwrap();
    let sent = send_with_descriptor(socket.as_fd(), b"welcome", memory.as_fd()).unwrap();
    assert_eq!(sent, WriteOutcome::Bytes(7));
    (peer, Side::new(end, socket, false))
}

#[test]
fn messages_go_through_a_small_ring_between_processes() {
    if let Some(side) = as_child() {
        return side.echo();
    }
    let (mut peer, mut side) = with_child("messages_go_through_a_small_ring_between_processes");
    converse(&mut side, messages(60_000) / 3);
    drop(side);
    assert!(peer.0.wait().unwrap().success());
}

/// Whether it waits for bytes or, behind a full ring, for room.
#[test]
fn a_peer_that_is_killed_is_noticed() {
    if let Some(mut side) = as_child() {
        side.outbox = b"x".to_vec();
        while side.turn() {}
        return;
    }
    for fill in [0, 1 << 20] {
        let (mut peer, mut side) = with_child("a_peer_that_is_killed_is_noticed");
        while side.inbox.is_empty() {
            assert!(side.turn());
        }
        side.outbox = vec![b'-'; fill];
        let killer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            peer.kill();
        });
        while side.turn() {}
        killer.join().unwrap();
        assert_eq!(side.inbox, b"x");
    }
}

/// In a child, which has all the descriptors that it may have.
#[test]
fn without_a_descriptor_there_is_an_error_and_no_memory() {
    const TEST: &str = "without_a_descriptor_there_is_an_error_and_no_memory";
    if std::env::var_os(PATH).is_none() {
        let mut peer = Peer::start(TEST, Path::new("none"));
        return assert!(peer.0.wait().unwrap().success());
    }
    let (here, there) = socket::pair().unwrap();
    let (_, memory) = SharedEnd::create(4096).unwrap();
    let mut all = Vec::new();
    while let Ok(one) = socket::duplicate(here.as_fd()) {
        all.push(one);
    }
    assert!(socket::out_of_descriptors(&SharedEnd::create(4096).unwrap_err()));
    send_with_descriptor(here.as_fd(), b"x", memory.as_fd()).unwrap();
    let (read, descriptor) = receive_with_descriptor(there.as_fd(), &mut Vec::with_capacity(8)).unwrap();
    assert!(read == ReadOutcome::Bytes(1) && descriptor.is_none());
}

/// In a child of a shell that has set a limit: an error, where the kernel would also send a signal that
/// kills.
#[test]
fn a_limit_on_lengths_is_an_error_and_no_signal() {
    const TEST: &str = "a_limit_on_lengths_is_an_error_and_no_signal";
    if std::env::var_os(PATH).is_none() {
        let mut command = Command::new("sh");
        command.arg("-c").arg("ulimit -f 100; exec \"$0\" \"$@\"").arg(std::env::current_exe().unwrap());
        command.args([TEST, "--exact", "--nocapture"]).env(PATH, "none").stdout(Stdio::null());
        return assert!(command.status().unwrap().success());
    }
    assert_eq!(SharedEnd::create(1 << 20).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    assert!(SharedEnd::create(4096).is_ok());
}
