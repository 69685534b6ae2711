//! A store that is not as it was left: a flipped bit costs the stream it lies in and no other, and is named;
//! a store of a newer program, or one that another process holds, is refused and left alone.

use crate::harness::client::Connection;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch};
use crate::{Outcome, Tally};
use std::fs;
use std::path::Path;

const TEXT: [(&str, &str); 1] = [("Content-Type", "text/plain")];
/// What stands in the record whose bit is flipped.
const NEEDLE: &[u8] = b"the unlucky record";
/// Byte of the control file's format version.
const VERSION_AT: usize = 8;

/// `cargo xtask damage`.
///
/// # Errors
/// The server cannot be started or spoken to where it should be.
pub(crate) fn run(_: &Options) -> Outcome {
    let launch = Launch::new(Program::Ours, "sync")?;
    let scratch = Scratch::new("damage")?;
    let data = scratch.path().join("data");
    let mut tally = Tally::default();
    let server = launch.start(&data)?;
    let mut connection = server.connect()?;
    for name in ["lucky", "unlucky", "lively"] {
        connection.request("PUT", &path(name), &TEXT, b"")?;
        connection.request("POST", &path(name), &TEXT, format!("the {name} record").as_bytes())?;
        connection.request("POST", &path(name), &TEXT, b", and more")?;
    }
    let held = launch.start(&data).err().unwrap_or_default();
    tally.check(held.contains("is open in process"), || format!("a held store was opened: {held}"));
    server.kill()?;
    flip(&data)?;

    let server = launch.start(&data)?;
    let mut connection = server.connect()?;
    for name in ["lucky", "lively"] {
        let body = connection.request("GET", &path(name), &[], b"")?.body;
        let expected = format!("the {name} record, and more");
        tally.check(body == expected.as_bytes(), || {
            format!("{name} reads {}", String::from_utf8_lossy(&body))
        });
        let status = connection.request("POST", &path(name), &TEXT, b"!")?.status;
        tally.check(status == 204, || format!("{name} takes no more: {status}"));
    }
    judge_refusal(&mut connection, &mut tally)?;
    let said = server.last_words();
    tally.check(said.contains("segment-") && said.contains("thalweg verify"), || {
        format!("the log says {said}")
    });
    server.kill()?;

    let control = data.join("control");
    let mut bytes = fs::read(&control).map_err(|e| e.to_string())?;
    bytes[VERSION_AT] = 99;
    fs::write(&control, &bytes).map_err(|e| e.to_string())?;
    let newer = launch.start(&data).err().unwrap_or_default();
    tally.check(newer.contains("format version 99"), || format!("a newer store was opened: {newer}"));
    tally.check(fs::read(&control).is_ok_and(|now| now == bytes), || "a newer store was changed".to_owned());
    Ok(tally)
}

/// The damaged stream is refused, with where and what to do, and can be deleted.
fn judge_refusal(connection: &mut Connection, tally: &mut Tally) -> Result<(), String> {
    for method in ["GET", "POST"] {
        let body = if method == "POST" { &b"!"[..] } else { b"" };
        let reply = connection.request(method, &path("unlucky"), &TEXT, body)?;
        let problem = String::from_utf8_lossy(&reply.body).into_owned();
        let named =
            problem.contains("segment-") && problem.contains("byte") && problem.contains("thalweg verify");
        tally.check(reply.status == 500 && named, || format!("{method}: {} {problem}", reply.status));
    }
    for (method, expected) in [("DELETE", 204), ("PUT", 201), ("POST", 204), ("DELETE", 204)] {
        let status = connection.request(method, &path("unlucky"), &TEXT, b"anew")?.status;
        tally.check(status == expected, || format!("{method} of what was damaged: {status}"));
    }
    Ok(())
}

fn path(name: &str) -> String {
    format!("/v1/stream/{name}")
}

/// Flips a bit of the unlucky record.
fn flip(data: &Path) -> Result<(), String> {
    for entry in fs::read_dir(data).map_err(|e| e.to_string())?.flatten() {
        // The store's sockets lie beside its files.
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let mut bytes = fs::read(entry.path()).map_err(|e| e.to_string())?;
        if let Some(at) = bytes.windows(NEEDLE.len()).position(|window| window == NEEDLE) {
            bytes[at] ^= 1;
            return fs::write(entry.path(), bytes).map_err(|e| e.to_string());
        }
    }
    Err("the record is in no file".to_owned())
}
