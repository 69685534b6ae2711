//! A connection that something is being done with: its reactor, its key, and its active part, which is out of
//! its entry meanwhile ([`Http::with_active`](crate::reactor::Http::with_active)).

use crate::connection::{Active, Connection, Role};
use crate::drive::role;
use crate::reactor::{ConnectionEnd, HttpCore};
use thalweg_reactor::Key;
use thalweg_wire::exchange::Service;

pub(crate) struct At<'a, S: Service> {
    pub(crate) core: &'a mut HttpCore<S>,
    pub(crate) key: Key,
    pub(crate) active: &'a mut Active<S::Topic>,
}

impl<S: Service> At<'_, S> {
    /// Its role, unless it is gone.
    pub(crate) fn role(&mut self) -> Result<Role, ConnectionEnd> {
        role(self.core, self.key)
    }

    /// What is left of it in the slab.
    pub(crate) fn entry(&mut self) -> Result<&mut Connection<S::Topic>, ConnectionEnd> {
        self.core.entry(self.key).ok_or(ConnectionEnd::Close)
    }
}
