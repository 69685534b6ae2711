//! What is known to be damaged, and whom it harms.
//!
//! Purpose: the spans that are told of, and the logs that lost something in them: these show nothing by offset and take no commit
//! until they are deleted, which makes the store whole again as far as anybody can tell. Owns both lists. Whoever reads or
//! writes what is whole takes no lock of this; its lock comes in front of those of logs. Checked by the tests of damage.

use crate::catalogue::Catalogue;
use crate::error::Damage;
use crate::log::Log;
use crate::store::Shared;
use parking_lot::Mutex;
use std::sync::Arc;

#[derive(Debug, Default)]
pub(crate) struct Harm(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    spans: Vec<Damage>,
    /// Those that are gone are taken out by whoever asks.
    harmed: Vec<Arc<Log>>,
}

impl Harm {
    /// What recovery came upon.
    pub(crate) fn found(spans: &[Damage], catalogue: &Catalogue) -> Harm {
        let mut known = Known { spans: spans.to_vec(), harmed: Vec::new() };
        if !spans.is_empty() {
            let harms = |log: &Arc<Log>| log.lock().damage().is_some();
            catalogue.visit(|log| known.harmed.extend(harms(log).then(|| log.clone())));
        }
        Harm(Mutex::new(known))
    }

    pub(crate) fn spans(&self) -> Vec<Damage> {
        self.0.lock().spans.clone()
    }

    /// Whether a log misses something that is not gone itself.
    fn lasts(&self) -> bool {
        let harmed = &mut self.0.lock().harmed;
        harmed.retain(|log| !log.lock().is_gone());
        !harmed.is_empty()
    }
}

impl Shared {
    /// Some log may have lost something. Then nothing is removed and no checkpoint forgets: what is repaired
    /// by hand, a file put back say, must find everything else as it was.
    pub(crate) fn is_damaged(&self) -> bool {
        self.unnamed.is_some() || self.harm.lasts()
    }
}
