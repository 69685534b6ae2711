//! Stores: opening, the logs in them, housekeeping, and the end.

use super::arguments::{Keyword, PathArgument, optional, whole};
use super::log::Log;
use super::new_logs::NewLogs;
use super::offline::{self, Backup};
use super::report::{Damage, Purged, Recovery, Report, Stats};
use super::shared::Shared;
use super::transaction::{Pending, Transaction};
use crate::error;
use crate::numbers::Number;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;
use thalweg_log::{AnyStore, Attached, Disk, Durability, Options, Purge};

/// Microseconds since the Unix epoch: the time that an entry gets when none is given.
#[pyfunction]
pub(crate) fn now() -> u64 {
    thalweg_log::now()
}

/// Opens the store in the directory `path`, which is made if there is none.
///
/// What an acknowledged append survives is said by `durability`: "sync", a power cut; "os", the death of the
/// process; "memory", nothing, for a store without files and without a path. One process writes a store at a
/// time; with `read_only=True` any number of others read it meanwhile. These need to write nothing: a
/// process that may not write the file `signal` looks every 10 ms while it waits, and one that may is woken.
///
/// A segment is a file: the first of `segment_bytes_min` bytes, 4 MiB unless given (less where the largest is
/// smaller), each next one twice as large up to `segment_bytes_max`, from 8192 to 1 GiB. Both are multiples
/// of 4096.
///
/// `Store.maintain` lets go of whole segments of entries that are older than `retain_us` microseconds, and of
/// the oldest ones while segment files take more than `retain_bytes`, the one that is written to included,
/// which stays. It seals that one when its first entry is older than `rotate_after_us`, idle or not. Nothing
/// does so by itself.
#[pyfunction]
#[pyo3(signature = (path=None, *, durability="sync", read_only=false, segment_bytes_min=None, segment_bytes_max=67_108_864, retain_us=None, retain_bytes=None, rotate_after_us=None))]
#[allow(clippy::too_many_arguments, reason = "keywords")]
pub(crate) fn open(
    py: Python<'_>,
    path: Option<PathArgument>,
    durability: &str,
    read_only: bool,
    segment_bytes_min: Option<Number<u32>>,
    #[pyo3(from_py_with = segment_bytes_max)] segment_bytes_max: u32,
    retain_us: Option<Number<u64>>,
    retain_bytes: Option<Number<u64>>,
    rotate_after_us: Option<Number<u64>>,
) -> PyResult<Store> {
    let durability: Durability = durability.parse().map_err(PyValueError::new_err::<String>)?;
    // Where it is must not depend on where this process goes later.
    let path = path.map(|PathArgument(path)| std::path::absolute(path)).transpose()?;
    if path.is_none() != (durability == Durability::Memory) || path.is_none() && read_only {
        return Err(PyValueError::new_err("a store in memory has no path, and every other one has"));
    }
    let usual = Options { opened_at: thalweg_log::now(), ..Options::default() };
    let segment_bytes_min = optional("segment_bytes_min", segment_bytes_min)?;
    let segment_bytes_min = segment_bytes_min.unwrap_or(usual.segment_bytes_min.min(segment_bytes_max));
    let sizes = Options { segment_bytes_min, segment_bytes_max, ..usual };
    let options = Options {
        durability,
        retain_us: optional("retain_us", retain_us)?,
        retain_bytes: optional("retain_bytes", retain_bytes)?,
        rotate_after_us: optional("rotate_after_us", rotate_after_us)?,
        ..sizes
    };
    let opened = py.detach(|| match &path {
        None => thalweg_log::Store::memory(options).map(|store| (AnyStore::Own(store), None)),
        Some(path) if read_only => {
            Attached::open(&Disk::Real, path).map(|attached| (AnyStore::Attached(attached), None))
        }
        Some(path) => thalweg_log::Store::open(&Disk::Real, path, options)
            .map(|(store, found)| (AnyStore::Own(store), Some(found))),
    });
    let (opened, found) = opened.map_err(|error| error::open(&error))?;
    Ok(Store { shared: Shared::new(opened, path), recovery: found.as_ref().map(Recovery::from) })
}

