//! The program as its users meet it: started, spoken to with its own verbs, signalled, restarted.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, PROGRAM, Server, fails, run, says};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn the_verbs_use_a_stream_from_its_creation_to_its_end() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", directory.path().join("s.sock").display());
    let server = Server::start(
        &directory.path().join("data"),
        "127.0.0.1:0",
        &["--listen", &socket, "--reactors", "3", "--drain-grace-ms", "3600000"],
    );
    assert!(server.greeting.contains(&socket), "{}", server.greeting);
    assert!(
        server.greeting.contains("connections") && server.greeting.contains("MiB a body"),
        "{}",
        server.greeting
    );
    for url in [server.url.as_str(), &socket] {
        assert_eq!(says(url, &["create", "a/b c"]), "created a/b c\n");
        assert!(says(url, &["create", "a/b c"]).starts_with("exists already"));
        let first = says(url, &["append", "a/b c", "hello "]);
        assert!(run(url, &["append", "a/b c"], "world\n").status.success());
        assert_eq!(says(url, &["read", "a/b c"]), "hello world\n");
        assert_eq!(says(url, &["read", "a/b c", "--from", first.trim()]), "world\n");
        let head = says(url, &["head", "a/b c"]);
        assert!(
            head.contains("content-type: text/plain\n") && head.contains("stream-next-offset: "),
            "{head}"
        );
        assert_eq!(says(url, &["rm", "a/b c"]), "deleted a/b c\n");
    }
    server.end();
    assert!(!directory.path().join("s.sock").exists());
}

#[test]
fn exit_codes_and_complaints_tell_failures_apart() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    assert_eq!(fails(&server.url, &["read", "nothing"]).0, 4);
    assert_eq!(fails(&server.url, &["tail", "nothing"]).0, 4);
    says(&server.url, &["create", "j", "--content-type", "application/json"]);
    let (code, complaint) = fails(&server.url, &["append", "j", "not json"]);
    assert!(code == 1 && complaint.contains("refused (400)"), "{complaint}");
    assert_eq!(fails(&server.url, &["append", "j", "1", "--content-type", "text/plain"]).0, 6);
    assert_eq!(fails(&server.url, &["read", "j", "--from", "rub bish"]).0, 2);
    assert_eq!(fails(&server.url, &["read", "j", "--from", "rubbish"]).0, 1, "the server judges it");
    assert_eq!(fails(&server.url, &["no-such-verb"]).0, 2);
    assert_eq!(fails("ftp://x", &["read", "j"]).0, 2);
    let url = server.url.clone();
    server.end();
    let (code, complaint) = fails(&url, &["read", "j"]);
    assert!(code == 3 && complaint.contains("thalweg serve"), "{complaint}");
}

#[test]
fn a_tail_follows_through_a_restart_of_the_server_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--sse-lifetime-ms", "300"]);
    let (url, address) = (server.url.clone(), server.address().to_owned());
    says(&url, &["create", "t", "--content-type", "application/json"]);
    says(&url, &["append", "t", "[1,2]"]);
    let mut tail = Command::new(PROGRAM)
        .args(["tail", "t"])
        .env("THALWEG_URL", &url)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(tail.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "1\n");
    out.read_line(&mut line).unwrap();
    // Past a lifetime or two, on a new response each.
    std::thread::sleep(Duration::from_millis(800));
    says(&url, &["append", "t", "3"]);
    out.read_line(&mut line).unwrap();
    server.end();
    let server = Server::start(directory.path(), &address, &[]);
    says(&url, &["append", "t", "4"]);
    out.read_line(&mut line).unwrap();
    says(&url, &["append", "t", "5", "--close"]);
    out.read_to_string(&mut line).unwrap();
    assert_eq!(line, "1\n2\n3\n4\n5\n");
    assert!(tail.wait().unwrap().success(), "a closed stream ends its tail");
    server.end();
}

