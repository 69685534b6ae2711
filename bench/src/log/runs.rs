//! Which patterns run on which stores, in which order: within a pair every side has its turn before the next
//! pair begins, so that what drifts drifts for all. Stores that are only read are made once; those that are
//! appended to are new for each measurement and removed after it.

use crate::floor::{ColdFrames, Frames, Plain};
use crate::lmdb::{self, ColdLmdb, Lmdb, Mode};
use crate::neighbour::Process;
use crate::ours::{ColdOurs, Ours};
use crate::patterns::{self, Subject};
use crate::sample::{Measured, Until};
use crate::side::{Failure, Side};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use thalweg_log::Durability;

/// Readers at once.
const READERS: [usize; 3] = [1, 2, 8];
/// Entries of the store that fits the nearest caches.
const SMALL: u64 = 1_000;
/// Entries of the store that fits the caches of one processor.
const HOT: u64 = 10_000;
/// Entries that one transaction of the durable pattern holds.
const GROUP_ENTRIES: u64 = 100;
/// How much longer a measurement is that waits for a disk.
const DURABLE_TIMES: u32 = 4;
/// Threads that append at once.
const WORKERS: usize = 10;
/// Frames that the floor's file has room for when it is appended to: 1.4 GB of address space, used as far as
/// it goes.
const ROOM: u64 = 10_000_000;

/// What to run and for how long.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) directory: PathBuf,
    pub(crate) entries: u64,
    pub(crate) pairs: usize,
    pub(crate) until: Until,
    /// Groups to run; all when empty.
    pub(crate) only: Vec<String>,
    /// Sides to run; all when empty.
    pub(crate) sides: Vec<String>,
}

fn listed(list: &[String], name: &str) -> bool {
    list.is_empty() || list.iter().any(|known| known == name)
}

/// Measures one side with a number of threads.
type Measure<'m> = &'m dyn Fn(usize) -> Result<Measured, Failure>;

impl Plan {
    fn wants(&self, group: &str) -> bool {
        listed(&self.only, group)
    }

