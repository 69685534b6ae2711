//! The rules. Walks the tree once, notes everything that breaks one, and makes the [`Service`] when nothing
//! does. Owns what makes a schema valid; never knows syntax or emitters.
//!
//! Order of work: names first (`declare`), so that references to what is declared further down resolve; then
//! bodies (`commands`, fields); then what only the whole shows: types that contain themselves, names that
//! fall together (`together`), values too large to stand in place (`sizes`).

mod commands;
mod declare;
mod declared;
mod earlier;
mod fields;
mod names;
mod sizes;
#[cfg(test)]
mod tests;
mod together;

pub use together::prefix_clash;

use crate::canonical;
use crate::jsonc::{Member, Node, Span, Value};
use crate::model::{Alias, Enum, Message, Service, Struct};
use crate::problem::{Finding, Suggestions, did_you_mean_or, is_typo, nearest};
use declared::{Declared, Places};
use std::collections::BTreeSet;

/// What the walk has found out so far.
#[derive(Default)]
pub(crate) struct Check {
    findings: Vec<Finding>,
    service: String,
    aliases: Vec<Alias>,
    enums: Vec<Enum>,
    types: Vec<Struct>,
    /// What each name in a field's type refers to; types are known before their fields are.
    declared: Declared,
    /// Where each name that becomes a type stands.
    places: Places,
    /// Where each command stands.
    commands: Places,
    suggestions: Suggestions,
}

const SECTIONS: [&str; 6] = ["service", "aliases", "enums", "types", "error", "commands"];

/// Checks the whole schema.
pub(crate) fn service(root: &Node) -> Result<Service, Vec<Finding>> {
    let mut check = Check::default();
    let Some(members) = check.object(root, "a schema") else { return Err(check.findings) };
    check.known_members(members, &SECTIONS, "a schema");
    let doc = check.service_name(root, members);
    let section = |name: &str| meant(members, &SECTIONS, name);
    check.declare_aliases(section("aliases"));
    check.declare_enums(section("enums"));
    check.declare_types(section("types"));
    check.fill_types(section("types"));
    let error = check.error(root, section("error"));
    let commands = check.commands(root, section("commands"));
    check.no_type_contains_itself();
    check.no_inline_giants(&commands);
    check.no_names_fall_together(&commands);
    check.no_methods_fall_together(&commands);
    check.no_message_is_taken(&commands);
    if !check.findings.is_empty() {
        return Err(check.findings);
    }
    let Check { service: name, aliases, enums, types, .. } = check;
    let (hash, index) = Default::default();
    let mut service = Service { name, doc, aliases, enums, types, commands, error, hash, index };
    service.hash = canonical::hash(&service);
    Ok(service.indexed())
}

/// The member of this name, else one of no known name that was probably meant to have it: that one is refused
/// for its name, and all that it holds is there.
fn meant<'n>(members: &'n [Member], known: &[&str], name: &str) -> Option<&'n Member> {
    let is_meant = |member: &&Member| {
        let key = member.key.as_str();
        !known.contains(&key) && nearest(key, known.iter().copied()) == Some(name) && is_typo(key, name)
    };
    members.iter().find(|member| member.key == name).or_else(|| members.iter().find(is_meant))
}

impl Check {
    /// Notes what breaks a rule.
    fn wrong(&mut self, at: Span, what: impl Into<String>, hint: impl Into<String>) {
        self.findings.push(Finding::at(at.start, what, hint));
    }

    /// The members of an object, each key once.
    fn object<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Member]> {
        let Value::Object(members) = &node.value else {
            let found = node.value.kind();
            self.wrong(node.span, format!("{what} is an object, not {found}"), "write { \"name\": … }");
            return None;
        };
        let mut seen = BTreeSet::new();
        for member in members {
            if !seen.insert(member.key.as_str()) {
                self.wrong(member.key_span, format!("{} is there twice", member.key), "drop one of them");
            }
        }
        Some(members)
    }

    fn string<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        let Value::String(text) = &node.value else {
            let found = node.value.kind();
            self.wrong(node.span, format!("{what} is a string, not {found}"), "put it in quotes");
            return None;
        };
        Some(text)
    }

    /// Refuses members that have no meaning.
    fn known_members(&mut self, members: &[Member], known: &[&str], what: &str) {
        for member in members.iter().filter(|m| !known.contains(&m.key.as_str())) {
            let may = format!("it may have: {}", known.join(", "));
            let hint = did_you_mean_or(&member.key, known.iter().copied(), may);
            self.wrong(member.key_span, format!("{what} has no member {}", member.key), hint);
        }
    }

    /// Notes the service's name and returns its documentation.
    fn service_name(&mut self, root: &Node, members: &[Member]) -> String {
        let Some(member) = meant(members, &SECTIONS, "service") else {
            self.wrong(root.span, "the schema has no service", "add \"service\": \"Name\"");
            return String::new();
        };
        if let Some(name) = self.string(&member.node, "service") {
            self.type_name(name, member.node.span, "a service");
            self.namespace_name(name, member.node.span);
            self.service = name.to_owned();
        }
        member.doc.clone()
    }

    fn error(&mut self, root: &Node, member: Option<&Member>) -> Message {
        const HINT: &str = "write \"error\": { \"message\": \"string\" }";
        let Some(member) = member else {
            self.wrong(root.span, "the schema has no error", HINT);
            return self.message("ErrorResponse", String::new(), Vec::new());
        };
        let before = self.findings.len();
        let fields = self.fields(&member.node, "error");
        let right = fields.len() == 1 && fields[0].name == "message" && fields[0].of.notation() == "string";
        if !right && self.findings.len() == before {
            self.wrong(member.node.span, "error has exactly one field, message, of type string", HINT);
        }
        self.message("ErrorResponse", member.doc.clone(), fields)
    }

    fn message(&self, stem: &str, doc: String, fields: Vec<crate::model::Field>) -> Message {
        Message { tag: format!("{}{stem}", self.service), stem: stem.to_owned(), doc, fields }
    }
}
