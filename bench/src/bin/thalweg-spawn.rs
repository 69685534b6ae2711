//! The floor of starting programs: a program that ends at once is started, its end is waited for at a
//! descriptor and its exit status collected, one after the other, and nothing else is done.
//!
//! `thalweg-spawn --seconds N` prints how many programs ran per second.
#![forbid(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thalweg_bench::option;
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::spawn::{Program, own_environment, spawn};

/// Longer than any program that ends at once takes.
const PATIENCE_MS: u32 = 60_000;

fn main() -> ExitCode {
    match option("--seconds", 1).and_then(|seconds| measure(seconds).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-spawn: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn measure(seconds: u64) -> io::Result<()> {
    let path = [CString::new("/bin/true")?];
    let environment = own_environment();
    let program = Program {
        paths: &path,
        arguments: &path,
        environment: &environment,
        directory: None,
        standard: [None; 3],
        closes_others: true,
        default_signals: true,
        new_session: false,
        process_group: None,
    };
    let (began, span) = (Instant::now(), Duration::from_secs(seconds));
    let mut count = 0_u64;
    while count == 0 || began.elapsed() < span {
        let started = spawn(&program)?;
        if !wait_readable(started.end.as_fd(), PATIENCE_MS)? || started.ended()? != 0 {
            return Err(io::Error::other("a program did not end as it should"));
        }
        count += 1;
    }
    println!("{:.0}", count as f64 / began.elapsed().as_secs_f64());
    Ok(())
}
