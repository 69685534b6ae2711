//! The client's verbs against a running server: pipes, files, JSON, copies, interruptions.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PATIENCE, PROGRAM, Server, fails, run, says, until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The lines of an output, as they come.
fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    lines
}

fn memory() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    (directory, server)
}

/// What a verb prints as JSON: an object a line.
fn json_of(url: &str, arguments: &[&str]) -> Vec<Value> {
    let text = says(url, &[&["--output", "json"], arguments].concat());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_of_json_are_messages_in_and_out() {
    let (_directory, server) = memory();
    let url = &server.url;
    says(url, &["create", "j", "--content-type", "application/json"]);
    let lines = "{\"a\": 1}\n\n[2, 3]\n\"four\"\n1.50\n";
    let sent = run(url, &["append", "j", "--json", "--output", "json"], lines);
    let report: Value = serde_json::from_slice(&sent.stdout).unwrap();
    assert_eq!((&report["messages"], &report["duplicates"]), (&json!(4), &json!(0)), "{report}");
    // An array on a line is one message: a batch is flattened by one level only.
    assert_eq!(says(url, &["read", "j"]), "{\"a\": 1}\n[2, 3]\n\"four\"\n1.50\n");
    says(url, &["append", "j", "--json", "5", "{\"b\":6}"]);
    let parts = json_of(url, &["read", "j"]);
    assert_eq!(parts.len(), 1);
    assert_eq!(parts[0]["messages"], json!([{"a": 1}, [2, 3], "four", 1.5, 5, {"b": 6}]));
    let end = parts[0]["nextOffset"].as_str().unwrap();
    assert_eq!(says(url, &["read", "j", "--from", report["nextOffset"].as_str().unwrap()]), "5\n{\"b\":6}\n");
    let first = says(url, &["read", "j", "--until", report["nextOffset"].as_str().unwrap()]);
    assert_eq!(first.lines().count(), 4, "{first}");
    assert_eq!(says(url, &["read", "j", "--from", end]), "");

    // One document for a stream of messages needs no flag.
    assert!(run(url, &["append", "j"], "[\n 9,\n 10\n]").status.success());
    assert!(says(url, &["read", "j", "--from", end]).ends_with("9\n10\n"));

    // Bytes would have the brackets and commas of an array between them.
    says(url, &["create", "t"]);
    let (code, complaint) = fails(url, &["append", "t", "--json", "1", "2"]);
    assert!(code == 2 && complaint.contains("leave --json out"), "{complaint}");
    assert_eq!(says(url, &["read", "t"]), "");
}

#[test]
fn messages_that_go_together_take_no_more_than_they_may() {
    let (directory, server) = memory();
    let path = directory.path().join("lines");
    std::fs::write(&path, "1234\n5678\n90123456789\n7\n8\n").unwrap();
    says(&server.url, &["create", "j", "--content-type", "application/json"]);
    let file = path.to_str().unwrap();
    let append = ["append", "j", "--json", "--file", file, "--batch-bytes", "12"];
    let report = &json_of(&server.url, &append)[0];
    // Two that fill it, one that is too large for any company, and the rest.
    let sent = "[1234,5678][90123456789][7,8]".len();
    assert_eq!((&report["appends"], &report["bytes"]), (&json!(3), &json!(sent)), "{report}");
    assert_eq!(says(&server.url, &["read", "j"]), "1234\n5678\n90123456789\n7\n8\n");
}

#[test]
fn what_stands_before_a_bad_message_is_appended_and_nothing_after_it() {
    let (directory, server) = memory();
    let url = &server.url;
    let path = directory.path().join("lines");
    let good: String = (1..5_000).map(|number| format!("{number}\n")).collect();
    std::fs::write(&path, format!("{good}not json\n5001\n")).unwrap();
    let file = path.to_str().unwrap();
    for (name, more, input, named, there) in [
        ("pipe", &[][..], "7\nnot json\n8\n", "line 2", "7\n"),
        ("file", &["--file", file], "", "line 5000", good.as_str()),
        ("arguments", &["5", "6", "bad", "7"], "", "argument 3", "5\n6\n"),
        ("first argument", &["bad", "7"], "", "argument 1", ""),
        ("first line", &[], "bad\n7\n", "line 1", ""),
    ] {
        says(url, &["create", name, "--content-type", "application/json"]);
        let bad = run(url, &[&["append", name, "--json", "--close"], more].concat(), input);
        let complaint = String::from_utf8(bad.stderr).unwrap();
        assert!(bad.status.code() == Some(1) && complaint.contains(named), "{name}: {complaint}");
        assert!(complaint.contains("everything before it is appended"), "{name}: {complaint}");
        assert_eq!(says(url, &["read", name]), there, "{name}");
        assert_eq!(json_of(url, &["head", name])[0]["closed"], false, "{name}: closed behind a bad message");
    }
}

/// Where somebody read and has gone.
fn nobody_reads() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_complaint_that_nobody_reads_leaves_the_exit_code_as_it_is() {
    let (_directory, server) = memory();
    for (arguments, code) in [
        (&["head", "nosuch", "--url", &server.url][..], 4),
        (&["--output", "json", "head", "nosuch", "--url", &server.url], 4),
        (&["head", "nosuch", "--url", "unix:/nowhere/at/all.sock"], 3),
    ] {
        let mut verb = Command::new(PROGRAM);
        let status = verb.args(arguments).stdout(nobody_reads()).stderr(nobody_reads()).status().unwrap();
        assert_eq!(status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_file_goes_in_whole_pieces_and_comes_out_the_same() {
    let (directory, server) = memory();
    let url = &server.url;
    let path = directory.path().join("input");
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(&path, &content).unwrap();
    says(url, &["create", "f", "--content-type", "application/octet-stream"]);
    let file = path.to_str().unwrap();
    let report = &json_of(url, &["append", "f", "--file", file, "--batch-bytes", "500000", "--close"])[0];
    assert_eq!(
        (&report["appends"], &report["bytes"], &report["closed"]),
        (&json!(3), &json!(1_200_000), &json!(true))
    );
    let output = run(url, &["read", "f"], "");
    assert!(output.stdout == content, "{} bytes", output.stdout.len());
    let middle = json_of(url, &["read", "f"]);
    assert!(middle.iter().all(|part| part["base64"].is_string()) && middle.last().unwrap()["closed"] == true);
    let (code, complaint) = fails(url, &["append", "f", "more"]);
    assert!(code == 6 && complaint.contains("closed"), "{complaint}");
    let (code, complaint) = fails(url, &["append", "f", "--file", "/nowhere"]);
    assert!(code == 1 && complaint.contains("/nowhere"), "{complaint}");
}

#[test]
fn what_trickles_through_a_pipe_is_appended_as_it_comes() {
    let (_directory, server) = memory();
    let url = &server.url;
    says(url, &["create", "p"]);
    let mut append = Command::new(PROGRAM)
        .args(["append", "p", "--url", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = append.stdin.take().unwrap();
    for (piece, there) in [("one ", "one "), ("two", "one two")] {
        input.write_all(piece.as_bytes()).unwrap();
        until("what arrives before the pipe's end", || says(url, &["read", "p"]) == there);
    }
    drop(input);
    assert!(append.wait().unwrap().success());
    assert_eq!(says(url, &["read", "p"]), "one two");
    let nothing = run(url, &["append", "p"], "");
    assert!(nothing.status.success(), "nothing to append is no failure");
}

#[test]
fn an_append_outlives_the_server_it_started_with_and_appends_nothing_twice() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let (url, address) = (server.url.clone(), server.address().to_owned());
    says(&url, &["create", "r", "--content-type", "application/json"]);
    let mut append = Command::new(PROGRAM)
        .args(["append", "r", "--json", "--url", &url])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Nobody reads that it tries again; it does so nevertheless.
        .stderr(nobody_reads())
        .spawn()
        .unwrap();
    let mut input = append.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for number in 0..600 {
            writeln!(input, "{number}").unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    // Killed in the middle of whatever it does, and started again.
    drop(server);
    let server = Server::start(directory.path(), &address, &[]);
    feeder.join().unwrap();
    assert!(append.wait().unwrap().success());
    let wanted: String = (0..600).map(|number| format!("{number}\n")).collect();
    assert_eq!(says(&url, &["read", "r"]), wanted);
    server.end();
}

#[test]
fn offsets_cut_a_read_at_both_ends() {
    let (_directory, server) = memory();
    let url = &server.url;
    says(url, &["create", "c"]);
    let ends: Vec<String> = ["one ", "two ", "three"]
        .iter()
        .map(|text| says(url, &["append", "c", text]).trim().to_owned())
        .collect();
    assert_eq!(says(url, &["read", "c", "--from", &ends[0], "--until", &ends[1]]), "two ");
    assert_eq!(says(url, &["read", "c", "--from", "beginning", "--until", &ends[1]]), "one two ");
    assert_eq!(says(url, &["read", "c", "--from", "now"]), "");
    // A program learns where to continue, also where there is nothing to read yet.
    assert_eq!(
        json_of(url, &["read", "c", "--from", "now"]),
        [json!({ "nextOffset": ends[2], "closed": false, "text": "" })]
    );
    assert_eq!(says(url, &["read", "c", "--until", "tail"]), "one two three");
    says(url, &["append", "c", "!"]);
    let behind = says(url, &["append", "c", "?"]);
    says(url, &["rm", "c"]);
    says(url, &["create", "c"]);
    // What it holds now is not what that offset counts.
    says(url, &["append", "c", "something else that is longer"]);
    let (code, complaint) = fails(url, &["read", "c", "--until", behind.trim()]);
    assert!(code == 4 && complaint.contains("(410)"), "{complaint}");
    for none in ["now", "beginning", "nonsense"] {
        let (code, complaint) = fails(url, &["read", "c", "--until", none]);
        assert!(code == 2 && complaint.contains("--until") && complaint.contains("`tail`"), "{complaint}");
    }
}

#[test]
fn a_fork_is_read_up_to_offsets_of_what_it_was_forked_from() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    let url = server.url.as_str();
    says(url, &["create", "source"]);
    let ends = ["one ", "two "].map(|text| says(url, &["append", "source", text]).trim().to_owned());
    says(url, &["fork", "source", "fork"]);
    says(url, &["append", "fork", "three"]);
    assert_eq!(says(url, &["read", "fork", "--until", &ends[0]]), "one ");
    assert_eq!(says(url, &["read", "fork"]), "one two three");
    says(url, &["fork", "source", "empty", "--at", "beginning"]);
    assert_eq!(says(url, &["read", "empty"]), "");
    let (code, complaint) = fails(url, &["fork", "source", "f", "--sub", "2"]);
    assert!(code == 2 && complaint.contains("--at"), "{complaint}");
}

#[test]
fn of_several_streams_those_are_deleted_that_can_be() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "memory"]);
    let url = server.url.as_str();
    for name in ["a", "b"] {
        says(url, &["create", name]);
    }
    let (code, complaint) = fails(url, &["rm", "none", "a", "..", "b"]);
    assert!(code == 4 && complaint.contains("none: ") && complaint.contains("..: "), "{complaint}");
    assert_eq!(says(url, &["ls"]), "");
}

#[test]
fn another_servers_offset_is_asked_for_as_it_is_and_its_server_judges_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut asked = [0; 4_096];
        let count = peer.read(&mut asked).unwrap();
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nStream-Next-Offset: 01JDXV7S2N\r\n\
                      Stream-Up-To-Date: true\r\nContent-Length: 5\r\n\r\nthere";
        peer.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&asked[..count]).into_owned()
    });
    assert_eq!(says(&url, &["read", "s", "--from", "01JDXV7S2M"]), "there");
    assert!(serving.join().unwrap().starts_with("GET /v1/stream/s?offset=01JDXV7S2M "));
    // Ours says that it gave out no such offset.
    let (_directory, server) = memory();
    says(&server.url, &["create", "s"]);
    let (code, complaint) = fails(&server.url, &["read", "s", "--from", "01JDXV7S2M"]);
    assert!(code == 1 && complaint.contains("offset"), "{complaint}");
}

