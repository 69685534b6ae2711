//! What the program ends with, and the complaint on standard error that goes with it. The codes are an
//! interface: `docs/exit-codes.md` lists them.

use crate::client::{self, Output, notice};
use crate::engine;
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::ErrorKind;
use std::process::ExitCode;
use thalweg_wire::fault::Fault;

/// The server refused, or the program failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The configuration is wrong; clap says the same of a command line.
pub(crate) const EXIT_CONFIGURATION: u8 = 2;
/// No server could be reached.
pub(crate) const EXIT_UNREACHABLE: u8 = 3;
/// The stream does not exist, or does not any more.
pub(crate) const EXIT_NO_STREAM: u8 = 4;
/// The faults of a service that could not be reached.
const UNREACHABLE: [Fault; 2] = [Fault::NoServer, Fault::ConnectTimeout];
/// Damage was found.
pub(crate) const EXIT_DAMAGED: u8 = 5;
/// What was asked for is in conflict with what is there.
pub(crate) const EXIT_CONFLICT: u8 = 6;

/// What a verb ends with, and its complaint.
pub(crate) fn report(outcome: Result<(), client::Failure>, output: Output) -> ExitCode {
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
        // A server is there, and denies access.
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
pub(crate) fn code_of_status(status: u16) -> u8 {
    match status {
        404 | 410 => EXIT_NO_STREAM,
        403 | 409 => EXIT_CONFLICT,
        _ => EXIT_FAILED,
    }
}

/// What a verb on a store's files ends with, and its complaint.
pub(crate) fn finish(outcome: Result<(), engine::Refusal>, output: Output) -> ExitCode {
    outcome.map_or_else(|refusal| refused(&refusal, output), |()| ExitCode::SUCCESS)
}

/// Why nothing was done to a store's files, and what that ends with.
pub(crate) fn refused(refusal: &engine::Refusal, output: Output) -> ExitCode {
    let code = match refusal {
        engine::Refusal::Damaged(_) => EXIT_DAMAGED,
        engine::Refusal::Conflict(_) => EXIT_CONFLICT,
        engine::Refusal::Failed(_) => EXIT_FAILED,
        engine::Refusal::Missing(_) => EXIT_NO_STREAM,
    };
    complain(refusal, code, output)
}

/// Says what went wrong on standard error, so that standard output stays for what was asked.
pub(crate) fn complain(failure: &impl Display, code: u8, output: Output) -> ExitCode {
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
    fn a_server_that_denies_access_was_reached() {
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
