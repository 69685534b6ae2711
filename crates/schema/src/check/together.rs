//! Rules about the whole: types that contain themselves, names that fall together.

use super::Check;
use super::commands::messages;
use super::earlier::Earlier;
use crate::casing::snake;
use crate::jsonc::Span;
use crate::model::{Command, Message, Service, Struct, contained};
use crate::words;
use std::collections::{BTreeMap, BTreeSet};

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
struct TypeName {
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
        let mut first: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, named) in names.iter().enumerate() {
            first.entry(&named.name).or_insert(n);
        }
        // The structs before the one that is looked at.
        let mut structs: BTreeMap<&str, usize> = BTreeMap::new();
        for (n, TypeName { name, what, at, is_struct, .. }) in names.iter().enumerate() {
            let derived = words::derived(name);
            if let Some(other) = derived.iter().filter_map(|derived| first.get(derived.as_str())).min() {
                let what = format!("{what} has {} beside it in some language", names[*other].name);
                self.wrong(*at, what, "rename one of them");
            }
            if !is_struct {
                continue;
            }
            let rivals = words::rivals(name).filter_map(|(rival, both)| Some((*structs.get(&*rival)?, both)));
            if let Some((other, both)) = rivals.min_by_key(|(other, _)| *other) {
                let other = &names[other].what;
                let what = format!("{other} and {what} both have {both} beside them in some language");
                self.wrong(*at, what, "rename one of them");
            }
            structs.entry(name).or_insert(n);
        }
        let mut earlier = Earlier::default();
        for TypeName { name, what, declared, at, .. } in &names {
            // The very same declaration twice was told where it stands.
            let Some(other) = earlier.other(snake(name), declared.clone(), what) else { continue };
            let what = format!("{other} and {what} become one identifier");
            self.wrong(*at, what, "rename one of them");
        }
    }

    /// No message has a name that generated code uses, as a service `Async` with a stream `Items` would have.
    pub(super) fn no_message_is_taken(&mut self, commands: &[Command]) {
        // Without the service's name, which is missing, no message has one.
        if self.service.is_empty() {
            return;
        }
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
    fn names(&self, commands: &[Command]) -> Vec<TypeName> {
        let one = |name: String, what: &str, declared: &str, at| {
            let (what, declared) = (format!("{what} {name}"), declared.to_owned());
            TypeName { name, what, declared, at, is_struct: true }
        };
        let error = one(format!("{}ErrorResponse", self.service), "the error", "the error", Span::default());
        let mut names = vec![error];
        names.extend(GENERATED.map(|part| TypeName {
            is_struct: is_variant(part),
            ..one(format!("{}{part}", self.service), "the generated", part, Span::default())
        }));
        let structs: BTreeSet<&str> = self.types.iter().map(|of| of.name.as_str()).collect();
        for (name, at) in self.places.iter() {
            let is_struct = structs.contains(name.as_str());
            names.push(TypeName {
                is_struct,
                ..one(name.clone(), "the type", &format!("the type {name}"), *at)
            });
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
        let shown = |command: &Command, message: &Message| match message.stem == command.name {
            true => format!("the command {}", command.name),
            false => format!("the message {}", message.stem),
        };
        let mut earlier = Earlier::default();
        for command in commands {
            let clashes = messages(command).filter_map(|message| {
                let stem = snake(&message.stem);
                // Those that are one with the service's name too were told.
                let other = earlier.other(stem.clone(), snake(&message.tag), (command, message))?;
                let (other, this) = (shown(other.0, other.1), shown(command, message));
                Some(format!("{other} and {this} become one identifier, {stem}"))
            });
            // Once for a command: where requests fall together, so do their responses.
            let mut clashes: Vec<String> = clashes.collect();
            if !clashes.is_empty() {
                let what = clashes.swap_remove(0);
                self.wrong(self.command_place(&command.name), what, "rename one of them");
            }
        }
    }

    /// Where a declared name stands.
    pub(super) fn place(&self, name: &str) -> Span {
        self.places.first(name).unwrap_or_default()
    }

    pub(super) fn command_place(&self, name: &str) -> Span {
        self.commands.first(name).unwrap_or_default()
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
    let types = || service.types.iter().map(|one| one.name.as_str());
    let aliases = service.aliases.iter().map(|alias| alias.name.as_str());
    let declared: Vec<&str> =
        aliases.chain(service.enums.iter().map(|one| one.name.as_str())).chain(types()).collect();
    let structs: BTreeSet<&str> = types().collect();
    // The first declared name of each casing, and the first that has a name itself or beside it.
    let (mut cased, mut exact, mut beside) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (n, name) in declared.iter().enumerate() {
        cased.entry(snake(name)).or_insert(n);
        exact.entry(*name).or_insert(n);
        words::derived(name).into_iter().for_each(|derived| {
            beside.entry(derived).or_insert(n);
        });
    }
    let generated = GENERATED.into_iter().map(|part| (part, is_variant(part)));
    generated.chain(stems.map(|stem| (stem, true))).find_map(|(part, makes_struct)| {
        let made = format!("{prefix}{part}");
        let derived = words::derived(&made);
        let rivals: Vec<String> = words::rivals(&made).map(|(rival, _)| rival).collect();
        let rivals = rivals.iter().map(String::as_str);
        let rivals = rivals.filter(|rival| makes_struct && structs.contains(rival));
        let found = rivals.chain(derived.iter().map(String::as_str)).filter_map(|name| exact.get(name));
        let found = found.chain(cased.get(&snake(&made))).chain(beside.get(&made)).min();
        let owner = found.map(|n| format!("the type {}", declared[*n]));
        let owner = owner.or_else(|| words::reserves_type(&made).map(str::to_owned));
        owner.map(|owner| (made, owner))
    })
}

/// Whether a generated part stands for one of the messages, as a struct does.
fn is_variant(part: &str) -> bool {
    matches!(part, "Request" | "Response")
}
