//! Calls everything that an echo server answers: `echo_client ENDPOINT`; or takes single steps:
//! `echo_client ENDPOINT MILLISECONDS STEP...`. What is expected of it: `conformance/matrix/README.md`.

#[rustfmt::skip]
#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../schemas/generated/rust/mod.rs"]
mod echo;
#[allow(unreachable_pub)]
#[path = "echo/probe.rs"]
mod probe;

use echo::client::EchoClient;
use echo::types::*;
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thalweg_reactor::Wait;
use thalweg_service::{CallOptions, Client, ClientOptions, EventKind, SyncClient};
use thalweg_transport::Endpoint;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::{CallError, Next};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A golden frame.
macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!("../../../schemas/golden/echo_", $name, ".bin"))
    };
}

/// The golden requests that are answered with what they ask.
const ECHOES: &[&[u8]] = &[
    golden!("aliases_request"),
    golden!("blobs_none"),
    golden!("blobs_request"),
    golden!("bytes_bin16"),
    golden!("bytes_empty"),
    golden!("bytes_request"),
    golden!("fields_max"),
    golden!("fields_request"),
    golden!("fields_str16"),
    golden!("fields_uint_boundary"),
    golden!("fields_unicode"),
    golden!("nested_flag_false"),
    golden!("nested_flag_none"),
    golden!("nested_request"),
    golden!("numbers_max"),
    golden!("numbers_zero"),
    golden!("places_request"),
];
const ENDLESS: EchoCount = EchoCount { first: 0, last: u32::MAX };

/// Those, and their answers.
fn echoes() -> Outcome<Vec<(&'static [u8], Vec<u8>)>> {
    let mut echoes = Vec::new();
    for frame in ECHOES {
        let response = echo_of(EchoRequest::decode(frame)?).ok_or("a request that is answered otherwise")?;
        let mut expected = Vec::new();
        response.encode(&mut expected);
        echoes.push((*frame, expected));
    }
    Ok(echoes)
}

fn echo_of(request: EchoRequest<'_>) -> Option<EchoResponse<'_>> {
    use EchoRequest as Ask;
    use EchoResponse as Answer;
    Some(match request {
        Ask::Bytes(EchoBytes { data }) => Answer::BytesResponse(EchoBytesResponse { data }),
        Ask::Fields(EchoFields { count, total, name }) => {
            Answer::FieldsResponse(EchoFieldsResponse { count, total, name })
        }
        Ask::Nested(EchoNested { inner }) => Answer::NestedResponse(EchoNestedResponse { inner }),
        Ask::Aliases(EchoAliases { sequence_number, digest, parent, chain }) => {
            Answer::AliasesResponse(EchoAliasesResponse { sequence_number, digest, parent, chain })
        }
        Ask::Blobs(EchoBlobs { extra, parts }) => Answer::BlobsResponse(EchoBlobsResponse { extra, parts }),
        Ask::Numbers(numbers) => Answer::NumbersResponse(EchoNumbersResponse {
            tiny: numbers.tiny,
            small: numbers.small,
            medium: numbers.medium,
            large: numbers.large,
            signed_tiny: numbers.signed_tiny,
            signed_small: numbers.signed_small,
            signed_medium: numbers.signed_medium,
            signed_large: numbers.signed_large,
            single: numbers.single,
            precise: numbers.precise,
        }),
        Ask::Places(EchoPlaces { places, counts, grid, mood, named }) => {
            Answer::PlacesResponse(EchoPlacesResponse { places, counts, grid, mood, named })
        }
        _ => return None,
    })
}

fn expect<T: PartialEq + std::fmt::Debug>(found: &T, expected: &T, what: &str) -> Outcome {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?}, expected {expected:?}").into()) }
}

/// Each once, and then 64 in flight at once.
fn echo_all(client: &mut Client) -> Outcome<u64> {
    let echoes = echoes()?;
    for (request, expected) in &echoes {
        let call = client.call(request, CallOptions::default())?;
        expect(&client.wait(call)?, &&expected[..], "an echo")?;
    }
    let mut expected = HashMap::new();
    for (request, answer) in echoes.iter().cycle().take(64) {
        expected.insert(client.call(request, CallOptions::default())?, answer);
    }
    while !expected.is_empty() {
        client.turn(Wait::Block)?;
        while let Some(event) = client.next() {
            let answer = expected.remove(&event.call).ok_or("an answer to no question")?;
            if let EventKind::Failed(error) = event.kind {
                return Err(error.into());
            }
            expect(&event.frame, &&answer[..], "one of 64")?;
        }
    }
    Ok(echoes.len() as u64 + 64)
}

