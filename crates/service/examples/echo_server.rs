//! The echo service: `echo_server ENDPOINT`. Prints `ready` when it listens, serves until TERM or INT.
//! What it answers is said in `conformance/matrix/README.md`.

#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;

use echo::server::{EchoHandler, EchoService};
use echo::types::*;
use parking_lot::Mutex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use thalweg_service::{Pool, Scheduled, Server, ServerOptions};
use thalweg_sys::signal::{Signal, Signals};
use thalweg_sys::socket;
use thalweg_wire::service::{Flow, Responder};

/// Threads for calls that had to wait for their turn.
const POOL_THREADS: usize = 2;

#[derive(Default)]
struct Echo {
    forks: Mutex<HashMap<String, Fork>>,
}

#[derive(Default)]
struct Fork {
    /// How often it was put to, and what was put last.
    version: u64,
    value: Option<Vec<u8>>,
    /// What waits until somebody asks for what is committed.
    held: Vec<(Vec<u8>, Responder<commands::Put>)>,
}

impl Echo {
    fn last(&self, fork: &str) -> Option<Vec<u8>> {
        self.forks.lock().get(fork)?.value.clone()
    }

    fn take(&self, fork: &str, value: Vec<u8>, responder: Responder<commands::Put>) {
        let mut forks = self.forks.lock();
        let fork = forks.entry(fork.to_owned()).or_default();
        fork.version += 1;
        fork.value = Some(value);
        let version = fork.version;
        drop(forks);
        responder.ok(&EchoPutResponse { version });
    }
}

/// Wakes a thread that made all the items its reader has room for.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Counts as fast as somebody takes the items.
fn count(request: &EchoCount, mut responder: Responder<commands::Count>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut count = 0;
    for value in request.first..=request.last {
        match responder.item(&EchoCountItem { value }) {
            Flow::Go => {}
            Flow::Wait => {
                responder.changed(&waker);
                thread::park();
            }
            Flow::Gone => break,
        }
        count += 1;
    }
    responder.ok(&EchoCountResponse { count });
}

impl EchoHandler for Echo {
    fn bytes(&self, request: EchoBytes<'_>, responder: Responder<commands::Bytes>) {
        responder.ok(&EchoBytesResponse { data: request.data });
    }

    fn fields(&self, request: EchoFields<'_>, responder: Responder<commands::Fields>) {
        let EchoFields { count, total, name } = request;
        responder.ok(&EchoFieldsResponse { count, total, name });
    }

    fn nested(&self, request: EchoNested<'_>, responder: Responder<commands::Nested>) {
        responder.ok(&EchoNestedResponse { inner: request.inner });
    }

    fn aliases(&self, request: EchoAliases, responder: Responder<commands::Aliases>) {
        let EchoAliases { sequence_number, digest, parent, chain } = request;
        responder.ok(&EchoAliasesResponse { sequence_number, digest, parent, chain });
    }

    fn blobs(&self, request: EchoBlobs<'_>, responder: Responder<commands::Blobs>) {
        let EchoBlobs { extra, parts } = request;
        responder.ok(&EchoBlobsResponse { extra, parts });
    }

    fn fail(&self, request: EchoFail<'_>, responder: Responder<commands::Fail>) {
        responder.error(&request.reason);
    }

    fn numbers(&self, request: EchoNumbers, responder: Responder<commands::Numbers>) {
        let EchoNumbers { tiny, small, medium, large, single, precise, .. } = request;
        let EchoNumbers { signed_tiny, signed_small, signed_medium, signed_large, .. } = request;
        responder.ok(&EchoNumbersResponse {
            tiny,
            small,
            medium,
            large,
            signed_tiny,
            signed_small,
            signed_medium,
            signed_large,
            single,
            precise,
        });
    }

    fn places(&self, request: EchoPlaces<'_>, responder: Responder<commands::Places>) {
        let EchoPlaces { places, counts, grid, mood, named } = request;
        responder.ok(&EchoPlacesResponse { places, counts, grid, mood, named });
    }

    fn count(&self, request: EchoCount, responder: Responder<commands::Count>) {
        // A stream waits for its reader, so not on the thread that serves.
        thread::spawn(move || count(&request, responder));
    }

    fn put(&self, request: EchoPut<'_>, responder: Responder<commands::Put>) {
        let value = request.value.into_owned();
        if value == b"hold" {
            let mut forks = self.forks.lock();
            return forks.entry(request.fork.into_owned()).or_default().held.push((value, responder));
        }
        self.take(&request.fork, value, responder);
    }

    fn peek(&self, request: EchoPeek<'_>, responder: Responder<commands::Peek>) {
        responder.ok(&EchoPeekResponse { value: self.last(&request.fork).map(Cow::Owned) });
    }

    fn peek_committed(&self, request: EchoPeekCommitted<'_>, responder: Responder<commands::PeekCommitted>) {
        let fork = request.fork;
        responder.ok(&EchoPeekResponse { value: self.last(&fork).map(Cow::Owned) });
        let held = self.forks.lock().get_mut(&*fork).map(|of| std::mem::take(&mut of.held));
        for (value, responder) in held.into_iter().flatten() {
            self.take(&fork, value, responder);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let endpoint = std::env::args().nth(1).ok_or("usage: echo_server ENDPOINT")?.parse()?;
    // Before there is another thread, so that all of them leave signals to this descriptor.
    let signals = Signals::take()?;
    let options = ServerOptions::of(SCHEMA_HASH, "EchoErrorResponse");
    let mut server = Server::bind(&[endpoint], options)?;
    let stopper = server.stopper();
    thread::spawn(move || {
        while !matches!(signals.next(), Ok(Some(Signal::Terminate | Signal::Interrupt)) | Err(_)) {
            if socket::wait(signals.as_fd(), false, None).is_err() {
                break;
            }
        }
        stopper.stop();
    });
    println!("ready");
    let service = Scheduled::<EchoService, _, _>::new(Echo::default(), Pool::new(POOL_THREADS));
    // No handler of it waits.
    server.serve(service.inline())?;
    Ok(())
}
