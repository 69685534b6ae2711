//! The `thalweg` program: a server for durable streams, and the verbs to use one from a shell.
//!
//! Owns the command line, the configuration, the wiring of reactors, listeners, engine and signals, and a
//! small blocking client. Never knows the rules of a protocol: those live in `streams`; only `engine` names
//! the store.
#![forbid(unsafe_code)]

mod access;
mod arguments;
mod bench;
mod client;
mod codegen;
mod config;
mod cors;
mod costs;
mod descriptors;
mod doctor;
mod engine;
mod flag_ranges;
mod fork_server;
mod front;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod greeting;
mod housekeeping;
mod layer;
mod limits;
mod listen;
mod listen_conflicts;
mod logging;
mod memory;
mod metrics;
mod pages;
mod per_reactor;
mod plan;
mod quantity;
mod rpc;
mod second_signal;
mod serve;
mod services;
mod startup_signals;
mod stats;
mod systemd;
mod threads;
mod usage;
mod webhooks;

use arguments::{Arguments, Verb};
use client::{Output, notice};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Display;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;
use thalweg_sys::code;
use thalweg_wire::fault::Fault;

/// The server refused, or the program failed.
const EXIT_FAILED: u8 = 1;
/// The configuration is wrong; clap says the same of a command line.
const EXIT_CONFIGURATION: u8 = 2;
/// No server could be reached.
const EXIT_UNREACHABLE: u8 = 3;
/// The stream does not exist, or does not any more.
const EXIT_NO_STREAM: u8 = 4;
/// What a service's client says where none could be reached.
const UNREACHABLE: [Fault; 2] = [Fault::NoServer, Fault::ConnectTimeout];
/// Damage was found.
const EXIT_DAMAGED: u8 = 5;
/// What was asked for is in conflict with what is there.
const EXIT_CONFLICT: u8 = 6;

/// Does what the command line says.
pub fn main() -> ExitCode {
    // What the loader read of it is not needed any more; see `serve::serve`.
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
        Err(config::Failure::CommandLine(error)) => return usage::misused(line, &error, output),
        Err(failure) => return complain(&failure, EXIT_CONFIGURATION, output),
    };
    if configuration.options.print_config {
        return match serve::check(&configuration) {
            Ok(reactors) => {
                let limits = serve::limits(&configuration.options, reactors);
                report(output.say(configuration.print(&limits), configuration.object(&limits)), output)
            }
            Err(failure) => complain(&failure, failure.exit_code(), output),
        };
    }
    match serve::serve(configuration, line, output) {
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
        Err(config::Failure::CommandLine(error)) => return usage::misused(&line, &error, output),
        Err(failure) => return complain(&failure, EXIT_CONFIGURATION, output),
    };
    let reactors = match plan::Plan::of(&options, std::iter::empty(), &options.listen) {
        Ok(plan) => plan.reactors,
        Err(failure) => return complain(&failure, failure.exit_code(), output),
    };
    match doctor::examine(&options, &serve::limits(&options, reactors), output) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_FAILED),
        Err(failure) => report(Err(failure), output),
    }
}

fn report(outcome: Result<(), client::Failure>, output: Output) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    let code = code_of(&failure);
    match (&failure, output) {
        (client::Failure::Partly(partly), Output::Json) => {
            let mut told = complaint(&failure, code);
            if let (Some(told), Ok(Value::Object(mut there))) =
                (told.as_object_mut(), serde_json::to_value(&partly.there))
            {
                told.append(&mut there);
            }
            notice(told);
            ExitCode::from(code)
        }
        _ => complain(&failure, code, output),
    }
}

fn code_of(failure: &client::Failure) -> u8 {
    use client::Failure;
    match failure.cause() {
        // It was the token, not the stream.
        Failure::Refused { head, .. } if head.field("www-authenticate").is_some() => EXIT_FAILED,
        // Somebody is there.
        Failure::Unreachable { error, .. } if error.kind() == ErrorKind::PermissionDenied => EXIT_FAILED,
        Failure::Unreachable { .. } => EXIT_UNREACHABLE,
        // PROTOCOL 5.2.1: it names the epoch that is in force. Any other 403 is of who asks, and by which
        // name, not of what is there.
        Failure::Refused { status: 403, head, .. } if head.field("producer-epoch").is_none() => EXIT_FAILED,
        Failure::Service(error) if UNREACHABLE.contains(&error.fault) => EXIT_UNREACHABLE,
        Failure::Refused { status, .. } | Failure::Said { status, .. } => code_of_status(*status),
        Failure::Copy(_) => EXIT_CONFLICT,
        // Nothing was sent.
        Failure::Url(_) | Failure::Name { .. } | Failure::Verb { .. } | Failure::Asked(_) => {
            EXIT_CONFIGURATION
        }
        Failure::Several(failures) => failures.first().map_or(EXIT_FAILED, |(_, failure)| code_of(failure)),
        _ => EXIT_FAILED,
    }
}

/// What a refusal with such a status ends with.
fn code_of_status(status: u16) -> u8 {
    match status {
        404 | 410 => EXIT_NO_STREAM,
        403 | 409 => EXIT_CONFLICT,
        _ => EXIT_FAILED,
    }
}

fn finish(outcome: Result<(), engine::Refusal>, output: Output) -> ExitCode {
    outcome.map_or_else(|refusal| refused(&refusal, output), |()| ExitCode::SUCCESS)
}

fn refused(refusal: &engine::Refusal, output: Output) -> ExitCode {
    let code = match refusal {
        engine::Refusal::Damaged(_) => EXIT_DAMAGED,
        engine::Refusal::Conflict(_) => EXIT_CONFLICT,
        engine::Refusal::Failed(_) => EXIT_FAILED,
        engine::Refusal::Missing(_) => EXIT_NO_STREAM,
    };
    complain(refusal, code, output)
}

/// Says what went wrong on standard error, so that standard output stays for what was asked.
fn complain(failure: &impl Display, code: u8, output: Output) -> ExitCode {
    match output {
        Output::Text => notice(format_args!("thalweg: {failure}")),
        Output::Json => notice(complaint(failure, code)),
    }
    ExitCode::from(code)
}

/// What went wrong, for programs.
fn complaint(failure: &impl Display, code: u8) -> Value {
    json!({ "error": failure.to_string(), "exitCode": code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lets_nobody_in_is_there() {
        let denied = |fault| code_of(&client::Failure::Service(thalweg_service::Error::new(fault, "")));
        assert_eq!(
            (denied(Fault::PermissionDenied), denied(Fault::NoServer)),
            (EXIT_FAILED, EXIT_UNREACHABLE)
        );
        let unreachable = |kind: ErrorKind| {
            code_of(&client::Failure::Unreachable { url: String::new(), error: kind.into() })
        };
        assert_eq!(unreachable(ErrorKind::PermissionDenied), EXIT_FAILED);
        assert_eq!(unreachable(ErrorKind::ConnectionRefused), EXIT_UNREACHABLE);
    }
}
