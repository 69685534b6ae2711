//! What emitters look up again and again: declarations by name, and what is known of a type only from the
//! types in it. Each declaration is looked at once, when the service is made, so that what is generated takes
//! time in proportion to the schema, however its types share types.

use crate::model::{Alias, Enum, Field, Service, Struct, Type};
use std::collections::{BTreeMap, BTreeSet};

/// Where declarations stand in a service's lists, and what follows from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index {
    aliases: BTreeMap<String, usize>,
    enums: BTreeMap<String, usize>,
    types: BTreeMap<String, usize>,
    /// Names of which some field is made.
    used: BTreeSet<String>,
    /// The fewest bytes that a value of each struct takes.
    bytes_min: Vec<usize>,
}

fn places<'n>(names: impl Iterator<Item = &'n String>) -> BTreeMap<String, usize> {
    names.cloned().zip(0..).collect()
}

/// The declaration that a type is made of, if it is made of one.
fn made_of(of: &Type) -> Option<&String> {
    match of {
        Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => Some(name),
        Type::Optional(of) | Type::List(of) | Type::Array(of, _) | Type::Map(of) => made_of(of),
        _ => None,
    }
}

impl Service {
    /// With its index, as it is from then on.
    pub(crate) fn indexed(mut self) -> Self {
        let of_types = self.types.iter().flat_map(|of| &of.fields);
        let of_messages = self.messages().into_iter().flat_map(|message| &message.fields);
        self.index = Index {
            aliases: places(self.aliases.iter().map(|of| &of.name)),
            enums: places(self.enums.iter().map(|of| &of.name)),
            types: places(self.types.iter().map(|of| &of.name)),
            used: of_types.chain(of_messages).filter_map(|field| made_of(&field.of)).cloned().collect(),
            bytes_min: vec![0; self.types.len()],
        };
        let sorted: Vec<usize> =
            self.types_by_dependency().iter().filter_map(|of| self.type_place(&of.name)).collect();
        for place in sorted {
            self.index.bytes_min[place] = self.fields_bytes_min(&self.types[place].fields);
        }
        self
    }

    /// Whether a field of any type or message is made of what was declared under this name.
    pub fn is_used(&self, name: &str) -> bool {
        self.index.used.contains(name)
    }

    /// The type with its scalar aliases replaced by what they stand for; nominal ones stay.
    pub fn resolve<'s>(&'s self, of: &'s Type) -> &'s Type {
        match of {
            Type::Alias(name) => match self.alias(name) {
                Some(alias) if !alias.is_nominal() => &alias.of,
                _ => of,
            },
            _ => of,
        }
    }

    /// A declared alias.
    pub fn alias(&self, name: &str) -> Option<&Alias> {
        self.index.aliases.get(name).map(|at| &self.aliases[*at])
    }

    /// A declared enum.
    pub fn enumeration(&self, name: &str) -> Option<&Enum> {
        self.enum_place(name).map(|at| &self.enums[at])
    }

    /// Where it stands among the enums.
    pub fn enum_place(&self, name: &str) -> Option<usize> {
        self.index.enums.get(name).copied()
    }

    /// A declared struct.
    pub fn structure(&self, name: &str) -> Option<&Struct> {
        self.type_place(name).map(|at| &self.types[at])
    }

    /// Where it stands among the structs.
    pub fn type_place(&self, name: &str) -> Option<usize> {
        self.index.types.get(name).copied()
    }

    /// The fewest bytes a value of this type takes on the wire. Decoders divide by it before they believe a
    /// count.
    pub fn encoded_bytes_min(&self, of: &Type) -> usize {
        match self.resolve(of) {
            Type::F32 => 5,
            Type::F64 => 5,
            Type::Bin32 | Type::Alias(_) => 34,
            Type::Array(item, count) => 1 + count * self.encoded_bytes_min(item),
            Type::Enum(name) => {
                let members = self.enumeration(name).into_iter().flat_map(|of| &of.members);
                1 + members.map(String::len).min().unwrap_or(0)
            }
            Type::Struct(name) => self.type_place(name).map_or(1, |at| self.index.bytes_min[at]),
            _ => 1,
        }
    }

    /// The fewest bytes these fields take as a map: optional ones may be missing.
    pub fn fields_bytes_min(&self, fields: &[Field]) -> usize {
        let wanted = fields.iter().filter(|field| !matches!(field.of, Type::Optional(_)));
        1 + wanted.map(|field| 1 + field.name.len() + self.encoded_bytes_min(&field.of)).sum::<usize>()
    }
}
