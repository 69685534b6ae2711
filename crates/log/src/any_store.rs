//! Any store, as it was opened: to be written, or to be read along.
//!
//! Purpose: a caller that may have either matches on it once. It answers what both can do; what only the
//! writing process can is asked of [`AnyStore::own`].

use crate::backup::{Backup, BackupError};
use crate::{Attached, Damage, Log, Maps, NewLogs, OpenError, ReadError, Reader, Report, Store};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_sys::disk::Disk;

/// A store that this process writes, or one that another does and that is read here. Clones share it.
///
/// ```
/// use thalweg_log::{Attached, Disk, AnyStore, Options, Query, Store};
/// let directory = tempfile::tempdir()?;
/// let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default())?;
/// let receipt = store.append(&store.log(b"steps")?, b"one", 1)?;
/// store.persist(receipt.ticket)?;
/// for opened in [AnyStore::Attached(Attached::open(&Disk::Real, directory.path())?), AnyStore::Own(store)] {
///     let log = opened.find(b"steps")?.ok_or("it is there")?;
///     assert_eq!(opened.reader(&log).entries(&Query::default()).count(), 1);
///     opened.close()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum AnyStore {
    /// This process writes it.
    Own(Store),
    /// Another process does, or did.
    Attached(Attached),
}

impl AnyStore {
    /// The store, if this process writes it.
    #[inline]
    pub fn own(&self) -> Option<&Store> {
        match self {
            AnyStore::Own(store) => Some(store),
            AnyStore::Attached(_) => None,
        }
    }

    /// The log of that name, as of now.
    ///
    /// # Errors
    /// As [`Attached::find`]; none of a store of one's own.
    pub fn find(&self, name: &[u8]) -> Result<Option<Arc<Log>>, ReadError> {
        match self {
            AnyStore::Own(store) => Ok(store.find(name)),
            AnyStore::Attached(attached) => attached.find(name),
        }
    }

    /// Every visible log, in the order of their names.
    ///
    /// # Errors
    /// As [`Attached::visit`]; none of a store of one's own.
    pub fn logs(&self) -> Result<Vec<Arc<Log>>, ReadError> {
        match self {
            AnyStore::Own(store) => Ok(store.logs()),
            AnyStore::Attached(attached) => {
                let mut logs = Vec::new();
                attached.visit(|log| logs.extend(log.visible().map(|_| log.clone())))?;
                logs.sort_unstable_by(|a, b| a.name().cmp(b.name()));
                Ok(logs)
            }
        }
    }

    /// Hears of every log there is, or if `existing` is not asked for, of those that become visible from now
    /// on.
    ///
    /// # Errors
    /// As [`Attached::new_logs`]; none of a store of one's own.
    pub fn new_logs(&self, existing: bool) -> Result<NewLogs, ReadError> {
        match self {
            AnyStore::Own(store) => Ok(store.new_logs(existing)),
            AnyStore::Attached(attached) => attached.new_logs(existing),
        }
    }

    /// A reader of one of the logs that were found here.
    pub fn reader(&self, log: &Arc<Log>) -> Reader {
        match self {
            AnyStore::Own(store) => store.reader(log),
            AnyStore::Attached(attached) => attached.reader(log),
        }
    }

    /// The store's maps, for a reader in another language.
    pub fn maps(&self) -> Maps {
        match self {
            AnyStore::Own(store) => store.maps(),
            AnyStore::Attached(attached) => attached.maps(),
        }
    }

    /// Spans that were found damaged when it was opened; of one's own, also by reads since.
    pub fn damage(&self) -> Vec<Damage> {
        match self {
            AnyStore::Own(store) => store.damage(),
            AnyStore::Attached(attached) => attached.damage().to_vec(),
        }
    }

    /// Where its files are: what is done to them there, as by [`verify_while()`](crate::verify_while()), goes
    /// on whatever becomes of this. `None` of one that has no files.
    ///
    /// # Errors
    /// [`OpenError::Io`] where another store is there by now.
    pub fn files(&self) -> Result<Option<(Disk, PathBuf)>, OpenError> {
        match self {
            AnyStore::Own(store) => Ok(store.files()),
            AnyStore::Attached(attached) => attached.files().map(Some),
        }
    }

    /// The same of one of which a backup is made, as by [`backup_while()`](crate::backup_while()): everything
    /// that was committed before is in it.
    ///
    /// # Errors
    /// [`BackupError::Memory`] of one that has no files; what [`AnyStore::backup`] says before it begins.
    pub fn files_for_backup(&self) -> Result<(Disk, PathBuf), BackupError> {
        match self {
            AnyStore::Own(store) => store.flushed_files(),
            AnyStore::Attached(attached) => Ok(attached.files()?),
        }
    }

