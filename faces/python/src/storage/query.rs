//! The words of a query, from Python's keywords.

use super::arguments::{optional, whole};
use crate::numbers::Number;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use thalweg_log::{Query, Start};

/// The keywords that say where a query begins and what it takes. Of those that say where, one may be given.
#[derive(Clone, Debug)]
pub(crate) struct QueryArguments {
    pub(crate) start: Option<Number<u64>>,
    pub(crate) end: Option<Number<u64>>,
    pub(crate) after: Option<Number<u64>>,
    pub(crate) exact: Option<Number<u64>>,
    pub(crate) offset: Option<Number<u64>>,
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
        let start = match (start, after, exact, offset) {
            (Some(time), ..) => Start::Time(whole("start", time)?),
            (_, Some(time), ..) => Start::After(whole("after", time)?),
            (_, _, Some(time), _) => Start::Exact(whole("exact", time)?),
            (_, _, _, Some(offset)) => Start::Offset(whole("offset", offset)?),
            _ if tail => Start::Tail,
            _ if checkpoint => Start::Checkpoint,
            _ => Start::First,
        };
        Ok(Query { start, end: optional("end", end)?, uncommitted })
    }
}

#[cold]
fn two_places() -> PyErr {
    PyValueError::new_err(
        "a query begins in one place: give one of start, after, exact, offset, tail, checkpoint",
    )
}
