//! Timers that belong to no connection: the reactor's wheel knows entries only, so each has one of its own, which never has an
//! event and says by its role whom to call when the time has come.

use crate::connection::{Connection, Role};
use crate::reactor::{HttpCore, insert};
use std::os::fd::AsFd;
use thalweg_reactor::{Interest, Key};
use thalweg_sys::event::EventFd;
use thalweg_sys::socket;
use thalweg_wire::exchange::Service;

/// One such timer; its entry is made when it is first set.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Timer(Option<Key>);

impl Timer {
    /// Sets it, whether or not it was set. `false`: the reactor takes no more entries.
    pub(crate) fn set<S: Service>(&mut self, core: &mut HttpCore<S>, role: Role, after_ms: u32) -> bool {
        if self.0.is_none() {
            let made = EventFd::new().and_then(|event| socket::duplicate(event.as_fd()));
            let entry = made.and_then(|made| insert(core, made, Connection::new(role), Interest::NONE));
            self.0 = entry.ok();
        }
        self.0.inspect(|key| core.set_timer(*key, after_ms)).is_some()
    }
}
