//! What `rpc.discover` answers: the schema as an OpenRPC document, complete enough to generate a client from.

mod shapes;

use serde_json::{Map, Value, json};
use shapes::{Shapes, Side};
use std::time::Duration;
use thalweg_schema::{Command, Field, Service, Type};
use thalweg_wire::fault::Fault;
use thalweg_wire::hex::Hex;
use thalweg_wire::jsonrpc;

/// The version of the format.
const OPENRPC: &str = "1.3.2";

/// The document, as JSON; with the method that delays, where a delay may be longer than nothing.
pub(crate) fn document(service: &Service, delay_max: Duration) -> String {
    let shapes = Shapes::of(service);
    let mut methods: Vec<Value> = service.commands.iter().map(|command| method(&shapes, command)).collect();
    methods.extend(built_in());
    methods.extend((!delay_max.is_zero()).then(|| delay(delay_max)));
    let mut info =
        described(json!({ "title": service.name, "version": env!("CARGO_PKG_VERSION") }), &service.doc);
    info["x-schema-hash"] = Hex(&service.hash).to_string().into();
    let errors: Map<String, Value> =
        Fault::ALL.iter().map(|fault| (fault.word().to_owned(), error(*fault))).collect();
    json!({
        "openrpc": OPENRPC,
        "info": info,
        "methods": methods,
        "components": { "schemas": shapes.components(), "errors": errors },
    })
    .to_string()
}

fn method(shapes: &Shapes<'_>, command: &Command) -> Value {
    let errors: Vec<Value> =
        errors().map(|fault| json!({ "$ref": format!("#/components/errors/{}", fault.word()) })).collect();
    let is_optional = |field: &&Field| matches!(field.of, Type::Optional(_));
    let mut fields: Vec<&Field> = command.request.fields.iter().collect();
    let in_order = fields.is_sorted_by_key(is_optional);
    // The document has what may be left out behind all else. Where the schema has another order, positions
    // are the schema's.
    fields.sort_by_key(is_optional);
    let method = json!({
        "name": command.name,
        "paramStructure": if in_order { "either" } else { "by-name" },
        "params": fields.into_iter().map(|field| parameter(shapes, field)).collect::<Vec<_>>(),
        "result": { "name": command.response.stem, "schema": result(shapes, command) },
        "errors": errors,
    });
    described(method, &command.doc)
}

/// What a call can come to: of faults that share a number, which a document names once, the first.
fn errors() -> impl Iterator<Item = Fault> {
    let is_first = |place: usize| {
        let code = Fault::ALL[place].rpc_code();
        Fault::ALL[..place].iter().all(|before| before.rpc_code() != code)
    };
    Fault::ALL.iter().enumerate().filter(move |(place, _)| is_first(*place)).map(|(_, fault)| *fault)
}

/// What a command answers. The items of a stream are collected.
fn result(shapes: &Shapes<'_>, command: &Command) -> Value {
    let end = shapes.message(&command.response);
    match &command.item {
        None => end,
        Some(item) => json!({
            "type": "object",
            "properties": { "items": { "type": "array", "items": shapes.message(item) }, "end": end },
            "required": ["items", "end"],
            "additionalProperties": false,
        }),
    }
}

fn parameter(shapes: &Shapes<'_>, field: &Field) -> Value {
    let parameter = json!({
        "name": field.name,
        "required": !matches!(field.of, Type::Optional(_)),
        "schema": shapes.schema(&field.of, Side::Asked),
    });
    described(parameter, &field.doc)
}

fn error(fault: Fault) -> Value {
    let mut data = json!({ "fault": fault.word() });
    if fault != Fault::Refused {
        data["retry"] = fault.retry().word().into();
    }
    json!({ "code": fault.rpc_code(), "message": fault.says(), "data": data })
}

fn built_in() -> [Value; 2] {
    let invalid = json!({ "code": jsonrpc::INVALID_PARAMS, "message": "there are no parameters" });
    let result = |name: &str, schema: Value| json!({ "name": name, "schema": schema });
    let text = json!({ "type": "string" });
    let version = json!({
        "type": "object",
        "properties": { "service": text, "version": text, "schema": text },
        "required": ["service", "version", "schema"],
    });
    [
        json!({
            "name": "rpc.discover",
            "description": "This document.",
            "params": [],
            "result": result("document", json!({ "type": "object" })),
            "errors": [invalid],
        }),
        json!({
            "name": "rpc.version",
            "description": "The service's name, the server's version and the hash of the schema.",
            "params": [],
            "result": result("version", version),
            "errors": [invalid],
        }),
    ]
}

fn delay(most: Duration) -> Value {
    let most = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
    let whole = json!({ "type": "integer", "minimum": 0, "maximum": most });
    json!({
        "name": "rpc.delay",
        "description": "Has the next body wait before anything of it is carried out.",
        "paramStructure": "either",
        "params": [{ "name": "milliseconds", "required": true, "schema": whole }],
        "result": { "name": "nothing", "schema": { "type": "null" } },
        "errors": [{ "code": jsonrpc::INVALID_PARAMS, "message": "no whole number, or one that is too large" }],
    })
}

