//! Something that many share and one closes: there and then, whatever handles the others still have.
//!
//! Purpose: a store's directory is free once the last clone of the store is dropped. Where handles are given
//! out that nobody can call in, objects of a language with a garbage collector or tasks of a pool, none of
//! them keeps a clone. They share a [`Closable`], ask it for the store each time, and are told when it is
//! closed.
//!
//! Invariants: nothing is lent once it is being closed; it ends when nobody has it in use any more; who comes
//! to close it while another does can wait until it has ended. *Checked by* the tests below and by those of
//! the faces.

use parking_lot::{Condvar, Mutex, RwLock};
use std::ops::Deref;
use std::sync::Arc;

/// Something that many share and one of them closes for all.
///
/// ```
/// use thalweg_log::{Closable, Options, Store};
/// let shared = Closable::new(Store::memory(Options::default())?);
/// let in_use = shared.enter(Store::clone).ok_or("closed")?;
/// std::thread::scope(|scope| {
///     let ended = shared.close().map(|closing| scope.spawn(|| closing.finish(|store| store.close())));
///     assert!(shared.enter(Store::clone).is_none(), "nobody begins anything now");
///     in_use.log(b"steps").expect("it ends behind this");
///     drop(in_use);
///     ended.map(|thread| thread.join())
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Closable<T> {
    value: RwLock<Option<T>>,
    uses: Arc<Uses>,
}

/// What the caller that closes it waits for.
#[derive(Debug, Default)]
struct Uses {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    in_use: usize,
    /// It was taken, and has not ended.
    closing: bool,
}

/// What was lent of it: it does not end before this is dropped.
#[derive(Debug)]
pub struct InUse<U> {
    /// Dropped before the use is over.
    lent: U,
    turn: Use,
}

#[derive(Debug)]
struct Use(Arc<Uses>);

/// What was taken from everybody, to be ended.
#[derive(Debug)]
#[must_use = "others wait until it has ended"]
pub struct Closing<T> {
    /// Dropped before it counts as ended.
    value: T,
    end: End,
}

#[derive(Debug)]
struct End(Arc<Uses>);

impl<T> Closable<T> {
    /// It is open.
    pub fn new(value: T) -> Closable<T> {
        Closable { value: RwLock::new(Some(value)), uses: Arc::default() }
    }

    /// Does something short with it, which must not close it; `None` when it is closed.
    #[inline]
    pub fn with<R>(&self, task: impl FnOnce(&T) -> R) -> Option<R> {
        self.value.read().as_ref().map(task)
    }

    /// The same for a caller that must not wait: `None`, too, while somebody takes it.
    pub fn try_with<R>(&self, task: impl FnOnce(&T) -> R) -> Option<R> {
        self.value.try_read()?.as_ref().map(task)
    }

    /// Lends something of it for as long as the caller likes: who closes it waits. `None` when it is closed.
    pub fn enter<U>(&self, lend: impl FnOnce(&T) -> U) -> Option<InUse<U>> {
        let value = self.value.read();
        let lent = lend(value.as_ref()?);
        // With the lock held: who takes it behind this waits for it.
        self.uses.state.lock().in_use += 1;
        Some(InUse { lent, turn: Use(self.uses.clone()) })
    }

    /// Whether nobody has closed it yet.
    pub fn is_open(&self) -> bool {
        self.value.read().is_some()
    }

    /// Takes it from everybody. `None` when somebody did already: [`Closable::ended`] waits for them.
    pub fn close(&self) -> Option<Closing<T>> {
        let mut value = self.value.write();
        let taken = value.take()?;
        self.uses.state.lock().closing = true;
        Some(Closing { value: taken, end: End(self.uses.clone()) })
    }

    /// Waits until what somebody closes has ended; not at all when nobody does.
    pub fn ended(&self) {
        self.uses.wait_until(|state| !state.closing);
    }
}

