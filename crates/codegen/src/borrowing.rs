//! Which types hold text or bytes, and so may borrow them from the frame they are read from. Each declared
//! type is looked at once: asked anew wherever they are used, types that share types would take as long as
//! there are ways through them.

use std::collections::BTreeSet;
use thalweg_schema::{Field, Service, Type};

/// What is known of a service's types.
pub(crate) struct Borrowing<'a> {
    service: &'a Service,
    structs: BTreeSet<&'a str>,
}

impl<'a> Borrowing<'a> {
    pub(crate) fn new(service: &'a Service) -> Self {
        let mut borrowing = Self { service, structs: BTreeSet::new() };
        for of in service.types_by_dependency() {
            if borrowing.any(&of.fields) {
                borrowing.structs.insert(&of.name);
            }
        }
        borrowing
    }

    /// Whether one of these fields borrows.
    pub(crate) fn any(&self, fields: &[Field]) -> bool {
        fields.iter().any(|field| self.of(&field.of))
    }

    /// Whether a value of this type borrows.
    pub(crate) fn of(&self, of: &Type) -> bool {
        match self.service.resolve(of) {
            Type::String | Type::Bytes | Type::Map(_) => true,
            Type::Struct(name) => self.structs.contains(name.as_str()),
            Type::Optional(of) | Type::List(of) | Type::Array(of, _) => self.of(of),
            _ => false,
        }
    }
}
