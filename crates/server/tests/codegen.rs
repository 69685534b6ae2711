//! `thalweg codegen` from outside: what it writes, what it says, and how it ends.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use std::path::Path;
use std::process::{Command, Output};

const SCHEMA: &str = r#"{
  "service": "Store",
  "error": { "message": "string" },
  "commands": { "Get": { "request": { "key": "string" }, "response": { "value": "bytes?" } } },
}"#;

fn codegen(directory: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.current_dir(directory).arg("codegen").args(["--schema", "store.jsonc", "--out", "out"]);
    command.args(more).output().unwrap()
}

fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn what_is_written_is_what_a_check_expects_and_stale_files_go() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("store.jsonc"), SCHEMA).unwrap();
    let all = ["--lang", "rust", "--client", "--server"];
    let (code, out, _) = ended(&codegen(directory.path(), &all));
    assert_eq!((code, out.as_str()), (0, "out: 4 written, 0 unchanged, 0 removed\n"));
    let (code, out, _) = ended(&codegen(directory.path(), &[&all[..], &["--check"]].concat()));
    assert_eq!((code, out.as_str()), (0, "out: as it would be generated\n"));
    let (code, out, error) = ended(&codegen(directory.path(), &["--lang", "rust", "--client", "--check"]));
    assert_eq!(code, 6);
    assert_eq!(out, "changed out/mod.rs\nstale out/server.rs\n");
    assert!(error.contains("without --check"), "{error}");
    let (code, out, _) = ended(&codegen(directory.path(), &["--lang", "rust", "--client"]));
    assert_eq!((code, out.as_str()), (0, "out: 1 written, 2 unchanged, 1 removed\nremoved out/server.rs\n"));
    assert!(!directory.path().join("out/server.rs").exists());
}

#[test]
fn a_schema_that_breaks_rules_is_told_with_its_place_and_nothing_is_written() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("store.jsonc"), SCHEMA.replace("bytes?", "byte?")).unwrap();
    let (code, out, error) = ended(&codegen(directory.path(), &["--lang", "zig", "--output", "json"]));
    assert_eq!((code, out.as_str()), (2, ""));
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    let words = error["error"].as_str().unwrap();
    assert!(words.starts_with("store.jsonc:4:82: ") && words.contains("did you mean \"bytes\"?"), "{words}");
    assert_eq!(error["exitCode"], 2);
    assert!(!directory.path().join("out").exists());
}

#[test]
fn options_that_do_not_fit_and_files_of_others_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("store.jsonc"), SCHEMA).unwrap();
    let (code, _, error) = ended(&codegen(directory.path(), &["--lang", "rust", "--cpp-namespace", "a"]));
    assert_eq!(code, 2, "{error}");
    let (code, ..) = ended(&codegen(directory.path(), &["--lang", "rust", "--unheard-of"]));
    assert_eq!(code, 2);
    std::fs::create_dir(directory.path().join("out")).unwrap();
    std::fs::write(directory.path().join("out/types.rs"), "mine").unwrap();
    let (code, _, error) = ended(&codegen(directory.path(), &["--lang", "rust"]));
    assert_eq!(code, 6, "{error}");
    assert_eq!(std::fs::read(directory.path().join("out/types.rs")).unwrap(), b"mine");
}
