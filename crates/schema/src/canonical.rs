//! The canonical form: one text per meaning, and the hash both ends compare when they connect. Comments,
//! layout and scheduling are not part of it: none of them changes what a byte means.
//!
//! One line per declaration, in declaration order: `service`, `alias`, `enum`, `type`, `request`, `item`,
//! `response`, `error`, each with its name and then its parts, separated by single spaces.

use crate::model::{Field, Service};
use sha2::{Digest, Sha256};

/// The canonical text.
pub(crate) fn text(service: &Service) -> String {
    let mut lines = vec!["thalweg schema 1".to_owned(), format!("service {}", service.name)];
    for alias in &service.aliases {
        lines.push(format!("alias {} {}", alias.name, alias.of.notation()));
    }
    for of in &service.enums {
        lines.push(format!("enum {} {}", of.name, of.members.join(" ")));
    }
    for of in &service.types {
        lines.push(format!("type {}{}", of.name, fields(&of.fields)));
    }
    for command in &service.commands {
        lines.push(format!("request {}{}", command.request.tag, fields(&command.request.fields)));
        if let Some(item) = &command.item {
            lines.push(format!("item {}{}", item.tag, fields(&item.fields)));
        }
        lines.push(format!("response {}{}", command.response.tag, fields(&command.response.fields)));
    }
    lines.push(format!("error {}{}", service.error.tag, fields(&service.error.fields)));
    lines.push(String::new());
    lines.join("\n")
}

fn fields(fields: &[Field]) -> String {
    fields.iter().map(|field| format!(" {}:{}", field.name, field.of.notation())).collect()
}

/// SHA-256 of the canonical text.
pub(crate) fn hash(service: &Service) -> [u8; 32] {
    Sha256::digest(text(service).as_bytes()).into()
}
