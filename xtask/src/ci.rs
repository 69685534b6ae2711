//! Everything `make test` runs once its tools are there, step by step, with a table at the end, and behind it
//! what the steps that failed said of it. A step's own summary lines are counted:
//! `test result: ok. N passed; N failed` (cargo) and `name: N passed, N failed` (ours). A step that has no
//! such line counts as one check; one that counted none has judged nothing, which is a failure, unless it
//! says `name: skipped: why`, which is only shown, and in a build that somebody relies on (`CI`) is a
//! failure, too.

mod complaints;
mod stuck;

use crate::harness::options::Options;
use crate::harness::server::{root, target};
use crate::{Outcome, Tally};
use complaints::Complaints;
use std::cell::Cell;
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use thalweg_sys::epoll::wait_readable;

/// A step: its name, the cargo command, and what is set in its environment.
struct Step {
    name: &'static str,
    command: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Builds into a target directory of its own, so that flags do not undo each other's caches.
    apart: Option<&'static str>,
}

const fn step(name: &'static str, command: &'static str) -> Step {
    Step { name, command, environment: &[], apart: None }
}

const STEPS: &[Step] = &[
    step("format", "fmt --all --check"),
    step("clippy", "clippy --quiet --workspace --all-targets -- -D warnings"),
    step("tidy", "xtask tidy"),
    Step {
        name: "documents",
        command: "doc --quiet --workspace --no-deps --document-private-items",
        environment: &[("RUSTDOCFLAGS", "-D warnings")],
        apart: None,
    },
    step("tests", "test --workspace --no-fail-fast"),
    Step {
        name: "loom",
        command: "test -p thalweg-sync --lib --release",
        environment: &[("RUSTFLAGS", "--cfg loom")],
        apart: Some("loom"),
    },
    step("simulate", "xtask simulate --only crash --seeds 100 --first now --profile test"),
    step("conformance-sync", "xtask conformance --durability sync --restart"),
    step("conformance-os", "xtask conformance --durability os --restart"),
    step("conformance-memory", "xtask conformance --durability memory"),
    step("debian", "xtask debian"),
    step("refusals", "xtask refusals"),
    step("judges", "xtask judges"),
    step("node", "xtask node"),
    step("node-newest", "xtask node --newest"),
    step("python", "xtask python"),
    step("asyncio", "xtask asyncio"),
    step("asyncio-libraries", "xtask asyncio --libraries"),
    step("python-newest", "xtask python --newest"),
    step("asyncio-newest", "xtask asyncio --newest"),
    step("codegen", "xtask codegen --check"),
    step("faults", "xtask faults --check"),
    step("header", "xtask header --check"),
    step("cpp", "xtask cpp"),
    step("zig", "xtask zig"),
    step("erlang", "xtask erlang"),
    step("golden", "xtask golden"),
    step("guide", "xtask guide"),
    step("matrix", "xtask matrix"),
    step("full", "xtask full"),
    step("fuzz", "xtask fuzz --seconds 3"),
    step("damage", "xtask damage"),
    step("crash", "xtask crash --rounds 20"),
    step("state-crash", "xtask state-crash --rounds 5"),
    step("drain", "xtask drain --subscribers 10000"),
    step("empty", "xtask empty"),
    step("forks", "xtask forks --streams 4000 --bytes 33554432 --seconds 1"),
    step("streams-million", "xtask streams-million --streams 20000"),
    step("slopes", "xtask slopes --sizes 0,1000,2000,4000"),
    step("bench", "xtask bench streams --tiny"),
    step("bench-log", "xtask bench log --tiny"),
    step("bench-ipc", "xtask bench ipc --tiny"),
    step("bench-rpc", "xtask bench rpc --tiny"),
    step("bench-loop", "xtask bench loop --tiny"),
    step("bench-state", "xtask bench state --tiny"),
    step("bench-erlang", "xtask bench erlang --tiny"),
    step("serve", "build --quiet --release --bin thalweg"),
];

/// How often a silent step is looked at, in milliseconds: it may have ended and left its output to others.
const LOOK_MS: u32 = 100;

/// What a pipe holds (pipe(7)).
const PIPE_BYTES: usize = 64 << 10;

