//! Rules about the whole: types that contain themselves, names that fall together.

use super::Check;
use super::commands::messages;
use crate::casing::snake;
use crate::jsonc::Span;
use crate::model::{Command, Message, Service, Struct, contained};
use crate::words;
use std::collections::BTreeMap;

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

/// What becomes a type.
struct Named {
    name: String,
    /// How it is told.
    what: String,
    /// What it was declared as: of two declarations that are told elsewhere for being the same, the same.
    declared: String,
    at: Span,
    /// Whether it is one: an enum or an alias is not, nor are clients and handlers.
    is_struct: bool,
}

impl Check {
    /// A type that contained itself could nest without end, and no target could lay it out without a pointer.
    pub(super) fn no_type_contains_itself(&mut self) {
        let inner = self.contents();
        let mut told = vec![false; inner.len()];
        for ring in rings(&inner) {
            // Told of the first declared that no other ring was told of.
            let first = ring.iter().enumerate().filter(|(_, of)| !told[**of]).min_by_key(|(_, of)| **of);
            let Some((n, _)) = first else { continue };
            let way = ring[n..].iter().chain(&ring[..=n]);
            let way: Vec<&str> = way.map(|of| self.types[*of].name.as_str()).collect();
            let (at, shown) = (self.place(way[0]), way.join(" contains "));
            ring.iter().for_each(|of| told[*of] = true);
            let hint = "refer by an identifier, or carry the inner one as bytes";
            self.wrong(at, format!("a type contains itself: {shown}"), hint);
        }
    }

    /// The places of the types that each type's fields contain.
    fn contents(&self) -> Vec<Vec<usize>> {
        let places: BTreeMap<&str, usize> = self.types.iter().map(|of| of.name.as_str()).zip(0..).collect();
        let inner = |of: &Struct| {
            let names = of.fields.iter().filter_map(|field| contained(&field.of));
            names.filter_map(|name| places.get(name).copied()).collect()
        };
        self.types.iter().map(inner).collect()
    }

    /// Everything that becomes a type, with and without the service's name, becomes a different one.
    pub(super) fn no_names_fall_together(&mut self, commands: &[Command]) {
        let names = self.names(commands);
        for (n, Named { name, what, at, is_struct, .. }) in names.iter().enumerate() {
            let beside = words::derived(name);
            if let Some(Named { name: other, .. }) = names.iter().find(|other| beside.contains(&other.name)) {
                let what = format!("{what} has {other} beside it in some language");
                self.wrong(*at, what, "rename one of them");
            }
            let both = |other: &Named| Some((words::beside_both(name, &other.name)?, other.what.clone()));
            let structs = names[..n].iter().filter(|other| *is_struct && other.is_struct);
            if let Some((both, other)) = structs.filter_map(both).next() {
                let what = format!("{other} and {what} both have {both} beside them in some language");
                self.wrong(*at, what, "rename one of them");
            }
        }
        for (n, Named { name, what, declared, at, .. }) in names.iter().enumerate() {
            // The very same declaration twice was told where it stands.
            let falls_on = |other: &&Named| snake(&other.name) == snake(name) && other.declared != *declared;
            let Some(Named { what: other, .. }) = names[..n].iter().find(falls_on) else { continue };
            let what = format!("{other} and {what} become one identifier");
            self.wrong(*at, what, "rename one of them");
        }
    }

    /// No message has a name that generated code uses, as a service `Async` with a stream `Items` would have.
    pub(super) fn no_message_is_taken(&mut self, commands: &[Command]) {
        for command in commands {
            let taken = messages(command).find_map(|m| Some((&m.tag, words::reserves_type(&m.tag)?)));
            if let Some((tag, owner)) = taken {
                let hint = format!("add a word, as in {}Value", command.name);
                let what = format!("the message {tag} is taken by {owner}");
                self.wrong(self.command_place(&command.name), what, hint);
            }
        }
    }

