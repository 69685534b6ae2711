//! `thalweg doctor`, as somebody runs it before a server.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::PROGRAM;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn doctor(directory: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("doctor").args(arguments).current_dir(directory).envs(environment.iter().copied());
    command.output().unwrap()
}

fn finding(output: &Output, check: &str) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    findings.iter().find(|finding| finding["check"] == check).unwrap().clone()
}

#[test]
fn every_check_is_one_row_and_whatever_is_not_good_says_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let text = doctor(directory.path(), &[], &[]);
    let text = String::from_utf8(text.stdout).unwrap();
    for check in [
        "descriptors",
        "memory",
        "processors",
        "clock",
        "clock source",
        "io_uring",
        "shared memory",
        "children",
        "environment",
        "directory",
        "space",
        "kept by",
        "sync",
        "services",
    ] {
        let rows = text
            .lines()
            .filter(|line| line.get(6..).is_some_and(|row| row.starts_with(&format!("{check:<14}"))));
        assert_eq!(rows.count(), 1, "{check}: {text}");
    }
    let report = doctor(directory.path(), &["--output", "json"], &[]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["verdict"] == "good", finding.get("advice").is_none(), "{finding}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}

/// `serve` refuses it, too.
#[test]
fn a_directory_in_which_no_service_can_listen_is_bad_unless_none_is_to() {
    let directory = tempfile::tempdir().unwrap();
    let long = "d".repeat(120);
    let services = |environment: &[(&str, &str)]| {
        let output = doctor(directory.path(), &["--data", &long, "--output", "json"], environment);
        (output.status.code(), finding(&output, "services")["verdict"].clone())
    };
    assert_eq!(services(&[]), (Some(1), "bad".into()));
    assert_eq!(services(&[("THALWEG_SERVICES", "off")]), (Some(0), "good".into()));
}

#[test]
fn a_server_is_judged_by_the_configuration_that_it_would_have() {
    let directory = tempfile::tempdir().unwrap();
    let json = ["--output", "json"];
    let plain = finding(&doctor(directory.path(), &json, &[]), "memory");
    // A server that would take a tebibyte is not one for any machine that this runs on.
    let vast = [("THALWEG_BODIES_MAX_BYTES", "1099511627776"), ("THALWEG_IO_URING", "off")];
    let output = doctor(directory.path(), &json, &vast);
    let memory = finding(&output, "memory");
    assert!(memory["verdict"] == "poor" && memory["found"] != plain["found"], "{memory}");
    assert!(memory["advice"].as_str().unwrap().contains("bodies_max_bytes"), "{memory}");
    assert!(finding(&output, "io_uring")["found"].as_str().unwrap().starts_with("off"));
    // What is poor keeps nobody from starting.
    assert_eq!(output.status.code(), Some(0));

    let file = directory.path().join("thalweg.toml");
    std::fs::write(&file, "data = \"elsewhere\"\nstate_sessions_max_bytes = 1099511627776\n").unwrap();
    let file = file.to_str().unwrap();
    let output = doctor(directory.path(), &["--config", file, "--output", "json"], &[]);
    assert_eq!(finding(&output, "memory")["verdict"], "poor");
    assert!(
        finding(&output, "directory")["found"].as_str().unwrap().starts_with("elsewhere does not exist yet")
    );
    let output = doctor(directory.path(), &["--config", file, "--data", "here", "--output", "json"], &[]);
    assert!(finding(&output, "directory")["found"].as_str().unwrap().starts_with("here does not exist yet"));
}

#[test]
fn a_variable_that_nothing_reads_is_told_with_the_one_that_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let of = |environment: &[(&str, &str)]| {
        finding(&doctor(directory.path(), &["--output", "json"], environment), "environment")
    };
    assert_eq!(of(&[("THALWEG_LISTEN", "127.0.0.1:0"), ("THALWEG_LISTNE", "")])["verdict"], "good");
    let told = of(&[("THALWEG_LISTNE", "127.0.0.1:0")]);
    let found = told["found"].as_str().unwrap();
    assert!(told["verdict"] == "poor" && found.contains("THALWEG_LISTNE (the nearest is THALWEG_LISTEN)"));
}

