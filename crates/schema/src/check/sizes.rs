//! What values hold in place: too much of it overflows a stack, where some targets keep values.

use super::Check;
use super::commands::messages;
use crate::jsonc::Span;
use crate::model::{Command, Field, Type, types_by_dependency};
use std::collections::BTreeMap;

/// How many bytes one value may hold in place, its fixed arrays multiplied out. A call has several copies of
/// its message on the stack on the way to its handler, and threads have 2 MiB.
const INLINE_MAX: usize = 64 << 10;

/// Bytes in place, and what they are aligned to.
#[derive(Clone, Copy)]
struct Layout {
    size: usize,
    align: usize,
}

/// What a value of each declared type takes, and the items of lists and maps that take too
/// much.
#[derive(Default)]
struct KnownLayouts<'c> {
    layouts: BTreeMap<&'c str, Layout>,
    /// How many bytes the largest of them takes: each is read in place before it is put into its list.
    item_max: usize,
}

impl Layout {
    const fn of(size: usize, align: usize) -> Self {
        Self { size, align }
    }

    /// One behind the other.
    fn then(self, next: Self) -> Self {
        let at = self.size.checked_next_multiple_of(next.align).unwrap_or(usize::MAX);
        Self::of(at.saturating_add(next.size), self.align.max(next.align))
    }

    /// With what lets another stand behind it.
    fn whole(self) -> Self {
        Self::of(self.size.checked_next_multiple_of(self.align).unwrap_or(usize::MAX), self.align)
    }
}

impl Check {
    /// A value stands on the stack of some targets, so what it holds in place is bounded.
    pub(super) fn no_inline_giants(&mut self, commands: &[Command]) {
        if !self.findings.is_empty() {
            return;
        }
        let mut giants: Vec<(String, usize, Span)> = Vec::new();
        let mut known = KnownLayouts::default();
        // Each behind those that it contains, so that no depth of types nests calls.
        for of in types_by_dependency(&self.types) {
            let layout = self.fields_in_place(&of.fields, &mut known);
            // One of nothing takes a byte all the same.
            known.layouts.insert(&of.name, Layout::of(layout.size.max(1), layout.align));
        }
        let mut look = |fields, name: &str, at| {
            known.item_max = 0;
            let size = self.fields_in_place(fields, &mut known).size;
            giants.push((name.to_owned(), size, at));
            giants.push((format!("an item of a list or map in {name}"), known.item_max, at));
        };
        for of in &self.types {
            look(&of.fields, &of.name, self.place(&of.name));
        }
        for command in commands {
            for message in messages(command) {
                look(&message.fields, &message.tag, self.command_place(&command.name));
            }
        }
        for (name, size, at) in giants.into_iter().filter(|(_, size, _)| *size > INLINE_MAX) {
            let what = format!(
                "{name} takes {size} bytes in place, its fixed arrays multiplied out, more than {INLINE_MAX}"
            );
            self.wrong(at, what, "use lists, T[], where it has large arrays");
        }
    }

    fn fields_in_place(&self, fields: &[Field], known: &mut KnownLayouts<'_>) -> Layout {
        let all =
            fields.iter().fold(Layout::of(0, 1), |all, field| all.then(self.in_place(&field.of, known)));
        all.whole()
    }

    /// What holds its items elsewhere.
    fn beside(&self, item: &Type, layout: Layout, known: &mut KnownLayouts<'_>) -> Layout {
        let size = self.in_place(item, known).size;
        known.item_max = known.item_max.max(size);
        layout
    }

    /// As the target that needs most of it lays it out.
    fn in_place(&self, of: &Type, known: &mut KnownLayouts<'_>) -> Layout {
        match of {
            Type::Bool => Layout::of(1, 1),
            Type::Int(int) => Layout::of(usize::from(int.bits / 8), usize::from(int.bits / 8)),
            Type::F32 | Type::Enum(_) => Layout::of(4, 4),
            Type::F64 => Layout::of(8, 8),
            Type::String | Type::Bytes => Layout::of(32, 8),
            Type::Bin32 => Layout::of(32, 1),
            Type::List(of) => self.beside(of, Layout::of(24, 8), known),
            Type::Map(of) => self.beside(of, Layout::of(48, 8), known),
            Type::Alias(name) => match self.alias(name) {
                Some(alias) => self.in_place(&alias.of, known),
                None => Layout::of(32, 8),
            },
            Type::Array(of, count) => {
                let Layout { size, align } = self.in_place(of, known);
                Layout::of(size.saturating_mul(*count), align)
            }
            Type::Optional(of) => self.in_place(of, known).then(Layout::of(1, 1)).whole(),
            Type::Struct(name) => known.layouts.get(name.as_str()).copied().unwrap_or(Layout::of(1, 1)),
        }
    }
}
