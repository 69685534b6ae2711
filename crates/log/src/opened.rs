//! A store as it was opened: to be written, or to be read along.
//!
//! Purpose: whoever has either says so once. What both can do is asked of it; what only the one can that
//! writes, of [`Opened::own`].

use crate::backup::{Backup, BackupError};
use crate::{Attached, Births, Damage, Log, Maps, ReadError, Reader, Store};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A store that this process writes, or one that another does and that is read here. Clones share it.
///
/// ```
/// use thalweg_log::{Attached, Disk, Opened, Options, Query, Store};
/// let directory = tempfile::tempdir()?;
/// let (store, _) = Store::open(&Disk::Real, directory.path(), Options::default())?;
/// let receipt = store.append(&store.log(b"steps")?, b"one", 1)?;
/// store.persist(receipt.ticket)?;
/// for opened in [Opened::Attached(Attached::open(&Disk::Real, directory.path())?), Opened::Own(store)] {
///     let log = opened.find(b"steps")?.ok_or("it is there")?;
///     assert_eq!(opened.reader(&log).entries(&Query::default()).count(), 1);
///     opened.close()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum Opened {
    /// This process writes it.
    Own(Store),
    /// Another process does, or did.
    Attached(Attached),
}

impl Opened {
    /// The store, if this process writes it.
    #[inline]
    pub fn own(&self) -> Option<&Store> {
        match self {
            Opened::Own(store) => Some(store),
            Opened::Attached(_) => None,
        }
    }

    /// The log of that name, as of now.
    ///
    /// # Errors
    /// As [`Attached::find`]; none of a store of one's own.
    pub fn find(&self, name: &[u8]) -> Result<Option<Arc<Log>>, ReadError> {
        match self {
            Opened::Own(store) => Ok(store.find(name)),
            Opened::Attached(attached) => attached.find(name),
        }
    }

    /// Every visible log, in the order of their names.
    ///
    /// # Errors
    /// As [`Attached::visit`]; none of a store of one's own.
    pub fn logs(&self) -> Result<Vec<Arc<Log>>, ReadError> {
        match self {
            Opened::Own(store) => Ok(store.logs()),
            Opened::Attached(attached) => {
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
    /// As [`Attached::births`]; none of a store of one's own.
    pub fn births(&self, existing: bool) -> Result<Births, ReadError> {
        match self {
            Opened::Own(store) => Ok(store.births(existing)),
            Opened::Attached(attached) => attached.births(existing),
        }
    }

    /// A reader of one of the logs that were found here.
    pub fn reader(&self, log: &Arc<Log>) -> Reader {
        match self {
            Opened::Own(store) => store.reader(log),
            Opened::Attached(attached) => attached.reader(log),
        }
    }

    /// The store's maps, for a reader in another language.
    pub fn maps(&self) -> Maps {
        match self {
            Opened::Own(store) => store.maps(),
            Opened::Attached(attached) => attached.maps(),
        }
    }

    /// Spans that were found damaged when it was opened; of one's own, also by reads since.
    pub fn damage(&self) -> Vec<Damage> {
        match self {
            Opened::Own(store) => store.damage(),
            Opened::Attached(attached) => attached.damage().to_vec(),
        }
    }

    /// Writes a backup of it: see [`backup()`](crate::backup()).
    ///
    /// # Errors
    /// [`BackupError`]; nothing is left in `to` then, nor `to` itself where it was made.
    pub fn backup(&self, to: &Path) -> Result<Backup, BackupError> {
        match self {
            Opened::Own(store) => store.backup(to),
            Opened::Attached(attached) => attached.backup(to),
        }
    }

    /// For whoever is about to close it and waits for those who have it in use: whoever sleeps until there is
    /// more is woken, to find that it is over, and housekeeping that rests goes on at once
    /// ([`Store::hurry`]).
    pub fn interrupt(&self) {
        self.maps().wake_all();
        if let Opened::Own(store) = self {
            store.hurry();
        }
    }

    /// Closes it: see [`Store::close`]. One that is only read has nothing to be done about it.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub fn close(&self) -> io::Result<()> {
        match self {
            Opened::Own(store) => store.close(),
            Opened::Attached(_) => Ok(()),
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
        let both = [Opened::Own(store), Opened::Attached(attached)];
        assert_eq!(both.each_ref().map(|opened| opened.own().is_some()), [true, false]);
        for (number, opened) in both.iter().enumerate() {
            let logs = opened.logs().unwrap();
            assert_eq!(logs.iter().map(|log| log.name()).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
            let mut births = opened.births(true).unwrap();
            let births: Vec<_> = std::iter::from_fn(|| births.next().unwrap()).collect();
            assert_eq!(births.len(), 3);
            assert_eq!(opened.find(b"b").unwrap().map(|log| log.id()), Some(logs[1].id()));
            assert!(opened.find(b"d").unwrap().is_none() && opened.damage().is_empty());
            assert_eq!(opened.reader(&logs[0]).entries(&Query::default()).count(), 1);
            let copy = directory.path().join(number.to_string());
            opened.backup(&copy).unwrap();
            assert_eq!(
                Opened::Attached(Attached::open(&Disk::Real, &copy).unwrap()).logs().unwrap().len(),
                3
            );
        }
    }

    #[test]
    fn who_sleeps_is_woken_by_an_interruption() {
        let store = Opened::Own(Store::memory(Options::default()).unwrap());
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
        let shared = Closable::new(Opened::Own(Store::memory(options).unwrap()));
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
