//! `thalweg fork-server` and programs that are no servers of its kind; `crates/fork` has the tests with one that is.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::PROGRAM;
use std::path::Path;
use std::process::{Command, Output};

fn run(control: &Path, program: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(["fork-server", "--patience-ms", "200", "--control"]).arg(control).arg("--").args(program);
    command.output().unwrap()
}

#[test]
fn what_is_no_program_or_does_not_answer_is_refused_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("forks.sock");
    for (program, says) in [
        (&["/nowhere/at/all"][..], "start the program"),
        // It reads what it is told, and says nothing.
        (&["cat"], "the process says nothing"),
        (&["true"], "start the program"),
    ] {
        let output = run(&control, program);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(says), "{program:?}: {complaint}");
        assert!(!control.exists(), "{program:?} left the endpoint behind");
    }
    let output = run(Path::new("nowhere"), &["cat"]);
    assert_eq!(output.status.code(), Some(2), "an endpoint ends in .sock or .shm");
}
