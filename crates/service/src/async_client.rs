//! A [`Client`] for futures, without a thread of its own: the threads that poll also read and write.
//!
//! One lock guards the client. It is held for a turn, which never waits; a thread waits outside the lock, on
//! the client's descriptor. So any number of threads may call, and any of them drives:
//!
//! - [`AsyncClient::run_until`] polls a future and takes turns meanwhile; several threads may be in it, and
//!   each takes what comes for all;
//! - in a foreign executor, a task watches [`AsyncClient::descriptor`] and calls [`AsyncClient::drive`].
//!
//! A request leaves at the latest when its future is polled for the second time, which it asks for at once:
//! so the requests of all tasks that were ready together leave in one write, and none waits for a driver.
//!
//! What came and was not taken lies in a queue of its call (`state`). While no future waits for anything, and
//! these hold [`BACKLOG_BYTES`](crate::BACKLOG_BYTES) or more, nothing is read, so that the server's streams
//! wait too. While one waits reading goes on, because what it waits for may stand behind items of streams:
//! these are bounded by their credit alone.
//!
//! Invariants, checked by `tests/async_client.rs`: a future that is dropped cancels its call and nothing of
//! it stays; no wake is lost, whichever thread drives, and none waits for a thread that computes in the
//! future it drives; a waker is foreign code, and may be the last of a task that has calls of its
//! own, so it is cloned, woken and dropped without the lock.

mod alarm;
mod frames;
mod state;
#[cfg(test)]
mod tests;

pub use self::frames::Frames;

use self::alarm::Alarm;
use self::state::{State, TakeTurn, glance};
use crate::call::CallOptions;
use crate::client::{Client, ClientOptions};
use crate::error::Error;
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use thalweg_reactor::Wait;
use thalweg_sync::contain::contain;
use thalweg_sync::primitives::Mutex;
use thalweg_sys::socket;
use thalweg_transport::Endpoint;
use thalweg_wire::service::{AsyncCall, AsyncFrames};

/// Carries many calls at once, each a future. Clones share one connection.
///
/// ```
/// use thalweg_service::{AsyncClient, ClientOptions, Endpoint, Server, ServerOptions};
/// use thalweg_wire::service::AsyncCall;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// let endpoint = Endpoint::try_from(directory.path().join("echo.sock"))?;
/// let mut server = Server::bind(std::slice::from_ref(&endpoint), ServerOptions::default())?;
/// let stopper = server.stopper();
/// let serving = std::thread::spawn(move || server.run(|request, response| response.extend(request)));
///
/// let client = AsyncClient::connect(&endpoint, ClientOptions::default())?;
/// let answer = client.run_until(async {
///     let first = client.call(b"one".to_vec()).await?;
///     client.call([first, b" and two".to_vec()].concat()).await
/// })??;
/// assert_eq!(answer, b"one and two");
///
/// stopper.stop();
/// serving.join().unwrap()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncClient {
    shared: Arc<Shared>,
    options: CallOptions,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The client's, to be watched without the lock.
    descriptor: OwnedFd,
}

/// Wakes futures that something came for. One whose waker panics keeps no other asleep.
fn wake_all(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(|waker| contain(|| waker.wake()));
}

