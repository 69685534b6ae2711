//! The schema's types as JSON Schema. In a parameter a field that is optional may be left out; what is
//! answered has every field, `null` where nothing is there. So a struct that stands on both sides, and has
//! such a field somewhere, is described twice.

use super::described;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use thalweg_schema::{Field, Message, Service, Type};

/// Behind the name of a struct whose parameters are described under the name itself. No name of a schema has
/// a dot.
const ANSWERED: &str = ".answered";

/// Where a type stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// In parameters.
    Asked,
    /// In results.
    Answered,
}

pub(super) struct Shapes<'s> {
    service: &'s Service,
    /// Structs that stand in parameters.
    asked: BTreeSet<&'s str>,
    /// Structs that stand in results.
    answered: BTreeSet<&'s str>,
    /// Structs with an optional field somewhere in them.
    lacking: BTreeSet<&'s str>,
}

impl<'s> Shapes<'s> {
    pub(super) fn of(service: &'s Service) -> Self {
        // Each struct comes behind those that it contains, and so is looked at once.
        let by_dependency = service.types_by_dependency();
        let mut lacking = BTreeSet::new();
        for of in &by_dependency {
            let lacks =
                |field: &Field| is_optional(field) || held(&field.of).is_some_and(|of| lacking.contains(of));
            if of.fields.iter().any(lacks) {
                lacking.insert(of.name.as_str());
            }
        }
        let commands = || service.commands.iter();
        let asked = commands().flat_map(|command| &command.request.fields);
        let answers = commands().flat_map(|command| command.item.iter().chain([&command.response]));
        let answered = answers.flat_map(|answer| &answer.fields);
        let [asked, answered] = [asked.collect::<Vec<_>>(), answered.collect()].map(|fields| {
            let mut within: BTreeSet<&str> = fields.into_iter().filter_map(|field| held(&field.of)).collect();
            for of in by_dependency.iter().rev() {
                if within.contains(of.name.as_str()) {
                    within.extend(of.fields.iter().filter_map(|field| held(&field.of)));
                }
            }
            within
        });
        Self { service, asked, answered, lacking }
    }

    /// Whether parameters and results have a struct in common, and not its optional fields or those of what
    /// is in it.
    fn is_two(&self, name: &str) -> bool {
        [&self.asked, &self.answered, &self.lacking].into_iter().all(|names| names.contains(name))
    }

    /// Every type that has a name.
    pub(super) fn components(&self) -> Map<String, Value> {
        let mut all = Map::new();
        for alias in &self.service.aliases {
            all.insert(alias.name.clone(), described(self.schema(&alias.of, Side::Asked), &alias.doc));
        }
        for of in &self.service.enums {
            let members = json!({ "type": "string", "enum": of.members });
            all.insert(of.name.clone(), described(members, &of.doc));
        }
        for of in &self.service.types {
            let name = of.name.as_str();
            let is_asked = self.asked.contains(name) || !self.answered.contains(name);
            let side = if is_asked { Side::Asked } else { Side::Answered };
            all.insert(of.name.clone(), described(self.object(&of.fields, side), &of.doc));
            if self.is_two(name) {
                let answered = described(self.object(&of.fields, Side::Answered), &of.doc);
                all.insert(format!("{name}{ANSWERED}"), answered);
            }
        }
        all
    }

    /// What is answered.
    pub(super) fn message(&self, of: &'s Message) -> Value {
        described(self.object(&of.fields, Side::Answered), &of.doc)
    }

    fn object(&self, fields: &'s [Field], side: Side) -> Value {
        let property = |of: &'s Field| (of.name.clone(), described(self.schema(&of.of, side), &of.doc));
        let properties: Map<String, Value> = fields.iter().map(property).collect();
        let is_required = |field: &&Field| side == Side::Answered || !is_optional(field);
        let required: Vec<&str> =
            fields.iter().filter(is_required).map(|field| field.name.as_str()).collect();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    }

    /// A type as JSON Schema. Bounds of integers of 64 bits are given in full: a reader that keeps numbers as
    /// floats sees them rounded, and its values, too.
    pub(super) fn schema(&self, of: &'s Type, side: Side) -> Value {
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
            Type::Struct(name) if side == Side::Answered && self.is_two(name) => {
                json!({ "$ref": format!("#/components/schemas/{name}{ANSWERED}") })
            }
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => {
                json!({ "$ref": format!("#/components/schemas/{name}") })
            }
            Type::Optional(of) => json!({ "oneOf": [self.schema(of, side), { "type": "null" }] }),
            Type::List(of) => json!({ "type": "array", "items": self.schema(of, side) }),
            Type::Array(of, count) => {
                let items = self.schema(of, side);
                json!({ "type": "array", "items": items, "minItems": count, "maxItems": count })
            }
            Type::Map(of) => json!({ "type": "object", "additionalProperties": self.schema(of, side) }),
        }
    }
}

fn is_optional(field: &Field) -> bool {
    matches!(field.of, Type::Optional(_))
}

/// The struct that is in a type, if one is.
fn held(of: &Type) -> Option<&str> {
    match of {
        Type::Struct(name) => Some(name),
        Type::Optional(of) | Type::List(of) | Type::Array(of, _) | Type::Map(of) => held(of),
        Type::Bool
        | Type::Int(_)
        | Type::F32
        | Type::F64
        | Type::String
        | Type::Bytes
        | Type::Bin32
        | Type::Alias(_)
        | Type::Enum(_) => None,
    }
}
