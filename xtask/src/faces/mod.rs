//! The faces and the services of every language, built and tested as their users get them.

pub(crate) mod asyncio;
pub(crate) mod cpp;
pub(crate) mod erlang;
pub(crate) mod guide;
pub(crate) mod matrix;
pub(crate) mod node;
pub(crate) mod python;
pub(crate) mod zig;