#[test]
fn serving_where_it_should_not_is_refused_with_a_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let data = data.to_str().unwrap();
    let server = Server::start(Path::new(data), "127.0.0.1:0", &[]);
    let other = directory.path().join("other");
    let other = other.to_str().unwrap();
    let service = format!("unix:{other}/thalweg.sock");
    for (arguments, wanted, hint) in [
        (["--listen", &service, "--data", other], 2, "a service of the store is at "),
        (["--listen", "0.0.0.0:0", "--data", other], 2, "--insecure-listen-anywhere"),
        (["--listen", "nowhere", "--data", other], 2, "an address with a port"),
        // The resolver may know it at the next start.
        (["--listen", "nosuch.invalid:0", "--data", other], 1, "cannot find the address of nosuch.invalid:0"),
        (["--listen", server.address(), "--data", other], 1, "--listen"),
        (["--listen", "127.0.0.1:0", "--data", data], 1, "is open in process"),
    ] {
        let (code, complaint) = fails("", &[&["serve", "--log-level", "error"][..], &arguments].concat());
        assert!(code == wanted && complaint.contains(hint), "{arguments:?}: {complaint}");
    }
    server.end();
}

#[test]
fn a_start_that_is_refused_leaves_no_new_store_behind() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    std::fs::write(at("file"), "").unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    std::fs::create_dir_all(at("mounted/lost+found")).unwrap();
    let (on_a_file, long) = (format!("unix:{}", at("file")), at(&"n".repeat(100)));
    let refused = |arguments: &[&str], data: &str, hint: &str| {
        let line = [&["serve", "--log-level", "error", "--data", data], arguments].concat();
        let (code, complaint) = fails("", &line);
        assert!(code == 1 && complaint.contains(hint), "{arguments:?}: {complaint}");
    };
    for data in [at("new"), at("empty"), at("mounted")] {
        for listen in [&taken, &on_a_file, "unix:/nowhere/at/all.sock"] {
            refused(&["--listen", listen], &data, "cannot listen at");
        }
        refused(
            &["--listen", "127.0.0.1:0", "--rpc", "on", "--rpc-listen", &taken],
            &data,
            "cannot listen at http://",
        );
    }
    refused(&["--listen", "127.0.0.1:0"], &long, "choose a shorter --data, or --services off");
    assert!(!Path::new(&at("new")).exists() && !Path::new(&long).exists());
    for (there, names) in [("empty", 0), ("mounted", 1)] {
        assert_eq!(std::fs::read_dir(at(there)).unwrap().count(), names, "{there}");
    }
    // Also where the address lies in the directory.
    std::fs::write(at("empty/file"), "").unwrap();
    refused(&["--listen", &format!("unix:{}", at("empty/file"))], &at("empty"), "cannot listen at");
    assert_eq!(std::fs::read_dir(at("empty")).unwrap().count(), 1);
    // An address may lie in a directory that is made, the store's or one around it.
    let around = format!("unix:{}", at("around/http.sock"));
    Server::start(Path::new(&at("around/data")), &around, &[]).end();
    let inside = format!("unix:{}", at("new/http.sock"));
    let server = Server::start(Path::new(&at("new")), &inside, &[]);
    assert_eq!(says(&inside, &["create", "a"]), "created a\n");
    server.end();
    // What is there already is served the next time.
    refused(&["--listen", &taken], &at("new"), "cannot listen at http://");
    let server = Server::start(Path::new(&at("new")), "127.0.0.1:0", &[]);
    assert_eq!(says(&server.url, &["ls"]), "a\n");
    server.end();
}

#[test]
fn a_wrong_command_line_is_complained_of_in_the_form_that_was_asked_for() {
    for (arguments, hint) in [
        (&["--output", "json", "serve", "--bogus"][..], "--bogus"),
        (&["serve", "--reactors", "99", "--output=json"], "99 is not in 1..=29"),
        (&["--output", "json", "serve", "--tls-key", "k.pem"], "tls_certificate"),
        (&["--output", "json", "serve", "--listen", "0.0.0.0:0"], "--insecure-listen-anywhere"),
    ] {
        let (code, complaint) = fails("", arguments);
        let said: serde_json::Value = serde_json::from_str(&complaint).unwrap();
        assert_eq!((code, said["exitCode"].as_i64()), (2, Some(2)), "{complaint}");
        assert!(said["error"].as_str().unwrap().contains(hint), "{complaint}");
    }
    let (code, complaint) = fails("", &["serve", "--bogus"]);
    assert!(code == 2 && complaint.contains("\nUsage: "), "{complaint}");
    // Help is what was asked for.
    assert!(says("", &["--output", "json", "serve", "--help"]).contains("Usage: "));
}

