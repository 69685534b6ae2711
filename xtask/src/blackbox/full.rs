//! A disk that fills under the server, on a small file system of its own: appends are refused whole with 507
//! while everything stays readable, and go on when there is room again. Mounting one takes root,
//! if only of a namespace of its own; where there is neither, nothing can be judged, and that is said.

use crate::harness::client::Connection;
use crate::harness::options::Options;
use crate::harness::server::{Launch, Program, Scratch};
use crate::{Outcome, Tally};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set where this runs in a namespace of its own already.
const ENTERED: &str = "THALWEG_FULL_ENTERED";
const RECORD_BYTES: usize = 1_000_000;
/// Far more records than the disk holds.
const RECORDS_MAX: usize = 40;

/// A mounted file system in memory, unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn size(&self, options: &str) -> bool {
        let mut command = Command::new("mount");
        let mount = command.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(self.0).status();
        mount.is_ok_and(|status| status.success())
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Left mounted at worst, and empty: its directory is removed with the scratch.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// `cargo xtask full`.
///
/// # Errors
/// The server cannot be started or spoken to.
pub(crate) fn run(_: &Options) -> Outcome {
    let launch = Launch::new(Program::Ours, "sync")?;
    let scratch = Scratch::new("full")?;
    let disk = scratch.path().join("disk");
    std::fs::create_dir_all(&disk).map_err(|e| e.to_string())?;
    let mounted = Mounted(&disk);
    let mut tally = Tally::default();
    if !mounted.size("size=12m") {
        drop(mounted);
        drop(scratch);
        return elsewhere();
    }
    let server = launch.start(&disk.join("data"))?;
    let mut connection = server.connect()?;
    let binary = [("Content-Type", "application/octet-stream")];
    let target = "/v1/stream/filling";
    connection.request("PUT", target, &binary, b"")?;
    let record = |index: usize| vec![u8::try_from(index % 251).unwrap_or(0); RECORD_BYTES];
    let mut taken = Vec::new();
    let mut refused = 0;
    for index in 0..RECORDS_MAX {
        let reply = connection.request("POST", target, &binary, &record(index))?;
        match reply.status {
            204 => taken.extend(record(index)),
            507 => refused += 1,
            other => tally.check(false, || format!("record {index} answered {other}")),
        }
    }
    tally.check(refused > 0, || "the disk never filled".to_owned());
    tally.check(taken.len() >= 4 * RECORD_BYTES, || format!("only {} bytes found room", taken.len()));
    tally.check(read_all(&mut connection, target)? == taken, || {
        "a full disk cost or changed bytes".to_owned()
    });
    tally.check(mounted.size("remount,size=64m"), || "the file system does not grow".to_owned());
    let reply = connection.request("POST", target, &binary, &record(7))?;
    tally.check(reply.status == 204, || format!("with room again it answered {}", reply.status));
    taken.extend(record(7));
    server.kill()?;
    let server = launch.start(&disk.join("data"))?;
    let mut connection = server.connect()?;
    tally.check(read_all(&mut connection, target)? == taken, || "bytes were lost after a restart".to_owned());
    println!("full disk: {} records taken, {refused} refused", taken.len() / RECORD_BYTES);
    drop(server);
    Ok(tally)
}

/// Begins anew as the root of a namespace, where users may have one.
fn elsewhere() -> Outcome {
    let namespace = || {
        let mut command = Command::new("unshare");
        command.arg("--user").arg("--map-root-user").arg("--mount");
        command
    };
    let may = namespace().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !may || std::env::var_os(ENTERED).is_some() {
        println!(
            "full: skipped: no file system can be mounted here (root, or namespaces of users, are needed)"
        );
        return Ok(Tally::default());
    }
    let itself = std::env::current_exe().map_err(|error| error.to_string())?;
    let failed = namespace().arg(itself).arg("full").env(ENTERED, "1").exec();
    Err(format!("unshare: {failed}"))
}

/// Everything a stream holds, chunk by chunk.
fn read_all(connection: &mut Connection, target: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut offset) = (Vec::new(), "-1".to_owned());
    loop {
        let reply = connection.request("GET", &format!("{target}?offset={offset}"), &[], b"")?;
        if reply.status != 200 {
            return Err(format!("GET answered {}", reply.status));
        }
        bytes.extend_from_slice(&reply.body);
        if reply.field("Stream-Up-To-Date").is_some() {
            return Ok(bytes);
        }
        offset = reply.field("Stream-Next-Offset").ok_or("no next offset")?.to_owned();
    }
}
