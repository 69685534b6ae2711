//! How a follower of a store waits for news: on its own thread, or in an event loop by a bell, one bell for
//! all that wait in that loop.
//!
//! Owns the one way to sleep without the interpreter's lock: signals are handled, other threads run, and
//! closing the store ends it. Never knows what is followed.

use super::bell::Bell;
use super::cursor;
use super::new_logs;
use super::shared::{Seat, Shared};
use crate::error;
use crate::hearing;
use crate::numbers::Number;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use thalweg_log::{Cursor, NewLogs};
use thalweg_sys::socket::SLEEP_MAX;

/// A follower of a store.
pub(crate) trait Follower: Clone + Send {
    /// Whether something was committed that was not looked at, or files were removed since.
    fn is_news(&self) -> bool;
}

impl Follower for Cursor {
    fn is_news(&self) -> bool {
        self.wait(Some(Duration::ZERO))
    }
}

impl Follower for NewLogs {
    fn is_news(&self) -> bool {
        self.wait(Some(Duration::ZERO))
    }
}

/// What Python has of a follower of a store.
pub(crate) trait Source {
    fn shared(&self) -> &Arc<Shared>;

    /// Whether there is something to be told now: what was followed, why it is not, or that nothing more
    /// comes. Kept until it is taken.
    fn look(&self, py: Python<'_>) -> bool;
}

/// Sleeps until there is news for the follower in a seat, or `timeout` seconds are over; whether there is.
pub(crate) fn wait<T, F: Follower>(
    py: Python<'_>,
    seat: &Seat<T>,
    timeout: Option<Number<f64>>,
    who: impl Fn(&T) -> &F,
) -> PyResult<bool> {
    let deadline = timeout.map(deadline_in).transpose()?.flatten();
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let longest = left.map_or(SLEEP_MAX, |left| left.min(SLEEP_MAX));
        if hearing::wait(py, || look(seat, &who), || sleep(py, seat, longest, &who))? {
            return Ok(true);
        }
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
    }
}

/// When so many seconds are over; `None` for more than a clock can tell, infinity among them.
fn deadline_in(timeout: Number<f64>) -> PyResult<Option<Instant>> {
    let (is_long, text) = match timeout {
        Number::Fits(seconds) => match Duration::try_from_secs_f64(seconds) {
            Ok(timeout) => return Ok(Instant::now().checked_add(timeout)),
            Err(_) => (seconds > 0.0, seconds.to_string()),
        },
        Number::Outside(text) => (!text.starts_with('-'), *text),
    };
    if is_long {
        return Ok(None);
    }
    Err(PyValueError::new_err(format!("timeout is {text}: give seconds, 0 or more")))
}

/// Whether there is news; nothing if there is none.
fn look<T, F: Follower>(seat: &Seat<T>, who: impl Fn(&T) -> &F) -> PyResult<Option<bool>> {
    let is_news = seat.with(|sits| who(sits).is_news())?;
    Ok(is_news.then_some(true))
}

/// Sleeps until there is news, every sleeper was woken, or the sleep was long enough.
fn sleep<T, F: Follower>(
    py: Python<'_>,
    seat: &Seat<T>,
    longest: Duration,
    who: impl Fn(&T) -> &F,
) -> PyResult<bool> {
    let shared = seat.shared();
    let in_use = shared.enter()?;
    let Some(following) = seat.try_with(|sits| who(sits).clone()) else {
        drop(in_use);
        return Err(shared.over());
    };
    let maps = in_use.maps();
    Ok(py.detach(move || {
        // It has looked just now, so only once it is declared asleep; whatever woke it then, a signal
        // perhaps, is looked into with the interpreter's lock.
        let mut looks = 0;
        maps.wait(Some(longest), || {
            looks += 1;
            looks > 2 || looks == 2 && (!shared.is_open() || following.is_news())
        });
        let came = following.is_news();
        drop((following, maps, in_use));
        came
    }))
}

/// Has `bell` rung by the next commit. `true`: there is news already, and it need not be waited for.
pub(crate) fn arm<T, F: Follower>(seat: &Seat<T>, bell: &Bell, who: impl Fn(&T) -> &F) -> PyResult<bool> {
    let waker = bell.waker_for(seat.shared())?;
    let maps = seat.shared().with(|open| open.maps.clone())?;
    // The waker stays until the next wake or the bell's end. Closing the store empties this seat
    // and then wakes every waiter.
    let is_news = seat.with(|sits| maps.register(waker, || who(sits).is_news()))?;
    is_news.map_err(|error: io::Error| error::io("start a thread", &error))
}

/// Which of `sources`, by their places, have something to be told now. For all others `bell` is rung by the
/// next commit to their stores.
pub(crate) fn which(py: Python<'_>, bell: &Bell, sources: &[Bound<'_, PyAny>]) -> PyResult<Vec<usize>> {
    let sources = sources.iter().map(followed).collect::<PyResult<Vec<_>>>()?;
    let mut armed: Vec<*const Shared> = Vec::new();
    // First the bell, then the look: what is committed behind the look rings.
    for source in &sources {
        let shared = source.shared();
        if armed.contains(&Arc::as_ptr(shared)) {
            continue;
        }
        armed.push(Arc::as_ptr(shared));
        // Of one that is closed the look tells.
        if let Ok(maps) = shared.with(|open| open.maps.clone()) {
            let waker = bell.waker_for(shared)?;
            maps.register(waker, || false).map_err(|error| error::io("start a thread", &error))?;
        }
    }
    let places = sources.iter().enumerate();
    Ok(places.filter(|(_, source)| source.look(py)).map(|(place, _)| place).collect())
}

fn followed<'a>(source: &'a Bound<'_, PyAny>) -> PyResult<&'a dyn Source> {
    match source.cast_exact::<cursor::Cursor>() {
        Ok(cursor) => Ok(cursor.get()),
        Err(_) => Ok(source.cast::<new_logs::NewLogs>()?.get()),
    }
}
