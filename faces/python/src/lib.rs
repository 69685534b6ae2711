//! The log in Python, the native half.
//!
//! Owns what Python cannot do by itself: opening stores, appending, walking the maps, lending payloads
//! without a copy, and waking event loops. Never knows what a payload means, nor asyncio: that is
//! `python/thalweg/tail.py`.
//!
//! One module per class. [`shared`] is what all handles of a store have in common and why closing it never
//! waits for the garbage collector; [`walk`] is the one loop under iterators, cursors and scans; [`pin`] is
//! why a `memoryview` may outlive them all. The interpreter's lock is kept where work is shorter than giving
//! it away, and given away wherever a disk or another thread may be waited for.

mod arguments;
mod bell;
mod column;
mod cursor;
mod entries;
mod entry;
mod error;
mod following;
mod forks;
mod hearing;
mod log;
mod r#loop;
mod messagepack;
mod new_logs;
mod offline;
mod payload;
mod pin;
mod query;
mod report;
mod rpc;
mod scan;
mod search;
mod service;
mod shared;
mod store;
mod transaction;
mod walk;
mod worker;

use pyo3::prelude::*;

// What an iterator hands out again is changed under the interpreter's lock: without one there is no module.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
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
    module.add_function(wrap_pyfunction!(shared::forked, module)?)?;
    messagepack::register(module)?;
    rpc::register(module)?;
    service::register(module)?;
    r#loop::register(module)?;
    worker::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