fn described(mut value: Value, doc: &str) -> Value {
    if !doc.is_empty()
        && let Some(object) = value.as_object_mut()
    {
        // Beside a reference nothing else is read.
        if object.contains_key("$ref") {
            return json!({ "allOf": [value], "description": doc });
        }
        object.insert("description".to_owned(), doc.into());
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of an answer are all there, those of a parameter need not be: a type that stands in both is
    /// two.
    #[test]
    fn whatever_is_answered_has_all_of_its_fields() {
        let text = r#"{
            "service": "Both",
            "error": { "message": "string" },
            "types": {
                "Inner": { "a": "u8", "b": "u8?" },
                "Outer": { "inner": "Inner", "c": "u8?" },
                "Pair": { "left": "Inner[]", "right": "Whole" },
                "Whole": { "a": "u8" },
                "Asked": { "a": "u8?" },
            },
            "commands": {
                "Both": {
                    "request": { "inners": "Inner[]", "asked": "Asked", "pairs": "map<Pair>" },
                    "stream": { "d": "u8?" },
                    "response": { "outer": "Outer?", "pairs": "map<Pair>", "whole": "Whole", "none": "u8?" },
                },
            },
        }"#;
        let service = thalweg_schema::parse("both.jsonc", text).unwrap();
        let document: Value = serde_json::from_str(&document(&service, Duration::from_millis(5))).unwrap();
        let required = |name: &str| document["components"]["schemas"][name]["required"].clone();
        for (name, wanted) in [
            ("Inner", json!(["a"])),
            ("Inner.answered", json!(["a", "b"])),
            ("Outer", json!(["inner", "c"])),
            ("Pair", json!(["left", "right"])),
            ("Pair.answered", json!(["left", "right"])),
            ("Whole", json!(["a"])),
            ("Asked", json!([])),
            ("Outer.answered", Value::Null),
            ("Whole.answered", Value::Null),
            ("Asked.answered", Value::Null),
        ] {
            assert_eq!(required(name), wanted, "{name}");
        }
        let of = |path: &str| document.pointer(path).unwrap().clone();
        let [asked, answered] = ["/methods/0/params", "/methods/0/result/schema"].map(of);
        assert_eq!(answered["properties"]["end"]["required"], json!(["outer", "pairs", "whole", "none"]));
        assert_eq!(answered["properties"]["items"]["items"]["required"], json!(["d"]));
        assert_eq!(asked[0]["schema"]["items"]["$ref"], "#/components/schemas/Inner");
        let pairs = "/methods/0/result/schema/properties/end/properties/pairs/additionalProperties/$ref";
        assert_eq!(of(pairs), "#/components/schemas/Pair.answered");
        assert_eq!(
            of("/components/schemas/Outer/properties/inner/$ref"),
            "#/components/schemas/Inner.answered"
        );
        let both = "/components/schemas/Pair.answered/properties";
        assert_eq!(of(&format!("{both}/left/items/$ref")), "#/components/schemas/Inner.answered");
        assert_eq!(of(&format!("{both}/right/$ref")), "#/components/schemas/Whole");
    }

    /// However long the way through a schema's types, and however many ways there are.
    #[test]
    fn a_schema_is_described_at_any_depth() {
        const DEPTH: usize = 2_000;
        let types: Vec<String> = (0..DEPTH)
            .map(|n| format!("\"T{n}x\": {{ \"a\": \"T{}x[]\", \"b\": \"T{}x[]\" }}", n + 1, n + 1))
            .collect();
        let text = format!(
            r#"{{ "service": "Deep", "error": {{ "message": "string" }},
                "types": {{ {}, "T{DEPTH}x": {{ "last": "u8?" }} }},
                "commands": {{ "Go": {{ "request": {{ "t": "T0x" }}, "response": {{ "t": "T0x" }} }} }} }}"#,
            types.join(", ")
        );
        let service = thalweg_schema::parse("deep.jsonc", &text).unwrap();
        let document: Value = serde_json::from_str(&document(&service, Duration::ZERO)).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert_eq!(schemas.len(), 2 * (DEPTH + 1), "each in parameters and in results");
    }

    /// What the format asks: parameters that may be left out behind the others, and a number of an error
    /// once.
    #[test]
    fn whatever_the_order_of_a_schema_a_document_keeps_the_rules_of_its_format() {
        let text = r#"{
            "service": "Order",
            "error": { "message": "string" },
            "commands": {
                "Mixed": { "request": { "a": "u8", "b": "u8?", "c": "u8" }, "response": {} },
                "Plain": { "request": { "a": "u8", "b": "u8?" }, "response": {} },
            },
        }"#;
        let service = thalweg_schema::parse("order.jsonc", text).unwrap();
        let document: Value = serde_json::from_str(&document(&service, Duration::from_millis(5))).unwrap();
        let names = |method: &Value| -> Vec<String> {
            let names = method["params"].as_array().unwrap().iter();
            names.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
        };
        let [mixed, plain] = [0, 1].map(|place| &document["methods"][place]);
        assert_eq!(
            (names(mixed), &mixed["paramStructure"]),
            (vec!["a".into(), "c".into(), "b".into()], &json!("by-name"))
        );
        assert_eq!(
            (names(plain), &plain["paramStructure"]),
            (vec!["a".into(), "b".into()], &json!("either"))
        );
        for method in document["methods"].as_array().unwrap() {
            let errors = method["errors"].as_array().unwrap().iter();
            let code = |error: &Value| match error["$ref"].as_str() {
                Some(reference) => {
                    document.pointer(reference.trim_start_matches('#')).unwrap()["code"].as_i64().unwrap()
                }
                None => error["code"].as_i64().unwrap(),
            };
            let mut codes: Vec<i64> = errors.map(code).collect();
            let count = codes.len();
            codes.sort_unstable();
            codes.dedup();
            assert_eq!(codes.len(), count, "{method}");
        }
        assert!(Fault::ALL.iter().all(|fault| !document["components"]["errors"][fault.word()].is_null()));
    }
}
