//! Rules about the whole: types that contain themselves, values too large to stand in place, names that fall together.

use super::Check;
use super::commands::messages;
use crate::casing::snake;
use crate::jsonc::Span;
use crate::model::{Command, Field, Message, Service, Type, contained};
use crate::words;
use std::collections::BTreeMap;

/// How many leaves one value may hold in place, its fixed arrays multiplied out.
const INLINE_MAX: usize = 65_536;
/// What the generator makes beside messages, each behind the service's name.
const GENERATED: [&str; 9] = [
    "Request",
    "Response",
    "Client",
    "AsyncClient",
    "SyncClient",
    "Pipeline",
    "Handler",
    "SyncHandler",
    "Service",
];

/// How many leaves a value of each type holds in place, as far as it was counted.
type Known<'c> = BTreeMap<&'c str, usize>;

impl Check {
    /// A type that contained itself could nest without end, and no target could lay it out without a pointer.
    pub(super) fn no_type_contains_itself(&mut self) {
        let mut told: Vec<String> = Vec::new();
        for name in self.type_names.clone() {
            if told.contains(&name) {
                continue;
            }
            if let Some(way) = self.way_back(&name) {
                let at = self.place(&name);
                let shown = way.join(" contains ");
                let hint = "refer by an identifier, or carry the inner one as bytes";
                self.wrong(at, format!("a type contains itself: {shown}"), hint);
                told.extend(way);
            }
        }
    }