fn forks(echo: &mut EchoClient<SyncClient>) -> Outcome<u64> {
    let EchoRequest::Put(EchoPut { value, .. }) = EchoRequest::decode(golden!("put_request"))? else {
        return Err("echo_put_request is something else".into());
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let fork = format!("rust {} {since}", std::process::id());
    expect(&echo.peek(&EchoPeek { fork: (&fork).into() })?.value, &None, "a fork nobody knows")?;
    for version in 1..=2 {
        let put = EchoPut { fork: (&fork).into(), value: value.clone() };
        expect(&echo.put(&put)?.version, &version, "a version")?;
    }
    expect(&echo.peek(&EchoPeek { fork: (&fork).into() })?.value, &Some(value.clone()), "a value")?;
    let committed = echo.peek_committed(&EchoPeekCommitted { fork: (&fork).into() })?.value;
    expect(&committed, &Some(value.clone()), "a committed value")?;
    Ok(5)
}

fn stream(echo: &mut EchoClient<SyncClient>) -> Outcome<u64> {
    let mut items = echo.count(&EchoCount { first: 1, last: 1_000 })?;
    for value in 1..=1_000 {
        expect(&items.next()?, &Next::Item(EchoCountItem { value }), "an item")?;
    }
    expect(&items.next()?, &Next::End(EchoCountResponse { count: 1_000 }), "the end")?;
    Ok(1)
}

fn refused(echo: &mut EchoClient<SyncClient>) -> Outcome<u64> {
    match echo.fail(&EchoFail { reason: "because".into() }) {
        Err(CallError::Refused(reason)) => expect(&&reason[..], &"because", "a refusal")?,
        other => return Err(format!("a refusal was expected: {other:?}").into()),
    }
    Ok(1)
}

/// A request that no service knows: an error frame, or the fault.
fn unknown(client: &mut Client) -> Outcome<u64> {
    let call = client.call(b"\x91\x92\xafEchoNoSuchThing\x80", CallOptions::default())?;
    match client.wait(call) {
        Ok(frame) if matches!(EchoResponse::decode(frame)?, EchoResponse::ErrorResponse(_)) => Ok(1),
        Err(error) if error.fault == Fault::UnknownCommand => Ok(1),
        other => Err(format!("an error was expected: {other:?}").into()),
    }
}

/// Begins to count without an end, and waits for how the call ends after its first item.
fn endless(client: &mut Client, options: CallOptions, cancel: bool, fault: Fault) -> Outcome<u64> {
    let mut request = Vec::new();
    EchoRequest::Count(ENDLESS).encode(&mut request);
    let call = client.call(&request, options)?;
    let first = client.wait_event(call)?;
    if !matches!(first.kind, EventKind::Item) {
        return Err(format!("an item was expected: {:?}", first.kind).into());
    }
    if cancel {
        client.cancel(call);
    }
    loop {
        match client.wait_event(call)?.kind {
            EventKind::Item => {}
            EventKind::Failed(error) if error.fault == fault => return Ok(1),
            other => return Err(format!("{fault:?} was expected: {other:?}").into()),
        }
    }
}

fn run(endpoint: &Endpoint) -> Outcome<u64> {
    let options = ClientOptions { schema: SCHEMA_HASH, ..ClientOptions::default() };
    let mut client = Client::connect(endpoint, options.clone())?;
    expect(&client.is_shared(), &matches!(endpoint, Endpoint::Shared(_)), "shared memory")?;
    let mut passed = echo_all(&mut client)?;
    passed += unknown(&mut client)?;
    let credit = CallOptions { credit: Some(4), ..CallOptions::default() };
    passed += endless(&mut client, credit, true, Fault::Cancelled)?;
    let overdue =
        CallOptions { credit: Some(1), deadline: Some(Duration::from_millis(50)), ..CallOptions::default() };
    passed += endless(&mut client, overdue, false, Fault::DeadlineExceeded)?;
    let mut call = SyncClient::new(client);
    call.set_options(CallOptions { credit: Some(16), ..CallOptions::default() });
    let mut echo = EchoClient::new(call);
    passed += forks(&mut echo)?;
    passed += stream(&mut echo)?;
    passed += refused(&mut echo)?;
    echo.bytes(&EchoBytes { data: b"still here"[..].into() })?;
    Ok(passed + 1)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        None => Err("usage: echo_client ENDPOINT [MILLISECONDS STEP...]".into()),
        Some((endpoint, words)) => match endpoint.parse() {
            Err(error) => Err(Box::from(error)),
            Ok(endpoint) if words.is_empty() => run(&endpoint).map(|passed| println!("ok {passed}")),
            Ok(endpoint) => probe::run(&endpoint, words),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
