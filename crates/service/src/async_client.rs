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
//! What came and was not taken lies in a queue of its call. While no future waits for anything, and these
//! hold [`BACKLOG_BYTES`] or more, nothing is read, so that the server's streams wait too. While one waits
//! reading goes on, because what it waits for may stand behind items of streams: these are bounded by their
//! credit alone.
//!
//! Invariants, checked by `tests/async_client.rs`: a future that is dropped cancels its call and nothing of
//! it stays; no wake is lost, whichever thread drives, and none waits for a thread that computes in the
//! future it drives; a waker is foreign code, and may be the last of a task that has calls of its
//! own, so it is cloned, woken and dropped without the lock.

use crate::call::{CallId, CallOptions, EventKind};
use crate::client::{BACKLOG_BYTES, Client, ClientOptions};
use crate::error::Error;
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;
use thalweg_reactor::Wait;
use thalweg_sync::contain::contain;
use thalweg_sync::primitives::Mutex;
use thalweg_sys::event::EventFd;
use thalweg_sys::socket;
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;
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

#[derive(Debug)]
struct State {
    client: Client,
    calls: HashMap<CallId, Waiting>,
    /// Threads asleep in [`AsyncClient::run_until`].
    sleepers: usize,
    /// A foreign loop was given the descriptor, or drives: it may be watching.
    watched: bool,
    /// Something was queued that no turn has seen.
    stale: bool,
    /// Bytes of frames that came and were not taken.
    kept_bytes: usize,
    /// The last turn left what came with the client, because enough was kept.
    sated: bool,
}

/// What came of one call, and the future that waits for more.
#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Result<Frame, Error>>,
    /// Only while there are no frames.
    waker: Option<Waker>,
    /// Items taken since credit was last given.
    taken: u32,
}

#[derive(Debug)]
enum Frame {
    Item(Vec<u8>),
    End(Vec<u8>),
}

fn kept_bytes(frame: &Result<Frame, Error>) -> usize {
    match frame {
        Ok(Frame::Item(frame) | Frame::End(frame)) => frame.len(),
        Err(_) => 0,
    }
}

/// Wakes futures that something came for. One whose waker panics keeps no other asleep.
fn wake_all(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(|waker| contain(|| waker.wake()));
}

/// How a turn is taken.
type TakeTurn = fn(&mut Client) -> Result<usize, Error>;

/// A turn that never waits and leaves everything to be watched.
fn glance(client: &mut Client) -> Result<usize, Error> {
    client.turn(Wait::Poll)
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
        let state = State {
            client,
            calls: HashMap::new(),
            sleepers: 0,
            watched: false,
            stale: false,
            kept_bytes: 0,
            sated: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), descriptor });
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
        let alarm = Arc::new(Alarm { event: EventFd::new()?, phase: Mutex::new(Phase::Up) });
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
        let mut state = self.shared.state.lock();
        let call = state.client.call(request, options)?;
        state.calls.insert(call, Waiting::default());
        state.stale = true;
        Ok(Frames { shared: Arc::clone(&self.shared), call, options, yielded: false })
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

impl State {
    fn turn(&mut self, how: TakeTurn, wakers: &mut Vec<Waker>) -> Result<(), Error> {
        self.stale = false;
        self.client.hold_back(self.keeps_enough());
        how(&mut self.client)?;
        self.sated = loop {
            if self.keeps_enough() {
                break true;
            }
            let Some(event) = self.client.next() else { break false };
            let Some(waiting) = self.calls.get_mut(&event.call) else { continue };
            let is_refusal = event.is_refusal();
            let frame = match event.kind {
                EventKind::Item => Ok(Frame::Item(event.frame.to_vec())),
                EventKind::End => Ok(Frame::End(event.frame.to_vec())),
                EventKind::Failed(_) if is_refusal => Ok(Frame::End(event.frame.to_vec())),
                EventKind::Failed(error) => Err(error),
            };
            self.kept_bytes += kept_bytes(&frame);
            waiting.frames.push_back(frame);
            wakers.extend(waiting.waker.take());
        };
        Ok(())
    }

    /// Whether reading stops: [`BACKLOG_BYTES`] of frames were not taken, and no future waits for another.
    fn keeps_enough(&self) -> bool {
        self.kept_bytes >= BACKLOG_BYTES && self.calls.values().all(|waiting| waiting.waker.is_none())
    }

