//! Fields and the references in them.

use super::Check;
use super::declare::{LEAVES, leaf};
use super::declared::Declaration;
use crate::casing::{camel, pascal, snake};
use crate::elsewhere;
use crate::jsonc::{Node, Span, Value};
use crate::model::{Field, Type};
use crate::reference::{self, Reference};
use std::collections::BTreeMap;

/// The casings that some language uses.
const CASINGS: [fn(&str) -> String; 3] = [snake, camel, pascal];

impl Check {
    /// The fields of a struct or message.
    pub(super) fn fields(&mut self, node: &Node, what: &str) -> Vec<Field> {
        let Some(members) = self.object(node, what) else { return Vec::new() };
        let mut fields = Vec::new();
        for member in members {
            self.field_name(&member.key, member.key_span);
            if let Some(text) = self.type_text(&member.node)
                && let Some(of) = self.reference(text, member.node.span)
            {
                fields.push(Field { name: member.key.clone(), doc: member.doc.clone(), of });
            }
        }
        let names: Vec<(&str, Span)> = members.iter().map(|m| (m.key.as_str(), m.key_span)).collect();
        self.apart(&names, "fields");
        fields
    }

    /// A field's type as it is written.
    fn type_text<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        let hint = match &node.value {
            Value::Array(_) => "a list is written \"T[]\"",
            Value::Object(_) => "declare it in types, and write its name here",
            _ => return self.string(node, "a field's type"),
        };
        self.wrong(node.span, format!("a field's type is a string, not {}", node.value.kind()), hint);
        None
    }

    /// Refuses two names that become one identifier in some language, as `x_1` and `x1` do: no capital parts
    /// them.
    pub(super) fn apart(&mut self, names: &[(&str, Span)], what: &str) {
        let mut seen: BTreeMap<(usize, String), usize> = BTreeMap::new();
        for (n, (name, at)) in names.iter().enumerate() {
            let cased = CASINGS.map(|cased| cased(name)).into_iter().enumerate();
            let first = |key: (usize, String)| (*seen.entry(key.clone()).or_insert(n), key.1);
            let earliest = cased.map(first).filter(|(first, _)| *first < n).min_by_key(|(first, _)| *first);
            let earlier = earliest.map(|(first, shared)| (names[first].0, shared));
            // The very same field twice is told by `object`.
            let Some((other, shared)) = earlier.filter(|(other, _)| other != name || what == "words") else {
                continue;
            };
            let what = format!("the {what} {other} and {name} become one identifier, {shared}");
            self.wrong(*at, what, "rename one of them");
        }
    }

    /// A reference resolved against what is declared.
    fn reference(&mut self, text: &str, at: Span) -> Option<Type> {
        match reference::parse(text) {
            Ok(parsed) => self.resolve(&parsed, at),
            Err(error) => {
                let place = Span { start: at.start + 1 + error.at, end: at.end };
                self.wrong(place, error.what, error.hint);
                None
            }
        }
    }

    fn resolve(&mut self, parsed: &Reference, at: Span) -> Option<Type> {
        Some(match parsed {
            Reference::Optional(of) => Type::Optional(Box::new(self.resolve(of, at)?)),
            Reference::List(of) => Type::List(Box::new(self.resolve(of, at)?)),
            Reference::Array(of, count) => Type::Array(Box::new(self.resolve(of, at)?), *count),
            Reference::Map(of) => Type::Map(Box::new(self.resolve(of, at)?)),
            Reference::Name(name, offset) => return self.named(name, at, *offset),
        })
    }

    fn named(&mut self, name: &str, at: Span, offset: usize) -> Option<Type> {
        if let Some(of) = leaf(name) {
            return Some(of);
        }
        match self.declared.find(name) {
            Some(Declaration::Alias(_)) => return Some(Type::Alias(name.to_owned())),
            Some(Declaration::Enum) => return Some(Type::Enum(name.to_owned())),
            Some(Declaration::Struct) => return Some(Type::Struct(name.to_owned())),
            None => {}
        }
        // A name whose declaration is broken was told already.
        if self.places.first(name).is_some() {
            return None;
        }
        let elsewhere = match name {
            "map" => Some("say of what: map<T>".to_owned()),
            // What the schema declares is nearer.
            _ => elsewhere::named(name).filter(|_| self.places.first(&pascal(name)).is_none()),
        };
        let hint = elsewhere.unwrap_or_else(|| {
            let declared = self.places.iter().map(|(name, _)| name.as_str());
            let known = declared.chain(LEAVES.iter().map(|(name, _)| *name));
            self.suggestions.hint(name, known, "declare it in types, enums or aliases")
        });
        let place = Span { start: at.start + 1 + offset, end: at.end };
        self.wrong(place, format!("no type is called {name}"), hint);
        None
    }
}
