//! The words of a query, from Python's keywords.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use thalweg_log::{Query, Start};

/// The keywords that say where a query begins and what it takes. Of those that say where, one may be given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Words {
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) after: Option<u64>,
    pub(crate) exact: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) tail: bool,
    pub(crate) checkpoint: bool,
    pub(crate) uncommitted: bool,
}

impl Words {
    pub(crate) fn query(self) -> PyResult<Query> {
        let starts = [
            self.start.map(Start::Time),
            self.after.map(Start::After),
            self.exact.map(Start::Exact),
            self.offset.map(Start::Offset),
            self.tail.then_some(Start::Tail),
            self.checkpoint.then_some(Start::Checkpoint),
        ];
        let mut given = starts.into_iter().flatten();
        let start = given.next().unwrap_or_default();
        if given.next().is_some() {
            let message =
                "a query begins in one place: give one of start, after, exact, offset, tail, checkpoint";
            return Err(PyValueError::new_err(message));
        }
        Ok(Query { start, end: self.end, uncommitted: self.uncommitted })
    }
}
