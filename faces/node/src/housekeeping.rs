//! Housekeeping: what is asked for, and what is done by itself as a store grows, in the pool's threads.

use crate::dues::Turn;
use crate::error::{Result, closed, failure};
use crate::shelf::Shelf;
use napi::Task;
use napi::bindgen_prelude::Env;
use std::sync::Arc;
use thalweg_log::{InUse, Store, now};

/// Asked for.
pub struct MaintainTask {
    /// Until it is done: a task lives until the event loop has heard of it.
    pub(crate) in_use: Option<InUse<Store>>,
}

impl Task for MaintainTask {
    type Output = bool;
    type JsValue = bool;

    fn compute(&mut self) -> Result<bool> {
        let store = self.in_use.take().ok_or_else(closed)?;
        store.maintain(now()).map_err(|error| failure("IO", error))
    }

    fn resolve(&mut self, _env: Env, more: bool) -> Result<bool> {
        Ok(more)
    }
}

/// Begun by itself: its outcome is not reported.
struct DueMaintainTask {
    shelf: Arc<Shelf>,
    turn: Option<Turn>,
    in_use: Option<InUse<Store>>,
}

impl Task for DueMaintainTask {
    /// Whether there is more to do; nothing where it failed: that fails again where it is asked for.
    type Output = Option<bool>;
    type JsValue = ();

    fn compute(&mut self) -> Result<Option<bool>> {
        Ok(self.in_use.take().and_then(|store| store.maintain(now()).ok()))
    }

    fn resolve(&mut self, env: Env, more: Option<bool>) -> Result<()> {
        let turn = self.turn.take().zip(more).and_then(|(turn, more)| turn.again(more));
        if let Some(turn) = turn {
            keep(&env, &self.shelf, turn);
        }
        Ok(())
    }
}

/// Tells that so much was appended, and has housekeeping done where that makes it due. What was appended is
/// written, so nothing of it is refused because the store is closed by now.
pub(crate) fn grew(env: &Env, shelf: &Arc<Shelf>, bytes: u32) {
    if let Some(turn) = shelf.dues.grew(bytes.into()) {
        keep(env, shelf, turn);
    }
}

fn keep(env: &Env, shelf: &Arc<Shelf>, turn: Turn) {
    let begun = shelf.queue(|| {
        let in_use = Some(shelf.enter_own()?);
        env.spawn(DueMaintainTask { shelf: shelf.clone(), turn: Some(turn), in_use }).map(drop)
    });
    drop(begun);
}
