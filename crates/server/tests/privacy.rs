//! Who may look at what the program creates: its owner, whatever the umask says.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, says};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program as somebody runs it whose umask hides nothing.
fn open_handed(arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh", PROGRAM]).args(arguments);
    command
}

fn all_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { all_below(&path) } else { vec![path] }).collect()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn assert_private(directory: &Path, at_least: usize) {
    assert_eq!(mode(directory), 0o700, "{}", directory.display());
    let files = all_below(directory);
    assert!(files.len() >= at_least, "{files:?}");
    files.iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
}

#[test]
fn a_store_its_sockets_and_its_backups_are_their_owners_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let text = |name: &str| path(name).to_str().unwrap().to_owned();
    let (store, listen) = (text("a/store"), format!("unix:{}", text("listen.sock")));
    let server = Server::started(open_handed(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &listen,
        "--log-level",
        "error",
        "--data",
        &store,
    ]));
    says(&server.url, &["create", "a"]);
    says(&server.url, &["append", "a", "something"]);
    // Control file, lock, signal, segment, and four sockets of services.
    assert_private(&path("a/store"), 8);
    assert_eq!((mode(&path("a")), mode(&path("listen.sock"))), (0o700, 0o600));
    let run = |arguments: &[&str]| assert!(open_handed(arguments).output().unwrap().status.success());
    run(&["backup", &store, &text("backup")]);
    assert_private(&path("backup"), 2);
    server.end();
    run(&["restore", &text("backup"), &text("restored")]);
    assert_private(&path("restored"), 2);
    assert_private(&path("a/store"), 2);
}

#[test]
fn a_directory_that_existed_keeps_its_mode() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o750)).unwrap();
    let store = directory.path().to_str().unwrap();
    let server = Server::started(open_handed(&["serve", "--listen", "127.0.0.1:0", "--data", store]));
    assert_eq!(mode(directory.path()), 0o750);
    server.end();
    all_below(directory.path()).iter().for_each(|file| assert_eq!(mode(file), 0o600, "{}", file.display()));
}
