//! A closed loop of appends: every connection has one request under way and sends the next when its answer
//! came. Owns the clock of the measurement; never knows the server. Prints one line of JSON.
//!
//! `thalweg-load --port N [--connections N] [--streams N] [--bytes N] [--seconds N] [--warm-up-ms N]`
//!
//! With `--forks-of NAME` every request forks that stream, under names counted from `--first N` on, and the run
//! ends after `--operations N`.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::process::ExitCode;
use thalweg_bench::histogram::Histogram;
use thalweg_bench::{message, option};
use thalweg_sys::clock::monotonic_ns;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::socket;

const RECEIVE_BYTES: usize = 4096;

/// What to do.
struct Plan {
    address: SocketAddr,
    connections: usize,
    streams: usize,
    bytes: usize,
    seconds: u64,
    warm_up_ms: u64,
    /// Fork this stream instead of appending.
    source: Option<String>,
    first: u64,
    operations: u64,
}

/// One connection and its request under way.
struct Loop {
    socket: TcpStream,
    request: Vec<u8>,
    received: Vec<u8>,
    sent_ns: u64,
}

/// What was counted.
#[derive(Default)]
struct Counted {
    /// Operations from the first one on, for costs taken over the whole run.
    all: u64,
    failed: u64,
    latencies: Histogram,
}

fn main() -> ExitCode {
    match plan().and_then(|plan| measure(&plan)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("thalweg-load: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn plan() -> Result<Plan, String> {
    let plan = Plan {
        address: SocketAddr::from(([127, 0, 0, 1], option("--port", 0)?)),
        connections: option("--connections", 256)?,
        streams: option("--streams", 100)?,
        bytes: option("--bytes", 256)?,
        seconds: option("--seconds", 5)?,
        warm_up_ms: option("--warm-up-ms", 1000)?,
        source: Some(option("--forks-of", String::new())?).filter(|name| !name.is_empty()),
        first: option("--first", 0)?,
        operations: option("--operations", u64::MAX)?,
    };
    let empty = plan.connections == 0 || plan.streams == 0 || plan.seconds == 0;
    if empty {
        Err("nothing to do: connections, streams and seconds are above zero".to_owned())
    } else {
        Ok(plan)
    }
}

fn measure(plan: &Plan) -> Result<serde_json::Value, String> {
    if plan.source.is_none() {
        create_streams(plan)?;
    }
    let io = |e: std::io::Error| e.to_string();
    let epoll = Epoll::new().map_err(io)?;
    let mut loops = Vec::with_capacity(plan.connections);
    for n in 0..plan.connections {
        let socket = TcpStream::connect(plan.address).map_err(io)?;
        socket.set_nodelay(true).map_err(io)?;
        socket.set_nonblocking(true).map_err(io)?;
        let watch = Watch { readable: true, ..Watch::default() };
        epoll.add(socket.as_fd(), n as u64, watch).map_err(io)?;
        let received = Vec::with_capacity(RECEIVE_BYTES);
        loops.push(Loop { socket, request: request(n % plan.streams, plan.bytes), received, sent_ns: 0 });
    }
    let started = monotonic_ns();
    let measured_from = started + plan.warm_up_ms * 1_000_000;
    let until = measured_from + plan.seconds * 1_000_000_000;
    let (mut counted, mut sent) = (Counted::default(), 0);
    for connection in &mut loops {
        next(plan, connection, &mut sent)?;
    }
    let mut events = Events::with_capacity(plan.connections);
    while monotonic_ns() < until && counted.all < plan.operations {
        epoll.wait(&mut events, plan.connections, Timeout::Milliseconds(100)).map_err(io)?;
        for event in (0..events.len()).filter_map(|n| events.at(n)) {
            let at = usize::try_from(event.token).map_err(|e| e.to_string())?;
            if serve(&mut loops[at], measured_from, &mut counted)? {
                next(plan, &mut loops[at], &mut sent)?;
            }
        }
    }
    let measured_ns = monotonic_ns() - measured_from;
    Ok(report(&counted, measured_ns))
}

fn report(counted: &Counted, measured_ns: u64) -> serde_json::Value {
    serde_json::json!({
        "operations": counted.latencies.total(),
        "all_operations": counted.all,
        "failed": counted.failed,
        "microseconds": measured_ns / 1000,
        "p50_us": counted.latencies.quantile(500),
        "p99_us": counted.latencies.quantile(990),
        "p999_us": counted.latencies.quantile(999),
    })
}

/// Takes in an answer; whether it is whole.
fn serve(connection: &mut Loop, measured_from: u64, counted: &mut Counted) -> Result<bool, String> {
    let received = socket::receive(connection.socket.as_fd(), &mut connection.received, RECEIVE_BYTES);
    match received.map_err(|e| e.to_string())? {
        None => return Ok(false),
        Some(0) => return Err("the server hung up".to_owned()),
        Some(_) => {}
    }
    if message::length(&connection.received).is_none() {
        connection.received.reserve(RECEIVE_BYTES);
        return Ok(false);
    }
    counted.all += 1;
    if !(200..300).contains(&message::status(&connection.received)) {
        counted.failed += 1;
    } else if connection.sent_ns >= measured_from {
        counted.latencies.record((monotonic_ns() - connection.sent_ns) / 1000);
    }
    connection.received.clear();
    Ok(true)
}

/// Sends the connection's next request, if there is one left.
fn next(plan: &Plan, connection: &mut Loop, sent: &mut u64) -> Result<(), String> {
    if *sent == plan.operations {
        return Ok(());
    }
    if let Some(source) = &plan.source {
        connection.request = fork(source, plan.first + *sent);
    }
    *sent += 1;
    send(connection)
}

fn send(connection: &mut Loop) -> Result<(), String> {
    connection.sent_ns = monotonic_ns();
    let sent = socket::send(connection.socket.as_fd(), &connection.request).map_err(|e| e.to_string())?;
    // One request at a time is far below any socket buffer.
    if sent == Some(connection.request.len()) {
        Ok(())
    } else {
        Err("a request did not fit the socket".to_owned())
    }
}

fn request(stream: usize, bytes: usize) -> Vec<u8> {
    let mut request = format!(
        "POST /v1/stream/load-{stream} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
    )
    .into_bytes();
    request.resize(request.len() + bytes, b'x');
    request
}

fn fork(source: &str, serial: u64) -> Vec<u8> {
    format!(
        "PUT /v1/stream/fork-{serial} HTTP/1.1\r\nHost: localhost\r\n\
         Stream-Forked-From: /v1/stream/{source}\r\nContent-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

fn create_streams(plan: &Plan) -> Result<(), String> {
    let mut socket = TcpStream::connect(plan.address).map_err(|e| format!("{}: {e}", plan.address))?;
    for stream in 0..plan.streams {
        let request = format!(
            "PUT /v1/stream/load-{stream} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Type: application/octet-stream\r\nContent-Length: 0\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).map_err(|e| e.to_string())?;
        let mut received = Vec::new();
        while message::length(&received).is_none() {
            let mut bytes = [0; RECEIVE_BYTES];
            let count = socket.read(&mut bytes).map_err(|e| e.to_string())?;
            if count == 0 {
                return Err("the server hung up on a create".to_owned());
            }
            received.extend_from_slice(&bytes[..count]);
        }
        if !(200..300).contains(&message::status(&received)) {
            return Err(format!("create: status {}", message::status(&received)));
        }
    }
    Ok(())
}