#[test]
fn a_negative_number_is_a_value_that_is_judged_and_no_unknown_flag() {
    for (arguments, wanted) in [
        (&["read", "s", "--until", "-1"][..], "expected an offset that append, read or head printed, a time"),
        (&["create", "s", "--ttl", "-1"], "expected a whole number"),
        (&["create", "s", "--ttl", "9007199254740992"], "from 0 to 9007199254740991"),
        (&["fork", "s", "f", "--at", "beginning", "--sub", "9007199254740992"], "from 0 to 9007199254740991"),
    ] {
        let (code, complaint) = fails("", arguments);
        assert!(code == 2 && complaint.contains(wanted), "{arguments:?}: {complaint}");
    }
    // What begins like a flag and is no number is one still.
    let (code, complaint) = fails("", &["read", "s", "--until", "--help"]);
    assert!(code == 2 && complaint.contains("a value is required"), "{complaint}");
}

#[test]
fn common_mistakes_are_answered_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(at("file"), "").unwrap();
    Server::start(&directory.path().join("beheaded"), "127.0.0.1:0", &[]).end();
    std::fs::remove_file(at("beheaded/control")).unwrap();
    for (arguments, hint) in [
        (["--listen", "127.0.0.1:0", "--data", &at("beheaded")], "put `control` back, or restore a backup\n"),
        (
            ["--listen", "127.0.0.1:0", "--data", &at("file")],
            "something else of that name; choose another directory",
        ),
        (["--listen", "127.0.0.1:0", "--data", &at("file/x")], "choose another directory with --data"),
        (["--listen", "unix:/nowhere/at/all.sock", "--data", &at("data")], "cannot listen at unix:/nowhere"),
    ] {
        let (code, complaint) = fails("", &[&["serve", "--log-level", "error"][..], &arguments].concat());
        assert!(code == 1 && complaint.contains(hint), "{arguments:?}: {complaint}");
    }

    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    // What a HEAD finds out has no words of the server's.
    let (code, complaint) = fails(&server.url, &["append", "no-such", "x"]);
    assert!(code == 4 && complaint.contains("thalweg create"), "{complaint}");
    let secure = server.url.replace("http:", "https:");
    let (code, complaint) = fails(&secure, &["ls"]);
    assert!(code == 3 && complaint.contains("If not, use http://"), "{complaint}");
    assert_eq!(fails("http://127.0.0.1:99999", &["ls"]).0, 2);
    server.end();

    let page = "HTTP/1.1 404 Not Found\r\nContent-Length: 15\r\n\r\n<html>no</html>";
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut peer, _) = other.accept().unwrap();
        let _ = peer.read(&mut [0; 1_024]).unwrap();
        peer.write_all(page.as_bytes()).unwrap();
    });
    let (_, complaint) = fails(&url, &["ls"]);
    assert!(complaint.contains("is the URL right?") && !complaint.contains("<html>"), "{complaint}");
    answering.join().unwrap();
}

/// A connection with a request in flight: the server waits for its body, and said so.
fn holds_out(server: &Server) -> TcpStream {
    let mut holdout = TcpStream::connect(server.address()).unwrap();
    let head =
        "PUT /v1/stream/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n";
    holdout.write_all(head.as_bytes()).unwrap();
    let mut said = [0; 12];
    holdout.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"HTTP/1.1 100");
    holdout.write_all(b"half").unwrap();
    holdout
}

