//! Log lines: structured, on standard error, so that standard output stays for what was asked.

use crate::arguments::{LogFormat, LogLevel};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// Changes which log lines there are while the process runs.
pub(crate) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
}

impl Logging {
    /// Starts logging for the whole process.
    pub(crate) fn start(format: LogFormat, level: LogLevel) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
        // What a request, a commit or a walk over subscribers took is said when it is over; all of them are at `debug`.
        let lines =
            fmt::layer().with_writer(std::io::stderr).with_target(false).with_span_events(FmtSpan::CLOSE);
        let lines = match format {
            LogFormat::Text => {
                let is_terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
                lines.with_ansi(is_terminal).boxed()
            }
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
        };
        // Fails only if a test of ours has started logging before.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { level: handle }
    }

    /// Logs this level and what is graver from now on.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // Fails only once nothing logs any more.
        let _ = self.level.modify(|current| *current = filter(level));
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
