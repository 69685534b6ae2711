//! What the fuzz targets (`fuzz/`) reach of this program. Built with `--cfg fuzzing` alone.

pub use crate::client::fuzzing::{addresses, events, globs, written};
pub use crate::command_line::fuzzing::arguments;
pub use crate::config::fuzzing::configuration;
pub use crate::layers::access::fuzzing::tokens;
