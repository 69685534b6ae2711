//! Timers that belong to no connection ([`thalweg_reactor::Core::insert_timer`]): the entry of each says by
//! its role what to call when the time has come.

use crate::connection::{Connection, Role};
use crate::reactor::HttpCore;
use thalweg_reactor::Key;
use thalweg_wire::exchange::Service;

/// One such timer; its entry is made when it is first set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timer(Option<Key>);

impl Timer {
    /// Sets it, whether or not it was set. `false`: the reactor takes no more entries.
    pub(crate) fn set<S: Service>(&mut self, core: &mut HttpCore<S>, role: Role, after_ms: u32) -> bool {
        if self.0.is_none() {
            self.0 = core.insert_timer(Connection::new(role)).ok();
        }
        self.0.inspect(|key| core.set_timer(*key, after_ms)).is_some()
    }
}
