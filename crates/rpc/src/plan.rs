//! A schema as transcoding reads it: names resolved to places, and what is written for each name already
//! encoded.
//!
//! Made once, when a service is mounted; shared and never changed after that.

use std::collections::BTreeMap;
use thalweg_schema::{self as schema, Type};
use thalweg_wire::json::write as json;
use thalweg_wire::messagepack::write;

/// A service.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    /// The hash of its schema.
    pub(crate) hash: [u8; 32],
    /// The tag of its error.
    pub(crate) error_tag: String,
    pub(crate) methods: Vec<Method>,
    /// Sorted: a search through a few names takes less than the hash of one.
    by_name: BTreeMap<String, usize>,
    structs: Vec<Struct>,
    enums: Vec<Vec<String>>,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) request: Message,
    pub(crate) response: Message,
    /// What a stream is made of.
    pub(crate) item: Option<Message>,
}

/// What stands in a frame.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) tag: String,
    pub(crate) fields: Struct,
}

/// Named fields, as they are declared.
#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) fields: Vec<Field>,
}

/// A field.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Its name in a frame.
    pub(crate) key: Vec<u8>,
    /// Its name and the colon in an object.
    pub(crate) label: Vec<u8>,
    pub(crate) shape: Shape,
}

/// A type.
#[derive(Debug)]
pub(crate) enum Shape {
    Bool,
    /// Of so many bits.
    Unsigned(u8),
    Signed(u8),
    F32,
    F64,
    String,
    Bytes,
    Bin32,
    /// By its place.
    Enum(usize),
    Struct(usize),
    Optional(Box<Shape>),
    List(Box<Shape>),
    Array(Box<Shape>, usize),
    Map(Box<Shape>),
}

impl Plan {
    pub(crate) fn of(service: &schema::Service) -> Self {
        let message = |message: &schema::Message| Message {
            tag: message.tag.clone(),
            fields: fields(service, &message.fields),
        };
        let method = |command: &schema::Command| Method {
            name: command.name.clone(),
            request: message(&command.request),
            response: message(&command.response),
            item: command.item.as_ref().map(message),
        };
        let names = service.commands.iter().map(|command| command.name.clone());
        Self {
            name: service.name.clone(),
            hash: service.hash,
            error_tag: service.error.tag.clone(),
            methods: service.commands.iter().map(method).collect(),
            by_name: names.zip(0..).collect(),
            structs: service.types.iter().map(|of| fields(service, &of.fields)).collect(),
            enums: service.enums.iter().map(|of| of.members.clone()).collect(),
        }
    }

    /// The place of a method among them.
    #[inline]
    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The command whose request has this tag.
    pub(crate) fn of_tag(&self, tag: &[u8]) -> Option<(&str, &Method)> {
        let name = std::str::from_utf8(tag.strip_prefix(self.name.as_bytes())?).ok()?;
        let method = &self.methods[self.find(name)?];
        (method.request.tag.as_bytes() == tag).then_some((&*method.name, method))
    }

    /// A declared struct. Every place that a shape holds is one.
    #[inline]
    pub(crate) fn structure(&self, place: usize) -> &Struct {
        &self.structs[place]
    }

    /// A declared enum's words.
    #[inline]
    pub(crate) fn words(&self, place: usize) -> &[String] {
        &self.enums[place]
    }
}

fn fields(service: &schema::Service, of: &[schema::Field]) -> Struct {
    let field = |field: &schema::Field| {
        let (mut key, mut label) = (Vec::new(), Vec::new());
        write::string(&mut key, &field.name);
        json::string(&mut label, &field.name);
        label.push(b':');
        Field { name: field.name.clone(), key, label, shape: shape(service, &field.of) }
    };
    Struct { fields: of.iter().map(field).collect() }
}

fn shape(service: &schema::Service, of: &Type) -> Shape {
    let inner = |of: &Type| Box::new(shape(service, of));
    // What was validated names only what is declared.
    match service.resolve(of) {
        Type::Bool => Shape::Bool,
        Type::Int(int) if int.signed => Shape::Signed(int.bits),
        Type::Int(int) => Shape::Unsigned(int.bits),
        Type::F32 => Shape::F32,
        Type::F64 => Shape::F64,
        Type::String => Shape::String,
        Type::Bytes => Shape::Bytes,
        // An alias that is left is a name for 32 bytes.
        Type::Bin32 | Type::Alias(_) => Shape::Bin32,
        Type::Enum(name) => Shape::Enum(service.enum_place(name).unwrap_or_default()),
        Type::Struct(name) => Shape::Struct(service.type_place(name).unwrap_or_default()),
        Type::Optional(of) => Shape::Optional(inner(of)),
        Type::List(of) => Shape::List(inner(of)),
        Type::Array(of, count) => Shape::Array(inner(of), *count),
        Type::Map(of) => Shape::Map(inner(of)),
    }
}

impl Struct {
    /// The place of a field among them; `near` is where it stands if they come as they are declared.
    #[inline]
    pub(crate) fn find(&self, name: &[u8], near: usize) -> Option<usize> {
        match self.fields.get(near) {
            Some(field) if field.name.as_bytes() == name => Some(near),
            _ => self.fields.iter().position(|field| field.name.as_bytes() == name),
        }
    }
}

impl Field {
    /// Whether it may be missing.
    #[inline]
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self.shape, Shape::Optional(_))
    }
}

/// Which fields were seen, a bit each.
#[derive(Debug)]
pub(crate) struct Seen {
    first: u64,
    /// Of those behind the first 64.
    more: Vec<u64>,
}

impl Seen {
    pub(crate) fn none_of(fields: &Struct) -> Self {
        Self { first: 0, more: vec![0; fields.fields.len().saturating_sub(64).div_ceil(64)] }
    }

    /// Notes a field; `false` if it was seen before.
    #[inline]
    pub(crate) fn note(&mut self, field: usize) -> bool {
        let word = if field < 64 { &mut self.first } else { &mut self.more[field / 64 - 1] };
        let bit = 1 << (field % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    #[inline]
    pub(crate) fn has(&self, field: usize) -> bool {
        let word = if field < 64 { self.first } else { self.more[field / 64 - 1] };
        word & (1 << (field % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than one word takes, and more than two.
    #[test]
    fn every_field_of_many_is_noted_for_itself() {
        let field = |place| Field {
            name: format!("f{place}"),
            key: Vec::new(),
            label: Vec::new(),
            shape: Shape::Bool,
        };
        let fields = Struct { fields: (0..130).map(field).collect() };
        let mut seen = Seen::none_of(&fields);
        for place in 0..130 {
            assert!(!seen.has(place), "{place} before it was noted");
            assert!(seen.note(place), "{place} for the first time");
            assert!(seen.has(place), "{place} behind");
            assert!(!seen.note(place), "{place} again");
        }
        assert!((0..130).all(|place| seen.has(place)));
    }
}
