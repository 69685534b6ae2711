//! The server and its stores from outside: other clients, bad input, crashes, full disks, long runs.

pub(crate) mod conformance;
pub(crate) mod crash;
pub(crate) mod damage;
pub(crate) mod debian;
pub(crate) mod drain;
pub(crate) mod full;
pub(crate) mod fuzz;
pub(crate) mod judges;
pub(crate) mod refusals;
pub(crate) mod simulate;
pub(crate) mod soak;
pub(crate) mod state_crash;
