//! What `rpc.discover` answers: the schema as an OpenRPC document, complete enough to generate a client from.

use serde_json::{Map, Value, json};
use thalweg_schema::{Command, Field, Message, Service, Type};
use thalweg_wire::fault::Fault;
use thalweg_wire::hex::Hex;
use thalweg_wire::jsonrpc;

/// The version of the format.
const OPENRPC: &str = "1.3.2";

/// The document, as JSON; whether with the method that delays.
pub(crate) fn document(service: &Service, delays: bool) -> String {
    let mut methods: Vec<Value> = service.commands.iter().map(method).collect();
    methods.extend(built_in());
    methods.extend(delays.then(delay));
    let mut info =
        described(json!({ "title": service.name, "version": env!("CARGO_PKG_VERSION") }), &service.doc);
    info["x-schema-hash"] = Hex(&service.hash).to_string().into();
    let mut schemas = Map::new();
    for alias in &service.aliases {
        schemas.insert(alias.name.clone(), described(schema(&alias.of), &alias.doc));
    }
    for of in &service.enums {
        schemas.insert(of.name.clone(), described(json!({ "type": "string", "enum": of.members }), &of.doc));
    }
    for of in &service.types {
        schemas.insert(of.name.clone(), described(object(&of.fields), &of.doc));
    }
    let errors: Map<String, Value> =
        Fault::ALL.iter().map(|fault| (fault.word().to_owned(), error(*fault))).collect();
    json!({
        "openrpc": OPENRPC,
        "info": info,
        "methods": methods,
        "components": { "schemas": schemas, "errors": errors },
    })
    .to_string()
}

fn method(command: &Command) -> Value {
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
        "params": fields.into_iter().map(parameter).collect::<Vec<_>>(),
        "result": { "name": command.response.stem, "schema": result(command) },
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
fn result(command: &Command) -> Value {
    let end = message(&command.response);
    match &command.item {
        None => end,
        Some(item) => json!({
            "type": "object",
            "properties": { "items": { "type": "array", "items": message(item) }, "end": end },
            "required": ["items", "end"],
            "additionalProperties": false,
        }),
    }
}

fn message(of: &Message) -> Value {
    described(object(&of.fields), &of.doc)
}

fn parameter(field: &Field) -> Value {
    let parameter = json!({
        "name": field.name,
        "required": !matches!(field.of, Type::Optional(_)),
        "schema": schema(&field.of),
    });
    described(parameter, &field.doc)
}

fn object(fields: &[Field]) -> Value {
    let properties: Map<String, Value> =
        fields.iter().map(|field| (field.name.clone(), described(schema(&field.of), &field.doc))).collect();
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| !matches!(field.of, Type::Optional(_)))
        .map(|field| field.name.as_str())
        .collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// A type as JSON Schema. Bounds of integers of 64 bits are given in full: a reader that keeps numbers as
/// floats sees them rounded, and its values, too.
fn schema(of: &Type) -> Value {
    match of {
        Type::Bool => json!({ "type": "boolean" }),
        Type::Int(int) if int.signed => {
            let shift = 64 - u32::from(int.bits);
            json!({ "type": "integer", "minimum": i64::MIN >> shift, "maximum": i64::MAX >> shift })
        }
        Type::Int(int) => {
            json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX >> (64 - u32::from(int.bits)) })
        }
        Type::F32 | Type::F64 => {
            json!({ "oneOf": [{ "type": "number" }, { "enum": ["NaN", "Infinity", "-Infinity"] }] })
        }
        Type::String => json!({ "type": "string" }),
        Type::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        // 32 bytes are 44 characters.
        Type::Bin32 => {
            json!({ "type": "string", "contentEncoding": "base64", "minLength": 44, "maxLength": 44 })
        }
        Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => {
            json!({ "$ref": format!("#/components/schemas/{name}") })
        }
        Type::Optional(of) => json!({ "oneOf": [schema(of), { "type": "null" }] }),
        Type::List(of) => json!({ "type": "array", "items": schema(of) }),
        Type::Array(of, count) => {
            json!({ "type": "array", "items": schema(of), "minItems": count, "maxItems": count })
        }
        Type::Map(of) => json!({ "type": "object", "additionalProperties": schema(of) }),
    }
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

fn delay() -> Value {
    let whole = json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX });
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
        let document: Value = serde_json::from_str(&document(&service, true)).unwrap();
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
