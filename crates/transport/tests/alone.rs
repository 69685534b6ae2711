//! Listeners in processes of their own: without descriptors, and where the process goes elsewhere.
//!
//! Each test is both sides: it runs itself again in a child, which finds in its environment that it is one.
//! They are not beside the others because a child that is being started holds every socket of its parent for
//! a moment.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use thalweg_sys::event::EventFd;
use thalweg_sys::socket;
use thalweg_transport::{Acceptor, Listener};

const CHILD: &str = "THALWEG_TEST_ALONE_CHILD";

/// Runs the test of this name in a process of its own, in an empty directory; `false`: this is that process.
fn runs_alone(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--test-threads", "1", "--nocapture"]).stdout(Stdio::null());
    let status = command.env(CHILD, "1").current_dir(directory.path()).status();
    assert!(status.unwrap().success());
    true
}

/// Every descriptor that there is.
fn hoard() -> Vec<EventFd> {
    std::iter::from_fn(|| EventFd::new().ok()).collect()
}

#[test]
fn a_path_goes_with_its_listener_wherever_the_process_has_gone() {
    if runs_alone("a_path_goes_with_its_listener_wherever_the_process_has_gone") {
        return;
    }
    let listener = Listener::unix(Path::new("server.sock")).unwrap();
    let found = std::env::current_dir().unwrap().join("server.sock");
    assert!(found.exists());
    std::env::set_current_dir("/").unwrap();
    drop(listener);
    assert!(!found.exists());
}

/// One after the other is missing: for the lock, for the socket, and to hold on to the path.
#[test]
fn a_listener_that_fails_leaves_no_path_behind() {
    if runs_alone("a_listener_that_fails_leaves_no_path_behind") {
        return;
    }
    let path = Path::new("server.sock");
    let mut hoard = hoard();
    for _ in 0..3 {
        let refused = Listener::unix(path).unwrap_err();
        assert!(socket::out_of_descriptors(&refused), "{refused}");
        assert!(!path.exists());
        hoard.pop();
    }
    let listener = Listener::unix(path).unwrap();
    assert!(path.exists());
    drop(listener);
    assert!(!path.exists(), "there is a descriptor for the lock again");
}

/// The kernel says that there is no descriptor before it says that nobody listens.
#[test]
fn a_broken_listener_does_not_cost_the_reserve() {
    if runs_alone("a_broken_listener_does_not_cost_the_reserve") {
        return;
    }
    let (broken, _peer) = socket::pair().unwrap();
    let mut acceptor = Acceptor::new().unwrap();
    let _hoard = hoard();
    assert!(acceptor.accept(broken.as_fd(), 1, |_| panic!("nobody connects")).is_err());
    assert!(EventFd::new().is_err(), "the reserve is held");
}