/// The largest segment, as it is given.
fn segment_bytes_max(value: &Bound<'_, PyAny>) -> PyResult<u32> {
    whole("segment_bytes_max", value.extract()?)
}

/// A store: a directory of logs in one commit order. Made by `open`; a context manager that closes it.
#[pyclass(module = "thalweg", frozen)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    recovery: Option<Recovery>,
}

impl Store {
    /// Does something that may wait for the disk with a store of this process.
    fn quietly<R: Send>(
        &self,
        py: Python<'_>,
        task: impl FnOnce(&thalweg_log::Store) -> R + Send,
    ) -> PyResult<R> {
        let in_use = self.shared.enter_own()?;
        Ok(py.detach(move || task(&in_use)))
    }
}

#[pymethods]
impl Store {
    /// The log of that name, made if there is none. A store that is only read has those that are there.
    fn log(&self, py: Python<'_>, name: &str) -> PyResult<Log> {
        let in_use = self.shared.enter()?;
        let found = if in_use.own().is_some() {
            let made = py.detach(move || in_use.own().map(|store| store.log(name.as_bytes())).transpose());
            made.map_err(|error| error::commit(&error, Some(name)))?
        } else {
            let found = py.detach(move || in_use.find(name.as_bytes()));
            found.map_err(|error| error::read(&error, Some(name)))?
        };
        match found {
            Some(log) => Ok(Log::new(self.shared.clone(), log)),
            None => Err(error::failure("NO_LOG", format!("the store has no log {name:?}"))),
        }
    }

    /// Names of the logs there are, in order.
    fn logs(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let in_use = self.shared.enter()?;
        let name = |log: &Arc<thalweg_log::Log>| String::from_utf8_lossy(log.name()).into_owned();
        let names = py.detach(move || in_use.logs().map(|logs| logs.iter().map(name).collect()));
        names.map_err(|error| error::read(&error, None))
    }

    /// Hears of logs as they become visible: of those to come, and with `existing=True` of those there are as
    /// well.
    #[pyo3(signature = (*, existing=false))]
    fn new_logs(&self, py: Python<'_>, existing: bool) -> PyResult<NewLogs> {
        let in_use = self.shared.enter()?;
        // In its seat before the store may end, for it holds that.
        let new_logs = py.detach(|| in_use.new_logs(existing)).map(|found| NewLogs::new(&self.shared, found));
        drop(in_use);
        new_logs.map_err(|error| error::read(&error, None))?.ok_or_else(|| self.shared.over())
    }

    /// Begins a transaction: entries of one or several logs that share a time and are written together.
    #[pyo3(signature = (time=None))]
    fn transaction(&self, time: Option<Number<u64>>) -> PyResult<Transaction> {
        let time = optional("time", time)?.unwrap_or_else(thalweg_log::now);
        let pending = self.shared.with(|open| open.opened.own().map(|store| Pending::new(store, time)))?;
        Transaction::new(&self.shared, pending.ok_or_else(error::read_only)?)
    }

