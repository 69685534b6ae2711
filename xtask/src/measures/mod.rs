//! Figures with a bar that is not a benchmark: memory of an empty server, of a connection, of a million
//! streams, of forks.

pub(crate) mod empty;
pub(crate) mod forks;
pub(crate) mod million;
pub(crate) mod slopes;
