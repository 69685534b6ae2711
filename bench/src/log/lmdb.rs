//! The peer: LMDB through `heed`, the crate by which Rust programs use it, set up as favourably as its
//! guarantees allow.
//!
//! - Keys are the entries' times as native integers (`MDB_INTEGERKEY`), which LMDB compares fastest; no
//!   duplicates. Entries are put with `MDB_APPEND`, which skips the search and fills pages to the brim.
//! - A store that only has to survive the process is opened with `MDB_NOSYNC`, as programs do that want
//!   speed: a commit is `pwritev`, and no sync of any kind (so `MDB_NOMETASYNC` and `MDB_MAPASYNC` would add
//!   nothing). `MDB_WRITEMAP` is off by default in heed, in LMDB's own tools and in its bindings for Node and
//!   Python, because then any stray write of the program damages the store. With it a commit makes no system
//!   call, as ours does not. Both are measured: the first is what ratios with a bar refer to, the second
//!   stands beside it.
//! - A store that has to survive a power cut has neither flag: with `MDB_WRITEMAP` each commit would be an
//!   `msync` of the whole map.
//! - `MDB_NOMEMINIT` spares clearing pages, `MDB_NORDAHEAD` is of no use as everything is in memory.
//! - Read transactions are bound to their thread, so beginning one takes no lock, and each covers a whole
//!   pattern's turn: a scan, a tick of 1,000 queries. `MDB_NOLOCK` is left out: with it readers and a writer
//!   at once are undefined.
//! - A range has no end that LMDB would have to compare with: the loop that reads compares the time it has in
//!   hand.
//!
//! Opening an environment is `unsafe`, because LMDB trusts its files.

use crate::side::{Cold, Failure, Reading, Side};
use crate::workload::{Sum, payload, time};
use heed::byteorder::NativeEndian;
use heed::types::{Bytes, U64};
use heed::{Database, Env, EnvFlags, EnvOpenOptions, IntegerComparator, PutFlags, RoRange};
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Address space of the map; the file is sparse.
const MAP_BYTES: usize = 16 << 30;

type Key = U64<NativeEndian>;
type Table<'e> = Database<'e, Key, Bytes, IntegerComparator>;

/// What commits are to survive, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// A power cut.
    Sync,
    /// The death of the process, by writing to the file.
    Os,
    /// The same, by storing into the map.
    WriteMap,
    /// Nothing: it is only read.
    Read,
}

/// Opens a new environment.
///
/// # Errors
/// Whatever LMDB says.
pub(crate) fn open(directory: &Path, mode: Mode) -> Result<Env, Failure> {
    std::fs::create_dir_all(directory)?;
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES).max_readers(126);
    let flags = match mode {
        Mode::Sync => EnvFlags::empty(),
        Mode::Os => EnvFlags::NO_SYNC,
        Mode::WriteMap => EnvFlags::NO_SYNC | EnvFlags::WRITE_MAP,
        Mode::Read => EnvFlags::READ_ONLY,
    };
    // SAFETY: nobody but this process has the directory, and it opens it once; nothing is lost if the file
    // is, and no lock is given up.
    Ok(unsafe { options.flags(flags | EnvFlags::NO_MEM_INIT).open(directory)? })
}

/// An environment with one table.
pub(crate) struct Lmdb<'e> {
    env: &'e Env,
    table: Table<'e>,
    /// The next free key, for appends without a key. Locked only within a write transaction.
    free: Mutex<u64>,
}

impl<'e> Lmdb<'e> {
    /// The table of an environment.
    ///
    /// # Errors
    /// Whatever LMDB says.
    pub(crate) fn new(env: &'e Env) -> Result<Lmdb<'e>, Failure> {
        let created = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
            let options =
                opener.database_options().types::<Key, Bytes>().key_comparator::<IntegerComparator>();
            options.create(transaction).map(heed::CommitOrAbort::<_, ()>::Commit)
        })?;
        let table = created.commit().ok_or("the table was not created")?;
        Ok(Lmdb { env, table, free: Mutex::new(0) })
    }
}

impl Side for Lmdb<'_> {
    const NAME: &'static str = "peer";
    type Reader<'s>
        = LmdbReader<'s>
    where
        Self: 's;

    fn reader(&self) -> Result<LmdbReader<'_>, Failure> {
        Ok(LmdbReader { env: self.env, table: self.table.remap_types(), next: 0 })
    }

    fn append(&self, first: u64, count: u64) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        for number in first..first + count {
            self.table.put_with_flags(&mut transaction, PutFlags::APPEND, &time(number), &payload(number))?;
        }
        Ok(transaction.commit()?)
    }

    fn append_unordered(&self, number: u64) -> Result<(), Failure> {
        let mut transaction = self.env.write_txn()?;
        let key = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            *free += 1;
            *free
        };
        self.table.put_with_flags(&mut transaction, PutFlags::APPEND, &time(key), &payload(number))?;
        Ok(transaction.commit()?)
    }
}