    /// The way from a type through its fields back to itself.
    fn way_back(&self, start: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![start.to_owned()]];
        let mut seen: Vec<String> = Vec::new();
        while let Some(way) = ways.pop() {
            let Some(of) = way.last().and_then(|last| self.types.iter().find(|t| t.name == *last)) else {
                continue;
            };
            for inner in of.fields.iter().filter_map(|field| contained(&field.of)) {
                let mut longer = way.clone();
                longer.push(inner.to_owned());
                if inner == start {
                    return Some(longer);
                }
                if !seen.iter().any(|s| s == inner) {
                    seen.push(inner.to_owned());
                    ways.push(longer);
                }
            }
        }
        None
    }

    /// A value stands on the stack of some targets, so what it holds in place is bounded.
    pub(super) fn no_inline_giants(&mut self, commands: &[Command]) {
        if !self.findings.is_empty() {
            return;
        }
        let mut giants: Vec<(String, Span)> = Vec::new();
        let mut known = BTreeMap::new();
        for of in self.types.iter().filter(|of| self.inline_fields(&of.fields, &mut known) > INLINE_MAX) {
            giants.push((of.name.clone(), self.place(&of.name)));
        }
        for command in commands {
            for message in
                messages(command).filter(|m| self.inline_fields(&m.fields, &mut known) > INLINE_MAX)
            {
                giants.push((message.tag.clone(), self.command_place(&command.name)));
            }
        }
        for (name, at) in giants {
            let hint = "use a list, T[], for large arrays";
            self.wrong(at, format!("{name} holds more than {INLINE_MAX} values in its fixed arrays"), hint);
        }
    }

    fn inline_fields<'c>(&'c self, fields: &'c [Field], known: &mut Known<'c>) -> usize {
        fields.iter().fold(0, |sum: usize, field| sum.saturating_add(self.inline(&field.of, known)))
    }

    fn inline<'c>(&'c self, of: &'c Type, known: &mut Known<'c>) -> usize {
        match of {
            Type::Array(of, count) => count.saturating_mul(self.inline(of, known)),
            Type::Optional(of) => self.inline(of, known),
            Type::Struct(name) => {
                if let Some(count) = known.get(name.as_str()) {
                    return *count;
                }
                let found = self.types.iter().find(|t| t.name == *name);
                let count = found.map_or(1, |t| self.inline_fields(&t.fields, known).max(1));
                known.insert(name, count);
                count
            }
            _ => 1,
        }
    }

    /// Everything that becomes a type, with and without the service's name, becomes a different one.
    pub(super) fn no_names_fall_together(&mut self, commands: &[Command]) {
        let error = format!("{}ErrorResponse", self.service);
        let mut names = vec![(error.clone(), format!("the error {error}"), Span::default())];
        for part in GENERATED {
            let name = format!("{}{part}", self.service);
            names.push((name.clone(), format!("the generated {name}"), Span::default()));
        }
        for (name, at) in &self.places {
            names.push((name.clone(), format!("the type {name}"), *at));
        }
        for command in commands {
            let at = self.command_place(&command.name);
            names.extend(messages(command).map(|m| (m.tag.clone(), format!("the message {}", m.tag), at)));
        }
        for (name, what, at) in &names {
            let derived = words::DERIVED.map(|(before, behind)| format!("{before}{name}{behind}"));
            if let Some((other, ..)) = names.iter().find(|(other, ..)| derived.contains(other)) {
                let what = format!("{what} has {other} beside it in some language");
                self.wrong(*at, what, "rename one of them");
            }
        }
        for (n, (name, what, at)) in names.iter().enumerate() {
            let earlier = names[..n].iter().find(|(other, ..)| snake(other) == snake(name));
            // The very same declaration twice was told where it stands.
            let Some((_, other, _)) = earlier.filter(|(_, other, _)| other != what) else { continue };
            let what = format!("{other} and {what} become one identifier");
            self.wrong(*at, what, "rename one of them");
        }
    }

    /// So do commands without the service's name in front, which become methods, and their messages, of which one is told
    /// from another by that. `ID` and `Id` are the same there, and apart as `KVID`, which is one word, and `KVId`.
    pub(super) fn no_methods_fall_together(&mut self, commands: &[Command]) {
        let all = || commands.iter().flat_map(|command| messages(command).map(move |m| (command, m)));
        let shown = |command: &Command, message: &Message| match message.stem == command.name {
            true => format!("the command {}", command.name),
            false => format!("the message {}", message.stem),
        };
        for command in commands {
            // Once for a command: where requests fall together, so do their responses.
            let clash = messages(command).find_map(|message| {
                let stem = snake(&message.stem);
                let earlier = all().take_while(|(_, other)| !std::ptr::eq(*other, message));
                // Those that are one with the service's name too were told.
                let mut earlier = earlier.filter(|(_, other)| snake(&other.tag) != snake(&message.tag));
                let (owner, other) = earlier.find(|(_, other)| snake(&other.stem) == stem)?;
                let (other, this) = (shown(owner, other), shown(command, message));
                Some(format!("{other} and {this} become one identifier, {stem}"))
            });
            if let Some(what) = clash {
                self.wrong(self.command_place(&command.name), what, "rename one of them");
            }
        }
    }

    /// Where a declared name stands.
    fn place(&self, name: &str) -> Span {
        place(&self.places, name)
    }

    fn command_place(&self, name: &str) -> Span {
        place(&self.commands, name)
    }
}

/// What is generated for the service with `prefix` in front of its types in place of the service's name, and who has that name
/// already: a type that the schema declares, or the generated code itself.
#[must_use]
pub fn prefix_clash(service: &Service, prefix: &str) -> Option<(String, String)> {
    let stems = service.messages().into_iter().map(|message| message.stem.as_str());
    let declared: Vec<&str> = service
        .aliases
        .iter()
        .map(|alias| alias.name.as_str())
        .chain(service.enums.iter().map(|one| one.name.as_str()))
        .chain(service.types.iter().map(|one| one.name.as_str()))
        .collect();
    let beside = |name: &str, other: &str| {
        words::DERIVED.iter().any(|(before, behind)| format!("{before}{name}{behind}") == other)
    };
    GENERATED.into_iter().chain(stems).map(|part| format!("{prefix}{part}")).find_map(|made| {
        let clashes =
            |name: &&&str| snake(name) == snake(&made) || beside(name, &made) || beside(&made, name);
        let owner = declared.iter().find(clashes).map(|name| format!("the type {name}"));
        let owner = owner.or_else(|| words::reserves_type(&made).map(str::to_owned));
        owner.map(|owner| (made, owner))
    })
}

fn place(places: &[(String, Span)], name: &str) -> Span {
    places.iter().find(|(declared, _)| declared == name).map_or_else(Span::default, |(_, at)| *at)
}
