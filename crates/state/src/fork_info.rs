//! Forks as they stand in a list, a page at a time. Those that cannot be read are listed, too: so an operator
//! learns of them, and can drop them.

use crate::fork::{Fork, Moment, View};
use crate::state::{ForkId, State};
use std::sync::Arc;
use thalweg_log::{Log, Offset};

/// A fork as it stands in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForkInfo {
    /// The fork.
    pub fork: ForkId,
    /// The name of its log.
    pub log: String,
    /// Where what is committed ends.
    pub offset: Offset,
    /// Keys that hold something.
    pub keys: usize,
    /// Why it cannot be read, if it cannot: then no keys are known of it, and it can only be dropped.
    pub unreadable: Option<String>,
}

impl State {
    /// At most `limit` forks from `from` on, in the order in which they were made: those whose creation is
    /// durable and whose drop is not. Complexity: `limit`.
    pub fn fork_infos(&self, from: ForkId, limit: usize) -> Vec<ForkInfo> {
        let forks = self.all();
        let readable = forks.range(from..).filter_map(|(_, fork)| readable(fork));
        let mut infos: Vec<_> = readable.take(limit).collect();
        let others = self.shared.unreadable.read();
        let others = others.range(from..).filter_map(|(_, (log, why))| unreadable(log, why));
        infos.extend(others.take(limit));
        infos.sort_by_key(|info| info.fork);
        infos.truncate(limit);
        infos
    }
}

fn readable(fork: &Arc<Fork>) -> Option<ForkInfo> {
    let Moment { map, offset } = fork.moment(View::Committed).ok()?;
    Some(ForkInfo { keys: map.len(), ..info(&fork.log, offset) })
}

fn unreadable(log: &Arc<Log>, why: &str) -> Option<ForkInfo> {
    let offset = log.visible()?.tail;
    Some(ForkInfo { unreadable: Some(why.to_owned()), ..info(log, offset) })
}

fn info(log: &Log, offset: Offset) -> ForkInfo {
    let name = String::from_utf8_lossy(log.name()).into_owned();
    ForkInfo { fork: log.id(), log: name, offset, keys: 0, unreadable: None }
}
