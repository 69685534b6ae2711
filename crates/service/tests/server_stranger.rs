//! Another user whom the path's mode lets pass: let in or turned away as the server's option says, and told
//! which; and another user who listens where a server is looked for: spoken to or not, as the client's option
//! says. A user is what the kernel says of a connection, so the stranger is a program of its own, which only
//! root can start; without root there is nobody to play it, and what is held to account is the judgement
//! itself.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod caller;

use caller::{Peer, Running, options};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use thalweg_service::{CallOptions, Client, ClientOptions, Reply, Request, ServerOptions};
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::HELLO_BYTES;

/// Tells the stranger whom to call.
const ENDPOINT: &str = "THALWEG_TEST_ENDPOINT";
/// Tells the stranger where to listen.
const PLACE: &str = "THALWEG_TEST_PLACE";
/// Tells the stranger to speak plain frames.
const PLAIN: &str = "THALWEG_TEST_PLAIN";
/// A user who is neither root nor anybody in particular.
const STRANGER: u32 = 65_534;
/// Whoever writes a program or starts one: a process that another test starts meanwhile has what is written
/// there open until it becomes its own program, and the system starts none that is open to be written.
static ALONE: Mutex<()> = Mutex::new(());

/// What a stranger does; nothing in the test program itself.
#[test]
fn a_stranger_calls() {
    let Ok(endpoint) = std::env::var(ENDPOINT) else { return };
    let options = ClientOptions { plain: std::env::var_os(PLAIN).is_some(), ..ClientOptions::default() };
    let outcome = Client::connect(&endpoint.parse().unwrap(), options).and_then(|mut client| {
        let call = client.call(b"hello", CallOptions::default())?;
        client.wait(call).map(|answer| String::from_utf8_lossy(answer).into_owned())
    });
    match outcome {
        Ok(answer) => println!("<answered {answer}>"),
        Err(error) => println!("<{} {:?}> {error}", error.fault.word(), error.retry()),
    }
}

/// What a stranger does that listens where somebody else's server is looked for; nothing in the test program
/// itself.
#[test]
fn a_stranger_listens() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let listener = UnixListener::bind(&place).unwrap();
    fs::set_permissions(&place, Permissions::from_mode(0o666)).unwrap();
    println!("<listens>");
    let mut heard = Vec::new();
    let mut client = listener.accept().unwrap().0;
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut heard).unwrap();
    println!("<heard {}>", heard.len());
}

/// This program where every user may run it.
fn program(directory: &Path) -> PathBuf {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join("stranger");
    let _alone = ALONE.lock().unwrap();
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}

fn start(stranger: &mut Command) -> Child {
    let _alone = ALONE.lock().unwrap();
    stranger.spawn().unwrap()
}

/// A server of ours at a path that every user may connect to.
fn open_to_all(same_user_only: bool, name: &str) -> Running {
    let echo = |request: Request<'_>, reply: Reply| reply.end(request.frame);
    let server = Running::with(ServerOptions { same_user_only, ..options() }, name, echo);
    fs::set_permissions(server.path.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&server.path, Permissions::from_mode(0o666)).unwrap();
    server
}

#[test]
fn another_user_is_told_that_only_this_one_may_connect() {
    let directory = tempfile::tempdir().unwrap();
    if fs::metadata(directory.path()).unwrap().uid() != 0 {
        println!("not root, so nobody can be a stranger: the judgement of credentials alone");
        return judged_by_credentials();
    }
    let program = program(directory.path());
    for (name, plain) in [("test.sock", false), ("test.sock", true), ("test.shm", false)] {
        for (same_user_only, expected) in [(false, "<answered hello>"), (true, "<permission_denied Never>")] {
            let server = open_to_all(same_user_only, name);
            let mut stranger = Command::new(&program);
            stranger.args(["--exact", "a_stranger_calls", "--nocapture"]).env(ENDPOINT, &server.path);
            if plain {
                stranger.env(PLAIN, "");
            }
            stranger.current_dir("/").uid(STRANGER).gid(STRANGER).stdin(Stdio::null());
            stranger.stdout(Stdio::piped()).stderr(Stdio::piped());
            let output = start(&mut stranger).wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && said.contains(expected),
                "{name}, {plain}, {same_user_only}: {said}"
            );
            let statistics = server.stop();
            assert_eq!((statistics.requests, statistics.clients), (u64::from(!same_user_only), 0));
        }
    }
}

#[test]
fn a_client_says_nothing_to_another_users_server_unless_that_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    if fs::metadata(directory.path()).unwrap().uid() != 0 {
        println!("not root, so nobody can be a stranger");
        return;
    }
    let program = program(directory.path());
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let kinds = [(true, Fault::PermissionDenied, 0), (false, Fault::NoServer, HELLO_BYTES)];
    for (at, (same_user_only, fault, heard)) in kinds.into_iter().enumerate() {
        let place = directory.path().join(format!("{at}.sock"));
        let mut stranger = Command::new(&program);
        stranger.args(["--exact", "a_stranger_listens", "--nocapture"]).env(PLACE, &place);
        stranger.current_dir("/").uid(STRANGER).gid(STRANGER).stdout(Stdio::piped());
        let mut stranger = start(&mut stranger);
        let mut lines = BufReader::new(stranger.stdout.take().unwrap()).lines().map(|line| line.unwrap());
        assert!(lines.any(|line| line.contains("<listens>")));
        let options =
            ClientOptions { same_user_only, connect_within: Duration::ZERO, ..ClientOptions::default() };
        let endpoint = place.to_str().unwrap().parse().unwrap();
        let error = Client::connect(&endpoint, options).unwrap_err();
        assert_eq!(error.fault, fault, "{error}");
        assert!(lines.any(|line| line.contains(&format!("<heard {heard}>"))), "{same_user_only}");
        assert!(stranger.wait().unwrap().success());
    }
}

/// Where there is no stranger: who we are is what the kernel says, and a peer that has no user is nobody we
/// know.
fn judged_by_credentials() {
    let server = open_to_all(true, "test.sock");
    let known = Peer::multiplexed(&server.path).stream;
    let user = fs::metadata(&server.path).unwrap().uid();
    assert_eq!(thalweg_transport::peer(known.as_fd()).unwrap().user, user);
    assert!(thalweg_transport::same_user(known.as_fd()).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let userless = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    assert!(thalweg_transport::same_user(userless.as_fd()).is_err());
}

#[test]
fn credentials_tell_who_connected() {
    judged_by_credentials();
}