    /// All of that: what is generated, what is declared, and the messages.
    fn names(&self, commands: &[Command]) -> Vec<Named> {
        let one = |name: String, what: &str, declared: &str, at| {
            let (what, declared) = (format!("{what} {name}"), declared.to_owned());
            Named { name, what, declared, at, is_struct: true }
        };
        let error = one(format!("{}ErrorResponse", self.service), "the error", "the error", Span::default());
        let mut names = vec![error];
        names.extend(GENERATED.map(|part| Named {
            is_struct: is_variant(part),
            ..one(format!("{}{part}", self.service), "the generated", part, Span::default())
        }));
        for (name, at) in &self.places {
            let is_struct = self.types.iter().any(|of| of.name == *name);
            names
                .push(Named { is_struct, ..one(name.clone(), "the type", &format!("the type {name}"), *at) });
        }
        for command in commands {
            let (at, declared) = (self.command_place(&command.name), format!("the command {}", command.name));
            names.extend(messages(command).map(|message| {
                let mut named = one(message.tag.clone(), "the message", &declared, at);
                // Whose it is cannot be told from its name: GetResponse may be a command.
                if message.stem != command.name {
                    named.what = format!("{} of {declared}", named.what);
                }
                named
            }));
        }
        names
    }

    /// So do commands without the service's name in front, which become methods, and their messages, of which
    /// one is told from another by that. `ID` and `Id` are the same there, and apart as `KVID`, which is one
    /// word, and `KVId`.
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
    pub(super) fn place(&self, name: &str) -> Span {
        place(&self.places, name)
    }

    pub(super) fn command_place(&self, name: &str) -> Span {
        place(&self.commands, name)
    }
}

/// The ways from types through their contents back to themselves. Of those that share types, some: each
/// type on such a way has a way told that it can reach.
///
/// A depth-first search. A type is untouched, on the way that is being searched, or done with; a ring is
/// closed where the search comes upon a type that is on its way.
fn rings(inner: &[Vec<usize>]) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy)]
    enum Visit {
        Untouched,
        /// How many types are on the way before it.
        OnWay(usize),
        Done,
    }
    let mut visits = vec![Visit::Untouched; inner.len()];
    let mut rings = Vec::new();
    for start in 0..inner.len() {
        if !matches!(visits[start], Visit::Untouched) {
            continue;
        }
        visits[start] = Visit::OnWay(0);
        // Each with what of it was not looked at yet.
        let mut way = vec![(start, inner[start].iter())];
        while let Some((of, rest)) = way.last_mut() {
            let Some(&next) = rest.next() else {
                visits[*of] = Visit::Done;
                way.pop();
                continue;
            };
            match visits[next] {
                Visit::Untouched => {
                    visits[next] = Visit::OnWay(way.len());
                    way.push((next, inner[next].iter()));
                }
                Visit::OnWay(from) => rings.push(way[from..].iter().map(|(of, _)| *of).collect()),
                Visit::Done => {}
            }
        }
    }
    rings
}

/// What is generated for the service with `prefix` in front of its types in place of the service's name, and
/// who has that name already: a type that the schema declares, or the generated code itself.
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
    let beside = |name: &str, other: &str| words::derived(name).iter().any(|derived| derived == other);
    let is_struct = |name: &str| service.types.iter().any(|one| one.name == name);
    let share = |name: &str, made: &str| is_struct(name) && words::beside_both(name, made).is_some();
    let generated = GENERATED.into_iter().map(|part| (part, is_variant(part)));
    generated.chain(stems.map(|stem| (stem, true))).find_map(|(part, makes_struct)| {
        let made = format!("{prefix}{part}");
        let clashes = |name: &&&str| {
            snake(name) == snake(&made)
                || beside(name, &made)
                || beside(&made, name)
                || (makes_struct && share(name, &made))
        };
        let owner = declared.iter().find(clashes).map(|name| format!("the type {name}"));
        let owner = owner.or_else(|| words::reserves_type(&made).map(str::to_owned));
        owner.map(|owner| (made, owner))
    })
}

/// Whether a generated part stands for one of the messages, as a struct does.
fn is_variant(part: &str) -> bool {
    matches!(part, "Request" | "Response")
}

fn place(places: &[(String, Span)], name: &str) -> Span {
    places.iter().find(|(declared, _)| declared == name).map_or_else(Span::default, |(_, at)| *at)
}
