//! `cargo xtask cpp`: the C++ face as its users get it: installed as a CMake package, found from a project of
//! its own, compiled as strictly as the compiler can, and run with every access watched, the matrix's
//! programs included.

use crate::harness::options::Options;
use crate::harness::programs::{self, Programs};
use crate::harness::server::{root, target};
use crate::{Outcome, Tally};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `cargo xtask cpp`.
///
/// # Errors
/// The library or the tests do not build, or end early.
pub(crate) fn run(_options: &Options) -> Outcome {
    let mut tally = Tally::default();
    let output = programs::output(&mut Command::new(build(&["tests"])?.join("tests")))?;
    programs::count(&mut tally, "face-cpp", &output);
    Ok(tally)
}

/// Builds the echo programs.
///
/// # Errors
/// They do not build.
pub(crate) fn programs() -> Result<Programs, String> {
    let folder = build(&["server", "client"])?;
    Ok(Programs { server: folder.join("server"), client: folder.join("client") })
}

/// Builds against an installed package, and says where.
fn build(targets: &[&str]) -> Result<PathBuf, String> {
    let library = programs::library()?;
    let home = target().join("cpp");
    let (face, prefix, folder) = (home.join("face"), home.join("prefix"), home.join("echo"));
    forget_other_checkout(&face, &home)?;
    let cmake = || {
        let mut command = Command::new("cmake");
        command.current_dir(root());
        command
    };
    let option = |name: &str, value: &Path| format!("-D{name}={}", value.display());
    let mut configure = cmake();
    configure.args(["-S", "faces/cpp", "-B"]).arg(&face).arg(option("THALWEG_LIBRARY", &library));
    programs::output(&mut configure)?;
    programs::output(cmake().arg("--install").arg(&face).arg("--prefix").arg(&prefix))?;
    let mut configure = cmake();
    configure.args(["-S", "faces/cpp/echo", "-B"]).arg(&folder).arg(option("CMAKE_PREFIX_PATH", &prefix));
    programs::output(configure.args(["-DCMAKE_BUILD_TYPE=Debug", "-DECHO_SANITIZE=ON"]))?;
    programs::output(cmake().arg("--build").arg(&folder).arg("--target").args(targets))?;
    Ok(folder)
}

/// `CMake` ties its cache to the directory it was made from and refuses any other; ours outlives the checkout
/// when the target directory does. One made from another checkout is thrown away.
fn forget_other_checkout(face: &Path, home: &Path) -> Result<(), String> {
    let cache = match std::fs::read_to_string(face.join("CMakeCache.txt")) {
        Ok(cache) => cache,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(format!("{}: {e}", face.display())),
    };
    let ours = format!("CMAKE_HOME_DIRECTORY:INTERNAL={}", root().join("faces/cpp").display());
    if cache.lines().any(|line| line == ours) {
        return Ok(());
    }
    std::fs::remove_dir_all(home).map_err(|e| format!("{}: {e}", home.display()))
}
