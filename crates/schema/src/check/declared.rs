//! What is declared under which name, and where. Owns the search by name, which takes no longer the more
//! names there are; never knows rules.

use super::Check;
use crate::jsonc::Span;
use crate::model::Alias;
use std::collections::BTreeMap;

/// What a field's type refers to.
#[derive(Clone, Copy)]
pub(super) enum Declaration {
    /// Its index in [`Check::aliases`].
    Alias(usize),
    Enum,
    Struct,
}

/// The first valid declaration under each name.
#[derive(Default)]
pub(super) struct Declared(BTreeMap<String, Declaration>);

impl Declared {
    pub(super) fn add(&mut self, name: &str, declaration: Declaration) {
        self.0.entry(name.to_owned()).or_insert(declaration);
    }

    pub(super) fn find(&self, name: &str) -> Option<Declaration> {
        self.0.get(name).copied()
    }
}

/// Names in the order of the text, valid or not, and where each stands.
#[derive(Default)]
pub(super) struct Places {
    list: Vec<(String, Span)>,
    /// Of each name, the first.
    first: BTreeMap<String, Span>,
}

impl Places {
    pub(super) fn add(&mut self, name: &str, at: Span) {
        self.list.push((name.to_owned(), at));
        self.first.entry(name.to_owned()).or_insert(at);
    }

    pub(super) fn first(&self, name: &str) -> Option<Span> {
        self.first.get(name).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(String, Span)> {
        self.list.iter()
    }
}

impl Check {
    pub(super) fn alias(&self, name: &str) -> Option<&Alias> {
        let Some(Declaration::Alias(n)) = self.declared.find(name) else { return None };
        self.aliases.get(n)
    }
}
