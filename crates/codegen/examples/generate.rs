//! `thalweg codegen` before the program has it: the same options, the same output.

use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: thalweg_codegen::Arguments,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let report = thalweg_codegen::run(&Line::parse().arguments).map_err(|error| error.to_string())?;
    println!(
        "{} written, {} unchanged, {} removed",
        report.written.len(),
        report.unchanged.len(),
        report.removed.len()
    );
    Ok(())
}
