//! The `thalweg` program. Owns nothing but its entry, and never does anything by itself: all of it is the
//! library's, where the fuzz targets reach it, too.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    thalweg_server::main()
}
