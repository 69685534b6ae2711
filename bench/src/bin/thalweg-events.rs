//! Events of mixed kinds through a reactor's mailbox to callbacks by number, all in Rust: what the mailbox
//! itself can do. One thread posts, another takes and tells; nothing else is done with an event than to count
//! it.
//!
//! `thalweg-events --seconds N` prints how many events arrived per second.
#![forbid(unsafe_code)]

use std::io;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thalweg_bench::option;
use thalweg_events::{CallbackId, Callbacks, Event, Noted, ROWS, Subject};
use thalweg_reactor::{Config, Core, Full, Handle, Handler, Key, Reactor, Readiness, Wait};

/// Callbacks that events go to in turn.
const CALLBACKS: usize = 64;
/// Posted between two looks at the clock.
const BATCH: usize = 4_096;

/// What is told of an event: its payload is added up.
type Told = fn(&mut Sums, u64);

#[derive(Default)]
struct Sums {
    events: u64,
    payloads: u64,
}

struct Consumer {
    callbacks: Callbacks<Told>,
    sums: Sums,
}

impl Handler for Consumer {
    type Entry = ();
    type Topic = ();
    type Message = Event<u64>;

    fn ready(&mut self, _: &mut Core<Self>, _: Key, _: Readiness) {}

    #[inline]
    fn message(&mut self, _: &mut Core<Self>, event: Event<u64>) {
        let subject = Subject::Number(event.payload as i64);
        if self.callbacks.note(event.callback, event.kind, subject) == Noted::New
            && let Some(told) = self.callbacks.deliver(event.callback, event.kind, subject)
        {
            told(&mut self.sums, event.payload);
        }
    }

    fn timer(&mut self, _: &mut Core<Self>, _: Key) {}
}

fn main() -> ExitCode {
    match option("--seconds", 1).and_then(|seconds| measure(seconds).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("thalweg-events: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn measure(seconds: u64) -> io::Result<()> {
    let mut callbacks: Callbacks<Told> = Callbacks::default();
    let count: Told = |sums, payload| {
        sums.events += 1;
        sums.payloads = sums.payloads.wrapping_add(payload);
    };
    let ids: Vec<CallbackId> = (0..CALLBACKS).map(|_| callbacks.insert(count)).collect();
    let mut reactor = Reactor::new(Config::default(), |_| {
        Ok::<_, io::Error>(Consumer { callbacks, sums: Sums::default() })
    })?;
    let handle = reactor.handle();
    let began = Instant::now();
    let poster = std::thread::spawn(move || {
        let posted = post_for(Duration::from_secs(seconds), &handle, &ids);
        handle.stop();
        posted
    });
    reactor.run()?;
    // What was posted before the stop may have come with it.
    while reactor.turn(usize::MAX, Wait::Poll)? > 0 {}
    let took = began.elapsed().as_secs_f64();
    let posted = poster.join().map_err(|_| io::Error::other("the thread that posts panicked"))?;
    let told = &reactor.handler().sums;
    if (told.events, told.payloads) != posted {
        return Err(io::Error::other("not every event arrived once"));
    }
    println!("{:.0}", told.events as f64 / took);
    Ok(())
}

/// Posts for so long; how many, and the sum of their payloads.
fn post_for(span: Duration, handle: &Handle<Event<u64>>, ids: &[CallbackId]) -> (u64, u64) {
    let until = Instant::now() + span;
    let (mut events, mut payloads) = (0_u64, 0_u64);
    loop {
        for (row, id) in ROWS.iter().cycle().zip(ids.iter().cycle()).take(BATCH) {
            let mut event = Event { callback: *id, kind: row.kind, payload: events };
            while let Err(Full(refused)) = handle.post(event) {
                std::thread::yield_now();
                event = refused;
            }
            payloads = payloads.wrapping_add(events);
            events += 1;
        }
        if Instant::now() >= until {
            return (events, payloads);
        }
    }
}
