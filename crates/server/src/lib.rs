//! The `thalweg` program: a server for durable streams, and the verbs to use one from a shell.
//!
//! Owns the command line, the configuration, the wiring of reactors, listeners, engine and signals, and a
//! small blocking client. Never knows the rules of a protocol: those live in `streams`; only `engine` names
//! the store.
//!
//! | folder | what it holds |
//! |---|---|
//! | `command_line`, `config` | what a line, the environment and the file say |
//! | `start` | `serve` step by step, until it serves |
//! | `run` | a server that serves: reload, drain, its threads |
//! | `bounds` | what it may take, shared out to reactors |
//! | `layers` | what each reactor has in front of the streams: origins, tokens, metrics, JSON-RPC |
//! | `services`, `webhooks` | log and state for programs on this machine; what subscriptions send |
//! | `engine` | the store, and what is done to its files offline |
//! | `client` | the verbs that use a server |
//! | `verbs` | the other verbs |
//! | `exit`, `logging` | exit codes and complaints, log lines |
//! | `named_file` | files that an operator names |
//! | `quantity`, `quoting` | numbers for people, words for a shell |
#![forbid(unsafe_code)]

mod bounds;
mod client;
mod command_line;
mod config;
mod engine;
mod exit;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod layers;
mod logging;
mod named_file;
mod quantity;
mod quoting;
mod run;
mod services;
mod start;
mod verbs;
mod webhooks;

use client::Output;
use command_line::{Arguments, Verb, pages, usage};
use exit::{EXIT_CONFIGURATION, EXIT_DAMAGED, EXIT_FAILED, complain, finish, refused, report};
use layers::access;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use thalweg_sys::code;
use verbs::{bench, codegen, doctor, fork_server};

/// Does what the command line says.
pub fn main() -> ExitCode {
    // What the loader read of it is not needed any more; see `start::step`.
    code::release();
    let line: Vec<OsString> = std::env::args_os().collect();
    let arguments = match Arguments::read(&line) {
        Ok(arguments) => arguments,
        Err(error) => return usage::misused_in(&line, &error),
    };
    let output = arguments.output;
    match arguments.verb {
        Verb::Serve(_) => serve(&line, output),
        Verb::Verify { data } => match engine::verify(&data, output) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(EXIT_DAMAGED),
            Err(refusal) => refused(&refusal, output),
        },
        Verb::Doctor { data, config } => doctor(data, config, output),
        Verb::Parse { path, log } => match engine::parse(&path, log.as_deref(), output) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::from(EXIT_DAMAGED),
            Err(refusal) => refused(&refusal, output),
        },
        Verb::Backup { from, to } => finish(engine::backup(&from, &to, output), output),
        Verb::Restore { from, to } => finish(engine::restore(&from, &to, output), output),
        Verb::ForkServer { options } => report(fork_server::run(&options), output),
        Verb::Codegen { arguments, check } => codegen::run(&arguments, check, output),
        Verb::Token { label, scopes, prefix } => {
            report(access::mint(&label, &scopes, &prefix, output), output)
        }
        Verb::Bench(verb) => bench::run(&verb, output),
        Verb::Completions { shell } => report(pages::completions(shell), output),
        Verb::Man { verb } => report(pages::manual(&verb), output),
        Verb::Client(verb) => report(client::run(&verb, output), output),
    }
}

fn serve(line: &[OsString], output: Output) -> ExitCode {
    // It is read once more, by the configuration.
    code::release();
    let configuration = match config::Configuration::load(line) {
        Ok(configuration) => configuration,
        Err(config::ConfigError::CommandLine(error)) => return usage::misused(line, &error, output),
        Err(failure) => return complain(&failure, EXIT_CONFIGURATION, output),
    };
    if configuration.options.print_config {
        return match start::check(&configuration) {
            Ok(reactors) => {
                let limits = start::limits(&configuration.options, reactors);
                report(output.say(configuration.print(&limits), configuration.object(&limits)), output)
            }
            Err(failure) => complain(&failure, failure.exit_code(), output),
        };
    }
    match start::serve(configuration, line, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure, failure.exit_code(), output),
    }
}

/// By the configuration that a server would start with, and not at all if it would not.
fn doctor(data: Option<PathBuf>, config: Option<PathBuf>, output: Output) -> ExitCode {
    let mut line: Vec<OsString> = vec!["thalweg".into(), "serve".into()];
    for (flag, path) in [("--data", data), ("--config", config)] {
        line.extend(path.into_iter().flat_map(|path| [flag.into(), path.into_os_string()]));
    }
    let options = match config::Configuration::load(&line) {
        Ok(configuration) => configuration.options,
        Err(config::ConfigError::CommandLine(error)) => return usage::misused(&line, &error, output),
        Err(failure) => return complain(&failure, EXIT_CONFIGURATION, output),
    };
    let reactors = match start::Plan::of(&options, std::iter::empty(), &options.listen) {
        Ok(plan) => plan.reactors,
        Err(failure) => return complain(&failure, failure.exit_code(), output),
    };
    match doctor::examine(&options, &start::limits(&options, reactors), output) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(failure) => report(Err(failure), output),
    }
}
