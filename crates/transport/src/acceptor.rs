//! Taking connections in, also when no descriptor is left for them.
//!
//! A connection that waits while the process has no descriptor cannot be accepted, and a level-triggered
//! listener would report it again at once, for ever. So each acceptor keeps one descriptor in reserve, by
//! means of which waiting connections are shed.
//!
//! Invariant: while a reserve changes hands no other [`Acceptor`] of the process accepts, so none takes a
//! connection of its own into the reserve's place and leaves the owner without one for as long as that
//! connection lasts. Any other code of the process that opens a descriptor just then may still be faster: the
//! reserve is asked for again at the next shedding. *Checked by* `a_reserve_is_not_lost_to_another_acceptor`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{PoisonError, RwLock};
use thalweg_sys::event::EventFd;
use thalweg_sys::socket;

/// A lock that threads hold shared while they accept, and exclusively while they shed.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// What one batch of accepting did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// Connections handed over.
    pub count: usize,
    /// Connections closed at once because no descriptor was left for them.
    pub shed: usize,
    /// No descriptor is left and nothing could be shed either: stop watching the listener for a moment
    /// (a timer), since it stays readable and every look at it would fail the same way.
    pub exhausted: bool,
}

/// Accepts connections in bounded batches. One per listener and reactor.
///
/// Holds one descriptor in reserve. When the process runs out of descriptors the reserve is closed to accept
/// a waiting connection into its place and close it: the peer learns at once instead of waiting, and the
/// queue gets shorter instead of spinning. What the shed peer is told is up to the caller.
#[derive(Debug)]
pub struct Acceptor {
    reserve: Option<EventFd>,
}

impl Acceptor {
    /// An acceptor with its reserve.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { reserve: Some(EventFd::new()?) })
    }

    /// Accepts at most `limit` connections and hands each over, non-blocking and closed on exec. What
    /// waits beyond is reported by the reactor again.
    ///
    /// # Errors
    /// A broken listener.
    pub fn accept(
        &mut self,
        listener: BorrowedFd<'_>,
        limit: usize,
        admit: impl FnMut(OwnedFd),
    ) -> io::Result<Accepted> {
        self.accept_or(listener, limit, admit, &mut |_| {})
    }

    /// The same, and shows each connection that no descriptor is left for to `shed`, which may say why,
    /// before it is closed.
    ///
    /// # Errors
    /// A broken listener.
    pub fn accept_or(
        &mut self,
        listener: BorrowedFd<'_>,
        limit: usize,
        mut admit: impl FnMut(OwnedFd),
        shed: &mut dyn FnMut(BorrowedFd<'_>),
    ) -> io::Result<Accepted> {
        let mut accepted = Accepted { count: 0, shed: 0, exhausted: false };
        while accepted.count + accepted.shed < limit {
            match accept(listener) {
                Ok(Some(connection)) => {
                    admit(connection);
                    accepted.count += 1;
                }
                Ok(None) => break,
                Err(error) if socket::out_of_descriptors(&error) => match self.shed(listener, shed)? {
                    Shed::One => accepted.shed += 1,
                    Shed::NoneWaits => break,
                    Shed::Impossible => {
                        accepted.exhausted = true;
                        break;
                    }
                },
                Err(error) => return Err(error),
            }
        }
        Ok(accepted)
    }

    /// Closes one waiting connection by means of the reserve. Without it the kernel does not even say
    /// whether one waits.
    fn shed(&mut self, listener: BorrowedFd<'_>, tell: &mut dyn FnMut(BorrowedFd<'_>)) -> io::Result<Shed> {
        let _nobody_else_accepts = DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner);
        // An earlier shedding may have lost the reserve to another thread that opened a descriptor.
        if self.reserve.is_none() {
            self.reserve = EventFd::new().ok();
        }
        if self.reserve.take().is_none() {
            return Ok(Shed::Impossible);
        }
        let shed = match socket::accept(listener) {
            Ok(Some(connection)) => {
                tell(connection.as_fd());
                Ok(Shed::One)
            }
            Ok(None) => Ok(Shed::NoneWaits),
            Err(error) if socket::out_of_descriptors(&error) => Ok(Shed::Impossible),
            Err(error) => Err(error),
        };
        self.reserve = EventFd::new().ok();
        shed
    }
}

/// Accepts one connection, once no other acceptor is shedding.
fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    let _nobody_sheds = DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner);
    socket::accept(listener)
}

enum Shed {
    One,
    NoneWaits,
    Impossible,
}

#[cfg(test)]
mod tests;
