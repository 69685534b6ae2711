//! What the patterns ask of a store, so that each pattern is written once and each side only says how it
//! reads and appends in its own best way. Calls are resolved at compile time.

use crate::workload::Sum;

/// Why a measurement cannot go on.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A store with one log in it.
pub(crate) trait Side: Sync {
    /// What the report calls it.
    const NAME: &'static str;
    /// One thread's way to read it.
    type Reader<'s>: Reading
    where
        Self: 's;

    /// A reader for the calling thread.
    ///
    /// # Errors
    /// Whatever the store says.
    fn reader(&self) -> Result<Self::Reader<'_>, Failure>;

    /// Appends entries `first .. first + count` as one transaction.
    ///
    /// # Errors
    /// Whatever the store says.
    fn append(&self, first: u64, count: u64) -> Result<(), Failure>;

    /// Appends entries `first .. first + count`, each a transaction of its own.
    ///
    /// # Errors
    /// Whatever the store says.
    fn append_each(&self, first: u64, count: u64) -> Result<(), Failure> {
        (first..first + count).try_for_each(|number| self.append(number, 1))
    }

    /// Appends one entry whose number others may overtake: several threads call it at once.
    ///
    /// # Errors
    /// Whatever the store says.
    fn append_unordered(&self, number: u64) -> Result<(), Failure> {
        self.append(number, 1)
    }
}

/// One thread's way to read. Every call reads what its pattern asks for and answers the sum of it.
pub(crate) trait Reading {
    /// What one keeps of an entry to read it again.
    type Place: Copy + Send + Sync;

    /// Everything there is, from the first entry on.
    ///
    /// # Errors
    /// Whatever the store says.
    fn scan(&mut self) -> Result<Sum, Failure>;

    /// For each of the numbers a fresh query over the times of `count` entries from there.
    ///
    /// # Errors
    /// Whatever the store says.
    fn ranges(&mut self, starts: &[u64], count: u64) -> Result<Sum, Failure>;

    /// For each of the times the first entry at or after it.
    ///
    /// # Errors
    /// Whatever the store says.
    fn seeks(&mut self, times: &[u64]) -> Result<Sum, Failure>;

    /// Where the entries of these numbers are.
    ///
    /// # Errors
    /// Whatever the store says.
    fn places(&mut self, numbers: &[u64]) -> Result<Vec<Self::Place>, Failure>;

    /// The entries at places.
    ///
    /// # Errors
    /// Whatever the store says.
    fn reads(&mut self, places: &[Self::Place]) -> Result<Sum, Failure>;

    /// Opens an iterator at each of the numbers and takes one entry of each in turn, `each` times.
    ///
    /// # Errors
    /// Whatever the store says.
    fn iterate(&mut self, starts: &[u64], each: u64) -> Result<Sum, Failure>;

    /// Stands behind the newest entry.
    ///
    /// # Errors
    /// Whatever the store says.
    fn follow(&mut self) -> Result<(), Failure>;

    /// Everything that came since the last call.
    ///
    /// # Errors
    /// Whatever the store says.
    fn poll(&mut self) -> Result<Sum, Failure>;
}

/// A store that lies on the disk, closed: each look at it opens it anew.
pub(crate) trait Cold: Sync {
    /// What the report calls it.
    const NAME: &'static str;

    /// Opens it to be read only, reads everything, and closes it.
    ///
    /// # Errors
    /// Whatever the store says.
    fn scan(&self) -> Result<Sum, Failure>;
}