#[test]
fn a_second_signal_does_not_wait_for_whoever_holds_out() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(
        directory.path(),
        "127.0.0.1:0",
        &["--drain-grace-ms", "3600000", "--stall-timeout-ms", "3600000", "--durability", "memory"],
    );
    says(&server.url, &["create", "s"]);
    assert!(run(&server.url, &["append", "s"], &"x".repeat(1 << 20)).status.success());
    let mut holdout = TcpStream::connect(server.address()).unwrap();
    // More than the kernel keeps of what is not read.
    let reads = "GET /v1/stream/s?offset=-1 HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(20);
    holdout.write_all(reads.as_bytes()).unwrap();
    holdout.read_exact(&mut [0; 12]).unwrap();
    server.signal("INT");
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.child.try_wait().unwrap().is_none(), "an answer in flight is waited for");
    server.signal("TERM");
    server.ended();
}

/// A machine that stops for a moment between the two makes two of them, so it may do that a few times.
#[test]
fn a_signal_that_is_sent_twice_at_once_is_one() {
    assert!((0..5).any(|_| twice_is_once()), "each time it was two");
}

/// Whether a server took a signal that is sent twice for one, and waited for clients that hold out.
fn twice_is_once() -> bool {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--drain-grace-ms", "1000", "--log-level", "warn"]);
    command.arg("--data").arg(directory.path().join("data")).stderr(std::fs::File::create(&log).unwrap());
    let mut server = Server::started(command);
    let _holdout = holds_out(&server);
    // As `timeout` does it: the program, and then its group.
    let pid = server.child.id();
    let twice = format!("kill -TERM {pid}; sleep 0.01; kill -TERM {pid}");
    assert!(Command::new("bash").args(["-c", &twice]).status().unwrap().success());
    assert!(server.ended().success());
    !std::fs::read_to_string(&log).unwrap().contains("ending at once")
}

/// A segment that gives nothing stands for a disk that does not answer.
#[test]
fn a_server_that_waits_for_its_disk_hears_that_it_is_to_end() {
    let directory = tempfile::tempdir().unwrap();
    drop(Server::start(directory.path(), "127.0.0.1:0", &[]));
    let segment = directory.path().join("segment-0000000001");
    std::fs::remove_file(&segment).unwrap();
    assert!(Command::new("mkfifo").arg(&segment).status().unwrap().success());
    for signal in ["-TERM", "-INT"] {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(directory.path())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            // Again and again: it blocks signals once it hears them, and one that comes before ends it
            // otherwise.
            std::thread::sleep(Duration::from_millis(300));
            let pid = child.id().to_string();
            assert!(Command::new("kill").args([signal, &pid]).status().is_ok());
            assert!(begun.elapsed() < PATIENCE, "it does not hear");
        }
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success() && said.contains("nothing was served yet"), "{said}");
    }
}

/// Its sockets are bound before a store that is new, and this one's first checkpoint gives nothing.
#[test]
fn a_signal_while_a_new_store_is_made_leaves_no_socket() {
    let directory = tempfile::tempdir().unwrap();
    let (data, socket, rpc) =
        (directory.path().join("data"), directory.path().join("s.sock"), directory.path().join("r.sock"));
    std::fs::create_dir(&data).unwrap();
    let made = Command::new("mkfifo").arg(data.join("checkpoint-0000000100000040")).status();
    assert!(made.unwrap().success());
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--log-level", "error", "--rpc", "on", "--rpc-listen"])
        .arg(format!("unix:{}", rpc.display()))
        .args(["--listen", &format!("unix:{}", socket.display()), "--data"])
        .arg(&data)
        .spawn()
        .unwrap();
    common::until("its sockets", || socket.exists() && rpc.exists());
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success() && child.wait().unwrap().success());
    assert!(!socket.exists() && !rpc.exists(), "a socket's file was left behind");
}

