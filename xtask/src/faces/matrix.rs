//! Every client language against every server language, over a Unix socket and over shared memory. What the
//! programs do is said in `conformance/matrix/README.md`; this task builds them, starts servers, runs
//! clients, and counts. A language whose programs are missing has failed. Then what can be wrong is tried:
//! each client at each place that is, and each server with a client that breaks the rules.

mod caller;
mod frames;
mod languages;
mod peer;
mod troubles;

use crate::harness::options::Options;
use crate::harness::server::Scratch;
use crate::harness::serving::{Serving, await_end};
use crate::{Outcome, Tally};
use languages::{LANGUAGES, Programs};
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use troubles::{Trouble, ends_so};

/// How long a client may run.
const RUN_WITHIN: Duration = Duration::from_secs(60);
/// How long a client may try to connect to a server that listens.
const BAD_REQUESTS_WITHIN_MS: u64 = 30_000;
/// Fewer calls than this means that a client left something out: 64 at once, and each command.
const CALLS_MIN: u64 = 80;

/// `cargo xtask matrix [--only rust,node]`.
///
/// # Errors
/// An unknown language.
pub(crate) fn run(options: &Options) -> Outcome {
    let only: Vec<&str> = options.text("only", "").split(',').filter(|word| !word.is_empty()).collect();
    if let Some(unknown) = only.iter().find(|word| LANGUAGES.iter().all(|(name, _)| name != *word)) {
        return Err(format!("no language {unknown}"));
    }
    let scratch = Scratch::new("matrix")?;
    let mut tally = Tally::default();
    let mut built = Vec::new();
    for (name, build) in LANGUAGES.iter().filter(|(name, _)| only.is_empty() || only.contains(name)) {
        match build(scratch.path()) {
            Ok(programs) => built.push((*name, programs)),
            Err(problem) => tally.check(false, || format!("{name}: {problem}")),
        }
    }
    for (name, programs) in &built {
        for trouble in troubles::troubles() {
            let path = scratch.path().join("trouble.sock");
            if let Err(problem) = meets(name, programs, &path, &trouble, &mut tally) {
                tally.check(false, || format!("{name} and {}: {problem}", trouble.name));
            }
            let _ = std::fs::remove_file(path);
        }
    }
    for (name, programs) in built.iter().filter(|(_, programs)| programs.serves()) {
        for kind in ["sock", "shm"] {
            let endpoint = scratch.path().join(format!("{name}.{kind}"));
            if let Err(problem) = row(name, programs, &endpoint, &built, &mut tally) {
                tally.check(false, || format!("{name} serving {kind}: {problem}"));
            }
        }
    }
    Ok(tally)
}

/// All clients against one server.
fn row(
    name: &str,
    server: &Programs,
    endpoint: &Path,
    clients: &[(&str, Programs)],
    tally: &mut Tally,
) -> Result<(), String> {
    let kind = endpoint.extension().unwrap_or_default().to_string_lossy();
    let serving = Serving::start(server.server(endpoint))?;
    let bad_requests = troubles::bad_requests();
    for (client, programs) in clients {
        let started = Instant::now();
        let output = within(programs.client(endpoint), RUN_WITHIN)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let calls = said.lines().find_map(|line| line.strip_prefix("ok ")?.trim().parse::<u64>().ok());
        let is_good = output.status.success() && calls.is_some_and(|calls| calls >= CALLS_MIN);
        tally.check(is_good, || {
            let complaint = String::from_utf8_lossy(&output.stderr);
            format!("{client} calling {name} over {kind}: {}\n{said}{complaint}", output.status)
        });
        if is_good {
            let calls = calls.unwrap_or_default();
            println!(
                "{client:>8} calling {name:<8}{kind:>5}{calls:>6} calls {:>6.2} s",
                started.elapsed().as_secs_f64()
            );
        }
        let command = programs.steps(endpoint, BAD_REQUESTS_WITHIN_MS, &bad_requests);
        takes(&format!("{client} calling {name} over {kind}"), command, &bad_requests, tally)?;
    }
    if kind == "sock" {
        for (what, attempt) in caller::TRIED {
            let outcome = attempt(endpoint);
            tally.check(outcome.is_ok(), || format!("{name} and {what}: {outcome:?}"));
        }
    }
    let ended = serving.end()?;
    tally.check(ended.success(), || format!("{name} serving {kind} ended with {ended}"));
    tally.check(!endpoint.exists(), || format!("{name} left {} behind", endpoint.display()));
    Ok(())
}

/// A client's steps where something is wrong.
fn meets(
    name: &str,
    programs: &Programs,
    path: &Path,
    trouble: &Trouble,
    tally: &mut Tally,
) -> Result<(), String> {
    let prepared = trouble.place.prepare(path)?;
    let mut command = programs.steps(path, trouble.within_ms, &trouble.steps);
    if prepared.needs_fewer_rights {
        command = without_override(&command);
    }
    takes(&format!("{name} and {}", trouble.name), command, &trouble.steps, tally)
}

/// Runs a client's steps, and checks how each ended.
fn takes(name: &str, command: Command, steps: &[(String, String)], tally: &mut Tally) -> Result<(), String> {
    let output = within(command, RUN_WITHIN)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let ends: Vec<&str> = said.lines().collect();
    tally.check(output.status.success() && ends.len() == steps.len(), || {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("{name}: {} after {} of {} steps\n{said}{complaint}", output.status, ends.len(), steps.len())
    });
    for (number, (end, (step, expected))) in ends.iter().zip(steps).enumerate() {
        let step: String = step.chars().take(40).collect();
        tally.check(ends_so(end, expected), || {
            format!("{name}: step {number}, {step}, ended with {end:?} where {expected} was expected")
        });
    }
    Ok(())
}

/// The same program of a superuser who keeps to the permissions of files.
fn without_override(command: &Command) -> Command {
    let rights = "-dac_override,-dac_read_search";
    let mut fewer = Command::new("setpriv");
    fewer.arg(format!("--bounding-set={rights}")).arg(format!("--inh-caps={rights}"));
    fewer.arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        fewer.current_dir(folder);
    }
    fewer
}

/// Runs a program to its end, or ends it.
fn within(mut command: Command, limit: Duration) -> Result<Output, String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{command:?}: {e}"))?;
    let gather = |stream: Option<Box<dyn std::io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
            bytes
        })
    };
    let stdout = gather(child.stdout.take().map(|stream| Box::new(stream) as _));
    let stderr = gather(child.stderr.take().map(|stream| Box::new(stream) as _));
    let status = match await_end(&mut child, limit)? {
        Some(status) => status,
        None => {
            let _ = child.kill();
            child.wait().map_err(|e| e.to_string())?
        }
    };
    let [stdout, stderr] = [stdout, stderr].map(|gathered| gathered.join().unwrap_or_default());
    Ok(Output { status, stdout, stderr })
}
