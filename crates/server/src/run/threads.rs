//! The threads of a server: watched while it serves, and ended in order once it is asked to end.
//!
//! Owns them. Waiting for them, and closing the store behind them, is done by a thread of its own, so that
//! a second signal is seen whatever the other threads are doing. Checked by the tests of second signals.

use super::Housekeeper;
use crate::engine::Engine;
use crate::start::ServerError;
use crate::{services, webhooks};
use std::thread::JoinHandle;
use thalweg_http::Message;
use thalweg_reactor::Handle;
use thalweg_service::Endpoint;

/// A reactor on its thread.
pub(crate) struct ReactorThread {
    pub(crate) handle: Handle<Message>,
    pub(crate) thread: JoinHandle<()>,
}

/// All of them but the first.
pub(crate) struct Threads {
    pub(crate) reactors: Vec<ReactorThread>,
    pub(crate) neighbours: Option<services::ServiceThreads>,
    pub(crate) webhooks: webhooks::WebhookThread,
    pub(crate) housekeeper: Housekeeper,
}

impl Threads {
    /// Where programs of this machine reach services.
    pub(crate) fn endpoints(&self) -> Vec<&Endpoint> {
        self.neighbours.iter().flat_map(services::ServiceThreads::endpoints).collect()
    }

    /// Whether one of them ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.reactors.iter().any(|reactor| reactor.thread.is_finished())
            || self.neighbours.as_ref().is_some_and(services::ServiceThreads::has_ended)
            || self.webhooks.has_ended()
            || self.housekeeper.has_ended()
    }

    /// Has all of them end, waits until they did, and closes the store if that was in good order. Once
    /// `asked_again` says so nothing is waited for any more: whatever is still at work ends with the process.
    ///
    /// # Errors
    /// The store does not close, or the system gives no thread to wait with.
    pub(crate) fn end(
        self,
        engine: &Engine,
        grace_ms: u32,
        mut asked_again: impl FnMut() -> bool,
    ) -> Result<(), ServerError> {
        if let Some(neighbours) = &self.neighbours {
            neighbours.stop();
        }
        for reactor in &self.reactors {
            if reactor.handle.post(Message::Drain { grace_ms }).is_err() {
                reactor.handle.stop();
            }
        }
        let engine = engine.clone();
        let run = move || if self.wait() { engine.close() } else { Ok(()) };
        let ending = std::thread::Builder::new().name("ending".into()).spawn(run);
        let ending = ending.map_err(ServerError::no_thread)?;
        while !ending.is_finished() {
            if asked_again() {
                tracing::warn!("ending at once");
                return Ok(());
            }
        }
        // A panic there was reported there, and leaves the store as one of those it waits for does.
        ending.join().unwrap_or(Ok(())).map_err(ServerError::Store)
    }

    /// Waits until all of them have ended; whether that was in good order.
    fn wait(self) -> bool {
        // Every one is waited for, whatever became of those before.
        let reactors: Vec<bool> =
            self.reactors.into_iter().map(|reactor| reactor.thread.join().is_ok()).collect();
        let mut in_order = reactors.into_iter().all(|in_order| in_order);
        in_order &= self.neighbours.is_none_or(services::ServiceThreads::end);
        self.webhooks.end();
        in_order & self.housekeeper.end()
    }
}