    /// Goes on reading, if that was held up and need not be any more; whether it did.
    fn resume(&mut self, wakers: &mut Vec<Waker>) -> bool {
        let resumes = self.sated && !self.keeps_enough();
        if resumes {
            // A failure here is one of the operating system, and the next drive reports it again.
            let _ = self.turn(glance, wakers);
        }
        resumes
    }
}

/// The frames that answer one request. Dropped before the end it cancels the call.
#[derive(Debug)]
pub struct Frames {
    shared: Arc<Shared>,
    call: CallId,
    /// What the call was given.
    options: CallOptions,
    /// Has asked to be polled again, so that other tasks that are ready may queue their requests first.
    yielded: bool,
}

impl AsyncFrames for Frames {
    type Error = Error;

    async fn next(&mut self) -> Result<Vec<u8>, Error> {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl Frames {
    /// The next frame, for futures that are written by hand.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<u8>, Error>> {
        let given = context.waker().clone();
        let (mut wakers, mut former, mut again) = (Vec::new(), None, false);
        let mut state = self.shared.state.lock();
        if state.is_empty(self.call) && state.stale && self.yielded {
            // A failure here is one of the operating system, and the next drive reports it again.
            let _ = state.turn(glance, &mut wakers);
        }
        let mut taken = state.take(self.call, self.options);
        if taken.is_none()
            && let Some(waiting) = state.calls.get_mut(&self.call)
        {
            former = waiting.waker.replace(given);
        }
        if state.resume(&mut wakers) && taken.is_none() {
            taken = state.take(self.call, self.options);
        }
        let taken = match taken {
            Some(taken) => {
                self.yielded = false;
                Poll::Ready(taken)
            }
            None => {
                again = state.stale && !self.yielded;
                self.yielded |= again;
                Poll::Pending
            }
        };
        drop(state);
        drop(former);
        wake_all(wakers);
        if again {
            context.waker().wake_by_ref();
        }
        taken
    }
}

impl State {
    /// Whether the call is there and nothing came of it.
    fn is_empty(&self, call: CallId) -> bool {
        self.calls.get(&call).is_some_and(|waiting| waiting.frames.is_empty())
    }