impl AsyncClient {
    /// Connects; see [`Client::connect`]. Waits, unlike everything else here.
    ///
    /// # Errors
    /// As there.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Self, Error> {
        Self::new(Client::connect(endpoint, options)?)
    }

    /// Over a client that was made already.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(mut client: Client) -> Result<Self, Error> {
        let descriptor = socket::duplicate(client.descriptor()?)?;
        let shared = Arc::new(Shared { state: Mutex::new(State::new(client)), descriptor });
        Ok(Self { shared, options: CallOptions::default() })
    }

    /// A clone whose calls are given these.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Self {
        Self { shared: Arc::clone(&self.shared), options }
    }

    /// Readable whenever [`AsyncClient::drive`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.state.lock().watched = true;
        self.shared.descriptor.as_fd()
    }

    /// Calls that have not ended.
    pub fn in_flight(&self) -> usize {
        self.shared.state.lock().client.in_flight()
    }

    /// Takes a turn: writes, waits as it may, reads, and wakes the futures that something came for; for how
    /// many.
    ///
    /// # Errors
    /// The operating system failed. A connection that ended shows in the calls.
    pub fn drive(&self, wait: Wait) -> Result<usize, Error> {
        self.shared.state.lock().watched = true;
        let count = self.shared.pump(glance)?;
        let left = match wait {
            Wait::Poll => return Ok(count),
            _ if count > 0 => return Ok(count),
            Wait::Until(until) => Some(until.saturating_duration_since(Instant::now())),
            Wait::Block => None,
        };
        socket::wait(self.shared.descriptor.as_fd(), false, left)?;
        self.shared.pump(glance)
    }

    /// Runs a future to its end on this thread, driving the client whenever the future waits.
    ///
    /// # Errors
    /// The operating system failed.
    pub fn run_until<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        let mut future = pin!(future);
        let alarm = Arc::new(Alarm::new()?);
        let waker = Waker::from(Arc::clone(&alarm));
        let mut context = Context::from_waker(&waker);
        let _driver = Driver { shared: &self.shared };
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Ok(output);
            }
            self.shared.attend()?;
            if alarm.about_to_sleep() {
                let slept = self.shared.retire().and_then(|_| {
                    Ok(socket::wait_either(self.shared.descriptor.as_fd(), alarm.event.as_fd(), None)?)
                });
                self.shared.state.lock().sleepers -= 1;
                slept?;
                alarm.up()?;
                self.shared.attend()?;
            }
        }
    }

    fn begin(&self, request: &[u8], options: CallOptions) -> Result<Frames, Error> {
        let call = self.shared.state.lock().begin(request, options)?;
        Ok(Frames::new(Arc::clone(&self.shared), call, options))
    }
}

impl AsyncCall for AsyncClient {
    type Error = Error;
    type Frames = Frames;

    async fn call(&self, request: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut frames = self.begin(&request, CallOptions { unary: true, ..self.options })?;
        drop(request);
        frames.next().await
    }

    async fn stream(&self, request: Vec<u8>) -> Result<Frames, Error> {
        self.begin(&request, self.options)
    }
}

impl Shared {
    /// A turn; how many futures it woke.
    fn pump(&self, how: TakeTurn) -> Result<usize, Error> {
        self.act(|state, wakers| state.turn(how, wakers))
    }

    /// A turn of a thread that is about to poll its future, which may take any time: a thread that watches
    /// the descriptor meanwhile has to hear of what comes.
    fn attend(&self) -> Result<usize, Error> {
        self.act(|state, wakers| {
            state.turn(Client::attend, wakers)?;
            if state.sleepers > 0 || state.watched { state.turn(glance, wakers) } else { Ok(()) }
        })
    }

    /// This thread is about to sleep. From here on the descriptor tells of everything.
    fn retire(&self) -> Result<usize, Error> {
        self.act(|state, wakers| {
            state.sleepers += 1;
            state.turn(glance, wakers)
        })
    }

    fn act(
        &self,
        act: impl FnOnce(&mut State, &mut Vec<Waker>) -> Result<(), Error>,
    ) -> Result<usize, Error> {
        let mut wakers = Vec::new();
        let outcome = act(&mut self.state.lock(), &mut wakers);
        let count = wakers.len();
        // Outside the lock: a waker is foreign code, and may well call.
        wake_all(wakers);
        outcome.map(|()| count)
    }
}

/// A thread that is in [`AsyncClient::run_until`]: when it leaves, the descriptor tells of everything.
struct Driver<'s> {
    shared: &'s Shared,
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        // A failure here is one of the operating system, and the next drive reports it again.
        let _ = self.shared.pump(glance);
    }
}
