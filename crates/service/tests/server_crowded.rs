//! A server whose process has no descriptor left for one more client: that is told so, and may come again.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::options;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use thalweg_service::{CallOptions, Client, ClientOptions, Endpoint, Error, Reply, Request, Server};
use thalweg_sys::event::EventFd;
use thalweg_wire::fault::{Fault, Retry};

/// Tells the server where to listen.
const PLACE: &str = "THALWEG_TEST_PLACE";

/// What the server does, which has a process to itself because it takes every descriptor there is; nothing in
/// the test program.
#[test]
fn a_server_takes_all_descriptors() {
    let Ok(place) = std::env::var(PLACE) else { return };
    let mut server = Server::bind(&[place.parse().unwrap()], options()).unwrap();
    let _hoard: Vec<EventFd> = std::iter::from_fn(|| EventFd::new().ok()).collect();
    println!("<listens>");
    server.serve(|request: Request<'_>, reply: Reply| reply.end(request.frame)).unwrap();
}

/// A server's process, which ends with the test.
struct Crowded(Child);

impl Crowded {
    fn at(place: &Endpoint) -> Self {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["a_server_takes_all_descriptors", "--exact", "--nocapture"]);
        program.env(PLACE, place.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = program.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("<listens>")));
        Self(child)
    }
}

impl Drop for Crowded {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn ask(place: &Endpoint, plain: bool) -> Result<Vec<u8>, Error> {
    let options = ClientOptions { plain, connect_within: Duration::ZERO, ..ClientOptions::default() };
    let mut client = Client::connect(place, options)?;
    let call = client.call(b"hello", CallOptions::default())?;
    client.wait(call).map(<[u8]>::to_vec)
}

#[test]
fn a_client_for_whom_there_is_no_descriptor_is_told_so() {
    let directory = tempfile::tempdir().unwrap();
    for (name, plain) in [("test.sock", true), ("test.sock", false), ("test.shm", false)] {
        let place = Endpoint::try_from(directory.path().join(name)).unwrap();
        let _server = Crowded::at(&place);
        // Each is turned away at once, and finds the server as the one before did.
        for _ in 0..3 {
            let refused = ask(&place, plain).unwrap_err();
            assert_eq!(
                (refused.fault, refused.retry()),
                (Fault::Overloaded, Retry::Safe),
                "{name}, plain {plain}: {refused}"
            );
        }
    }
}