#[test]
fn exit_codes_tell_a_bad_machine_from_a_wrong_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "nonsense = 1\n").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(doctor(directory.path(), &[], &[]).status.code(), Some(0));
    // Nothing can be written beneath.
    assert_eq!(doctor(directory.path(), &["--data", "/proc/self"], &[]).status.code(), Some(1));
    // Unless it would not.
    let memory = [("THALWEG_DURABILITY", "memory")];
    assert_eq!(doctor(directory.path(), &["--data", "/proc/self"], &memory).status.code(), Some(0));
    assert_eq!(doctor(directory.path(), &["--config", file], &[]).status.code(), Some(2));
    assert_eq!(doctor(directory.path(), &[], &[("THALWEG_REACTORS", "none")]).status.code(), Some(2));
}

#[test]
fn what_serve_would_refuse_is_refused_in_the_same_words() {
    let directory = tempfile::tempdir().unwrap();
    for (environment, hint) in [
        (&[("THALWEG_LISTEN", "0.0.0.0:24000")][..], "--insecure-listen-anywhere"),
        (&[("THALWEG_RPC", "on"), ("THALWEG_RPC_LISTEN", "0.0.0.0:24000")], "--insecure-listen-anywhere"),
        (&[("THALWEG_RPC_LISTEN", "127.0.0.1:24000")], "--rpc: rpc_listen"),
        (&[("THALWEG_RPC", "off;on")], "--rpc: off"),
        (&[("THALWEG_TOKENS", "nofile")], "cannot read the tokens in nofile"),
        (&[("THALWEG_TLS_CERTIFICATE", "cert.pem")], "`tls_key` is not"),
        (&[("THALWEG_TLS_CERTIFICATE", "cert.pem"), ("THALWEG_TLS_KEY", "key.pem")], "cannot read cert.pem"),
        (&[("THALWEG_RPC", "on"), ("THALWEG_REACTORS", "29")], "--reactors 29"),
        (&[("THALWEG_CORS_ORIGINS", "*,none")], "--cors-origins"),
        (&[("THALWEG_RPC", "a=nofile,a.sock")], "--rpc: nofile"),
        (
            &[("THALWEG_LISTEN", "[::1]:24000,127.0.0.1:24000,[::1]:24000")],
            "--listen asks for http://[::1]:24000 twice",
        ),
        (&[("THALWEG_LISTEN", "unix:a.sock,unix:./a.sock")], "--listen for unix:./a.sock beside it"),
        (
            &[("THALWEG_RPC", "on"), ("THALWEG_RPC_LISTEN", "127.0.0.1:4437")],
            "--listen and --rpc-listen both ask for http://127.0.0.1:4437",
        ),
        (
            &[
                ("THALWEG_LISTEN", "127.0.0.1:24000,0.0.0.0:24000"),
                ("THALWEG_INSECURE_LISTEN_ANYWHERE", "true"),
            ],
            "--listen asks for http://127.0.0.1:24000, and --listen for http://0.0.0.0:24000 beside it",
        ),
    ] {
        let verbs = [&["doctor"][..], &["serve"], &["serve", "--print-config"]];
        let said = verbs.map(|verb| {
            let mut command = Command::new(PROGRAM);
            command.args(verb).current_dir(directory.path()).envs(environment.iter().copied());
            let output = command.output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            let is_refused = output.status.code() == Some(2) && said.contains(hint);
            assert!(is_refused && output.stdout.is_empty(), "{verb:?} {environment:?}: {said}");
            said
        });
        assert!(said.iter().all(|one| *one == said[0]), "{said:?}");
    }
    // Whatever port is free is another each time, and both families are two.
    for listen in ["127.0.0.1:0,127.0.0.1:0", "127.0.0.1:24000,[::1]:24000,127.0.0.1:24001"] {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", "--print-config"]).current_dir(directory.path()).env("THALWEG_LISTEN", listen);
        assert!(command.output().unwrap().status.success(), "{listen}");
    }
    let allowed = [("THALWEG_LISTEN", "0.0.0.0:24000"), ("THALWEG_INSECURE_LISTEN_ANYWHERE", "true")];
    assert_eq!(doctor(directory.path(), &[], &allowed).status.code(), Some(0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "something was left behind");
}