#[test]
fn what_no_server_was_asked_is_a_wrong_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = directory.path().to_str().unwrap();
    for arguments in [
        &["head", "j", "--url", "ftp://x"][..],
        &["head", "j", "--url", "http://127.0.0.1:99999"],
        &["head", ".."],
        &["head", "http://127.0.0.1:1/v1/stream/a?offset=-1"],
        &["man", "fly"],
        &["append", "a", "x", "-"],
        &["head", "a", "--token", "two\nlines"],
        &["create", "a", "--expires-at", "tomorrow"],
        &["create", "__ds/a"],
        &["read", "ftp://x/y"],
        &["read", "a", "--from", "since yesterday"],
        &["tail", "a", "--from", "tail"],
        &["fork", "a", "b", "--at", "now"],
        &["tail", "a", "--via", "sock", "--data", nowhere, "--from", "2020-01-01T00:00:00Z"],
    ] {
        let (code, complaint) = fails("http://127.0.0.1:1", arguments);
        assert_eq!(code, 2, "{arguments:?}: {complaint}");
    }
    let (code, complaint) = fails("https://127.0.0.1:1", &["head", "j", "--tls-ca", "/nowhere"]);
    assert!(code == 1 && complaint.contains("/nowhere"), "{complaint}");
}

#[test]
fn streams_are_listed_watched_and_counted() {
    let (_directory, server) = memory();
    let url = &server.url;
    for name in ["b", "a/2", "a/1", "a/b/3"] {
        says(url, &["create", name, "--ttl", "3600"]);
    }
    assert_eq!(says(url, &["ls"]), "a/1\na/2\na/b/3\nb\n");
    assert_eq!(says(url, &["ls", "a/*"]), "a/1\na/2\n");
    assert_eq!(says(url, &["ls", "a/**"]), "a/1\na/2\na/b/3\n");
    assert!(says(url, &["ls", "-l", "b"]).contains("open     text/plain"));
    let listed = json_of(url, &["ls", "b"]);
    assert_eq!((&listed[0]["name"], &listed[0]["ttlS"]), (&json!("b"), &json!(3600)));
    let stats = &json_of(url, &["stats"])[0];
    assert_eq!((&stats["streams"], &stats["durability"]), (&json!(4), &json!("memory")), "{stats}");
    assert!(says(url, &["stats"]).contains("streams: 4\n"));

    let mut watch = Command::new(PROGRAM)
        .args(["watch", "a/**", "--every", "0.05", "--url", url, "--output", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = lines_of(watch.stdout.take().unwrap());
    let told = |patience: Duration| -> Option<(Value, Value)> {
        let change: Value = serde_json::from_str(&lines.recv_timeout(patience).ok()?).unwrap();
        Some((change["event"].clone(), change["name"].clone()))
    };
    // Until the first look was taken nothing counts as a change.
    let start = Instant::now();
    while told(Duration::from_millis(100)).is_none() {
        assert!(start.elapsed() < PATIENCE, "it tells of nothing");
        says(url, &["append", "a/2", "x"]);
    }
    let change = |act: &[&str]| {
        says(url, act);
        let told = || told(PATIENCE).expect("it tells of no change");
        std::iter::repeat_with(told).find(|(_, name)| name != "a/2").unwrap()
    };
    assert_eq!(change(&["append", "a/1", "x"]), (json!("appended"), json!("a/1")));
    assert_eq!(change(&["create", "a/9"]), (json!("created"), json!("a/9")));
    assert_eq!(change(&["close", "a/1"]), (json!("closed"), json!("a/1")));
    assert_eq!(change(&["rm", "a/9"]), (json!("deleted"), json!("a/9")));
    watch.kill().unwrap();
    watch.wait().unwrap();
    // `--interval-ms` is what `--every` was called first.
    for line in [
        &["watch", "--totals", "--rounds", "1"][..],
        &["watch", "--totals", "--rounds", "1", "--interval-ms", "10"],
    ] {
        assert_eq!(json_of(url, line)[0]["streams"], 4);
    }
    for every in ["0", "0.009", "3601", "nan", "1s"] {
        let (code, complaint) = fails(url, &["watch", "--every", every]);
        assert!(code == 2 && complaint.contains("a number of seconds from 0.01 to 3600"), "{complaint}");
    }
}

#[test]
fn a_listing_goes_on_past_one_page() {
    let (_directory, server) = memory();
    let mut connection = std::net::TcpStream::connect(server.address()).unwrap();
    let requests: String = (0..1_300)
        .map(|i| {
            format!("PUT /v1/stream/many/{i:04} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        })
        .collect();
    let mut answers = BufReader::new(connection.try_clone().unwrap());
    let writer = std::thread::spawn(move || connection.write_all(requests.as_bytes()).unwrap());
    let (mut line, mut created) = (String::new(), 0);
    while created < 1_300 {
        line.clear();
        assert!(answers.read_line(&mut line).unwrap() > 0);
        created += usize::from(line.starts_with("HTTP/1.1 201"));
    }
    writer.join().unwrap();
    let wanted: String = (0..1_300).map(|i| format!("many/{i:04}\n")).collect();
    assert_eq!(says(&server.url, &["ls", "many/*"]), wanted);
}

#[test]
fn a_copy_goes_on_where_it_was_and_leaves_others_alone() {
    let (_directory, from) = memory();
    let (_other_directory, to) = memory();
    let target = format!("{}/v1/stream/copy/b", to.url);
    for (name, kind, more) in [("t", "text/plain", "tail"), ("j", "application/json", "[{\"x\": 3}]")] {
        let there = format!("{target}{name}");
        says(&from.url, &["create", name, "--content-type", kind]);
        let first = if name == "j" { "[1,\"two\"]" } else { "hello " };
        says(&from.url, &["append", name, first]);
        let report = &json_of(&from.url, &["cp", name, &there])[0];
        assert_eq!((&report["resumedAt"], &report["closed"]), (&json!(0), &json!(false)), "{report}");
        let copied = report["bytes"].as_u64().unwrap();
        says(&from.url, &["append", name, more]);
        says(&from.url, &["close", name]);
        let report = &json_of(&from.url, &["cp", name, &there])[0];
        assert_eq!((&report["resumedAt"], &report["closed"]), (&json!(copied), &json!(true)), "{report}");
        assert_eq!(says(&from.url, &["read", name]), says(&to.url, &["read", &format!("copy/b{name}")]));
        let again = &json_of(&from.url, &["cp", name, &there])[0];
        assert_eq!(again["bytes"], 0, "{again}");
    }
    says(&to.url, &["create", "mine"]);
    says(&to.url, &["append", "mine", "something else"]);
    let (code, complaint) = fails(&from.url, &["cp", "t", "mine", "--to-url", &to.url]);
    assert!(code == 6 && complaint.contains("something else"), "{complaint}");
    assert_eq!(says(&to.url, &["read", "mine"]), "something else");
    let (code, complaint) = fails(&from.url, &["cp", "j", "mine", "--to-url", &to.url]);
    assert!(code == 6 && complaint.contains("text/plain"), "{complaint}");
    assert_eq!(fails(&from.url, &["cp", "nothing", "x"]).0, 4);
    assert_eq!(fails(&from.url, &["cp", "t", "t"]).0, 6);
    // What is closed already is a copy if it holds the same, and not if it is only as long.
    for (held, is_copy) in [("hello tail", true), ("other bytes", false), ("HELLO TAIL", false)] {
        says(&to.url, &["create", held]);
        says(&to.url, &["append", held, held, "--close"]);
        let output = run(&from.url, &["cp", "t", held, "--to-url", &to.url], "");
        assert_eq!(output.status.code(), Some(if is_copy { 0 } else { 6 }), "{held}: {output:?}");
    }
}

#[test]
fn complaints_are_objects_for_programs_and_names_are_judged_before_anything_is_sent() {
    let (_directory, server) = memory();
    for (arguments, code) in [
        (&["head", "nothing"][..], 4),
        (&["append", "nothing", "x"], 4),
        (&["close", "nothing"], 4),
        (&["rm", "nothing"], 4),
        (&["rm", "nothing", "more"], 4),
        (&["head", "a//b"], 2),
        (&["head", "../x"], 2),
        (&["man", "nothing"], 2),
    ] {
        let output = run(&server.url, &[&["--output", "json"], arguments].concat(), "");
        let complaint: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((output.status.code(), &complaint["exitCode"]), (Some(code), &json!(code)), "{complaint}");
        let error = complaint["error"].as_str().unwrap();
        assert!(error.len() > 10 && output.stdout.is_empty());
        assert!(code != 4 || error.contains("`thalweg create` makes one"), "{error}");
    }
    says(&server.url, &["create", "h", "--ttl", "60", "--closed"]);
    let head = json_of(&server.url, &["head", "h"]);
    assert_eq!(
        (&head[0]["ttlS"], &head[0]["closed"], &head[0]["contentType"]),
        (&json!(60), &json!(true), &json!("text/plain"))
    );
    assert_eq!(fails(&server.url, &["create", "h", "--ttl", "61"]).0, 6);
    assert_eq!(says(&server.url, &["rm", "h"]), "deleted h\n");
}

#[test]
fn a_reader_that_has_had_enough_ends_the_verb_in_peace() {
    let (_directory, server) = memory();
    says(&server.url, &["create", "big"]);
    let megabytes = "x".repeat(3 << 20);
    assert!(run(&server.url, &["append", "big"], &megabytes).status.success());
    let script = format!("set -o pipefail; {PROGRAM} read big --url {} | head -c 10", server.url);
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"xxxxxxxxxx");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn completions_and_pages_are_generated() {
    for (shell, wanted) in
        [("bash", "_thalweg"), ("zsh", "#compdef thalweg"), ("fish", "complete -c thalweg")]
    {
        assert!(says("", &["completions", shell]).contains(wanted), "{shell}");
    }
    assert!(says("", &["man"]).contains(".TH thalweg 1"));
    assert!(says("", &["man", "append"]).contains("batch\\-bytes"));
}

#[test]
fn a_fork_begins_as_its_source_and_goes_its_own_way() {
    let (_directory, server) = memory();
    let url = &server.url;
    says(url, &["create", "s"]);
    let hello = says(url, &["append", "s", "hello "]);
    says(url, &["append", "s", "world"]);
    assert_eq!(says(url, &["fork", "s", "dir/all of it"]), "created dir/all of it\n");
    let made = &json_of(url, &["fork", "s", "part", "--at", hello.trim(), "--sub", "3", "--ttl", "60"])[0];
    assert_eq!((&made["forkedFrom"], &made["created"]), (&json!("s"), &json!(true)), "{made}");
    says(url, &["append", "part", "!"]);
    assert_eq!(says(url, &["read", "part"]), "hello wor!");
    assert_eq!(says(url, &["read", "dir/all of it"]), "hello world");
    assert_eq!(says(url, &["read", "s"]), "hello world");
    assert_eq!(json_of(url, &["head", "part"])[0]["ttlS"], 60);
    let listed = json_of(url, &["ls", "part"]);
    assert_eq!(
        (&listed[0]["bytes"], &listed[0]["nextOffset"]),
        (&json!(10), &json_of(url, &["head", "part"])[0]["nextOffset"])
    );
    // A fork is copied like any other stream, and a copy goes on behind what the fork inherited.
    let report = |of: &str| json_of(url, &["cp", of, &format!("{of}-copy")]).remove(0);
    assert_eq!(report("part")["bytes"], 10);
    says(url, &["append", "part", "?"]);
    assert_eq!(
        (&report("part")["resumedAt"], says(url, &["read", "part-copy"])),
        (&json!(10), "hello wor!?".to_owned())
    );
    says(url, &["rm", "s"]);
    assert_eq!(
        says(url, &["ls"]),
        "dir/all of it\npart\npart-copy\n",
        "what is retained for forks is not listed"
    );
    assert_eq!(fails(url, &["fork", "nothing", "x"]).0, 4);
    assert_eq!(fails(url, &["fork", "s", "x"]).0, 6);
    let (code, complaint) = fails(url, &["fork", "http://elsewhere/v1/stream/s", "x"]);
    assert!(code == 6 && complaint.contains("use cp"), "{complaint}");
}

#[test]
fn a_copy_of_what_is_left_of_a_stream_has_each_byte_once() {
    let (_directory, server) = memory();
    let url = &server.url;
    for (kind, record) in
        [("text/plain", "r".repeat(50_000)), ("application/json", format!("[\"{}\"]", "j".repeat(49_997)))]
    {
        let put = |name: &str| {
            let head = format!(
                "PUT /v1/stream/{name} HTTP/1.1\r\nContent-Type: {kind}\r\nStream-Retain-Bytes: 60000\r\nContent-Length: 0"
            );
            assert!(common::ask(&server, &head).starts_with("HTTP/1.1 201 "));
        };
        let append = |name: &str| assert!(run(url, &["append", name], &record).status.success());
        let bytes = |name: &str| json_of(url, &["ls", name])[0]["keptBytes"].as_u64().unwrap();
        let trimmed_to = |name: &str, most: u64| {
            // The server looks after it every few seconds.
            let begun = Instant::now();
            while bytes(name) > most {
                assert!(begun.elapsed() < PATIENCE, "{name} is kept whole");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let names = ["source", "begun", "done"].map(|name| format!("{kind}-{name}"));
        names.iter().for_each(|name| put(name));
        let [source, begun, done] = names;
        for _ in 0..3 {
            append(&done);
            json_of(url, &["cp", &done, &format!("{done}-copy")]);
        }
        says(url, &["close", &done]);
        json_of(url, &["cp", &done, &format!("{done}-copy")]);
        append(&begun);
        json_of(url, &["cp", &begun, &format!("{begun}-copy")]);
        for _ in 0..4 {
            append(&source);
            append(&begun);
        }
        trimmed_to(&source, 120_000);
        trimmed_to(&begun, 120_000);
        let copy = format!("{source}-copy");
        let cp = || json_of(url, &["cp", &source, &copy]).remove(0);
        let left = bytes(&source);
        assert_eq!(cp()["bytes"], left);
        assert_eq!(cp()["bytes"], 0, "it has it all");
        says(url, &["close", &source]);
        let closed = cp();
        assert_eq!((&closed["bytes"], &closed["closed"]), (&json!(0), &json!(true)), "{closed}");
        assert_eq!(cp()["closed"], true, "and says so again");
        assert!(says(url, &["read", &copy]) == says(url, &["read", &source]), "{kind}");
        // What was copied whole before is a copy still.
        trimmed_to(&done, 120_000);
        let again = json_of(url, &["cp", &done, &format!("{done}-copy")]).remove(0);
        assert_eq!((&again["bytes"], &again["closed"]), (&json!(0), &json!(true)), "{again}");
        assert_eq!(bytes(&format!("{done}-copy")), 150_000);
        // Of one that lacks what is gone nobody makes a whole.
        let (code, complaint) = fails(url, &["cp", &begun, &format!("{begun}-copy")]);
        assert!(code == 6 && complaint.contains("no longer has bytes"), "{complaint}");
        assert_eq!(bytes(&format!("{begun}-copy")), 50_000);
    }
}

/// The producer's identity that `cp` uses for a source: the same in every version, or no copy could be gone
/// on with after an upgrade.
fn copier(url: &str, name: &str, incarnation: &str) -> String {
    let hash = format!("{url} {name}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("thalweg-cp-{hash:016x}-{}", incarnation.trim_start_matches('0'))
}

#[test]
fn a_copy_interrupted_within_what_a_fork_inherited_is_gone_on_with_there() {
    let (_directory, server) = memory();
    let url = &server.url;
    for (kind, first, own, begun) in [
        ("text/plain", "hello", " world", "hel"),
        ("application/json", "[1,\"two\",3]", "[4]", "[1,\"two\"]"),
    ] {
        let (source, fork, copy) = (format!("{kind}-s"), format!("{kind}-f"), format!("{kind}-c"));
        says(url, &["create", &source, "--content-type", kind]);
        says(url, &["append", &source, first]);
        says(url, &["fork", &source, &fork]);
        let end = says(url, &["append", &fork, own]);
        says(url, &["create", &copy, "--content-type", kind]);
        let id = copier(url, &fork, end.split('_').next().unwrap());
        let mut connection = std::net::TcpStream::connect(server.address()).unwrap();
        let request = format!(
            "POST /v1/stream/{copy} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nProducer-Id: {id}\r\n\
             Producer-Epoch: 0\r\nProducer-Seq: 0\r\nContent-Length: {}\r\n\r\n{begun}",
            begun.len()
        );
        connection.write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        let report = &json_of(url, &["cp", &fork, &copy])[0];
        assert!(report["resumedAt"].as_u64().unwrap() > 0, "{report}");
        assert_eq!(says(url, &["read", &copy]), says(url, &["read", &fork]));
    }
}

#[test]
fn a_load_of_appends_counts_what_it_appended() {
    let (_directory, server) = memory();
    let load = ["bench", "append", "--connections", "2", "--streams", "20", "--operations", "50"];
    let report = &json_of(&server.url, &load)[0];
    assert_eq!(report["appended"], 50, "{report}");
}

#[test]
fn without_a_warm_up_every_operation_of_a_load_counts_however_early_it_is_done() {
    let (_directory, server) = memory();
    // Far fewer operations than connections: the first few connections do them all while the others are still
    // opened.
    let load = ["bench", "create", "--connections", "256", "--operations", "40", "--warm-up-ms", "0"];
    let report = &json_of(&server.url, &load)[0];
    let counted = (&report["operations"], &report["created"], &report["failed"]);
    assert_eq!(counted, (&json!(40), &json!(40), &json!(0)), "{report}");
    assert!(report["perSecond"].as_f64().unwrap() > 0.0, "{report}");
}

#[test]
fn an_append_that_ends_half_way_says_how_far_it_came() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["--durability", "memory", "--body-max-bytes", "65536"];
    let server = Server::start(directory.path(), "127.0.0.1:0", &small);
    let url = &server.url;
    says(url, &["create", "j", "--content-type", "application/json"]);
    let (code, complaint) = fails(url, &["append", "j", "{\"z\":1}", "bad", "{\"zz\":3}"]);
    let end = json_of(url, &["head", "j"])[0]["nextOffset"].as_str().unwrap().to_owned();
    let there = format!("7 bytes of it (1 append) are there, up to {end}, and nothing after");
    assert!(code == 1 && complaint.contains("argument 2: ") && complaint.contains(&there), "{complaint}");
    let lines = format!("\"eight\"\n\"{}\"\n", "x".repeat(70_000));
    let append = ["append", "j", "--json", "--batch-bytes", "8", "--output", "json"];
    let failed = run(url, &append, &lines);
    let told: Value = serde_json::from_slice(&failed.stderr).unwrap();
    let end = json_of(url, &["head", "j"])[0]["nextOffset"].clone();
    assert!(told["error"].as_str().unwrap().contains("(413)") && told["exitCode"] == 1, "{told}");
    let there = (&told["bytes"], &told["appends"], &told["nextOffset"]);
    assert_eq!(there, (&json!(9), &json!(1), &end), "{told}");
    assert_eq!(says(url, &["read", "j"]), "{\"z\":1}\n\"eight\"\n");
}

#[test]
fn what_is_more_than_a_server_takes_at_once_goes_in_parts() {
    let (directory, from) = memory();
    let other = tempfile::tempdir().unwrap();
    let small = ["--durability", "memory", "--body-max-bytes", "5000"];
    let to = Server::start(other.path(), "127.0.0.1:0", &small);
    let path = directory.path().join("lines");
    let lines: String = (0..3_000).map(|number| format!("{{\"number\": {number}}}\n")).collect();
    std::fs::write(&path, &lines).unwrap();
    let file = path.to_str().unwrap();
    for (kind, more) in [("application/json", &["--json"][..]), ("text/plain", &[])] {
        for url in [&from.url, &to.url] {
            says(url, &["create", kind, "--content-type", kind]);
            says(url, &[&["append", kind, "--file", file][..], more].concat());
        }
        assert_eq!(says(&to.url, &["read", kind]), lines);
        let copy = format!("{kind}/copy");
        json_of(&from.url, &["cp", kind, &copy, "--to-url", &to.url]);
        assert_eq!(says(&to.url, &["read", &copy]), lines);
        assert_eq!(json_of(&from.url, &["cp", kind, &copy, "--to-url", &to.url])[0]["bytes"], 0);
    }
}

#[test]
fn a_tail_of_text_has_each_byte_as_it_is() {
    let (_directory, server) = memory();
    let url = &server.url;
    says(url, &["create", "x"]);
    assert!(run(url, &["append", "x"], "a\r\nb\rc").status.success());
    let start = |more: &[&str]| {
        let mut tail = Command::new(PROGRAM);
        tail.args(["tail", "x", "--url", url]).args(more).stdout(Stdio::piped());
        tail.spawn().unwrap()
    };
    let (mut text, json) = (start(&[]), start(&["--output", "json"]));
    let mut begun = [0; 6];
    text.stdout.as_mut().unwrap().read_exact(&mut begun).unwrap();
    // The end of one line, in two appends that come one after the other.
    for half in ["\r", "\n"] {
        assert!(run(url, &["append", "x"], half).status.success());
        text.stdout.as_mut().unwrap().read_exact(&mut begun[..1]).unwrap();
        assert_eq!(&begun[..1], half.as_bytes());
    }
    assert!(run(url, &["append", "x", "--close"], "d\n\n").status.success());
    let (text, json) = (text.wait_with_output().unwrap(), json.wait_with_output().unwrap());
    assert!(text.status.success() && json.status.success());
    assert_eq!(text.stdout, b"d\n\n");
    let parts = String::from_utf8(json.stdout).unwrap();
    let parts = parts.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let whole: String = parts.map(|part| part["text"].as_str().unwrap_or_default().to_owned()).collect();
    assert_eq!(whole, "a\r\nb\rc\r\nd\n\n");
    assert_eq!(says(url, &["read", "x"]), whole);
}

#[test]
fn whoever_follows_ends_when_its_reader_has_gone_though_nothing_comes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--durability", "os"]);
    let (url, data) = (&server.url, directory.path().display());
    for kind in ["text/plain", "application/octet-stream"] {
        says(url, &["create", kind, "--content-type", kind]);
        says(url, &["append", kind, "first"]);
        for via in ["http", "sock", "shm"] {
            let tail = format!("{PROGRAM} tail {kind} --url {url} --via {via} --data {data}");
            let script = format!("set -o pipefail; timeout 30 {tail} | head -c 3");
            let output = Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(output.stdout, b"fir", "{kind} {via}");
            assert!(output.status.success(), "{kind} {via}: {output:?}");
        }
    }
}

#[test]
fn what_is_said_meanwhile_is_an_object_for_programs() {
    let (_directory, server) = memory();
    says(&server.url, &["create", "x"]);
    let mut tail = Command::new(PROGRAM)
        .args(["tail", "x", "--output", "json", "--url", &server.url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (out, said) = (tail.stdout.take().unwrap(), tail.stderr.take().unwrap());
    let (mut out, mut said) = (BufReader::new(out), BufReader::new(said));
    says(&server.url, &["append", "x", "hello"]);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    drop(server);
    line.clear();
    said.read_line(&mut line).unwrap();
    tail.kill().unwrap();
    tail.wait().unwrap();
    let notice: Value = serde_json::from_str(&line).unwrap();
    assert!(notice["notice"].as_str().unwrap().ends_with("trying again"), "{notice}");
}