    /// Verifies every bit of every file of it: see [`verify()`](crate::verify()).
    ///
    /// # Errors
    /// As [`Attached::verify`].
    pub fn verify(&self) -> Result<Report, OpenError> {
        match self {
            AnyStore::Own(store) => store.verify(),
            AnyStore::Attached(attached) => attached.verify(),
        }
    }

    /// Writes a backup of it: see [`backup()`](crate::backup()).
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left in `to` then, nor `to` itself where it was made.
    pub fn backup(&self, to: &Path) -> Result<Backup, BackupError> {
        match self {
            AnyStore::Own(store) => store.backup(to),
            AnyStore::Attached(attached) => attached.backup(to),
        }
    }

    /// For a caller that is about to close it and waits until nobody has it in use: readers that sleep until
    /// there is more are woken, to find that it is over, and housekeeping that rests goes on at once
    /// ([`Store::stop_throttling`]).
    pub fn interrupt(&self) {
        self.maps().wake_all();
        if let AnyStore::Own(store) = self {
            store.stop_throttling();
        }
    }

    /// Closes it: see [`Store::close`]. One that is only read has nothing to be done about it.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(&self) -> io::Result<()> {
        match self {
            AnyStore::Own(store) => store.close(),
            AnyStore::Attached(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Closable, Commit, Config, Disk, Durability, Lifetime, Options, Query};

    #[test]
    fn one_s_own_and_one_that_is_read_along_say_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { durability: Durability::Os, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, &directory.path().join("store"), options).unwrap();
        for name in [b"b", b"a", b"c"] {
            store.append(&store.log(name).unwrap(), b"entry", 1).unwrap();
        }
        let attached = Attached::open(&Disk::Real, &directory.path().join("store")).unwrap();
        let both = [AnyStore::Own(store), AnyStore::Attached(attached)];
        assert_eq!(both.each_ref().map(|opened| opened.own().is_some()), [true, false]);
        for (number, opened) in both.iter().enumerate() {
            let logs = opened.logs().unwrap();
            assert_eq!(logs.iter().map(|log| log.name()).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
            let mut new_logs = opened.new_logs(true).unwrap();
            let new_logs: Vec<_> = std::iter::from_fn(|| new_logs.next().unwrap()).collect();
            assert_eq!(new_logs.len(), 3);
            assert_eq!(opened.find(b"b").unwrap().map(|log| log.id()), Some(logs[1].id()));
            assert!(opened.find(b"d").unwrap().is_none() && opened.damage().is_empty());
            assert_eq!(opened.reader(&logs[0]).entries(&Query::default()).count(), 1);
            let copy = directory.path().join(number.to_string());
            opened.backup(&copy).unwrap();
            assert_eq!(opened.verify().map(|report| (report.logs, report.damage.len())).unwrap(), (3, 0));
            assert_eq!(
                AnyStore::Attached(Attached::open(&Disk::Real, &copy).unwrap()).logs().unwrap().len(),
                3
            );
        }
    }

    #[test]
    fn who_sleeps_is_woken_by_an_interruption() {
        let store = AnyStore::Own(Store::memory(Options::default()).unwrap());
        let (maps, over) = (store.maps(), parking_lot::Mutex::new(false));
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| maps.wait(None, || *over.lock()));
            *over.lock() = true;
            store.interrupt();
            assert!(sleeper.join().unwrap());
        });
    }
    #[test]
    fn housekeeping_that_rests_goes_on_at_an_interruption() {
        let options = Options { rest_parts: u32::MAX, ..Options::default() };
        let shared = Closable::new(AnyStore::Own(Store::memory(options).unwrap()));
        let in_use = shared.enter(|opened| opened.own().cloned().unwrap()).unwrap();
        let lifetime = Lifetime::Until { expires_us: 5 };
        let config = Config { content_type: "text/plain".into(), lifetime };
        // As many as one call deletes.
        for n in 0..4096 {
            in_use.create(format!("{n}").as_bytes(), &config, None, &Commit::default(), None).unwrap();
        }
        let keeper = std::thread::spawn(move || in_use.maintain(6).unwrap());
        let closing = shared.close().unwrap();
        closing.value().interrupt();
        closing.finish(|opened| opened.close()).unwrap();
        assert!(keeper.join().unwrap(), "it would have rested, for hours");
    }
}