    /// Makes everything appended so far durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.quietly(py, |store| store.flush())?.map_err(|error| error::io("flush the store", &error))
    }

    /// Lets go of entries at the front: of one log by its name, or of every log; those in front of the first
    /// entry of the time `before` or later, or all there are. `destroy=True` deletes the logs themselves.
    /// Readers that are on the way go on reading. Answers what went. Files go as whole segments, by the
    /// time this returns, when no log needs anything in them; the newest is ended for that when all that is
    /// in it goes. More goes when a word is left out, so one that is there has to say something: `None` is
    /// refused. So are `before` and `destroy` at once.
    #[pyo3(signature = (log=Keyword::Omitted, *, before=Keyword::Omitted, destroy=false, count_entries=false))]
    fn purge(
        &self,
        py: Python<'_>,
        log: Keyword<String>,
        before: Keyword<Number<u64>>,
        destroy: bool,
        count_entries: bool,
    ) -> PyResult<Vec<Purged>> {
        let (log, before) = (log.given(), optional("before", before.given())?);
        if destroy && before.is_some() {
            let both =
                "a purge lets go of what lies before a time, or destroys logs: give one of before, destroy";
            return Err(PyValueError::new_err(both));
        }
        let log = log.as_deref();
        let time = thalweg_log::now();
        let purge = Purge { log: log.map(str::as_bytes), before, destroy, count_entries, time };
        // What was appended and is not durable yet goes too.
        let purged = self.quietly(py, |store| store.purge_written(&purge))?;
        let purged = purged.map_err(|error| error::commit(&error, log))?;
        self.shared.send_idle_home();
        Ok(purged.into_iter().map(Purged::from).collect())
    }

    /// Seals the segment that is written and begins another.
    fn rotate(&self, py: Python<'_>) -> PyResult<()> {
        self.quietly(py, |store| store.rotate())?.map_err(|error| error::commit(&error, None))
    }

    /// Housekeeping, for a quiet moment: a checkpoint when one is due, what is not to be retained goes, and
    /// so do files that no log needs. Answers whether there is more to do: one call does a bounded part of
    /// it, and a caller that repeats it until there is no more takes only housekeeping's share of the time.
    fn maintain(&self, py: Python<'_>) -> PyResult<bool> {
        let maintained = self.quietly(py, |store| store.maintain(thalweg_log::now()))?;
        self.shared.send_idle_home();
        maintained.map_err(|error| error::io("maintain the store", &error))
    }

    /// What the store holds.
    fn stats(&self, py: Python<'_>) -> PyResult<Stats> {
        self.quietly(py, |store| Stats::from(store.stats()))
    }

    /// What opening it found; `None` of a store that is only read, or is in memory.
    #[getter]
    fn recovery(&self) -> Option<Recovery> {
        self.recovery.clone()
    }

    /// Spans that were found damaged when the store was opened, and, of one that is written, by reads since.
    fn damage(&self) -> PyResult<Vec<Damage>> {
        self.shared.with(|open| open.opened.damage().iter().map(Damage::from).collect())
    }

    /// Verifies every bit of every file. While it is written, the last batches may count as torn. As by the
    /// function of that name signals are handled meanwhile; that the store is closed then does not end it.
    fn verify(&self, py: Python<'_>) -> PyResult<Report> {
        let in_use = self.shared.enter()?;
        match py.detach(move || in_use.files()).map_err(|error| error::open(&error))? {
            Some((disk, directory)) => offline::verify_files(py, &disk, &directory),
            None => Ok(Report::from(thalweg_log::Report::default())),
        }
    }

    /// Writes a backup of it, while it is written, to the directory `to`, which is empty or not there; see
    /// the function of that name. What was appended before is in it. That the store is closed meanwhile does
    /// not end it.
    fn backup(&self, py: Python<'_>, to: PathArgument) -> PyResult<Backup> {
        let in_use = self.shared.enter()?;
        let files = py.detach(move || in_use.files_for_backup());
        let (disk, directory) = files.map_err(|error| error::backup(&error))?;
        offline::back_up_files(py, &disk, &directory, &to.0)
    }

    /// Closes the store: everything is durable then, and the directory free. Handles that are still about say
    /// that it is closed; payloads that are held stay as they are. Once closed, nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.close(py)
    }

    /// Whether it is closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.shared.is_open()
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        match &self.shared.directory {
            Some(directory) => format!("<thalweg.Store {}>", directory.display()),
            None => "<thalweg.Store in memory>".into(),
        }
    }
}
