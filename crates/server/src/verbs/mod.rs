//! Verbs that neither serve nor use a server's streams, a file each: they judge this machine, load a server,
//! generate code, run a program as a server that forks.

pub(crate) mod bench;
pub(crate) mod codegen;
pub(crate) mod doctor;
pub(crate) mod fork_server;
