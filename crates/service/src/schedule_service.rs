//! A generated service whose calls are ordered as its schema declares.
//!
//! A call holds its fork from before its handler begins until its answer was given, in whatever thread, or
//! until its responder is dropped. A call that declares nothing runs beside everything.
//!
//! Each call goes to the executor, its frame copied, so that the caller may go on reading: a handler may
//! wait, for credit say, on the executor's thread. With [`Scheduled::inline`] one that came alone while
//! nothing was in flight runs where it came in, which is sooner; a handler that waits there waits for what
//! only that thread would read. One that nobody waits for any more when its turn comes is not begun.

use crate::schedule::{Executor, Scheduler, Turn};
use crate::server::{Handler, Reply as ServerReply, Request};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::{Access, Flow, Fork, Reply, Service, refuse};

/// Hands requests to a generated handler, ordered per fork over an executor. Clones share both.
///
/// ```no_run
/// use thalweg_service::{Endpoint, Error, Pool, Scheduled, Server, ServerOptions};
/// use thalweg_wire::service::Service;
/// fn serve<S: Service<H> + 'static, H: Send + Sync + 'static>(store: H, at: Endpoint) -> Result<(), Error> {
///     let options = ServerOptions { error_tag: S::ERROR.into(), ..ServerOptions::default() };
///     let scheduled = Scheduled::<S, H, Pool>::new(store, Pool::new(4));
///     Server::bind(&[at], options)?.serve(scheduled)
/// }
/// ```
pub struct Scheduled<S, H, E: Executor> {
    handler: Arc<H>,
    scheduler: Scheduler<Fork<'static>, E>,
    /// A call that came alone runs where it came in.
    inline: bool,
    service: PhantomData<fn() -> S>,
}

impl<S, H, E> Scheduled<S, H, E>
where
    S: Service<H> + 'static,
    H: Send + Sync + 'static,
    E: Executor + 'static,
{
    /// A handler's calls over an executor.
    pub fn new(handler: H, executor: E) -> Self {
        let scheduler = Scheduler::new(executor);
        Self { handler: Arc::new(handler), scheduler, inline: false, service: PhantomData }
    }

    /// Runs a call that came alone, while nothing is in flight, on the thread that took it in: sooner than
    /// the executor would. For handlers that never wait: until one returns that thread reads nothing, so no
    /// other call, no cancel and no credit.
    #[must_use]
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// The handler.
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Calls that have not been answered.
    pub fn in_flight(&self) -> usize {
        self.scheduler.in_flight()
    }

    /// Takes a request, which is answered now or later; `alone` says that nothing else waits to be taken. A
    /// frame that is no request is answered with the service's error.
    pub fn request<R: Reply + 'static>(&self, frame: &[u8], alone: bool, mut reply: R) {
        let request = match S::decode(frame) {
            Ok(request) => request,
            Err(wrong) => return refuse(&mut reply, S::ERROR, &wrong),
        };
        let (access, fork) = match S::access(&request) {
            Some((access, fork)) => (access, owned(fork)),
            None => (Access::ReadCommitted, Fork::None),
        };
        if alone
            && self.inline
            && let Some(turn) = self.scheduler.alone(fork.clone(), access)
        {
            return S::handle(&self.handler, request, Box::new(Held { reply, _turn: turn }));
        }
        let (handler, frame) = (Arc::clone(&self.handler), frame.to_vec());
        let job = move |turn| {
            // Nobody may wait any more by the time its turn has come.
            if reply.is_cancelled() {
                return drop(reply);
            }
            // It was read once already.
            if let Ok(request) = S::decode(&frame) {
                S::handle(&handler, request, Box::new(Held { reply, _turn: turn }));
            }
        };
        self.scheduler.schedule(fork, access, job);
    }
}

impl<S, H, E> Handler for Scheduled<S, H, E>
where
    S: Service<H> + 'static,
    H: Send + Sync + 'static,
    E: Executor + 'static,
{
    fn request(&mut self, request: Request<'_>, reply: ServerReply) {
        Scheduled::request(self, request.frame, request.alone, reply);
    }
}

fn owned(fork: Fork<'_>) -> Fork<'static> {
    match fork {
        Fork::None => Fork::None,
        Fork::Number(number) => Fork::Number(number),
        Fork::Bytes(bytes) => Fork::Bytes(Cow::Owned(bytes.into_owned())),
    }
}

impl<S, H, E: Executor> Clone for Scheduled<S, H, E> {
    fn clone(&self) -> Self {
        let (handler, scheduler) = (Arc::clone(&self.handler), self.scheduler.clone());
        Self { handler, scheduler, inline: self.inline, service: PhantomData }
    }
}

impl<S, H, E: Executor> fmt::Debug for Scheduled<S, H, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scheduled").field("scheduler", &self.scheduler).finish_non_exhaustive()
    }
}

/// A reply that keeps its call's fork until it is gone: fields are dropped in order, the answer before the
/// fork.
struct Held<R, E: Executor> {
    reply: R,
    _turn: Turn<Fork<'static>, E>,
}

impl<R: Reply, E: Executor> Reply for Held<R, E> {
    fn item(&mut self, frame: &[u8]) -> Flow {
        self.reply.item(frame)
    }

    fn end(&mut self, frame: &[u8]) {
        self.reply.end(frame);
    }

    fn fail(&mut self, fault: Fault, error: &str, message: &str) {
        self.reply.fail(fault, error, message);
    }

    fn is_cancelled(&self) -> bool {
        self.reply.is_cancelled()
    }

    fn changed(&mut self, waker: &Waker) {
        self.reply.changed(waker);
    }
}
