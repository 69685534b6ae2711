//! Who hears of the logs that a state makes.

use std::fmt;
use std::sync::Arc;
use thalweg_log::Log;

type Hears = dyn Fn(&str) + Send + Sync;

/// Hears the name of each log that a state makes, on the thread that makes it and under locks of the state:
/// it must neither block nor call back.
#[derive(Clone, Default)]
pub struct Herald(Option<Arc<Hears>>);

impl Herald {
    /// One that calls `hears`; the default calls nobody.
    pub fn new(hears: impl Fn(&str) + Send + Sync + 'static) -> Herald {
        Herald(Some(Arc::new(hears)))
    }

    pub(crate) fn tell(&self, log: &Log) {
        if let Some(hears) = &self.0
            && let Ok(name) = std::str::from_utf8(log.name())
        {
            hears(name);
        }
    }
}

impl fmt::Debug for Herald {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Herald").field(&self.0.is_some()).finish()
    }
}