#[test]
fn a_start_that_finds_its_address_taken_leaves_nothing_to_recover() {
    let directory = tempfile::tempdir().unwrap();
    let other = Server::start(&directory.path().join("other"), "127.0.0.1:0", &[]);
    let data = directory.path().join("data");
    Server::start(&data, "127.0.0.1:0", &[]).end();
    let start = |listen: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--log-level", "info", "--listen", listen, "--data"]).arg(&data);
        command
    };
    let refused = start(other.address()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("is another server running?"), "{said}");
    let log = directory.path().join("log");
    let mut again = start("127.0.0.1:0");
    again.stderr(std::fs::File::create(&log).unwrap());
    Server::started(again).end();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("clean=true"), "{said}");
}

#[test]
fn a_server_tells_programs_where_it_is_as_an_object() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--output", "json", "--listen", "127.0.0.1:0", "--log-level", "error", "--data"])
        .arg(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    says(said["listening"][0].as_str().unwrap(), &["create", "x"]);
    assert!(said["neighbours"][0].as_str().unwrap().ends_with("thalweg.sock"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_second_signal_does_not_wait_for_whoever_holds_a_service_up() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let log = directory.path().join("log");
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--drain-grace-ms", "3600000", "--data"]).arg(&data);
    let mut server = Server::started({
        command.stderr(std::fs::File::create(&log).unwrap());
        command
    });
    says(&server.url, &["create", "a"]);
    says(&server.url, &["append", "a", "first\n"]);
    let mut follower = Command::new(PROGRAM);
    follower.args(["tail", "a", "--via", "sock", "--data"]).arg(&data).stdout(Stdio::piped());
    let mut follower = follower.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(follower.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // Who sleeps takes neither its last answers nor the news that there are no more.
    let stopped = Command::new("kill").args(["-s", "STOP", &follower.id().to_string()]).status().unwrap();
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(500));
    let waits = server.child.try_wait().unwrap().is_none();
    server.signal("TERM");
    let status = server.ended();
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert!(stopped.success() && waits, "a client of a service is waited for");
    assert!(status.success(), "{status}");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("ending at once"), "{said}");
    assert!(said.contains("opened an empty store") && !said.contains("clean=false"), "a new store: {said}");
    // The next start finds all of it.
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    assert_eq!(says(&server.url, &["read", "a"]), "first\n");
    server.end();
}

#[test]
fn verify_finds_damage_and_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    says(&server.url, &["create", "v"]);
    for index in 0..20 {
        says(&server.url, &["append", "v", &format!("a record to be damaged, number {index}")]);
    }
    server.end();
    assert!(says("", &["verify", "--data", data]).ends_with("no damage\n"));
    let needle = b"number 7";
    let damaged = std::fs::read_dir(directory.path()).unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.windows(needle.len()).position(|window| window == needle);
        if let Some(at) = at {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        at.is_some()
    });
    assert_eq!(damaged.count(), 1);
    let output = run("", &["verify", "--data", data], "");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("is damaged from byte") && said.ends_with("DAMAGED\n"), "{said}");
    assert!(!said.contains("thalweg verify"), "{said}");
    assert!(said.contains(": v\nDAMAGED"), "{said}");
    let told = run("", &["verify", "--output", "json", "--data", data], "");
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    let damage = &told["damage"][0];
    assert!(damage["streams"] == serde_json::json!(["v"]) && damage["byte"].is_u64(), "{told}");
    assert_eq!(fails("", &["verify", "--data", "/nowhere/at/all"]).0, 1);
}

#[test]
fn a_store_whose_control_file_is_none_is_damaged_and_what_is_no_store_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    says(&server.url, &["create", "v"]);
    server.end();
    let control = data.join("control");
    let sound = std::fs::read(&control).unwrap();
    let mut flipped = sound.clone();
    flipped[0] ^= 1;
    let (from, to) = (data.to_str().unwrap(), directory.path().join("to"));
    let to = to.to_str().unwrap();
    for (bytes, hint) in [(&flipped[..], "magic"), (&sound[..100], "too short")] {
        std::fs::write(&control, bytes).unwrap();
        for verb in
            [&["verify", "--data", from][..], &["parse", from], &["backup", from, to], &["restore", from, to]]
        {
            let (code, said) = fails("", verb);
            assert!(
                code == 5 && said.contains(hint) && said.contains("it is damaged"),
                "{verb:?}: {code} {said}"
            );
        }
    }
    std::fs::remove_file(&control).unwrap();
    assert_eq!(fails("", &["verify", "--data", from]).0, 5);
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("control"), &flipped).unwrap();
    let (code, said) = fails("", &["verify", "--data", other.path().to_str().unwrap()]);
    assert!(code == 1 && !said.contains("damaged"), "{said}");
}

