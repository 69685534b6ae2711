//! Ours: an embedded store with one log, through the interface that programs use. Every entry of the data set
//! is a transaction of its own with a time of its own; a program that has many at hand appends them in one
//! call. The ticks of a writer are one transaction of 50 entries that share a time.

use crate::side::{Cold, Failure, Reading, Side};
use crate::workload::{Sum, payload, time};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thalweg_log::{
    Attached, Cursor, Disk, Durability, Entries, Log, Options, Place, Query, Reader, Start, Store,
};

/// Entries that are appended by one call where there are many.
const CALL_ENTRIES: usize = 100;
/// Name of the one log.
const NAME: &[u8] = b"bench";

/// A store and its one log.
pub(crate) struct Ours {
    store: Store,
    log: Arc<Log>,
}

impl Ours {
    /// Opens a new store.
    ///
    /// # Errors
    /// Whatever the store says.
    pub(crate) fn open(directory: &Path, durability: Durability) -> Result<Ours, Failure> {
        let options = Options { durability, ..Options::default() };
        let (store, _) = Store::open(&Disk::Real, directory, options)?;
        let log = store.log(NAME)?;
        Ok(Ours { store, log })
    }
}

impl Side for Ours {
    const NAME: &'static str = "ours";
    type Reader<'s> = OursReader;

    fn reader(&self) -> Result<OursReader, Failure> {
        Ok(OursReader::new(self.store.reader(&self.log)))
    }

    fn append(&self, first: u64, count: u64) -> Result<(), Failure> {
        if count == 1 {
            self.store.append(&self.log, &payload(first), time(first))?;
            return Ok(());
        }
        let mut transaction = self.store.transaction(time(first));
        for number in first..first + count {
            transaction.append(&self.log, &payload(number))?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// In one call for every hundred, which is what a program does that has many at hand.
    fn append_each(&self, first: u64, count: u64) -> Result<(), Failure> {
        let end = first + count;
        for from in (first..end).step_by(CALL_ENTRIES) {
            let numbers = from..end.min(from + CALL_ENTRIES as u64);
            let payloads: Vec<_> = numbers.map(|number| (time(number), payload(number))).collect();
            let entries: Vec<(u64, &[u8])> =
                payloads.iter().map(|(time, payload)| (*time, &payload[..])).collect();
            self.store.append_timed(&self.log, &entries)?;
        }
        Ok(())
    }
}

/// The same log in a process that is attached to the store.
pub(crate) struct Neighbour {
    attached: Attached,
    log: Arc<Log>,
}

impl Neighbour {
    /// Attaches to the store in a directory.
    ///
    /// # Errors
    /// Whatever the store says.
    pub(crate) fn attach(directory: &Path) -> Result<Neighbour, Failure> {
        let attached = Attached::open(&Disk::Real, directory)?;
        let log = attached.find(NAME)?.ok_or("the store has no such log")?;
        Ok(Neighbour { attached, log })
    }
}

impl Side for Neighbour {
    const NAME: &'static str = "ours";
    type Reader<'s> = OursReader;

    fn reader(&self) -> Result<OursReader, Failure> {
        Ok(OursReader::new(self.attached.reader(&self.log)))
    }

    fn append(&self, _first: u64, _count: u64) -> Result<(), Failure> {
        Err("an attached store is only read".into())
    }
}

/// A store that was closed. After it is opened no byte is verified yet, so reading verifies all of them.
pub(crate) struct ColdOurs(PathBuf);

impl ColdOurs {
    /// A new store with `entries` entries.
    ///
    /// # Errors
    /// Whatever the store says.
    pub(crate) fn filled(directory: PathBuf, entries: u64) -> Result<ColdOurs, Failure> {
        let ours = Ours::open(&directory, Durability::Os)?;
        ours.append_each(0, entries)?;
        ours.store.close()?;
        Ok(ColdOurs(directory))
    }
}

impl Cold for ColdOurs {
    const NAME: &'static str = "ours";

    fn scan(&self) -> Result<Sum, Failure> {
        Neighbour::attach(&self.0)?.reader()?.scan()
    }
}

/// One thread's reader, and its cursor once it follows.
pub(crate) struct OursReader {
    reader: Reader,
    /// Readers for iterators that are open at once, as each borrows its own.
    more: Vec<Reader>,
    cursor: Option<Cursor>,
}

impl OursReader {
    fn new(reader: Reader) -> OursReader {
        OursReader { reader, more: Vec::new(), cursor: None }
    }
}

/// Takes every entry, in the one loop that the iterator has for that.
#[inline]
fn take_all(entries: Entries<'_>, sum: &mut Sum) -> Result<(), Failure> {
    let mut failed = Ok(());
    entries.for_each(|entry| match entry {
        Ok(entry) => sum.take(entry.time, entry.offset, entry.data),
        Err(error) => failed = Err(error),
    });
    Ok(failed?)
}

impl Reading for OursReader {
    type Place = Place;

    fn scan(&mut self) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        take_all(self.reader.entries(&Query::default()), &mut sum)?;
        Ok(sum)
    }

    fn ranges(&mut self, starts: &[u64], count: u64) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for start in starts {
            take_all(self.reader.entries(&Query::between(time(*start), time(start + count))), &mut sum)?;
        }
        Ok(sum)
    }

    fn seeks(&mut self, times: &[u64]) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for time in times {
            if let Some(entry) = self.reader.entries(&Query::from(Start::Time(*time))).next() {
                let entry = entry?;
                sum.take(entry.time, entry.offset, entry.data);
            }
        }
        Ok(sum)
    }

    fn places(&mut self, numbers: &[u64]) -> Result<Vec<Place>, Failure> {
        let mut all = Vec::new();
        for entry in self.reader.entries(&Query::default()) {
            all.push(entry?.place());
        }
        let place = |number: &u64| all.get(*number as usize).copied().ok_or("no such entry");
        Ok(numbers.iter().map(place).collect::<Result<_, _>>()?)
    }

    fn reads(&mut self, places: &[Place]) -> Result<Sum, Failure> {
        let mut sum = Sum::default();
        for place in places {
            if let Some(entry) = self.reader.at(*place)? {
                sum.take(entry.time, entry.offset, entry.data);
            }
        }
        Ok(sum)
    }

    fn iterate(&mut self, starts: &[u64], each: u64) -> Result<Sum, Failure> {
        self.more.resize_with(starts.len(), || self.reader.clone());
        let mut open = Vec::with_capacity(starts.len());
        for (reader, start) in self.more.iter_mut().zip(starts) {
            open.push(reader.entries(&Query::from(Start::Time(time(*start)))));
        }
        let mut sum = Sum::default();
        for _ in 0..each {
            for iterator in &mut open {
                if let Some(entry) = iterator.next() {
                    let entry = entry?;
                    sum.take(entry.time, entry.offset, entry.data);
                }
            }
        }
        Ok(sum)
    }

    fn follow(&mut self) -> Result<(), Failure> {
        self.cursor = Some(self.reader.clone().follow(&Query::from(Start::Tail)));
        Ok(())
    }

    fn poll(&mut self) -> Result<Sum, Failure> {
        let cursor = self.cursor.as_mut().ok_or("it does not follow yet")?;
        let mut sum = Sum::default();
        while let Some(entry) = cursor.next()? {
            sum.take(entry.time, entry.offset, entry.data);
        }
        Ok(sum)
    }
}
