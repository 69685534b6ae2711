//! A program that serves at an endpoint: started, ready when it prints `ready`, asked to end with TERM, and
//! killed if it is dropped before. Never knows what is served.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a server may take to listen and to end.
const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDED_WITHIN: Duration = Duration::from_secs(60);

/// A server that listens; killed when dropped, unless it was asked to end.
pub(crate) struct Serving {
    child: Child,
}

impl Serving {
    /// Starts one, and returns when it says that it is ready.
    ///
    /// # Errors
    /// It says something else, or nothing.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{command:?}: {e}"))?;
        let (ready, is_ready) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            // Reads on to the end, so that a server that says more never waits for its reader.
            std::thread::spawn(move || {
                let mut lines = BufReader::new(output).lines();
                let first = lines.next().and_then(Result::ok).unwrap_or_default();
                let _ = ready.send(first);
                lines.for_each(drop);
            });
        }
        let serving = Self { child };
        match is_ready.recv_timeout(READY_WITHIN) {
            Ok(line) if line.trim() == "ready" => Ok(serving),
            Ok(line) => Err(format!("{command:?} said {line:?}, not ready")),
            Err(_) => Err(format!("{command:?} did not get ready")),
        }
    }

    /// Asks it to end, and says how it did.
    ///
    /// # Errors
    /// It did not.
    pub(crate) fn end(mut self) -> Result<ExitStatus, String> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        asked.map_err(|e| format!("kill: {e}"))?;
        await_end(&mut self.child, ENDED_WITHIN)?
            .ok_or_else(|| "it did not end when it was asked to".to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a process ended; `None` when it did not in time.
///
/// # Errors
/// It is none of ours.
pub(crate) fn await_end(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(Some(status));
        }
        if started.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
