//! Aliases, enums and the names of types.

use super::Check;
use super::declared::Declaration;
use crate::elsewhere;
use crate::jsonc::{Member, Value};
use crate::model::{Alias, Enum, Int, Struct, Type};
use crate::problem::did_you_mean_or;

/// The leaves and their names.
pub(super) const LEAVES: [(&str, Type); 14] = [
    ("bool", Type::Bool),
    ("u8", Type::Int(Int { signed: false, bits: 8 })),
    ("u16", Type::Int(Int { signed: false, bits: 16 })),
    ("u32", Type::Int(Int { signed: false, bits: 32 })),
    ("u64", Type::Int(Int { signed: false, bits: 64 })),
    ("i8", Type::Int(Int { signed: true, bits: 8 })),
    ("i16", Type::Int(Int { signed: true, bits: 16 })),
    ("i32", Type::Int(Int { signed: true, bits: 32 })),
    ("i64", Type::Int(Int { signed: true, bits: 64 })),
    ("f32", Type::F32),
    ("f64", Type::F64),
    ("string", Type::String),
    ("bytes", Type::Bytes),
    ("bin32", Type::Bin32),
];

/// A leaf by its name.
pub(super) fn leaf(name: &str) -> Option<Type> {
    LEAVES.iter().find(|(n, _)| *n == name).map(|(_, of)| of.clone())
}

/// What to do about an alias that stands for no leaf.
fn alias_hint(name: &str, text: &str) -> String {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let (stem, suffixes) = text.split_at(end);
    if leaf(stem).is_some() && suffixes.starts_with(['?', '[']) {
        return format!(
            "an alias stands for one leaf: declare \"{stem}\", and write {name}{suffixes} where it is used"
        );
    }
    if let Some(hint) = elsewhere::named(text) {
        return hint;
    }
    let leaves = LEAVES.iter().map(|(name, _)| *name);
    did_you_mean_or(text, leaves, "an alias stands for one leaf, without suffixes")
}

impl Check {
    /// The members of a section, each noted as a name that becomes a type.
    fn section<'n>(&mut self, section: Option<&'n Member>, what: &str) -> &'n [Member] {
        let Some(section) = section else { return &[] };
        let members = self.object(&section.node, &section.key).unwrap_or(&[]);
        for member in members {
            self.type_name(&member.key, member.key_span, what);
            // The same name twice in one section is told by `object`.
            if let Some(first) = self.places.first(&member.key)
                && !(section.node.span.start..section.node.span.end).contains(&first.start)
            {
                self.wrong(
                    member.key_span,
                    format!("{} is declared twice", member.key),
                    "rename one of them",
                );
            }
            self.places.add(&member.key, member.key_span);
        }
        members
    }

    pub(super) fn declare_aliases(&mut self, section: Option<&Member>) {
        for member in self.section(section, "an alias") {
            let Some(text) = self.string(&member.node, "an alias") else { continue };
            let Some(of) = leaf(text) else {
                let hint = alias_hint(&member.key, text);
                self.wrong(member.node.span, format!("{text} is no leaf"), hint);
                continue;
            };
            self.declared.add(&member.key, Declaration::Alias(self.aliases.len()));
            self.aliases.push(Alias { name: member.key.clone(), doc: member.doc.clone(), of });
        }
    }

    pub(super) fn declare_enums(&mut self, section: Option<&Member>) {
        for member in self.section(section, "an enum") {
            let Value::Array(items) = &member.node.value else {
                let what = format!("an enum is an array of words, not {}", member.node.value.kind());
                self.wrong(member.node.span, what, "write [\"one\", \"two\"]");
                continue;
            };
            if items.is_empty() {
                self.wrong(member.node.span, format!("{} has no words", member.key), "write at least one");
            }
            let mut words: Vec<(&str, _)> = Vec::new();
            for item in items {
                let Some(word) = self.string(item, "an enum's word") else { continue };
                self.member_name(word, item.span);
                words.push((word, item.span));
            }
            self.apart(&words, "words");
            let members = words.iter().map(|(word, _)| (*word).to_owned()).collect();
            self.declared.add(&member.key, Declaration::Enum);
            self.enums.push(Enum { name: member.key.clone(), doc: member.doc.clone(), members });
        }
    }

    pub(super) fn declare_types(&mut self, section: Option<&Member>) {
        for member in self.section(section, "a type") {
            self.declared.add(&member.key, Declaration::Struct);
        }
    }

    pub(super) fn fill_types(&mut self, section: Option<&Member>) {
        let Some(section) = section else { return };
        let Value::Object(members) = &section.node.value else { return };
        for member in members {
            let fields = self.fields(&member.node, &member.key);
            self.types.push(Struct { name: member.key.clone(), doc: member.doc.clone(), fields });
        }
    }
}