/// What became of a step.
struct Done {
    name: &'static str,
    judged: Judged,
    complaints: Complaints,
    took: Duration,
}

/// `cargo xtask ci`.
///
/// # Errors
/// An unknown step, or cargo cannot be started.
pub(crate) fn run(options: &Options) -> Outcome {
    if options.flag("list") {
        STEPS.iter().for_each(|s| println!("{:<20} cargo {}", s.name, s.command));
        return Ok(Tally::default());
    }
    let only: Vec<&str> = options.text("only", "").split(',').filter(|w| !w.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|name| STEPS.iter().all(|s| s.name != **name)) {
        return Err(format!("no step {unknown}: see --list"));
    }
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|s| only.is_empty() || only.contains(&s.name)) {
        println!("\n== {}: cargo {}", step.name, step.command);
        let started = Instant::now();
        let mut complaints = Complaints::default();
        let judged = perform(step, &mut complaints)?;
        done.push(Done { name: step.name, judged, complaints, took: started.elapsed() });
    }
    println!("\n{:<20}{:>8}{:>8}{:>10}", "suite", "passed", "failed", "seconds");
    let mut total = Tally::default();
    for Done { name, judged, took, .. } in &done {
        let Tally { passed, failed } = judged.tally;
        let skipped = if judged.skipped { "  skipped" } else { "" };
        println!("{name:<20}{passed:>8}{failed:>8}{:>10.1}{skipped}", took.as_secs_f64());
        total.add(judged.tally);
    }
    for failed in done.into_iter().filter(|done| done.judged.tally.failed > 0) {
        println!("\n== {} failed, and said:", failed.name);
        failed.complaints.lines().iter().for_each(|line| println!("{line}"));
    }
    Ok(total)
}

/// What a step's lines say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Judged {
    tally: Tally,
    /// It has summary lines at all.
    counts: bool,
    /// It says that what it needs is not here.
    skipped: bool,
}

impl Judged {
    fn hear(&mut self, line: &str, step: &Step) {
        self.skipped |= is_skip(line, step.name);
        let Some(counted) = count(line, step.name) else { return };
        self.counts = true;
        self.tally.add(counted);
    }

    /// The step has ended.
    fn end(mut self, step: &Step, success: bool, relied_on: bool) -> Self {
        let silent = self.tally == Tally::default();
        // A filter that selects no test, like a task that ends with 0 of 0, checked nothing.
        let must_count = self.counts || ["test ", "xtask "].iter().any(|word| step.command.starts_with(word));
        let failed = match (silent, success) {
            (true, true) if self.skipped => relied_on,
            (true, true) => must_count,
            (_, success) => !success && self.tally.failed == 0,
        };
        self.tally.failed += u64::from(failed);
        self.tally.passed += u64::from(silent && success && !must_count && !self.skipped);
        self
    }
}

fn perform(step: &Step, complaints: &mut Complaints) -> Result<Judged, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(step.command.split(' ')).current_dir(root());
    command.envs(step.environment.iter().copied());
    if let Some(apart) = step.apart {
        command.env("CARGO_TARGET_DIR", beside(apart));
    }
    let mut judged = Judged::default();
    let status = said_by(&mut command, stuck::PATIENCE, |line| {
        println!("{line}");
        complaints.hear(line);
        judged.hear(line, step);
    })?;
    let ended = judged.end(step, status.success(), relied_on());
    if ended.tally.failed > judged.tally.failed {
        let why = if status.success() { "it judged nothing".to_owned() } else { status.to_string() };
        let line = format!("  FAILED: {}: {why}", step.name);
        eprintln!("{line}");
        complaints.hear(&line);
    }
    Ok(ended)
}

/// Whether this is a build that others rely on, where what is not judged must not look as if it were.
fn relied_on() -> bool {
    std::env::var_os("CI").is_some_and(|value| !matches!(value.to_str(), Some("" | "0" | "false")))
}

