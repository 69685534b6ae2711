//! Writes the golden frames of `schemas/golden`, assembled by hand in `tests/frames/mod.rs`, with their
//! meanings.

#[path = "../tests/frames/mod.rs"]
mod frames;

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/golden");
    fs::create_dir_all(golden.join("accepted"))?;
    fs::create_dir_all(golden.join("refused"))?;
    for (name, frame) in frames::golden() {
        fs::write(golden.join(format!("{name}.json")), frames::meaning(&frame))?;
        fs::write(golden.join(format!("{name}.bin")), frame)?;
    }
    for (name, what, frame) in frames::accepted() {
        fs::write(golden.join(format!("accepted/{name}.{what}.bin")), frame)?;
    }
    for (name, frame) in frames::refused() {
        fs::write(golden.join(format!("refused/{name}.bin")), frame)?;
    }
    Ok(())
}