impl<T> Closing<T> {
    /// What is about to end, which some may have in use still.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Waits until nobody has it in use, and ends it. Dropped without that, it ends there and then.
    pub fn finish<R>(self, end: impl FnOnce(T) -> R) -> R {
        let Closing { value, end: ending } = self;
        ending.0.wait_until(|state| state.in_use == 0);
        let ended = end(value);
        drop(ending);
        ended
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.0.change(|state| state.closing = false);
    }
}

impl<U> InUse<U> {
    /// Goes on with something else of it, or with nothing.
    ///
    /// # Errors
    /// What `narrow` says; it is in use no longer then.
    pub fn try_map<V, E>(self, narrow: impl FnOnce(U) -> Result<V, E>) -> Result<InUse<V>, E> {
        let InUse { lent, turn } = self;
        Ok(InUse { lent: narrow(lent)?, turn })
    }
}

impl<U> Deref for InUse<U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.lent
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.change(|state| state.in_use -= 1);
    }
}

impl Uses {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let mut state = self.state.lock();
        while !is_so(&state) {
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Weak;
    use std::thread;

    /// As many as there are orders of two threads that a machine happens on.
    const ROUNDS: usize = 200;

    fn noted(said: &Mutex<Vec<&'static str>>, what: &'static str) {
        said.lock().push(what);
    }

    #[test]
    fn it_ends_when_nobody_has_it_in_use_any_more() {
        for _ in 0..ROUNDS {
            let (shared, said) = (Closable::new(Arc::new(())), Mutex::default());
            let only = shared.with(Arc::downgrade).unwrap();
            let in_use = shared.enter(Arc::clone).unwrap();
            let closing = shared.close().unwrap();
            assert!(shared.enter(|_| ()).is_none() && shared.with(|_| ()).is_none() && !shared.is_open());
            thread::scope(|scope| {
                scope.spawn(|| {
                    closing.finish(|value| {
                        noted(&said, "ended");
                        assert_eq!(Arc::strong_count(&value), 1, "what was lent is dropped by then");
                    });
                });
                thread::yield_now();
                noted(&said, "left");
                drop(in_use);
            });
            assert_eq!(*said.lock(), ["left", "ended"]);
            assert!(Weak::upgrade(&only).is_none());
        }
    }

    #[test]
    fn who_comes_while_another_closes_it_waits_until_it_has_ended() {
        for _ in 0..ROUNDS {
            let (shared, said) = (Closable::new(()), Mutex::default());
            let closing = shared.close().unwrap();
            assert!(shared.close().is_none());
            thread::scope(|scope| {
                scope.spawn(|| {
                    shared.ended();
                    noted(&said, "another goes on");
                });
                thread::yield_now();
                closing.finish(|()| noted(&said, "ended"));
            });
            assert_eq!(*said.lock(), ["ended", "another goes on"]);
            shared.ended();
        }
    }

    #[test]
    fn what_is_not_finished_or_fails_to_end_keeps_nobody_waiting() {
        let shared = Closable::new(());
        drop(shared.close().unwrap());
        shared.ended();
        let shared = Closable::new(());
        let closing = shared.close().unwrap();
        let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            closing.finish(|()| panic!("it fails"))
        }));
        assert!(failed.is_err());
        shared.ended();
    }

    #[test]
    fn what_is_refused_is_in_use_no_longer() {
        let shared = Closable::new(7);
        let refused = shared.enter(|number| *number).unwrap().try_map(|_| Err::<(), _>("odd"));
        assert_eq!(refused.err(), Some("odd"));
        let in_use =
            shared.enter(|number| *number).unwrap().try_map(|number| Ok::<_, ()>(number + 1)).unwrap();
        assert_eq!((*in_use, shared.uses.state.lock().in_use), (8, 1));
        drop(in_use);
        assert_eq!(shared.close().unwrap().finish(|number| number), 7);
    }
}
