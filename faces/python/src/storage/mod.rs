//! The log in Python: stores, the logs in them, and every way to read one.
//!
//! Owns what Python cannot do by itself: opening stores, appending, walking the maps, lending payloads
//! without a copy, and waking event loops. Never knows what a payload means, nor asyncio: that is
//! `python/thalweg/tail.py`.
//!
//! One module per class, in the order of this list: a store and what is appended to it ([`store`], [`log`],
//! [`transaction`]); the ways to read ([`entries`] of [`entry`], [`scan`] with its [`column`]s, [`cursor`],
//! [`new_logs`]); what follows a store ([`following`], [`bell`]); and what needs no open store ([`offline`],
//! [`report`]). Under them lie [`shared`], what all handles of a store have in common and why closing it
//! never waits for the garbage collector; [`walk`], the one loop under iterators, cursors and scans, with
//! what a caller asks for ([`arguments`], [`query`], [`search`]); and [`pin`], why a `memoryview` may outlive
//! them all.

mod arguments;
mod bell;
mod column;
mod cursor;
mod entries;
mod entry;
mod following;
mod log;
mod new_logs;
mod offline;
mod pin;
mod query;
mod report;
mod scan;
mod search;
mod shared;
mod store;
mod transaction;
mod walk;

pub(crate) use bell::Bell;

use pyo3::prelude::*;

/// Puts the classes and functions into the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<bell::Bell>()?;
    module.add_class::<column::Column>()?;
    module.add_class::<cursor::Cursor>()?;
    module.add_class::<entries::Entries>()?;
    module.add_class::<entry::Entry>()?;
    module.add_class::<log::Log>()?;
    module.add_class::<new_logs::NewLogs>()?;
    module.add_class::<offline::Backup>()?;
    module.add_class::<offline::BatchPiece>()?;
    module.add_class::<offline::EndPiece>()?;
    module.add_class::<offline::FramePiece>()?;
    module.add_class::<offline::Parse>()?;
    module.add_class::<offline::SegmentPiece>()?;
    module.add_class::<report::Damage>()?;
    module.add_class::<report::Purged>()?;
    module.add_class::<report::Recovery>()?;
    module.add_class::<report::Report>()?;
    module.add_class::<report::Stats>()?;
    module.add_class::<scan::Batch>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<store::Store>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_function(wrap_pyfunction!(store::open, module)?)?;
    module.add_function(wrap_pyfunction!(store::now, module)?)?;
    module.add_function(wrap_pyfunction!(offline::backup, module)?)?;
    module.add_function(wrap_pyfunction!(offline::parse, module)?)?;
    module.add_function(wrap_pyfunction!(offline::restore, module)?)?;
    module.add_function(wrap_pyfunction!(offline::verify, module)?)?;
    module.add_function(wrap_pyfunction!(shared::forked, module)?)
}
