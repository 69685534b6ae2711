//! As many clients through shared memory as a server takes, each with small rings: all of them with a call
//! under way, and how soon the place of one that is killed is another's.

use crate::far::{Far, ready};
use crate::work::{Side, Work};
use std::path::Path;
use std::time::Duration;
use thalweg_bench::measure::{self, Measured, Pace, Until};
use thalweg_bench::{Failure, far};
use thalweg_service::{CallOptions, Client, ClientOptions, Endpoint, Reply, Request, Server, ServerOptions};
use thalweg_sys::process;

const CLIENTS: u32 = 1_000;
const RING_BYTES: u32 = 64 * 1024;
const PATH: &str = "crowd.shm";
/// A socket each, and some.
const DESCRIPTORS: u64 = 4 * CLIENTS as u64;
/// A turn is long enough for a look at the clock.
const PACE: Pace = Pace { warm_turns: 1, look_every: 1 };

/// Measures.
///
/// # Errors
/// Something did not start, or an answer differed.
pub(crate) fn measure(side: Side, work: &Work, until: Until) -> Result<Measured, Failure> {
    process::raise_descriptors_max(DESCRIPTORS)?;
    let far = Far::start(side, work)?;
    let endpoint = Endpoint::Shared(far.path(PATH));
    let free = u32::from(side == Side::Killed);
    let mut crowd: Vec<Client> = (free..CLIENTS).map(|_| connect(&endpoint)).collect::<Result<_, _>>()?;
    let measured = if side == Side::Killed {
        let directory = far.path("");
        measure::repeat(PACE, until, || replace(&directory, &endpoint, work))?
    } else {
        measure::repeat(PACE, until, || everybody(&mut crowd, work))?
    };
    drop(crowd);
    Ok(measured.with_far(far.end()?))
}

fn connect(endpoint: &Endpoint) -> Result<Client, Failure> {
    let within = Duration::from_secs(60);
    let options =
        ClientOptions { ring_bytes: RING_BYTES, connect_within: within, ..ClientOptions::default() };
    Ok(Client::connect(endpoint, options)?)
}

/// Each has a call under way, and then each takes its answer.
fn everybody(crowd: &mut [Client], work: &Work) -> Result<u64, Failure> {
    let message = vec![7; work.bytes];
    let mut calls = Vec::with_capacity(crowd.len());
    for client in crowd.iter_mut() {
        calls.push(client.call(&message, CallOptions::default())?);
        client.flush()?;
    }
    for (client, call) in crowd.iter_mut().zip(calls) {
        if client.wait(call)? != message {
            return Err("another answer".into());
        }
    }
    Ok(crowd.len() as u64)
}

/// A process takes the last place and is killed; another client, which could not come in before, is answered.
fn replace(directory: &Path, endpoint: &Endpoint, work: &Work) -> Result<u64, Failure> {
    let words = ["--side", Side::Visitor.name(), "--work", work.name, "--directory"].map(AsRef::as_ref);
    let mut visitor = far::Far::start(words.into_iter().chain([directory.as_os_str()]))?;
    visitor.is_ready()?;
    std::thread::scope(|scope| {
        let next = scope.spawn(|| everybody(&mut [connect(endpoint)?], work));
        drop(visitor);
        next.join().unwrap_or_else(|_| Err("a client died".into()))
    })
}

/// The process that is killed: a client that has been answered, and stays.
///
/// # Errors
/// It is not served.
pub(crate) fn visit(work: &Work, directory: &Path) -> Result<(), Failure> {
    let mut visitor = [connect(&Endpoint::Shared(directory.join(PATH)))?];
    everybody(&mut visitor, work)?;
    ready(|| {})?;
    loop {
        std::thread::park();
    }
}

/// The far end: no place more than there are clients.
///
/// # Errors
/// It cannot be set up.
pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    process::raise_descriptors_max(DESCRIPTORS)?;
    let options = ServerOptions { clients_max: CLIENTS, ..ServerOptions::default() };
    let mut server = Server::bind(&[Endpoint::Shared(directory.join(PATH))], options)?;
    let stopper = server.stopper();
    ready(move || stopper.stop())?;
    server.serve(|request: Request<'_>, reply: Reply| reply.end(request.frame))?;
    Ok(())
}
