//! The words of a query, from Python's keywords.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use thalweg_log::{Query, Start};

/// The keywords that say where a query begins and what it takes. Of those that say where, one may be given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueryArguments {
    pub(crate) start: Option<u64>,
    pub(crate) end: Option<u64>,
    pub(crate) after: Option<u64>,
    pub(crate) exact: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) tail: bool,
    pub(crate) checkpoint: bool,
    pub(crate) uncommitted: bool,
}

impl QueryArguments {
    /// On the way of every read: what is not given costs no more than a look.
    #[inline]
    pub(crate) fn query(self) -> PyResult<Query> {
        let QueryArguments { start, end, after, exact, offset, tail, checkpoint, uncommitted } = self;
        let given = [start.is_some(), after.is_some(), exact.is_some(), offset.is_some(), tail, checkpoint];
        if given.iter().filter(|given| **given).count() > 1 {
            return Err(two_places());
        }
        let start = match self {
            QueryArguments { start: Some(time), .. } => Start::Time(time),
            QueryArguments { after: Some(time), .. } => Start::After(time),
            QueryArguments { exact: Some(time), .. } => Start::Exact(time),
            QueryArguments { offset: Some(offset), .. } => Start::Offset(offset),
            QueryArguments { tail: true, .. } => Start::Tail,
            QueryArguments { checkpoint: true, .. } => Start::Checkpoint,
            _ => Start::First,
        };
        Ok(Query { start, end, uncommitted })
    }
}

#[cold]
fn two_places() -> PyErr {
    PyValueError::new_err(
        "a query begins in one place: give one of start, after, exact, offset, tail, checkpoint",
    )
}
