//! `thalweg stats`: what a server holds; with `--watch` what it does, a line per interval.
//!
//! A server that was reached once and goes away is waited for: that is said once, and so is that it is back.
//! Being interrupted is how a watch ends, so that is no failure.

use super::failure::{Failure, passes};
use super::output::{Output, end_when_unread};
use super::rates::{Rates, Sample};
use super::session::Session;
use super::verbs::{Server, StatsOptions};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::Instant;
use thalweg_sys::clock::wall_us;
use thalweg_sys::epoll::wait_readable;
use thalweg_sys::signal::Signals;

/// Lines on a terminal between two headers.
const HEADER_EVERY: u64 = 20;

/// What the server says of itself.
///
/// # Errors
/// As [`Session::ask`]; [`Failure::Event`] for what is no such object.
pub(super) fn totals<T: DeserializeOwned>(session: &mut Session) -> Result<T, Failure> {
    session.ask("GET", "/v1/stats", &[("Accept", "application/json")], b"")?;
    let body = session.body()?;
    serde_json::from_slice(&body).map_err(|error| Failure::Event(error.to_string()))
}

/// Prints what the server holds, or goes on to print what it does.
pub(super) fn stats(options: &StatsOptions, output: Output) -> Result<(), Failure> {
    if options.watch {
        return watch(options, output);
    }
    let stats: Value = totals(&mut session(&options.server)?)?;
    let lines = stats.as_object().into_iter().flatten().map(|(key, value)| match value {
        Value::String(text) => format!("{key}: {text}\n"),
        value => format!("{key}: {value}\n"),
    });
    output.say(lines.collect::<String>(), &stats)
}

fn session(server: &Server) -> Result<Session, Failure> {
    Ok(Session::new(&server.parse()?))
}

/// One look, and when it was taken.
struct TimedSample {
    look: Sample,
    at: Instant,
}

impl TimedSample {
    fn now(session: &mut Session) -> Result<Self, Failure> {
        let look = totals(session)?;
        Ok(Self { look, at: Instant::now() })
    }
}

fn watch(options: &StatsOptions, output: Output) -> Result<(), Failure> {
    // Signals first: one that reaches a thread where it is not blocked ends the process.
    end_when_interrupted().map_err(Failure::Signals)?;
    end_when_unread()?;
    let mut session = session(&options.server)?;
    let mut before = Some(TimedSample::now(&mut session)?);
    let (mut due, mut printed) = (Instant::now(), 0);
    while options.rounds.is_none_or(|rounds| printed < rounds) {
        due = (due + options.every).max(Instant::now());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let now = match TimedSample::now(&mut session) {
            Ok(now) => now,
            Err(failure) if passes(&failure) => {
                if before.take().is_some() {
                    output.tell(format_args!("{failure}; waiting for it"));
                }
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match before.replace(now) {
            None => output.tell("the server answers again"),
            Some(then) => {
                let Some(now) = &before else { continue };
                let rates = Rates::between(&then.look, &now.look, now.at - then.at, wall_us());
                if print(&rates, printed, output)?.is_none() {
                    return Ok(());
                }
                printed += 1;
            }
        }
    }
    Ok(())
}

/// Prints a line, behind a header where one is due. `None` once its reader has closed it.
fn print(rates: &Rates, printed: u64, output: Output) -> Result<Option<()>, Failure> {
    let is_due = printed == 0 || (printed.is_multiple_of(HEADER_EVERY) && io::stdout().is_terminal());
    let header = if is_due { Rates::header() + "\n" } else { String::new() };
    output.line(header + &rates.text(), rates)
}

/// Ends the program in good order when it is asked to, whatever it waits for.
fn end_when_interrupted() -> io::Result<()> {
    let signals = Signals::take()?;
    std::thread::spawn(move || {
        while matches!(wait_readable(signals.as_fd(), u32::MAX), Ok(false)) {}
        std::process::exit(0)
    });
    Ok(())
}
