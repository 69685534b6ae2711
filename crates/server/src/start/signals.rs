//! Signals while a server starts. A start may take long (a slow disk, much to replay), and can be ended all
//! the same.
//!
//! Nothing was acknowledged by then, and the next server recovers the store, so the program ends at once. A
//! signal to reload is raised again afterwards: the files that it is about may have been read before it
//! came.

use std::io;
use std::os::fd::AsFd;
use thalweg_sys::epoll::{Epoll, Events, Timeout, Watch};
use thalweg_sys::event::EventFd;
use thalweg_sys::signal::{Signal, Signals, raise};

const STACK_BYTES: usize = 64 << 10;
const SIGNALS: u64 = 0;
const END: u64 = 1;

/// Tells the watching thread that the work is over, also when it panics.
struct EndNotice<'a>(&'a EventFd);

impl Drop for EndNotice<'_> {
    fn drop(&mut self) {
        // Its counter is never full.
        let _ = self.0.signal();
    }
}

/// Does some work of the start. A signal to end that comes meanwhile calls `end`, on another thread.
///
/// # Errors
/// Out of descriptors or threads: nothing was done.
pub(crate) fn interruptible<T>(
    signals: &Signals,
    end: impl Fn(Signal) + Send,
    work: impl FnOnce() -> T,
) -> io::Result<T> {
    let (epoll, over) = (Epoll::new()?, EventFd::new()?);
    epoll.add(signals.as_fd(), SIGNALS, Watch::READ)?;
    epoll.add(over.as_fd(), END, Watch::READ)?;
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().name("start".into()).stack_size(STACK_BYTES);
        let watching = builder.spawn_scoped(scope, || hear(&epoll, signals, end))?;
        let done = {
            let _over = EndNotice(&over);
            work()
        };
        if watching.join().unwrap_or(false) {
            raise(Signal::HangUp)?;
        }
        Ok(done)
    })
}

/// Takes signals until the work is over; whether one of them asks to reload.
fn hear(epoll: &Epoll, signals: &Signals, end: impl Fn(Signal)) -> bool {
    let (mut events, mut reload) = (Events::with_capacity(2), false);
    loop {
        if epoll.wait(&mut events, 2, Timeout::Never).is_err() {
            return reload;
        }
        for index in 0..events.len() {
            match events.at(index).map(|event| event.token) {
                Some(SIGNALS) => match signals.next() {
                    Ok(Some(Signal::HangUp)) => reload = true,
                    Ok(Some(signal)) => end(signal),
                    Ok(None) | Err(_) => {}
                },
                _ => return reload,
            }
        }
    }
}