#[test]
fn a_store_in_use_is_backed_up_parsed_and_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, backup, again) = (at("data"), at("backup"), at("again"));
    let server = Server::start(&directory.path().join("data"), "127.0.0.1:0", &[]);
    says(&server.url, &["create", "kept"]);
    says(&server.url, &["append", "kept", "before the backup;"]);
    let said = says("", &["backup", &data, &backup, "--output", "json"]);
    assert!(said.contains("\"copiedSegments\":1"), "{said}");
    says(&server.url, &["append", "kept", "after the backup;"]);
    server.end();
    let (code, complaint) = fails("", &["parse", &backup, "--log", "none"]);
    assert!(code == 4 && complaint.contains("none"), "{complaint}");
    let parsed = says("", &["parse", &backup, "--log", "kept"]);
    assert!(parsed.contains("before the backup;") && !parsed.contains("after"), "{parsed}");
    let lines = says("", &["parse", &backup, "--output", "json"]);
    let frame = lines.lines().find(|line| line.contains("\"text\":\"before the backup;\"")).unwrap();
    assert!(frame.contains("\"kind\":\"data\"") && frame.contains("\"name\":\"kept\""), "{frame}");

    says("", &["restore", &backup, &again]);
    let server = Server::start(&directory.path().join("again"), "127.0.0.1:0", &[]);
    assert_eq!(says(&server.url, &["read", "kept"]), "before the backup;");
    server.end();
    assert_eq!(fails("", &["restore", &backup, &again]).0, 6);
    assert_eq!(fails("", &["backup", &at("nowhere"), &at("none")]).0, 1);
    let segment = directory.path().join("backup/segment-0000000001");
    let mut bytes = std::fs::read(&segment).unwrap();
    let at_byte = bytes.windows(6).position(|window| window == b"before").unwrap();
    bytes[at_byte] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    let (code, why) = fails("", &["restore", &backup, &at("none")]);
    assert!(code == 5 && why.contains("segment-0000000001"), "{why}");
    assert_eq!(run("", &["parse", &backup], "").status.code(), Some(5));
}