/// Runs a command to its end and hands over its lines. Both of its outputs are one, so that what is said of a
/// failure stands where it happened. What it said before it ended is in the pipe when it has ended, so as
/// much as a pipe holds is read then, and no more waited for: a daemon that it started may hold the output,
/// or write to it, for ever. A command that says nothing for longer than `patience` is ended, and what it
/// started with it.
fn said_by(
    command: &mut Command,
    patience: Duration,
    mut hear: impl FnMut(&str),
) -> Result<ExitStatus, String> {
    let failed = |error: io::Error| error.to_string();
    let (mut output, input) = io::pipe().map_err(failed)?;
    command.stderr(input.try_clone().map_err(failed)?).stdout(input);
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    // The command holds the other end, too.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let (mut begun, heard) = (Vec::new(), Cell::new(Instant::now()));
    let mut note = |line: &str| {
        heard.set(Instant::now());
        hear(line);
    };
    loop {
        let has_ended = child.try_wait().map_err(failed)?.is_some();
        let is_open = read(&mut output, &mut begun, &mut note).map_err(failed)?;
        if has_ended || !is_open {
            if !begun.is_empty() {
                note(&String::from_utf8_lossy(&begun));
            }
            return child.wait().map_err(failed);
        }
        if heard.get().elapsed() > patience {
            note(&format!("  FAILED: it said nothing for {} s, and is ended", patience.as_secs()));
            stuck::end(child.id());
        }
        wait_readable(output.as_fd(), LOOK_MS).map_err(failed)?;
    }
}

/// Hands over the lines that are there, of as many bytes as a pipe holds; `begun` is the beginning of the
/// next. Whether more may come.
fn read(output: &mut PipeReader, begun: &mut Vec<u8>, hear: &mut impl FnMut(&str)) -> io::Result<bool> {
    if !wait_readable(output.as_fd(), 0)? {
        return Ok(true);
    }
    let mut bytes = [0; PIPE_BYTES];
    let count = output.read(&mut bytes)?;
    for piece in bytes[..count].split_inclusive(|byte| *byte == b'\n') {
        begun.extend_from_slice(piece);
        if begun.pop_if(|last| *last == b'\n').is_some() {
            hear(&String::from_utf8_lossy(begun));
            begun.clear();
        }
    }
    Ok(count > 0)
}

/// A target directory next to the usual one.
fn beside(apart: &str) -> std::path::PathBuf {
    let mut name = target().into_os_string();
    name.push("-");
    name.push(apart);
    name.into()
}

/// Whether a task says in a line that it did not judge.
fn is_skip(line: &str, step: &str) -> bool {
    line.split_once(": skipped: ").is_some_and(|(name, _)| step == name)
}

