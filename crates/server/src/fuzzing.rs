//! What the fuzz targets (`fuzz/`) reach of this program. Built with `--cfg fuzzing` alone.

pub use crate::access::fuzzing::tokens;
pub use crate::arguments::fuzzing::arguments;
pub use crate::client::fuzzing::{addresses, events, globs, written};
pub use crate::config::fuzzing::configuration;
