//! What the tasks share: their options and help, a server as a process, a client of it, programs and their
//! output.

pub(crate) mod at_once;
pub(crate) mod client;
pub(crate) mod hold;
pub(crate) mod load;
pub(crate) mod memory;
pub(crate) mod options;
pub(crate) mod programs;
pub(crate) mod server;
pub(crate) mod serving;
pub(crate) mod usage;