    /// One group: in each pair, for each number of threads, every side in turn.
    fn compare(&self, group: &str, threads: &[usize], sides: &[(&str, Measure<'_>)]) -> Result<(), Failure> {
        if !self.wants(group) {
            return Ok(());
        }
        for pair in 0..self.pairs {
            for threads in threads {
                for (side, measure) in sides.iter().filter(|(side, _)| listed(&self.sides, side)) {
                    let measured =
                        measure(*threads).map_err(|e| format!("{group}/{threads}, {side}: {e}"))?;
                    measured.print(
                        &format!("{group}/{threads}"),
                        side,
                        pair,
                        matches!(self.until, Until::Turns(_)),
                    );
                }
            }
        }
        Ok(())
    }

    /// A new directory, handed over and removed.
    fn apart(&self, run: impl FnOnce(&Path) -> Result<Measured, Failure>) -> Result<Measured, Failure> {
        let directory = self.directory.join("apart");
        std::fs::create_dir_all(&directory)?;
        let outcome = run(&directory);
        std::fs::remove_dir_all(&directory)?;
        outcome
    }

    /// A new store of ours.
    fn ours(&self, run: impl Fn(Ours) -> Result<Measured, Failure>) -> Result<Measured, Failure> {
        self.apart(|directory| run(Ours::open(directory, Durability::Os)?))
    }

    /// A new environment of the peer.
    fn peer(
        &self,
        mode: Mode,
        run: impl Fn(Lmdb<'_>) -> Result<Measured, Failure>,
    ) -> Result<Measured, Failure> {
        self.apart(|directory| run(Lmdb::new(&lmdb::open(directory, mode)?)?))
    }
}

/// The three sides with the same entries.
struct Trio<'e> {
    entries: u64,
    ours: Subject<Ours>,
    peer: Subject<Lmdb<'e>>,
    floor: Subject<Frames>,
}

impl<'e> Trio<'e> {
    fn fill(directory: &Path, env: &'e heed::Env, entries: u64) -> Result<Trio<'e>, Failure> {
        let ours = Ours::open(&directory.join("ours"), Durability::Os)?;
        ours.append_each(0, entries)?;
        let peer = Lmdb::new(env)?;
        peer.append(0, entries)?;
        let floor = Frames::filled(&directory.join("floor"), entries)?;
        let (ours, peer) = (Subject::new(ours, entries), Subject::new(peer, entries));
        Ok(Trio { entries, ours, peer, floor: Subject::new(floor, entries) })
    }
}

/// Runs what was asked for, a line of JSON for each measurement.
///
/// # Errors
/// The first that any measurement meets.
pub(crate) fn run(plan: &Plan) -> Result<(), Failure> {
    let [small, hot, large] = ["small", "hot", "large"].map(|name| plan.directory.join(name));
    let env = |directory: &Path| lmdb::open(&directory.join("peer"), Mode::Os);
    let (small_env, hot_env, large_env) = (env(&small)?, env(&hot)?, env(&large)?);
    let small = Trio::fill(&small, &small_env, SMALL.min(plan.entries))?;
    let hot = Trio::fill(&hot, &hot_env, HOT.min(plan.entries))?;
    let directory = large.join("ours");
    let large = Trio::fill(&large, &large_env, plan.entries)?;
    cold(plan)?;
    scans(plan, "scan", &large)?;
    scans(plan, "scan-hot", &hot)?;
    neighbours(plan, &large, &directory)?;
    ranges(plan, "ranges", &large)?;
    ranges(plan, "ranges-hot", &hot)?;
    seeks(plan, "seek", &large)?;
    seeks(plan, "seek-small", &small)?;
    reads(plan, "place", &large)?;
    reads(plan, "place-small", &small)?;
    beside_a_writer(plan, &large)?;
    followers(plan, &large)?;
    appends(plan)?;
    durable(plan)
}

/// Reads everything in a store that was just opened.
fn cold(plan: &Plan) -> Result<(), Failure> {
    if !plan.wants("cold") {
        return Ok(());
    }
    let (directory, entries, until) = (plan.directory.join("cold"), plan.entries, plan.until);
    let ours = ColdOurs::filled(directory.join("ours"), entries)?;
    let peer = ColdLmdb::filled(directory.join("peer"), entries)?;
    let floor = ColdFrames::filled(&directory.join("floor"), entries)?;
    let ours = |_| patterns::cold(&ours, entries, until);
    let peer = |_| patterns::cold(&peer, entries, until);
    let floor = |_| patterns::cold(&floor, entries, until);
    plan.compare("cold", &[1], &[("ours", &ours), ("peer", &peer), ("floor", &floor)])?;
    Ok(std::fs::remove_dir_all(directory)?)
}

fn scans(plan: &Plan, group: &str, trio: &Trio<'_>) -> Result<(), Failure> {
    let until = plan.until;
    let ours = |readers| patterns::scan(&trio.ours, readers, until, false);
    let peer = |readers| patterns::scan(&trio.peer, readers, until, false);
    let floor = |readers| patterns::scan(&trio.floor, readers, until, false);
    plan.compare(group, &READERS, &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}

/// A reader in another process beside one in this.
fn neighbours(plan: &Plan, trio: &Trio<'_>, directory: &Path) -> Result<(), Failure> {
    let process = RefCell::new(Process::start(directory, plan.until)?);
    let there = |_| process.borrow_mut().scan(trio.ours.entries());
    let here = |readers| patterns::scan(&trio.ours, readers, plan.until, false);
    plan.compare("neighbour", &[1], &[("ours", &there), ("peer", &here)])?;
    process.into_inner().end()
}

fn ranges(plan: &Plan, group: &str, trio: &Trio<'_>) -> Result<(), Failure> {
    let (entries, until) = (trio.entries, plan.until);
    let ours = |readers| patterns::ranges(&trio.ours, entries, readers, until);
    let peer = |readers| patterns::ranges(&trio.peer, entries, readers, until);
    let floor = |readers| patterns::ranges(&trio.floor, entries, readers, until);
    plan.compare(group, &READERS, &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}

fn seeks(plan: &Plan, group: &str, trio: &Trio<'_>) -> Result<(), Failure> {
    let (entries, until) = (trio.entries, plan.until);
    let ours = |readers| patterns::seeks(&trio.ours, entries, readers, until);
    let peer = |readers| patterns::seeks(&trio.peer, entries, readers, until);
    let floor = |readers| patterns::seeks(&trio.floor, entries, readers, until);
    plan.compare(group, &READERS, &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}

fn reads(plan: &Plan, group: &str, trio: &Trio<'_>) -> Result<(), Failure> {
    let (entries, until) = (trio.entries, plan.until);
    let ours = |readers| patterns::reads(&trio.ours, entries, readers, until);
    let peer = |readers| patterns::reads(&trio.peer, entries, readers, until);
    let floor = |readers| patterns::reads(&trio.floor, entries, readers, until);
    plan.compare(group, &READERS, &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}

/// Reads beside a writer of 50 entries each millisecond. The floor has no such writer, because it publishes
/// no length.
fn beside_a_writer(plan: &Plan, trio: &Trio<'_>) -> Result<(), Failure> {
    let (entries, until) = (trio.entries, plan.until);
    let ours = |readers| patterns::scan(&trio.ours, readers, until, true);
    let peer = |readers| patterns::scan(&trio.peer, readers, until, true);
    plan.compare("scan-writer", &READERS, &[("ours", &ours), ("peer", &peer)])?;
    let ours = |_| patterns::iterators(&trio.ours, entries, until, true);
    let peer = |_| patterns::iterators(&trio.peer, entries, until, true);
    let floor = |_| patterns::iterators(&trio.floor, entries, until, false);
    plan.compare("iterators", &[1], &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}

fn followers(plan: &Plan, trio: &Trio<'_>) -> Result<(), Failure> {
    let until = plan.until;
    let ours = |readers| patterns::polls(&trio.ours, readers, until);
    let peer = |readers| patterns::polls(&trio.peer, readers, until);
    plan.compare("polls", &READERS, &[("ours", &ours), ("peer", &peer)])?;
    // The writer goes as fast as it can: new stores, or each pair's would be larger than the last one's.
    for (group, together) in [("delivered", false), ("delivered-together", true)] {
        let ours =
            |readers| plan.ours(|side| patterns::delivered(&Subject::new(side, 0), readers, until, together));
        let peer = |mode| {
            move |readers| {
                plan.peer(mode, |side| patterns::delivered(&Subject::new(side, 0), readers, until, together))
            }
        };
        let (peer, map) = (peer(Mode::Os), peer(Mode::WriteMap));
        plan.compare(group, &READERS, &[("ours", &ours), ("peer", &peer), ("peer-map", &map)])?;
    }
    Ok(())
}

fn appends(plan: &Plan) -> Result<(), Failure> {
    let until = plan.until;
    let ours = |_| plan.ours(|side| patterns::append(&side, 1, until));
    let peer = |mode| move |_| plan.peer(mode, |side| patterns::append(&side, 1, until));
    let (peer, map) = (peer(Mode::Os), peer(Mode::WriteMap));
    let floor = |_| plan.apart(|directory| patterns::append(&Frames::create(directory, ROOM)?, 1, until));
    let sides: &[(&str, Measure<'_>)] =
        &[("ours", &ours), ("peer", &peer), ("peer-map", &map), ("floor", &floor)];
    plan.compare("append", &[1], sides)?;
    let ours = |workers| plan.ours(|side| patterns::workers(&side, workers, until));
    let peer = |mode| move |workers| plan.peer(mode, |side| patterns::workers(&side, workers, until));
    let (peer, map) = (peer(Mode::Os), peer(Mode::WriteMap));
    plan.compare("workers", &[WORKERS], &[("ours", &ours), ("peer", &peer), ("peer-map", &map)])
}

/// Transactions of 100 entries that survive a power cut, beside `write` and `fdatasync` of the same bytes.
fn durable(plan: &Plan) -> Result<(), Failure> {
    // A sync takes as long as the disk likes: each side is given more of them.
    let until = plan.until.longer(DURABLE_TIMES);
    let ours = |_| {
        plan.apart(|directory| {
            patterns::append(&Ours::open(directory, Durability::Sync)?, GROUP_ENTRIES, until)
        })
    };
    let peer = |_| plan.peer(Mode::Sync, |side| patterns::append(&side, GROUP_ENTRIES, until));
    let floor = |_| {
        plan.apart(|directory| {
            let plain = Plain::create(directory)?;
            patterns::appending(GROUP_ENTRIES, until, |first| plain.append(first, GROUP_ENTRIES))
        })
    };
    plan.compare("append-sync", &[1], &[("ours", &ours), ("peer", &peer), ("floor", &floor)])
}