/// An environment that was closed.
pub(crate) struct ColdLmdb(PathBuf);

impl ColdLmdb {
    /// A new environment with `entries` entries.
    ///
    /// # Errors
    /// Whatever LMDB says.
    pub(crate) fn filled(directory: PathBuf, entries: u64) -> Result<ColdLmdb, Failure> {
        let env = open(&directory, Mode::Os)?;
        Lmdb::new(&env)?.append(0, entries)?;
        env.prepare_for_closing().wait();
        Ok(ColdLmdb(directory))
    }
}

impl Cold for ColdLmdb {
    const NAME: &'static str = "peer";

    fn scan(&self) -> Result<Sum, Failure> {
        let env = open(&self.0, Mode::Read)?;
        let opened = env.open_databases_and_commit(env.read_txn()?, |opener, transaction| {
            let options =
                opener.database_options().types::<Key, Bytes>().key_comparator::<IntegerComparator>();
            options.open(transaction).map(heed::CommitOrAbort::<_, ()>::Commit)
        })?;
        let table = opened.commit().flatten().ok_or("there is no table")?;
        let transaction = env.read_txn()?;
        let mut sum = Sum::default();
        for entry in table.iter(&transaction)? {
            let (key, data) = entry?;
            sum.take(key, key, data);
        }
        drop(transaction);
        env.prepare_for_closing().wait();
        Ok(sum)
    }
}

/// Reads with one transaction per turn.
pub(crate) struct LmdbReader<'s> {
    env: &'s Env,
    table: Table<'s>,
    /// The first key that was not seen.
    next: u64,
}

impl Reading for LmdbReader<'_> {
    /// A key: LMDB has nothing that leads to an entry faster.
    type Place = u64;

    fn scan(&mut self) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let mut sum = Sum::default();
        for entry in self.table.iter(&transaction)? {
            let (key, data) = entry?;
            sum.take(key, key, data);
        }
        Ok(sum)
    }

    fn ranges(&mut self, starts: &[u64], count: u64) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let mut sum = Sum::default();
        for start in starts {
            let end = time(start + count);
            for entry in self.table.range(&transaction, &(Included(time(*start)), Unbounded))? {
                let (key, data) = entry?;
                if key >= end {
                    break;
                }
                sum.take(key, key, data);
            }
        }
        Ok(sum)
    }

    fn seeks(&mut self, times: &[u64]) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let mut sum = Sum::default();
        for time in times {
            if let Some((key, data)) = self.table.get_greater_than_or_equal_to(&transaction, time)? {
                sum.take(key, key, data);
            }
        }
        Ok(sum)
    }

    fn places(&mut self, numbers: &[u64]) -> Result<Vec<u64>, Failure> {
        Ok(numbers.iter().map(|number| time(*number)).collect())
    }

    fn reads(&mut self, places: &[u64]) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let mut sum = Sum::default();
        for key in places {
            if let Some(data) = self.table.get(&transaction, key)? {
                sum.take(*key, *key, data);
            }
        }
        Ok(sum)
    }

    fn iterate(&mut self, starts: &[u64], each: u64) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let open = |start: &u64| self.table.range(&transaction, &(Included(time(*start)), Unbounded));
        let mut open: Vec<RoRange<'_, Key, Bytes, IntegerComparator>> =
            starts.iter().map(open).collect::<Result<_, _>>()?;
        let mut sum = Sum::default();
        for _ in 0..each {
            for iterator in &mut open {
                if let Some(entry) = iterator.next() {
                    let (key, data) = entry?;
                    sum.take(key, key, data);
                }
            }
        }
        Ok(sum)
    }

    fn follow(&mut self) -> Result<(), Failure> {
        let transaction = self.env.read_txn()?;
        self.next = self.table.last(&transaction)?.map_or(0, |(key, _)| key);
        Ok(())
    }

    fn poll(&mut self) -> Result<Sum, Failure> {
        let transaction = self.env.read_txn()?;
        let mut sum = Sum::default();
        for entry in self.table.range(&transaction, &(Excluded(self.next), Unbounded))? {
            let (key, data) = entry?;
            sum.take(key, key, data);
            self.next = key;
        }
        Ok(sum)
    }
}
