//! Our server and our client: a service that adds two numbers.

use crate::PACE;
use crate::far;
use crate::work::Work;
use std::net::SocketAddr;
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until, repeat};
use thalweg_rpc::client::Ask;
use thalweg_rpc::{Client, ClientOptions, Mount, Server, ServerOptions};
use thalweg_service::{Reply, Request, Wait};
use thalweg_wire::messagepack::{Reader, write};

const SCHEMA: &str = r#"{
    "service": "Sum",
    "error": { "message": "string" },
    "commands": { "Add": { "request": { "a": "u64", "b": "u64" }, "response": { "sum": "u64" } } },
}"#;

/// Where it is called; the floor takes any path for it.
pub(crate) const PATH: &str = "/rpc/sum";

/// Serves until the process ends.
///
/// # Errors
/// What the system says.
pub(crate) fn serve(pin: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let schema = thalweg_schema::parse("sum.jsonc", SCHEMA).map_err(|problems| problems.to_string())?;
    let mut server = Server::bind(SocketAddr::from(([127, 0, 0, 1], 0)), ServerOptions::default())?;
    server.mount("sum", Mount::here(&schema, answer))?;
    pin()?;
    far::ready(server.address())?;
    Ok(server.run()?)
}

/// What generated code would do: reads every field, and answers.
fn answer(request: Request<'_>, reply: Reply) {
    match add(request.frame) {
        Some(sum) => reply.end_with(|out| {
            out.push(0x92);
            write::string(out, "SumAddResponse");
            out.push(0x81);
            write::string(out, "sum");
            write::u64(out, &sum);
        }),
        None => drop(reply),
    }
}

fn add(frame: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(frame);
    let mut sum = 0_u64;
    if reader.request().ok()? != b"SumAdd" {
        return None;
    }
    for _ in 0..reader.fields("SumAdd").ok()? {
        reader.key().ok()?;
        sum = sum.wrapping_add(reader.u64().ok()?);
    }
    reader.finish().ok().map(|()| sum)
}

/// Calls by our client.
///
/// # Errors
/// A call fails, or is answered wrong.
pub(crate) fn call(address: SocketAddr, work: &Work, until: Until) -> Result<Measured, Failure> {
    let idle_max = if work.anew { 0 } else { 2 };
    let options = ClientOptions { idle_max, ..ClientOptions::default() };
    let mut client = Client::new(&format!("http://{address}{PATH}"), options)?;
    if work.batch > 1 {
        let calls = vec![("Add", "[40,2]"); work.batch];
        return repeat(PACE, until, || {
            let answers = client.ask(&Ask { calls: &calls, is_batch: true, ..Ask::default() })?;
            if answers.iter().any(|answer| answer != Ok(r#"{"sum":42}"#)) {
                return Err("another answer".into());
            }
            Ok(answers.len() as u64)
        });
    }
    repeat(PACE, until, || match client.call("Add", "[40,2]")? {
        r#"{"sum":42}"# => Ok(1),
        other => Err(format!("another answer: {other}").into()),
    })
}

/// Calls by our client over as many connections as there are, with one call under way over each: a turn takes
/// what came, and asks again.
///
/// # Errors
/// A call fails, or is answered wrong.
pub(crate) fn call_many(address: SocketAddr, work: &Work, until: Until) -> Result<Measured, Failure> {
    let count = work.connections;
    let idle_max = if work.anew { 0 } else { count };
    let options = ClientOptions { idle_max, connections_max: count, ..ClientOptions::default() };
    let mut client = Client::new(&format!("http://{address}{PATH}"), options)?;
    let ask = Ask::one("Add", "[40,2]");
    (0..count).try_for_each(|_| client.begin(&ask).map(drop))?;
    repeat(PACE, until, || {
        client.turn(Wait::Block)?;
        let mut answered = 0;
        while let Some(done) = client.next() {
            if done.outcome?.one()? != r#"{"sum":42}"# {
                return Err("another answer".into());
            }
            client.begin(&ask)?;
            answered += 1;
        }
        Ok(answered)
    })
}
