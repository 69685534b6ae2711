//! Log lines: structured, on standard error, so that standard output stays for what was asked.
//!
//! A thread that logs never waits for the reader of the log: see [`queue`].

mod queue;

use self::queue::Queue;
use crate::command_line::{LogFormat, LogLevel};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// Of the thread that writes.
const STACK_BYTES: usize = 64 << 10;
/// How long a program that ends waits until its log has been read.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Changes which log lines there are while the process runs, and waits a moment for the last of them to be
/// written when it is dropped.
pub(crate) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
    queue: Arc<Queue>,
}

impl Logging {
    /// Starts logging for the whole process. The thread that writes takes the signals that its caller takes.
    ///
    /// # Errors
    /// The system gives no thread to write with.
    pub(crate) fn start(format: LogFormat, level: LogLevel) -> io::Result<Self> {
        let (filter, handle) = reload::Layer::new(filter(level));
        let queue = Arc::<Queue>::default();
        // What a request, a commit or a walk over subscribers took is said when it is over; all of them are
        // at `debug`.
        let lines =
            fmt::layer().with_writer(queue.clone()).with_target(false).with_span_events(FmtSpan::CLOSE);
        let lines = match format {
            LogFormat::Text => {
                let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
                lines.with_ansi(is_terminal).boxed()
            }
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails only if a test of ours has started logging before.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        let writing = queue.clone();
        let builder = std::thread::Builder::new().name("log".into()).stack_size(STACK_BYTES);
        // It ends with the process.
        drop(builder.spawn(move || write(&writing))?);
        Ok(Self { level: handle, queue })
    }

    /// Logs this level and what is graver from now on.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // Fails only once nothing logs any more.
        let _ = self.level.modify(|current| *current = filter(level));
    }

    /// Waits a moment for what was logged to be written.
    pub(crate) fn flush(&self) {
        self.queue.flush(LAST_WAIT);
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes lines for as long as the process lives.
fn write(queue: &Queue) -> ! {
    let (mut output, mut buffer, mut told) = (io::stderr(), Vec::new(), 0);
    loop {
        let dropped = queue.write_to(&mut output, &mut buffer);
        if dropped != told {
            // Should there be no room for this line either, it is one more, and they are told of next time.
            tracing::warn!(
                dropped,
                "lines of this log were dropped since the start: its reader does not keep up"
            );
            told = dropped;
        }
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
    }
}
