//! What is generated and committed: each is written anew, or compared with what is there.

pub(crate) mod codegen;
pub(crate) mod faults;
pub(crate) mod golden;
pub(crate) mod header;