#[test]
fn help_that_cannot_be_printed_is_complained_of() {
    for asked in [&["--help"][..], &["--version"], &["append", "--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Command::new(PROGRAM).args(asked).stdout(full).output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && complaint.contains("standard output"), "{complaint}");
    }
}

#[test]
fn a_load_says_what_stands_in_its_way() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    let url = server.url.as_str();
    let span = ["--warm-up-ms", "0", "--seconds", "1", "--connections", "1", "--streams", "1"];
    let bench = |verb: &[&'static str]| [&["bench"][..], verb, &span].concat();
    says(url, &bench(&["append", "--operations", "5"]));
    let (code, complaint) = fails(url, &bench(&["fan-out", "--prefix", "load-", "--operations", "5"]));
    assert!(code == 6 && complaint.contains("load-0") && complaint.contains("--prefix"), "{complaint}");
    let catch_up = ["catch-up", "--prefix", "load-", "--stream-bytes", "1048576"];
    let (code, complaint) = fails(url, &bench(&catch_up));
    assert!(code == 6 && complaint.contains("--created"), "{complaint}");
    let (code, complaint) = fails(url, &bench(&["append", "--bytes", "99999999999"]));
    assert!(code == 2 && complaint.contains("0..=1073741824"), "{complaint}");
    let (code, complaint) = fails(url, &bench(&["append", "--prefix", "p-", "--process", "4194304"]));
    assert!(code == 1 && complaint.contains("--process 4194304"), "{complaint}");
    let create = ["bench", "create", "--fork-of", "none", "--operations", "2", "--connections", "1"];
    let (code, complaint) = fails(url, &[&create[..], &["--prefix", "f-", "--warm-up-ms", "0"]].concat());
    assert!(code == 4 && complaint.contains("create f-0: status 404"), "{complaint}");
    // At once, however long it was to take: what is missing would be asked for again and again.
    // Of one stream, for of two the server may refuse either first.
    let long =
        ["--prefix", "none-", "--seconds", "3600", "--created", "--connections", "2", "--streams", "1"];
    for verb in ["catch-up", "append"] {
        let (code, complaint) = fails(url, &[&["bench", verb][..], &long].concat());
        assert!(code == 4 && complaint.contains("none-0: status 404"), "{complaint}");
    }
    let idle = ["bench", "idle", "--created", "--prefix", "none-", "--sizes", "2", "--seconds", "3600"];
    for kind in ["kept-alive", "sse", "long-poll"] {
        let (code, complaint) = fails(url, &[&idle[..], &["--kind", kind]].concat());
        assert!(code == 4 && complaint.contains("none-0: status 404"), "{kind}: {complaint}");
    }
    says(url, &["create", "text-0"]);
    let create = ["bench", "create", "--prefix", "text-", "--operations", "1", "--connections", "1"];
    let (code, complaint) = fails(url, &create);
    assert!(code == 6 && complaint.contains("text-0 exists otherwise"), "{complaint}");
    let (code, complaint) = fails(url, &["bench", "idle", "--sizes", "2000000000"]);
    assert!(code == 1 && complaint.contains("ulimit -n"), "{complaint}");
    for none in [["--rate", "0"], ["--seconds", "0"], ["--operations", "0"]] {
        let (code, complaint) = fails(url, &[&["bench", "append"][..], &none].concat());
        assert!(code == 2 && complaint.contains("0 is not in 1.."), "{complaint}");
    }
}

#[test]
fn loads_leave_each_others_streams_alone_and_count_what_they_did_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    let url = server.url.as_str();
    let few = ["--connections", "2", "--streams", "1", "--operations", "5", "--output", "json"];
    let bench = |verb: &'static str| [&["bench", verb][..], &few].concat();
    // However few there are, they are not over before anything is counted.
    for verb in ["append", "fan-out"] {
        let report: serde_json::Value = serde_json::from_str(&says(url, &bench(verb))).unwrap();
        assert!(report["operations"].as_u64().unwrap() >= 5, "{report}");
    }
    let (code, complaint) = fails(url, &bench("fan-out"));
    assert!(
        code == 6 && complaint.contains("counted as delivered") && complaint.contains("--prefix"),
        "{complaint}"
    );
}

#[test]
fn a_store_that_does_not_close_in_order_ends_the_server_with_its_own_code() {
    let directory = tempfile::tempdir().unwrap();
    let (data, elsewhere) = (directory.path().join("data"), directory.path().join("elsewhere"));
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-level", "error", "--data"]).arg(&data);
    command.stderr(Stdio::piped());
    let mut server = Server::started(command);
    says(&server.url, &["create", "s"]);
    says(&server.url, &["append", "s", "acknowledged"]);
    // Its files are kept; in a directory that is gone none is made.
    std::fs::create_dir(&elsewhere).unwrap();
    for file in std::fs::read_dir(&data).unwrap().map(Result::unwrap) {
        std::fs::hard_link(file.path(), elsewhere.join(file.file_name())).unwrap();
    }
    std::fs::remove_dir_all(&data).unwrap();
    server.signal("TERM");
    let mut complaint = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(1), "{complaint}");
    assert!(complaint.contains("the store did not close cleanly: "), "{complaint}");
    assert!(complaint.contains("nothing acknowledged is lost"), "{complaint}");
    std::fs::rename(&elsewhere, &data).unwrap();
    let server = Server::start(&data, "127.0.0.1:0", &[]);
    assert_eq!(says(&server.url, &["read", "s"]), "acknowledged");
    server.end();
}
