//! Who is told of the logs that a state creates.

use std::fmt;
use std::sync::Arc;
use thalweg_log::Log;

type Observe = dyn Fn(&str) + Send + Sync;

/// Is called with the name of each log that a state creates, on the thread that creates it and under locks
/// of the state: it must neither block nor call back.
#[derive(Clone, Default)]
pub struct LogObserver(Option<Arc<Observe>>);

impl LogObserver {
    /// An observer that calls `observe`; the default one does nothing.
    pub fn new(observe: impl Fn(&str) + Send + Sync + 'static) -> LogObserver {
        LogObserver(Some(Arc::new(observe)))
    }

    pub(crate) fn tell(&self, log: &Log) {
        if let Some(observe) = &self.0
            && let Ok(name) = std::str::from_utf8(log.name())
        {
            observe(name);
        }
    }
}

impl fmt::Debug for LogObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LogObserver").field(&self.0.is_some()).finish()
    }
}