/// The summary in a line, if it is one: cargo's per-binary lines, or the closing line of one of our tasks.
fn count(line: &str, step: &str) -> Option<Tally> {
    let (name, rest) = line.split_once(": ")?;
    let rest = if name == "test result" {
        rest.split_once(". ")?.1
    } else if step.starts_with(name) && !name.contains(' ') {
        rest
    } else {
        return None;
    };
    let mut parts = rest.split([',', ';']).map(str::trim);
    let number = |part: Option<&str>, word: &str| part?.strip_suffix(word)?.trim().parse().ok();
    Some(Tally { passed: number(parts.next(), "passed")?, failed: number(parts.next(), "failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted_once() {
        let cargo = "test result: FAILED. 12 passed; 1 failed; 0 ignored; 0 measured; 3 filtered out";
        assert_eq!(count(cargo, "tests"), Some(Tally { passed: 12, failed: 1 }));
        let ours = "conformance: 500 passed, 0 failed";
        assert_eq!(count(ours, "conformance-sync"), Some(Tally { passed: 500, failed: 0 }));
        // A judge's lines on the way to its closing line are not counted again.
        assert_eq!(count("conformance 0.3.6, sync: 250 passed, 0 failed", "conformance-sync"), None);
        assert_eq!(count("running: 3 things", "tests"), None);
    }

    fn ended(command: &'static str, lines: &[&str], success: bool, relied_on: bool) -> (u64, u64, bool) {
        let (step, mut judged) = (step("full", command), Judged::default());
        lines.iter().for_each(|line| judged.hear(line, &step));
        let Judged { tally, skipped, .. } = judged.end(&step, success, relied_on);
        (tally.passed, tally.failed, skipped)
    }

    #[test]
    fn a_step_that_judged_nothing_did_not_pass() {
        let nothing = "full: 0 passed, 0 failed";
        assert_eq!(ended("xtask full", &[nothing], true, false), (0, 1, false));
        assert_eq!(ended("xtask full", &[nothing], false, false), (0, 1, false));
        assert_eq!(ended("test -p a", &[], true, false), (0, 1, false));
        assert_eq!(ended("xtask full", &[], true, false), (0, 1, false));
        assert_eq!(ended("test -p a", &["test result: ok. 0 passed; 0 failed"], true, false), (0, 1, false));
        // What compiles, or not, has nothing to count.
        assert_eq!(ended("build", &[], true, true), (1, 0, false));
        assert_eq!(ended("build", &[], false, true), (0, 1, false));
        assert_eq!(ended("xtask full", &["full: 5 passed, 0 failed"], true, true), (5, 0, false));
        assert_eq!(ended("xtask full", &["full: 5 passed, 0 failed"], false, true), (5, 1, false));
        assert_eq!(ended("xtask full", &["full: 5 passed, 2 failed"], false, true), (5, 2, false));
    }

    #[test]
    fn what_is_skipped_is_shown_as_that_and_not_where_it_is_relied_on() {
        let lines = ["full: skipped: no file system can be mounted", "full: 0 passed, 0 failed"];
        assert_eq!(ended("xtask full", &lines, true, false), (0, 0, true));
        assert_eq!(ended("xtask full", &lines, true, true), (0, 1, true));
        assert!(!is_skip("other: skipped: why", "full") && !is_skip("full: 3 skipped", "full"));
    }

    #[test]
    fn a_step_is_over_when_it_ends_whatever_it_leaves_behind() {
        let begun = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 240 & echo one; echo two >&2; exit 3"]);
        let mut heard = Vec::new();
        let status = said_by(&mut command, stuck::PATIENCE, |line| heard.push(line.to_owned())).unwrap();
        assert_eq!((status.code(), heard), (Some(3), vec!["one".to_owned(), "two".to_owned()]));
        assert!(begun.elapsed() < Duration::from_secs(60), "it waited for what was left behind");
    }

    #[test]
    fn a_step_is_heard_to_its_end_however_much_it_says_last() {
        // What is left behind neither ends the output nor adds to it.
        let script = "sleep 240 & echo first; seq 20000; printf last";
        let (mut command, mut heard) = (Command::new("sh"), Vec::new());
        said_by(command.args(["-c", script]), stuck::PATIENCE, |line| heard.push(line.to_owned())).unwrap();
        assert_eq!((heard.len(), &*heard[20_000], &*heard[20_001]), (20_002, "20000", "last"));
    }

    #[test]
    fn a_step_ends_although_what_it_left_behind_goes_on_talking() {
        let (mut command, mut count) = (Command::new("sh"), 0);
        // It ends by itself once nobody reads.
        command.args(["-c", "yes & echo begun"]);
        assert!(said_by(&mut command, stuck::PATIENCE, |_| count += 1).unwrap().success());
        assert!(count > 0);
    }

    #[test]
    fn a_step_that_says_nothing_any_more_is_ended_with_all_that_it_started() {
        let mut command = Command::new("sh");
        // The inner shell's child would go on if only the outer one were ended.
        command.args(["-c", "sh -c 'sleep 240 & echo $!; wait'; true"]);
        let mut heard = Vec::new();
        let status =
            said_by(&mut command, Duration::from_secs(5), |line| heard.push(line.to_owned())).unwrap();
        assert!(!status.success());
        let [inner, why] = &heard[..] else { panic!("{heard:?}") };
        assert!(why.contains("said nothing"), "{why}");
        let until = Instant::now() + Duration::from_secs(30);
        let state = || std::fs::read_to_string(format!("/proc/{inner}/stat")).unwrap_or_default();
        // A child that is not waited for stays as a zombie.
        while !(state().is_empty() || state().contains(") Z ")) {
            assert!(Instant::now() < until, "{inner} goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn steps_have_names_of_their_own() {
        for (n, step) in STEPS.iter().enumerate() {
            assert!(STEPS[n + 1..].iter().all(|other| other.name != step.name), "{}", step.name);
            // Its closing line begins with the task's name, and is known by that.
            let task = step.command.strip_prefix("xtask ").and_then(|rest| rest.split(' ').next());
            assert!(task.is_none_or(|task| step.name.starts_with(task)), "{}", step.name);
        }
    }
}
