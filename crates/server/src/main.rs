//! The `thalweg` program: a server for durable streams, and the verbs to use one from a shell.
//!
//! Owns the command line, the wiring of reactors, listeners, engine and signals, and a small blocking
//! client. Never knows the rules of a protocol: those live in `streams`; only `engine` names the store.
#![forbid(unsafe_code)]

mod arguments;
mod client;
mod engine;
mod listen;
mod logging;
mod serve;
mod webhooks;

use arguments::{Arguments, Verb};
use clap::Parser;
use std::process::ExitCode;

/// The server refused, or the program failed.
const EXIT_FAILED: u8 = 1;
/// No server could be reached. (2 is clap's: the command line is wrong.)
const EXIT_UNREACHABLE: u8 = 3;
/// The stream does not exist, or does not any more.
const EXIT_NO_STREAM: u8 = 4;
/// `verify` found damage.
const EXIT_DAMAGED: u8 = 5;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.verb {
        Verb::Serve(options) => report(serve::serve(&options)),
        Verb::Verify { data } => match engine::verify(&data) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(EXIT_DAMAGED),
            Err(error) => report(Err(error)),
        },
        Verb::Client(verb) => match client::run(&verb) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                eprintln!("thalweg: {failure}");
                ExitCode::from(match failure {
                    client::Failure::Unreachable { .. } => EXIT_UNREACHABLE,
                    client::Failure::Refused { status: 404 | 410, .. } => EXIT_NO_STREAM,
                    _ => EXIT_FAILED,
                })
            }
        },
    }
}

fn report(outcome: Result<(), serve::Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("thalweg: {error}");
            ExitCode::from(EXIT_FAILED)
        }
    }
}
