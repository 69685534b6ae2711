//! The end of a reactor's service, in good order.

use crate::at::At;
use crate::connection::Role;
use crate::reactor::{ConnectionEnd, Http, HttpCore};
use thalweg_reactor::Key;
use thalweg_wire::exchange::Service;

/// Batches taken from a listener before it is closed: more than its queue holds.
const BACKLOG_ROUNDS: usize = 1_024;

impl<S: Service> Http<S> {
    /// Stops accepting, once those who already knocked are in, unless they can wait for another process; ends
    /// what waits for nothing but time (subscribers, idle connections); gives the rest until the grace ends.
    pub(crate) fn drain(&mut self, core: &mut HttpCore<S>, grace_ms: u32) {
        if self.draining {
            return;
        }
        let keys: Vec<Key> = core.keys().collect();
        for key in &keys {
            let listener = core.entry(*key).filter(|entry| entry.role == Role::Listener);
            let Some(number) = listener.map(|entry| usize::from(entry.flavour)) else { continue };
            if self.listeners.sockets.get(number).is_some_and(|socket| !socket.handed_over) {
                // Bounded, should they come faster than they are taken in.
                (0..BACKLOG_ROUNDS).take_while(|_| self.accept(core, *key) > 0).count();
            }
            self.remove(core, *key);
        }
        self.draining = true;
        core.set_timer(self.control, grace_ms);
        let keys: Vec<Key> = core.keys().collect();
        tracing::debug!(connections = self.admitted.connections, grace_ms, "draining");
        for key in keys {
            self.drain_one(core, key);
        }
        if self.admitted.connections == 0 {
            core.stop();
        }
    }

    fn drain_one(&mut self, core: &mut HttpCore<S>, key: Key) {
        let Some(role) = core.entry(key).map(|entry| entry.role) else { return };
        match role {
            Role::Control | Role::RestTimer | Role::Cold => {}
            Role::Listener | Role::Lingering | Role::Attached => {}
            Role::Request => self.with_active(core, key, |_, _| Ok(())),
            Role::LongPoll | Role::Sse => self.with_active(core, key, Self::drain_live),
        }
    }

    /// Serves a subscriber once more, which ends it: see `park`. One that is still busy with what it was
    /// sent ends when it has taken that.
    fn drain_live(&mut self, at: &mut At<'_, S>) -> Result<(), ConnectionEnd> {
        if at.active.output.is_empty() { self.drive(at) } else { Ok(()) }
    }

    /// The grace is over: cuts whatever is left.
    pub(crate) fn cut(&mut self, core: &mut HttpCore<S>) {
        tracing::warn!(
            connections = self.admitted.connections,
            "the grace is over: cutting the connections that are left"
        );
        let keys: Vec<Key> = core.keys().collect();
        for key in keys {
            if core.entry(key).is_some_and(|entry| entry.role.is_connection()) {
                self.remove(core, key);
            }
        }
        core.stop();
    }
}
