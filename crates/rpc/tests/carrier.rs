//! Frames that are carried by JSON-RPC.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Running, SCHEMA, numbered, schema};
use thalweg_rpc::{Carrier, Client, ClientOptions, ServerOptions, Translator};
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Call;

fn carrier(server: &Running, translator: Translator) -> Carrier {
    Carrier::new(Client::new(&server.url(), ClientOptions::default()).unwrap(), translator)
}

fn request(translator: &Translator) -> Vec<u8> {
    let mut frame = Vec::new();
    translator.request("Same", "[7]", &mut frame).unwrap();
    frame
}

#[test]
fn they_are_carried_to_a_server_of_their_schema_and_to_no_other() {
    let server = Running::start(ServerOptions::default());
    let translator = Translator::new(&schema());
    let frame = request(&translator);
    let mut fits = carrier(&server, translator);
    for asked in 1..=2 {
        fits.send(&frame).unwrap();
        assert_eq!(fits.receive().unwrap(), numbered("TrialSameResponse", 7, None));
        assert_eq!(server.asked().len(), asked);
    }
    let other = SCHEMA.replace("\"Refuse\"", "\"Deny\"");
    let mut other = carrier(&server, Translator::new(&thalweg_schema::parse("other.jsonc", &other).unwrap()));
    for _ in 0..2 {
        other.send(&frame).unwrap();
        assert_eq!(other.receive().unwrap_err().fault, Fault::SchemaMismatch);
    }
    assert_eq!(server.asked().len(), 2);
}
