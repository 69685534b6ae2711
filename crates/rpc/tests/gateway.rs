//! What is asked over HTTP, and what is answered.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{Raw, Running, numbered, one, until};
use serde_json::{Value, json};
use std::time::Duration;
use thalweg_rpc::{Bounds, ServerOptions};

fn start() -> Running {
    Running::start(ServerOptions::default())
}

fn bounded(bounds: Bounds) -> Running {
    Running::start(ServerOptions { bounds, ..ServerOptions::default() })
}

fn call(method: &str, params: &Value, id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params, "id": id })
}

fn result(result: &Value, id: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "result": result, "id": id })
}

/// Is gone, and not merely at the end of what it sends.
fn leave(client: Raw) {
    thalweg_sys::socket::close_abruptly(std::os::fd::AsFd::as_fd(&client.stream)).unwrap();
}

/// An error's code, its field or fault, and its id.
fn error(answer: &Value) -> (i64, &str, &Value) {
    assert_eq!(answer["jsonrpc"], "2.0");
    let data = &answer["error"]["data"];
    let word = data["field"].as_str().or(data["fault"].as_str()).unwrap_or("");
    assert!(answer["error"]["message"].is_string() && answer.get("result").is_none());
    (answer["error"]["code"].as_i64().unwrap(), word, &answer["id"])
}

#[test]
fn a_call_is_answered_by_name_and_by_position() {
    let server = start();
    let mut client = server.connect();
    let number = u64::MAX;
    let by_name = call("Same", &json!({ "number": number, "text": "ä" }), &json!(1));
    let same = json!({ "number": number, "text": "ä" });
    assert_eq!(client.ask(by_name.to_string()), result(&same, &json!(1)));
    let by_position = call("Same", &json!([number, "ä"]), &json!("one"));
    assert_eq!(client.ask(by_position.to_string()), result(&same, &json!("one")));
    assert_eq!(
        client.ask(call("Same", &json!([7]), &json!(null)).to_string())["result"]["text"],
        Value::Null
    );
    assert!(server.shared.lock().unwrap().alone.iter().all(|alone| *alone));
}