    fn take(&mut self, call: CallId, options: CallOptions) -> Option<Result<Vec<u8>, Error>> {
        let Some(waiting) = self.calls.get_mut(&call) else {
            return Some(Err(Error::new(Fault::BadArgument, "this stream has ended")));
        };
        let frame = waiting.frames.pop_front()?;
        self.kept_bytes -= kept_bytes(&frame);
        Some(match frame {
            Ok(Frame::Item(frame)) => {
                waiting.taken += 1;
                let window = self.client.window(options);
                if window > 0 && waiting.taken >= window.div_ceil(2) {
                    self.client.grant(call, std::mem::take(&mut waiting.taken));
                    self.stale = true;
                }
                Ok(frame)
            }
            Ok(Frame::End(frame)) => {
                self.calls.remove(&call);
                Ok(frame)
            }
            Err(error) => {
                self.calls.remove(&call);
                Err(error)
            }
        })
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        let waiting = state.calls.remove(&self.call);
        let mut wakers = Vec::new();
        if let Some(waiting) = &waiting {
            state.kept_bytes -= waiting.frames.iter().map(kept_bytes).sum::<usize>();
            state.client.forget(self.call);
            // The cancellation leaves now, if it can; else with the next turn.
            let _ = state.client.flush();
            state.resume(&mut wakers);
        }
        drop(state);
        drop(waiting);
        wake_all(wakers);
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

/// Wakes a thread that sleeps in [`AsyncClient::run_until`].
///
/// *Invariant*: the event is set from the moment that `Asleep` becomes `Woken` until the thread is up, and at
/// no other time. So it is set under the lock: a thread that the client's descriptor woke, and that finds
/// `Woken`, clears what is there already, and not what is still to come, which would end every sleep after it
/// at once.
#[derive(Debug)]
struct Alarm {
    event: EventFd,
    phase: Mutex<Phase>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Up,
    /// Woken while up: it polls once more before it sleeps.
    Woken,
    Asleep,
}

impl Alarm {
    /// Whether there is nothing left to do but sleep.
    fn about_to_sleep(&self) -> bool {
        let mut phase = self.phase.lock();
        let woken = *phase == Phase::Woken;
        *phase = if woken { Phase::Up } else { Phase::Asleep };
        !woken
    }

    fn up(&self) -> io::Result<()> {
        let before = std::mem::replace(&mut *self.phase.lock(), Phase::Up);
        // The thread that woke it set the event.
        if before == Phase::Woken { self.event.clear().map(drop) } else { Ok(()) }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut phase = self.phase.lock();
        if std::mem::replace(&mut *phase, Phase::Woken) == Phase::Asleep {
            // Cannot fail on an open eventfd.
            let _ = self.event.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;
    use std::time::Duration;
    use thalweg_sync::primitives::atomic::{AtomicBool, Ordering};
    use thalweg_sys::epoll::wait_readable;
    use thalweg_wire::frame::{FrameKind, HEADER_BYTES, HELLO_BYTES, Header, VERSION, Welcome};

    const ITEMS: u32 = 200;
    const ITEM_BYTES: usize = 64 << 10;

    /// A client, and a server of one stream that sends all of its items at once, and then answers one call.
    fn flooded() -> (AsyncClient, Frames, JoinHandle<()>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let serving = std::thread::spawn(move || {
            theirs.read_exact(&mut [0; HELLO_BYTES]).unwrap();
            let welcome =
                Welcome { version: VERSION, fault: 0, ring_bytes: 0, credit: ITEMS, schema: [0; 32] };
            theirs.write_all(&welcome.encode()).unwrap();
            let mut head = [0; HEADER_BYTES];
            theirs.read_exact(&mut head).unwrap();
            let stream = Header::decode(&head, 0).unwrap().unwrap();
            for number in 0..ITEMS {
                let item = Header::new(FrameKind::Item, stream.id, ITEM_BYTES as u32);
                // Fails once the client has its answer and is gone.
                let _ = theirs.write_all(&item.encode());
                let _ = theirs.write_all(&[number as u8; ITEM_BYTES]);
            }
            while theirs.read_exact(&mut head).is_ok() {
                let header = Header::decode(&head, 0).unwrap().unwrap();
                if header.kind == FrameKind::Request {
                    let _ = theirs.write_all(&Header::new(FrameKind::End, header.id, 0).encode());
                }
            }
        });
        let client = Client::over(ours.into(), ClientOptions::default()).unwrap();
        let client = AsyncClient::new(client).unwrap();
        let stream = client.begin(b"", CallOptions::default()).unwrap();
        while !client.shared.state.lock().sated {
            client.drive(Wait::Until(Instant::now() + Duration::from_secs(60))).unwrap();
            assert!(client.shared.state.lock().kept_bytes < 2 * BACKLOG_BYTES, "all of it is kept");
        }
        client.drive(Wait::Poll).unwrap();
        assert!(!wait_readable(client.descriptor(), 50).unwrap(), "nothing is to be done until it is taken");
        (client, stream, serving)
    }

    #[test]
    fn what_nobody_takes_stops_the_server_and_comes_whole_once_it_is_taken() {
        let (client, mut stream, serving) = flooded();
        client
            .run_until(async {
                for number in 0..ITEMS {
                    assert_eq!(stream.next().await.unwrap(), [number as u8; ITEM_BYTES]);
                }
            })
            .unwrap();
        assert_eq!(client.shared.state.lock().kept_bytes, 0);
        drop((stream, client));
        serving.join().unwrap();
    }

    #[test]
    fn a_call_behind_what_nobody_takes_is_answered() {
        let (client, mut stream, serving) = flooded();
        let answer = client.run_until(async {
            assert_eq!(client.call(vec![]).await.unwrap(), b"");
            stream.next().await.unwrap()
        });
        assert_eq!(answer.unwrap(), [0; ITEM_BYTES]);
        drop(stream);
        assert_eq!(client.shared.state.lock().kept_bytes, 0);
        drop(client);
        serving.join().unwrap();
    }

    #[test]
    fn a_stream_that_is_dropped_lets_the_others_go_on() {
        let (client, stream, serving) = flooded();
        drop(stream);
        assert!(!client.shared.state.lock().sated);
        assert_eq!(client.run_until(client.call(vec![])).unwrap().unwrap(), b"");
        drop(client);
        serving.join().unwrap();
    }

    #[test]
    fn who_gets_up_by_itself_leaves_no_event_behind() {
        let alarm = Arc::new(Alarm { event: EventFd::new().unwrap(), phase: Mutex::new(Phase::Up) });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    alarm.wake_by_ref();
                }
            });
            let mut left_behind = 0;
            for _ in 0..100_000 {
                // The client's descriptor is readable, so the sleep ends at once.
                if alarm.about_to_sleep() {
                    alarm.up().unwrap();
                    // One that is up is woken without an event.
                    left_behind += alarm.event.clear().unwrap();
                }
            }
            over.store(true, Ordering::Relaxed);
            assert_eq!(left_behind, 0, "events make each sleep end at once");
        });
    }
}
