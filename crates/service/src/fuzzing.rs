//! What the fuzz targets (`fuzz/`) reach of this crate beside what everybody does. Built with `--cfg fuzzing`
//! alone.

pub use crate::server::fuzzing::cut;
