//! The validated description of a service: what emitters read. Owns no rule; `check` is the only maker.

use crate::index::Index;
use std::collections::{BTreeMap, BTreeSet};

/// A service and everything it declares, in declaration order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, the first part of every tag on the wire.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// Named leaves.
    pub aliases: Vec<Alias>,
    /// Closed sets of words.
    pub enums: Vec<Enum>,
    /// Shared structs.
    pub types: Vec<Struct>,
    /// What can be asked.
    pub commands: Vec<Command>,
    /// The error every command may answer with: one field, `message`.
    pub error: Message,
    /// SHA-256 of the canonical form.
    pub hash: [u8; 32],
    /// Where all of it stands.
    pub(crate) index: Index,
}

/// A named leaf. One of `bin32` is a type of its own, any other is another word for its leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// Its name.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// The leaf.
    pub of: Type,
}

impl Alias {
    /// Whether it is a type of its own.
    pub fn is_nominal(&self) -> bool {
        self.of == Type::Bin32
    }
}

/// A closed set of words; a value travels as its word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enum {
    /// Its name.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// The words.
    pub members: Vec<String>,
}

/// Named fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Struct {
    /// Its name.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// In the order in which they are written.
    pub fields: Vec<Field>,
}

/// One field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name on the wire.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// Its type.
    pub of: Type,
}

/// What stands in a frame: a tag and fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its name on the wire, service included: `EchoBytes`.
    pub tag: String,
    /// The tag without the service: `Bytes`.
    pub stem: String,
    /// What the schema says about it.
    pub doc: String,
    /// In the order in which they are written.
    pub fields: Vec<Field>,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its name.
    pub name: String,
    /// What the schema says about it.
    pub doc: String,
    /// What is asked.
    pub request: Message,
    /// What is answered; for a stream, what ends it. Another command's, when the schema says so.
    pub response: Message,
    /// Whether `response` is this command's own.
    pub owns_response: bool,
    /// What a stream is made of.
    pub item: Option<Message>,
    /// How calls are ordered per fork.
    pub schedule: Option<Schedule>,
}

impl Command {
    /// The request's field that names the call's fork.
    pub fn fork(&self) -> Option<&Field> {
        let name = self.schedule.as_ref()?.fork.as_ref()?;
        self.request.fields.iter().find(|field| field.name == *name)
    }
}

/// How calls are ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What the call does to its fork.
    pub access: Access,
    /// The request's field that names the fork.
    pub fork: Option<String>,
}

/// What a call does to its fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads what is committed: never waits.
    ReadCommitted,
    /// Reads what may be uncommitted: waits behind a write in flight.
    Read,
    /// Writes: alone on its fork.
    Write,
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// True or false.
    Bool,
    /// An integer.
    Int(Int),
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// UTF-8 text.
    String,
    /// Any bytes.
    Bytes,
    /// Exactly 32 bytes.
    Bin32,
    /// A declared alias.
    Alias(String),
    /// A declared enum.
    Enum(String),
    /// A declared struct.
    Struct(String),
    /// `T?`: may be absent.
    Optional(Box<Type>),
    /// `T[]`: any number.
    List(Box<Type>),
    /// `T[N]`: exactly so many.
    Array(Box<Type>, usize),
    /// `map<T>`: by string keys.
    Map(Box<Type>),
}

/// An integer's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Int {
    /// Whether it may be negative.
    pub signed: bool,
    /// 8, 16, 32 or 64.
    pub bits: u8,
}

impl Int {
    /// The schema's word for it.
    pub fn word(self) -> String {
        format!("{}{}", if self.signed { 'i' } else { 'u' }, self.bits)
    }
}

impl Type {
    /// The type in the schema's own notation.
    pub fn notation(&self) -> String {
        match self {
            Self::Bool => "bool".to_owned(),
            Self::Int(int) => int.word(),
            Self::F32 => "f32".to_owned(),
            Self::F64 => "f64".to_owned(),
            Self::String => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Bin32 => "bin32".to_owned(),
            Self::Alias(name) | Self::Enum(name) | Self::Struct(name) => name.clone(),
            Self::Optional(of) => format!("{}?", of.notation()),
            Self::List(of) => format!("{}[]", of.notation()),
            Self::Array(of, count) => format!("{}[{count}]", of.notation()),
            Self::Map(of) => format!("map<{}>", of.notation()),
        }
    }
}

impl Service {
    /// Whether any command says how its calls are ordered.
    pub fn is_ordered(&self) -> bool {
        self.commands.iter().any(|command| command.schedule.is_some())
    }

    /// Whether any command answers with a stream.
    pub fn has_streams(&self) -> bool {
        self.commands.iter().any(|command| command.item.is_some())
    }

    /// All messages once, in declaration order: of each command its request, its item and its own response;
    /// then the error.
    pub fn messages(&self) -> Vec<&Message> {
        let mut messages = Vec::new();
        for command in &self.commands {
            messages.push(&command.request);
            messages.extend(&command.item);
            if command.owns_response {
                messages.push(&command.response);
            }
        }
        messages.push(&self.error);
        messages
    }

    /// The declared structs, each behind those it contains.
    pub fn types_by_dependency(&self) -> Vec<&Struct> {
        types_by_dependency(&self.types)
    }
}

/// Types none of which contains itself, each behind those it contains.
pub(crate) fn types_by_dependency(types: &[Struct]) -> Vec<&Struct> {
    let places: BTreeMap<&str, usize> = types.iter().map(|of| of.name.as_str()).zip(0..).collect();
    let mut holders = vec![Vec::new(); types.len()];
    let mut waits = vec![0_usize; types.len()];
    for (holder, of) in types.iter().enumerate() {
        let names = of.fields.iter().filter_map(|field| contained(&field.of));
        for inner in names.filter_map(|name| places.get(name).copied()) {
            holders[inner].push(holder);
            waits[holder] += 1;
        }
    }
    let mut ready: BTreeSet<usize> = (0..waits.len()).filter(|of| waits[*of] == 0).collect();
    let mut ordered = Vec::with_capacity(types.len());
    // Every type has its turn, because none contains itself.
    while let Some(next) = ready.pop_first() {
        ordered.push(&types[next]);
        for holder in &holders[next] {
            waits[*holder] -= 1;
            if waits[*holder] == 0 {
                ready.insert(*holder);
            }
        }
    }
    ordered
}

/// The declared struct somewhere inside a type.
pub(crate) fn contained(of: &Type) -> Option<&str> {
    match of {
        Type::Struct(name) => Some(name),
        Type::Optional(of) | Type::List(of) | Type::Array(of, _) | Type::Map(of) => contained(of),
        _ => None,
    }
}
