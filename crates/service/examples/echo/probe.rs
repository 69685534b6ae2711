//! The client that takes single steps and prints how each ended. The program that started it reports faults
//! of the other end. `conformance/matrix/README.md` lists the steps.

use crate::Outcome;
use crate::echo::client::EchoClient;
use crate::echo::types::*;
use std::time::Duration;
use thalweg_service::{CallOptions, Client, ClientOptions, Error, SyncClient};
use thalweg_transport::Endpoint;
use thalweg_wire::service::CallError;

/// More than a frame may have unless said otherwise.
const LARGE_BYTES: usize = (16 << 20) + 1;

/// Takes the steps.
pub fn run(endpoint: &Endpoint, words: &[String]) -> Outcome {
    let (within, steps) = words.split_first().ok_or("within how many milliseconds?")?;
    let connect_within = Duration::from_millis(within.parse()?);
    let options = ClientOptions { schema: SCHEMA_HASH, connect_within, ..ClientOptions::default() };
    let mut call = match SyncClient::connect(endpoint, options) {
        Ok(call) => call,
        Err(error) => {
            println!("{}", said(&error));
            return Ok(());
        }
    };
    let late = CallOptions { deadline: Some(Duration::from_millis(50)), ..CallOptions::default() };
    for step in steps {
        let outcome = match &step[..] {
            "echo" => asked(&mut call, CallOptions::default()),
            "late" => asked(&mut call, late),
            "cancel" => cancelled(call.client()),
            "large" => sent(call.client(), &vec![0; LARGE_BYTES]),
            frame => sent(call.client(), &bytes(frame.trim_start_matches('x'))?),
        };
        println!("{outcome}");
    }
    Ok(())
}

fn said(error: &Error) -> String {
    format!("{} {}", error.fault.word(), error.retry().word())
}

fn request() -> EchoFields<'static> {
    EchoFields { count: 7, total: 9, name: "step".into() }
}

fn asked(call: &mut SyncClient, options: CallOptions) -> String {
    call.set_options(options);
    match EchoClient::new(call).fields(&request()) {
        Ok(EchoFieldsResponse { count: 7, total: 9, name }) if name == "step" => "ok".to_owned(),
        Ok(other) => format!("{other:?}"),
        Err(CallError::Transport(error)) => said(&error),
        Err(CallError::Refused(_)) => "refused never".to_owned(),
        Err(CallError::Decode(_)) => "decode".to_owned(),
    }
}

/// Begins a call and gives it up.
fn cancelled(client: &mut Client) -> String {
    let mut frame = Vec::new();
    EchoRequest::Fields(request()).encode(&mut frame);
    let outcome = client.call(&frame, CallOptions::default()).and_then(|call| {
        client.flush()?;
        client.cancel(call);
        client.wait(call).map(drop)
    });
    outcome.map_or_else(|error| said(&error), |()| "ok".to_owned())
}

fn sent(client: &mut Client, frame: &[u8]) -> String {
    let outcome = client.call(frame, CallOptions::default()).and_then(|call| client.wait(call).map(drop));
    outcome.map_or_else(|error| said(&error), |()| "ok".to_owned())
}

fn bytes(hex: &str) -> Outcome<Vec<u8>> {
    let digits: Vec<char> = hex.chars().collect();
    let pair = |pair: &[char]| Ok(u8::from_str_radix(&pair.iter().collect::<String>(), 16)?);
    digits.chunks(2).map(pair).collect()
}
