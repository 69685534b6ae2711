//! A service under a name: its plan, its description, and where its calls go.

use crate::discover;
use crate::gateway::Bounds;
use crate::plan::Plan;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use thalweg_schema as schema;
use thalweg_service::{
    CallId, CallOptions, Client, ClientOptions, Endpoint, Error, EventKind, Handler, Local, LocalCallOptions,
    LocalEvent, Notifier, Reconnect, Wait,
};
use thalweg_wire::fault::Fault;

/// What makes the handler of a service, given what rings for it.
type HandlerFactory = Box<dyn FnOnce(Notifier) -> Result<Box<dyn Handler>, Error>>;

/// A service to be called by JSON-RPC, and where its calls go.
pub struct Mount {
    pub(crate) plan: Arc<Plan>,
    service: schema::Service,
    destination: Destination,
}

enum Destination {
    Here(HandlerFactory),
    Elsewhere(Endpoint, ClientOptions),
}

impl Mount {
    /// Calls of `service` are handled in place, on the thread of the gateway that this is given to.
    pub fn here(service: &schema::Service, handler: impl Handler + 'static) -> Self {
        Self::with_notifier(service, |_| Ok(handler))
    }

    /// The same, for a handler that is told things by other threads, and rings for itself.
    pub fn with_notifier<H: Handler + 'static>(
        service: &schema::Service,
        make: impl FnOnce(Notifier) -> Result<H, Error> + 'static,
    ) -> Self {
        Self::new(service, Destination::Here(Box::new(|notifier| Ok(Box::new(make(notifier)?)))))
    }

    /// Calls go to the server of `service` at an endpoint, over one connection per gateway, which is made
    /// anew when it ends.
    pub fn elsewhere(service: &schema::Service, endpoint: Endpoint) -> Self {
        let options = ClientOptions {
            schema: service.hash,
            reconnect: Reconnect::Backoff {
                first: std::time::Duration::from_millis(10),
                most: std::time::Duration::from_secs(1),
            },
            ..ClientOptions::default()
        };
        Self::new(service, Destination::Elsewhere(endpoint, options))
    }

    fn new(service: &schema::Service, destination: Destination) -> Self {
        Self { plan: Arc::new(Plan::of(service)), service: service.clone(), destination }
    }

    /// Makes ready for calls within such bounds. `wake` is how answers of other threads make themselves
    /// heard. With it come the plan and what `rpc.discover` answers.
    ///
    /// # Errors
    /// What the endpoint or the options say.
    pub(crate) fn open(
        self,
        bounds: &Bounds,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<(Arc<Plan>, Bytes, Backend), Error> {
        let backend = match self.destination {
            Destination::Here(make) => {
                let local = Local::new(&self.plan.error_tag, bounds.credit(), wake);
                let handler = make(local.notifier())?;
                Backend::Here(Box::new(local), handler)
            }
            Destination::Elsewhere(endpoint, options) => {
                let in_flight_max = u32::try_from(bounds.in_flight_max).unwrap_or(u32::MAX);
                let options = ClientOptions { in_flight_max, ..options };
                Backend::Elsewhere { client: Box::new(Client::begin(&endpoint, options)?), owes_turn: false }
            }
        };
        let description = discover::document(&self.service, bounds.delay_max);
        Ok((self.plan, Bytes::from(description), backend))
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Mount").field("service", &self.plan.name).finish_non_exhaustive()
    }
}

/// Where calls go.
pub(crate) enum Backend {
    /// To a handler on this thread.
    Here(Box<Local>, Box<dyn Handler>),
    /// To another process, by way of a connection on this thread. What it is given leaves with its next turn.
    Elsewhere { client: Box<Client>, owes_turn: bool },
}

impl Backend {
    /// Makes a call. `each` gets what is answered there and then; the rest comes by turns, under the call's
    /// name.
    ///
    /// # Errors
    /// It could not be made, and nothing was done.
    #[inline]
    pub(crate) fn call(
        &mut self,
        frame: &[u8],
        asked: LocalCallOptions,
        options: CallOptions,
        each: impl FnMut(LocalEvent, &[u8]),
    ) -> Result<Option<CallId>, Error> {
        match self {
            Self::Here(local, handler) => Ok(local.call(&mut **handler, frame, asked, each)),
            Self::Elsewhere { client, owes_turn } => {
                *owes_turn = true;
                client.call(frame, options).map(Some)
            }
        }
    }

    /// Sends what was called, and brings what came.
    pub(crate) fn turn(&mut self, mut each: impl FnMut(CallId, LocalEvent, &[u8])) {
        match self {
            Self::Here(local, handler) => local.turn(&mut **handler, each),
            Self::Elsewhere { client, owes_turn } => {
                *owes_turn = false;
                // Why a turn failed is said of each call, below.
                let _ = client.turn(Wait::Poll);
                while let Some(event) = client.next() {
                    match event.kind {
                        EventKind::Item => each(event.call, LocalEvent::Item, event.frame),
                        EventKind::End => each(event.call, LocalEvent::End(0), event.frame),
                        EventKind::Failed(error) if event.frame.is_empty() => {
                            let frame = thalweg_wire::service::error_frame("", &error.to_string());
                            each(event.call, LocalEvent::End(error.fault as u16), &frame);
                        }
                        EventKind::Failed(error) => {
                            each(event.call, LocalEvent::End(error.fault as u16), event.frame)
                        }
                    }
                }
            }
        }
    }

    /// Cancels a call: its caller no longer waits for it.
    pub(crate) fn cancel(&mut self, call: CallId) {
        match self {
            Self::Here(local, handler) => local.cancel(&mut **handler, call),
            Self::Elsewhere { client, owes_turn } => {
                *owes_turn = true;
                client.forget(call);
            }
        }
    }

    /// Whether something was given to it that leaves with its next turn.
    pub(crate) fn owes_turn(&self) -> bool {
        matches!(self, Self::Elsewhere { owes_turn: true, .. })
    }

    /// Calls whose handlers have not ended.
    pub(crate) fn in_flight(&self) -> usize {
        match self {
            Self::Here(local, _) => local.in_flight(),
            Self::Elsewhere { client, .. } => client.in_flight(),
        }
    }
}

/// What a fault's number means to a client of JSON-RPC; one of a newer version is some failure.
pub(crate) fn fault_of(code: u16) -> Fault {
    Fault::of(code).unwrap_or(Fault::System)
}