#[test]
fn ids_are_echoed_byte_for_byte() {
    let server = start();
    let mut client = server.connect();
    for id in ["18446744073709551615", "-1", "\"\\u0061\\/\"", "null", "0"] {
        client.post(format!(r#"{{"id":{id},"params":[1],"method":"Same","jsonrpc":"2.0"}}"#));
        let body = client.answer().body;
        assert!(body.ends_with(&format!(",\"id\":{id}}}")), "{body}");
    }
}

#[test]
fn what_is_no_request_is_answered_and_not_carried_out() {
    let server = start();
    let mut client = server.connect();
    let deep = format!(
        r#"{{"jsonrpc":"2.0","method":"Same","id":1,"params":{}1{}}}"#,
        "[".repeat(80),
        "]".repeat(80)
    );
    for (body, code) in [
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"id":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"id":1.5}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"id":1,"id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"method":"Same","id":1}"#, -32600),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"id":1"#, -32700),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1],"id":1} {}"#, -32700),
        (r#"[{"jsonrpc":"2.0","method":"Same","params":[1],"id":1},]"#, -32700),
        (r#"{"jsonrpc":"2.0","method":"Same","params":{"number":1,"number":1},"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1e400],"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[18446744073709551616],"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","params":[1,"a",2],"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","params":{"number":1,"more":1},"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","params":{},"id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"Same","id":1}"#, -32602),
        (r#"{"jsonrpc":"2.0","method":"same","id":1}"#, -32601),
        ("[]", -32600),
        ("", -32700),
        (&deep, -32700),
    ] {
        assert_eq!(error(&client.ask(body)).0, code, "{body}");
    }
    assert_eq!(error(&client.ask(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}")).0, -32700);
    assert!(server.asked().is_empty(), "{:?}", server.asked());
}

#[test]
fn the_field_at_fault_is_named_in_data() {
    let server = start();
    let mut client = server.connect();
    let answer = client.ask(call("Same", &json!({ "number": "1" }), &json!(3)).to_string());
    assert_eq!(error(&answer), (-32602, "number", &json!(3)));
    let answer = client.ask(r#"{"jsonrpc":"2.0","method":7,"id":3}"#);
    assert_eq!(error(&answer), (-32600, "method", &json!(3)));
}

#[test]
fn what_goes_wrong_in_the_service_has_its_number() {
    let server = start();
    let mut client = server.connect();
    let mut ask = |method: &str, params: &Value| client.ask(call(method, params, &json!(1)).to_string());
    let refused = ask("Refuse", &json!(["so there"]));
    assert_eq!(error(&refused), (-32000, "refused", &json!(1)));
    assert_eq!(refused["error"]["message"], "so there");
    assert_eq!(error(&ask("Panic", &json!([]))).1, "abandoned");
    assert_eq!(error(&ask("Lie", &json!({}))), (-32017, "bad_answer", &json!(1)));
    assert_eq!(ask("Same", &json!([5]))["result"]["number"], 5);
}

#[test]
fn a_batch_is_carried_out_at_once_and_answered_in_order() {
    let server = start();
    let mut client = server.connect();
    let calls = json!([
        call("Later", &json!([1]), &json!("a")),
        call("Same", &json!([2]), &json!("b")),
        { "jsonrpc": "2.0", "method": "Same", "params": [3] },
        7,
        call("Later", &json!([4]), &json!("c")),
        call("None", &json!([5]), &json!("d")),
        { "jsonrpc": "2.0", "method": "Later", "params": [6] },
    ]);
    client.post(calls.to_string());
    let waiting = server.waiting(3);
    assert_eq!(
        server.asked(),
        ["TrialLater 1", "TrialSame 2", "TrialSame 3", "TrialLater 4", "TrialLater 6"]
    );
    let answer = move || {
        for (number, reply) in waiting.into_iter().rev() {
            reply.end(&numbered("TrialLaterResponse", number, None));
        }
    };
    std::thread::spawn(answer).join().unwrap();
    let answers = client.answer().json();
    let ids: Vec<&Value> = answers.as_array().unwrap().iter().map(|answer| &answer["id"]).collect();
    assert_eq!(ids, [&json!("a"), &json!("b"), &Value::Null, &json!("c"), &json!("d")]);
    assert_eq!(answers[0]["result"]["number"], 1);
    assert_eq!(answers[3]["result"]["number"], 4);
    assert_eq!((error(&answers[2]).0, error(&answers[4]).0), (-32600, -32601));
}

#[test]
fn notifications_are_carried_out_and_have_no_answer() {
    let server = start();
    let mut client = server.connect();
    let one = json!({ "jsonrpc": "2.0", "method": "Same", "params": [1] });
    let wrong = json!({ "jsonrpc": "2.0", "method": "Refuse", "params": ["no"] });
    for body in [one.to_string(), json!([one, wrong, one]).to_string()] {
        client.post(body);
        let answered = client.answer();
        assert_eq!((answered.status, answered.body.as_str()), (204, ""));
    }
    assert_eq!(server.asked().len(), 4);
    // What is wrong about a notification that nobody could carry out is not lost when it is no request at
    // all.
    assert_eq!(error(&client.ask(r#"{"jsonrpc":"2.0","method":1}"#)), (-32600, "method", &Value::Null));
}

#[test]
fn a_batch_has_a_bound() {
    let server = bounded(Bounds { batch_calls_max: 2, ..Bounds::default() });
    let mut client = server.connect();
    let one = call("Same", &json!([1]), &json!(1));
    assert_eq!(error(&client.ask(json!([one, one, one]).to_string())), (-32600, "", &Value::Null));
    assert!(server.asked().is_empty());
    assert_eq!(client.ask(json!([one, one]).to_string()).as_array().unwrap().len(), 2);
}

#[test]
fn answers_to_a_batch_have_a_bound_too() {
    let server = bounded(Bounds { batch_bytes_max: 100, ..Bounds::default() });
    let mut client = server.connect();
    let one = call("Same", &json!([1, "x".repeat(200)]), &json!(1));
    let answers = client.ask(json!([one, one]).to_string());
    assert_eq!((&answers[0]["result"]["number"], error(&answers[1]).1), (&json!(1), "overloaded"));
    let says = answers[1]["error"]["message"].as_str().unwrap();
    assert!(says.contains("100 bytes") && says.contains("in another"), "{says}");
    assert_eq!(server.asked().len(), 1, "the second was not made");
}

/// What is written down behind an answer that is still awaited takes room, too.
#[test]
fn answers_that_wait_for_others_before_them_count() {
    let server = bounded(Bounds { batch_bytes_max: 1_000, ..Bounds::default() });
    let mut client = server.connect();
    let long = call("Same", &json!([2, "x".repeat(2_000)]), &json!(2));
    client.post(json!([call("Later", &json!([1]), &json!(1)), long, long, long]).to_string());
    let waiting = server.waiting(1);
    waiting.into_iter().for_each(|(number, reply)| reply.end(&numbered("TrialLaterResponse", number, None)));
    let answers = client.answer().json();
    assert_eq!(server.asked(), ["TrialLater 1", "TrialSame 2"], "the others were not made");
    assert_eq!((&answers[0]["result"]["number"], &answers[1]["result"]["number"]), (&json!(1), &json!(2)));
    assert_eq!((error(&answers[2]).1, error(&answers[3]).1), ("overloaded", "overloaded"));
}

/// Calls that are all made before any of them is answered.
#[test]
fn long_answers_that_come_later_count() {
    let server = bounded(Bounds { batch_bytes_max: 1_000, ..Bounds::default() });
    let mut client = server.connect();
    let calls: Vec<Value> = (0..4).map(|n| call("Later", &json!([n]), &json!(n))).collect();
    client.post(serde_json::to_string(&calls).unwrap());
    let texts = ["x".repeat(2_000), "x".repeat(2_000), "short".to_owned(), "x".repeat(2_000)];
    for ((number, reply), text) in server.waiting(4).into_iter().zip(&texts) {
        reply.end(&numbered("TrialLaterResponse", number, Some(text)));
    }
    let answers = client.answer().json();
    assert_eq!(
        (&answers[0]["result"]["text"], &answers[2]["result"]["text"]),
        (&json!(texts[0]), &json!("short"))
    );
    for n in [1, 3] {
        assert_eq!(error(&answers[n]), (-32009, "overrun", &json!(n)));
    }
}

/// So many bytes are kept for all clients of a gateway together.
#[test]
fn answers_that_wait_have_a_bound_in_all() {
    let server = bounded(Bounds { answers_bytes_max: 12_000, ..Bounds::default() });
    let (mut client, mut other) = (server.connect(), server.connect());
    let later = |number: u64| call("Later", &json!([number]), &json!(number));
    let long = call("Same", &json!([2, "x".repeat(6_000)]), &json!(2));
    client.post(json!([later(1), long, long, long]).to_string());
    let mut waiting = server.waiting(1);
    let refused = other.ask(long.to_string());
    assert_eq!(error(&refused), (-32007, "overloaded", &json!(2)));
    let made = ["TrialLater 1", "TrialSame 2", "TrialSame 2"];
    assert_eq!(server.asked(), made, "neither the third nor anybody else's was made");
    let (number, reply) = waiting.remove(0);
    reply.end(&numbered("TrialLaterResponse", number, None));
    let answers = client.answer().json();
    assert_eq!((&answers[2]["result"]["number"], error(&answers[3]).1), (&json!(2), "overloaded"));
    // All of it is let go of, however often.
    for n in 0..5 {
        assert_eq!(other.ask(long.to_string())["result"]["number"], 2, "{n}");
        client.post(json!([later(n), long]).to_string());
        let (number, reply) = server.waiting(1).remove(0);
        reply.end(&numbered("TrialLaterResponse", number, None));
        assert_eq!(client.answer().json()[1]["result"]["number"], 2, "{n}");
    }
}

/// What was made while there was room finds none any more; what nothing is awaited beside needs none.
#[test]
fn long_answers_that_there_is_no_room_for_are_replaced() {
    let server = bounded(Bounds { answers_bytes_max: 12_000, ..Bounds::default() });
    let (mut client, mut other) = (server.connect(), server.connect());
    let calls: Vec<Value> = (0..4).map(|n| call("Later", &json!([n]), &json!(n))).collect();
    client.post(serde_json::to_string(&calls).unwrap());
    let mut waiting = server.waiting(4);
    other.post(call("Later", &json!([9]), &json!(9)).to_string());
    waiting.append(&mut server.waiting(1));
    let text = "x".repeat(6_000);
    let mut end = |place: usize, text: &str| {
        let (number, reply) = waiting.remove(place);
        reply.end(&numbered("TrialLaterResponse", number, Some(text)));
    };
    end(1, &text);
    end(1, &text);
    end(1, "short");
    end(1, &text);
    assert_eq!(other.answer().json()["result"]["text"], text);
    end(0, &text);
    let answers = client.answer().json();
    assert_eq!((&answers[0]["result"]["text"], &answers[1]["result"]["text"]), (&json!(text), &json!(text)));
    assert_eq!(error(&answers[2]), (-32009, "overrun", &json!(2)));
    assert_eq!(answers[3]["result"]["text"], "short");
}

/// Answers nobody waits for any more take no room, nor do ids that were to be echoed.
#[test]
fn what_a_client_that_left_was_owed_takes_no_room() {
    let server = bounded(Bounds { answers_bytes_max: 12_000, ..Bounds::default() });
    let long = call("Same", &json!([2, "x".repeat(6_000)]), &json!(2));
    let mut stays = server.connect();
    for n in 0..5 {
        let mut client = server.connect();
        client.post(json!([call("Later", &json!([n]), &json!("i".repeat(2_000))), long]).to_string());
        let waiting = server.waiting(1);
        leave(client);
        until("cancelled", || waiting[0].1.is_cancelled());
        assert_eq!(stays.ask(long.to_string())["result"]["number"], 2, "{n}");
    }
    let id = "i".repeat(20_000);
    assert_eq!(error(&stays.ask(call("Later", &json!([1]), &json!(id)).to_string())).1, "overloaded");
}

/// A stream that goes on elsewhere is ended where its items find no room.
#[test]
fn items_of_a_stream_count() {
    let server = bounded(Bounds { answers_bytes_max: 12_000, ..Bounds::default() });
    let mut client = server.connect();
    client.post(call("Trickle", &json!([1]), &json!(1)).to_string());
    let (_, mut reply) = server.waiting(1).remove(0);
    let item = |number: u64| one("TrialTrickleItem", "number", number);
    for number in 1..=1_000 {
        reply.item(&item(number));
    }
    assert_eq!(error(&client.answer().json()), (-32009, "overrun", &json!(1)));
    until("cancelled", || reply.is_cancelled());
    assert_eq!(client.ask(call("Same", &json!([1]), &json!(1)).to_string())["result"]["number"], 1);
}

#[test]
fn calls_under_way_have_a_bound() {
    let server = bounded(Bounds { in_flight_max: 2, ..Bounds::default() });
    let (mut client, mut other) = (server.connect(), server.connect());
    let later = |number: u64| call("Later", &json!([number]), &json!(number));
    client.post(json!([later(1), later(2)]).to_string());
    let waiting = server.waiting(2);
    assert_eq!(error(&other.ask(later(3).to_string())).1, "overloaded");
    waiting.into_iter().for_each(|(number, reply)| reply.end(&numbered("TrialLaterResponse", number, None)));
    assert_eq!(client.answer().json()[1]["result"]["number"], 2);
    assert_eq!(other.ask(call("Same", &json!([4]), &json!(4)).to_string())["id"], 4);
}

#[test]
fn a_stream_is_collected_up_to_a_bound() {
    let server = bounded(Bounds { stream_items_max: 3, ..Bounds::default() });
    let mut client = server.connect();
    let mut count = |to: u64| client.ask(call("Count", &json!([to]), &json!(1)).to_string());
    let whole = json!({ "items": [{ "number": 1 }, { "number": 2 }, { "number": 3 }], "end": { "sum": 6 } });
    assert_eq!(count(3)["result"], whole);
    assert_eq!(count(0)["result"], json!({ "items": [], "end": { "sum": 0 } }));
    for too_many in [4, 5, 100] {
        assert_eq!(error(&count(too_many)), (-32009, "overrun", &json!(1)));
    }
}

#[test]
fn nobody_waits_for_ever() {
    let server = bounded(Bounds { patience: Duration::from_millis(1), ..Bounds::default() });
    let mut client = server.connect();
    assert_eq!(error(&client.ask(call("Later", &json!([1]), &json!(1)).to_string())).1, "deadline_exceeded");
    assert!(server.waiting(1)[0].1.is_cancelled());
}

/// A notification is answered before it is over, and takes a place among the calls under way until then.
#[test]
fn a_notification_is_given_up_though_nothing_else_is_awaited() {
    let bounds = Bounds { in_flight_max: 1, patience: Duration::from_millis(1), ..Bounds::default() };
    let server = bounded(bounds);
    let mut client = server.connect();
    for n in 0..3 {
        client.post(json!({ "jsonrpc": "2.0", "method": "Later", "params": [n] }).to_string());
        assert_eq!(client.answer().status, 204);
        let waiting = server.waiting(1);
        until("cancelled", || waiting[0].1.is_cancelled());
        drop(waiting);
        let same = call("Same", &json!([n]), &json!(n)).to_string();
        until("over", || server.connect().ask(&same)["result"]["number"] == n);
    }
}

#[test]
fn patience_may_be_endless() {
    let server = bounded(Bounds { patience: Duration::MAX, ..Bounds::default() });
    let mut client = server.connect();
    client.post(call("Later", &json!([1]), &json!(1)).to_string());
    for (number, reply) in server.waiting(1) {
        reply.end(&numbered("TrialLaterResponse", number, None));
    }
    assert_eq!(client.answer().json()["result"]["number"], 1);
}

#[test]
fn a_handler_hears_that_its_client_is_gone() {
    let server = start();
    let mut client = server.connect();
    client.post(call("Later", &json!([1]), &json!(1)).to_string());
    let waiting = server.waiting(1);
    leave(client);
    until("told", || waiting[0].1.is_cancelled());
}

/// A peer that only sends no more may still read: its calls go on, and count until they end.
#[test]
fn a_call_whose_caller_only_closed_goes_on() {
    let server = bounded(Bounds { in_flight_max: 1, ..Bounds::default() });
    let mut client = server.connect();
    client.post(call("Later", &json!([1]), &json!(1)).to_string());
    let (number, reply) = server.waiting(1).remove(0);
    drop(client);
    let later = call("Later", &json!([2]), &json!(2)).to_string();
    for _ in 0..20 {
        assert_eq!(error(&server.connect().ask(later.clone())).1, "overloaded");
        assert!(!reply.is_cancelled());
        std::thread::sleep(Duration::from_millis(5));
    }
    reply.end(&numbered("TrialLaterResponse", number, None));
    let same = call("Same", &json!([3]), &json!(3)).to_string();
    until("over", || server.connect().ask(&same)["result"]["number"] == 3);
}

#[test]
fn the_next_body_waits_where_a_test_asks_for_it() {
    let off = start();
    let delay = |ms: u64| call("rpc.delay", &json!({ "milliseconds": ms }), &json!(1)).to_string();
    assert_eq!(error(&off.connect().ask(delay(1))).0, -32601);
    let server = bounded(Bounds { delay_max: Duration::from_secs(600), ..Bounds::default() });
    let (mut client, mut other) = (server.connect(), server.connect());
    for wrong in [json!([]), json!(["1"]), json!([-1]), json!([1, 2]), json!({ "ms": 1 }), json!([600_001])] {
        let answer = client.ask(call("rpc.delay", &wrong, &json!(1)).to_string());
        assert_eq!(error(&answer), (-32602, "milliseconds", &json!(1)), "{wrong}");
    }
    for twice in ["milliseconds", "milli\\u0073econds"] {
        let params = format!(r#"{{"milliseconds":1,"{twice}":600000}}"#);
        let text = format!(r#"{{"jsonrpc":"2.0","method":"rpc.delay","params":{params},"id":1}}"#);
        assert_eq!(error(&client.ask(text)), (-32602, "milliseconds", &json!(1)), "{params}");
    }
    let same = |number: u64| call("Same", &json!([number]), &json!(number)).to_string();
    assert_eq!(client.ask(delay(1)), result(&json!(null), &json!(1)));
    assert_eq!(client.ask(same(1))["result"]["number"], 1);
    assert_eq!(client.ask(delay(600_000)), result(&json!(null), &json!(1)));
    // Ahead on one connection, so that it is the next; what comes after it does not wait.
    client.post(same(2));
    client.post(same(3));
    until("asked", || server.asked().len() == 2);
    assert_eq!(other.ask(same(4))["result"]["number"], 4);
    // Nobody waits for it any more, so nobody carries it out.
    drop(client);
    assert_eq!(server.asked(), ["TrialSame 1", "TrialSame 3", "TrialSame 4"]);
    let discovered = |server: &Running| {
        let answer = server.connect().ask(r#"{"jsonrpc":"2.0","method":"rpc.discover","id":1}"#);
        answer["result"]["methods"].to_string().contains("rpc.delay")
    };
    assert_eq!((discovered(&off), discovered(&server)), (false, true));
    let document = server.connect().ask(r#"{"jsonrpc":"2.0","method":"rpc.discover","id":1}"#);
    let methods = document["result"]["methods"].as_array().unwrap().iter();
    let delay = methods.clone().find(|method| method["name"] == "rpc.delay").unwrap();
    assert_eq!(delay["params"][0]["schema"]["maximum"], 600_000);
}

#[test]
fn a_server_describes_itself() {
    let server = start();
    let mut client = server.connect();
    let document = client.ask(r#"{"jsonrpc":"2.0","method":"rpc.discover","id":1}"#)["result"].clone();
    assert_eq!((&document["openrpc"], &document["info"]["title"]), (&json!("1.3.2"), &json!("Trial")));
    let names: Vec<&str> = document["methods"]
        .as_array()
        .unwrap()
        .iter()
        .map(|method| method["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["Same", "Later", "Refuse", "Panic", "Lie", "Count", "Trickle", "rpc.discover", "rpc.version"]
    );
    let same = &document["methods"][0];
    assert_eq!(same["params"][0]["schema"]["maximum"].as_u64(), Some(u64::MAX));
    assert_eq!(
        (&same["params"][0]["required"], &same["params"][1]["required"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(same["description"], "Answers with what it was given.");
    assert_eq!(same["result"]["schema"]["required"], json!(["number", "text"]));
    // Whatever is referred to is there.
    let mut pending = vec![&document];
    while let Some(value) = pending.pop() {
        if let Some(reference) = value["$ref"].as_str() {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        match value {
            Value::Object(members) => pending.extend(members.values()),
            Value::Array(elements) => pending.extend(elements),
            _ => {}
        }
    }
    let version = client.ask(r#"{"jsonrpc":"2.0","method":"rpc.version","params":[],"id":1}"#);
    assert_eq!(version["result"]["service"], "Trial");
    for params in ["[1]", "[[]]", "[{}]", r#"{"a":{}}"#, r#"[""]"#] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"rpc.version","params":{params},"id":1}}"#);
        assert_eq!(error(&client.ask(body)).0, -32602, "{params}");
    }
    for params in ["[]", "{}", "[ ]", "{\n}"] {
        let body = format!(r#"{{"jsonrpc":"2.0","method":"rpc.version","params":{params},"id":1}}"#);
        assert_eq!(client.ask(body)["result"]["service"], "Trial", "{params}");
    }
}

#[test]
fn the_door_is_kept() {
    let server = bounded(Bounds { hosts: vec!["known.example".to_owned()], ..Bounds::default() });
    let mut client = server.connect();
    let body = call("Same", &json!([1]), &json!(1)).to_string();
    let typed = "Content-Type: application/json";
    for (head, status) in [
        (format!("GET /rpc/test HTTP/1.1\r\nHost: localhost\r\n{typed}"), 405),
        (format!("OPTIONS /rpc/test HTTP/1.1\r\nHost: localhost\r\nOrigin: http://x\r\n{typed}"), 405),
        (format!("PUT /rpc/test HTTP/1.1\r\nHost: localhost\r\n{typed}"), 405),
        (format!("POST /rpc/none HTTP/1.1\r\nHost: localhost\r\n{typed}"), 404),
        (format!("POST /rpc HTTP/1.1\r\nHost: localhost\r\n{typed}"), 404),
        (format!("POST /rpc/test/ HTTP/1.1\r\nHost: localhost\r\n{typed}"), 404),
        (format!("POST / HTTP/1.1\r\nHost: localhost\r\n{typed}"), 404),
        ("POST /rpc/test HTTP/1.1\r\nHost: localhost".to_owned(), 415),
        ("POST /rpc/test HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain".to_owned(), 415),
        (format!("POST /rpc/test HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: gzip\r\n{typed}"), 415),
        (format!("POST /rpc/test HTTP/1.1\r\nHost: evil.example\r\n{typed}"), 421),
    ] {
        client.send(&head, &body);
        let answered = client.answer();
        assert_eq!(answered.status, status, "{head}: {answered:?}");
        assert!(!answered.head.to_lowercase().contains("access-control"), "{answered:?}");
        assert_eq!(answered.json()["status"], status);
        assert!(status != 405 || answered.head.contains("Allow: POST\r\n"));
    }
    assert!(server.asked().is_empty());
    for host in ["known.example:99", "127.0.0.1", "[::1]:4437"] {
        let typed = "Content-Type: Application/JSON; charset=utf-8\r\nContent-Encoding: Identity";
        client.send(&format!("POST /rpc/test HTTP/1.1\r\nHost: {host}\r\n{typed}"), &body);
        assert_eq!(client.answer().status, 200);
    }
}

/// What is refused is told by its beginning, wherever it stands.
#[test]
fn a_refusal_is_never_as_long_as_what_it_refuses() {
    let server = start();
    let mut client = server.connect();
    let long = "\u{7f}\u{e9}".repeat(100_000);
    for body in [
        call("Same", &json!({ &*long: 1 }), &json!(1)),
        call(&long, &json!([1]), &json!(1)),
        json!({ "jsonrpc": "2.0", "method": "Same", "id": 1, &*long: 1 }),
    ] {
        client.post(body.to_string());
        let answered = client.answer();
        assert!(answered.status == 200 && answered.body.len() < 2_000, "{} bytes", answered.body.len());
        assert!(answered.json()["error"]["code"].as_i64().unwrap() < 0);
    }
    assert!(server.asked().is_empty());
    let refused = client.ask(call("Refuse", &json!(["no"]), &json!(1)).to_string());
    assert_eq!(
        refused["error"]["data"],
        json!({ "fault": "refused" }),
        "only its words tell whether to ask again"
    );
}

#[test]
fn a_body_over_its_bound_is_refused() {
    let http = thalweg_http::Config { body_bytes_max: 1_000, ..thalweg_http::Config::default() };
    let server = Running::start(ServerOptions { http, ..ServerOptions::default() });
    let mut client = server.connect();
    client.post(call("Same", &json!([1, "x".repeat(1_000)]), &json!(1)).to_string());
    let answered = client.answer();
    assert_eq!((answered.status, &answered.json()["field"]), (413, &json!("body")));
    assert!(server.asked().is_empty());
}

#[test]
fn a_drain_answers_what_was_begun() {
    let mut server = start();
    let mut client = server.connect();
    client.post(call("Later", &json!([1]), &json!(1)).to_string());
    let waiting = server.waiting(1);
    server.stopper.drain(10_000);
    for (number, reply) in waiting {
        reply.end(&numbered("TrialLaterResponse", number, None));
    }
    assert_eq!(client.answer().json()["result"]["number"], 1);
    server.join();
}
