//! Answers that the service brings later, under the name it gave them: from other threads, by way of the
//! mailbox, or from a descriptor that it has beside the connections. It is asked for them when something
//! happened there, once at the end of each turn that began such answers, and whenever its own patience ends.

use crate::connection::{Active, Connection, Manner, Reply, Role};
use crate::reactor::{Http, HttpCore, hand_out};
use crate::timer::Timer;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use thalweg_reactor::{Core, Interest, Key, Sequence};
use thalweg_wire::exchange::{Response, Service};

/// What one answer may lead to (requests behind it, which lead to more) before others have their turn.
const ROUNDS_MAX: usize = 8;

/// What the service is going to bring.
#[derive(Debug, Default)]
pub(crate) struct Later {
    /// Where answers are awaited, by their names.
    pub(crate) awaited: HashMap<u64, Awaited>,
    /// Those that it just brought.
    brought: Vec<(u64, Response)>,
    /// It is to look before this turn ends.
    pub(crate) owes_look: bool,
    /// After which it looks again.
    ticker: Timer,
}

/// Where an answer is awaited.
#[derive(Debug)]
pub(crate) struct Awaited {
    key: Key,
    sequence: Sequence,
    manner: Manner,
}

impl<S: Service> Http<S> {
    /// Has the service look ([`Service::look`]) whenever `descriptor` is readable. It counts among the
    /// reactor's entries.
    ///
    /// # Errors
    /// The reactor takes no more.
    pub fn attach(&mut self, core: &mut Core<Self>, descriptor: OwnedFd) -> io::Result<()> {
        crate::reactor::insert(core, descriptor, Connection::new(Role::Attached), Interest::READ).map(drop)
    }

    /// The answer comes under this name.
    pub(crate) fn await_later(
        &mut self,
        key: Key,
        active: &mut Active<S::Topic>,
        later: u64,
        manner: Manner,
    ) {
        let sequence = active.replies.expect();
        active.awaited += u32::from(manner.writes);
        active.later.push(later);
        self.later.awaited.insert(later, Awaited { key, sequence, manner });
        self.later.owes_look = true;
    }

    /// The connection that waited for these answers is gone.
    pub(crate) fn forget_later(&mut self, active: &mut Active<S::Topic>) {
        for later in active.later.drain(..) {
            self.later.awaited.remove(&later);
            self.service.gone(later);
        }
    }

    /// Asks the service for what it was going to bring, and lets the connections go on that waited for it.
    pub(crate) fn look(&mut self, core: &mut HttpCore<S>) {
        for _ in 0..ROUNDS_MAX {
            self.later.owes_look = false;
            let now = Self::now(core);
            let mut brought: Vec<(u64, Response)> = std::mem::take(&mut self.later.brought);
            let patience_ms = self.service.look(now, &mut |later, response| brought.push((later, response)));
            let later = &mut self.later.awaited;
            let replies = brought.drain(..).filter_map(|(name, response)| {
                let Awaited { key, sequence, manner } = later.remove(&name)?;
                Some((name, key, sequence, Reply { response, manner }))
            });
            let keys = std::mem::take(&mut self.keys);
            let keys = hand_out(
                core,
                replies.map(|(name, key, sequence, reply)| (key, sequence, reply, Some(name))),
                keys,
            );
            self.later.brought = brought;
            self.drive_each(core, keys);
            if let Some(patience_ms) = patience_ms {
                // Without a timer there is still every other event to look at.
                self.later.ticker.set(core, Role::Attached, patience_ms.max(1));
            }
            if !self.later.owes_look {
                return;
            }
        }
        self.later.owes_look = false;
        core.ready_later(crate::Message::Look);
    }
}
