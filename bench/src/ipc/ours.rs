//! Our services, each way that a server can answer.

use crate::answering::Answering;
use crate::clients;
use crate::echo::server::dispatch_unordered;
use crate::echo::types::{EchoFields, commands};
use crate::far::{Far, ready};
use crate::work::{Carrier, Side, Work};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until};
use thalweg_service::{
    CallOptions, Client, ClientOptions, Endpoint, EventKind, Executor, Pool, Reply, Request, Server,
    ServerOptions, Wait,
};
use thalweg_wire::messagepack::request_frame;
use thalweg_wire::service::answer;

/// Threads of the pool that answers.
const POOL_THREADS: usize = 2;

/// Where the service is, by what carries it.
fn endpoint(work: &Work, path: impl Fn(&str) -> PathBuf) -> Endpoint {
    match work.carrier {
        Carrier::Socket => Endpoint::Socket(path("ours.sock")),
        Carrier::Memory => Endpoint::Shared(path("ours.shm")),
    }
}

/// Measures.
///
/// # Errors
/// Something did not start, or an answer differed.
pub(crate) fn measure(side: Side, work: &Work, until: Until) -> Result<Measured, Failure> {
    let far = Far::start(side, work)?;
    let endpoint = endpoint(work, |name| far.path(name));
    let connect = || Ok(Client::connect(&endpoint, ClientOptions::default())?);
    let message = vec![7; work.bytes];
    let measured = if side == Side::Typed {
        clients(work, until, connect, |client| {
            let request = EchoFields { count: 7, total: 1 << 40, name: "a name of some length".into() };
            let mut frame = Vec::with_capacity(128);
            request_frame(&request, &mut frame);
            batch(client, &frame, work.depth, |answered| {
                let response = answer::<commands::Fields, Infallible>(answered)?;
                if response.total == request.total && response.name == request.name {
                    Ok(())
                } else {
                    differs()
                }
            })
        })?
    } else {
        clients(work, until, connect, |client| {
            batch(
                client,
                &message,
                work.depth,
                |answered| if answered == message { Ok(()) } else { differs() },
            )
        })?
    };
    Ok(measured.with_far(far.end()?))
}

fn differs() -> Result<(), Failure> {
    Err("another answer".into())
}

/// Sends as many requests as are to be under way, and takes as many answers.
fn batch(
    client: &mut Client,
    request: &[u8],
    depth: usize,
    check: impl Fn(&[u8]) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    if depth == 1 {
        let call = client.call(request, CallOptions::default())?;
        check(client.wait(call)?)?;
        return Ok(1);
    }
    let mut last = None;
    for _ in 0..depth {
        last = Some(client.call(request, CallOptions::default())?);
    }
    // On one connection the last is rarely faster than the first; what came before it is taken along.
    if let Some(last) = last {
        check(client.wait(last)?)?;
    }
    let mut taken = 1;
    while taken < depth {
        match client.next() {
            Some(event) => {
                match event.kind {
                    EventKind::End => check(event.frame)?,
                    other => return Err(format!("{other:?}").into()),
                }
                taken += 1;
            }
            None => drop(client.turn(Wait::Block)?),
        }
    }
    Ok(depth as u64)
}

/// The far end.
///
/// # Errors
/// It cannot be set up.
pub(crate) fn serve(side: Side, work: &Work, directory: &Path) -> Result<(), Failure> {
    let endpoint = endpoint(work, |name| directory.join(name));
    let mut server = Server::bind(&[endpoint], ServerOptions::default())?;
    let stopper = server.stopper();
    ready(move || stopper.stop())?;
    let effort = Duration::from_micros(work.effort_us);
    match side {
        Side::Serial => server.run(|request, response| {
            toil(effort);
            response.extend_from_slice(request);
        })?,
        Side::Reactor => {
            server.serve(|request: Request<'_>, reply: Reply| reply.end(request.frame))?;
        }
        Side::Typed => {
            let handle = |request: Request<'_>, reply: Reply| {
                dispatch_unordered(&Answering, request.frame, Box::new(reply))
            };
            server.serve(handle)?;
        }
        _ => {
            let pool = Pool::new(POOL_THREADS);
            server.serve(|request: Request<'_>, reply: Reply| {
                if request.alone {
                    toil(effort);
                    return reply.end(request.frame);
                }
                let frame = request.frame.to_vec();
                pool.execute(Box::new(move || {
                    toil(effort);
                    reply.end(&frame);
                }));
            })?;
        }
    }
    Ok(())
}

/// Uses `effort` of processor time.
fn toil(effort: Duration) {
    if effort.is_zero() {
        return;
    }
    let until = Instant::now() + effort;
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
