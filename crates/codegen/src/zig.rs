//! Zig 0.15 and newer, in the layout of `zig fmt`. Codecs are put together at compile time; strings and bytes
//! borrow from the frame, lists come from an arena of the caller's.

mod calls;

use crate::File;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Access, Alias, Command, Enum, Service, Type};

/// The runtime: every file's name and text.
const RUNTIME: [(&str, &str); 6] = [
    ("runtime/faults.zig", include_str!("../runtime/zig/faults.zig")),
    ("runtime/forks.zig", include_str!("../runtime/zig/forks.zig")),
    ("runtime/messagepack.zig", include_str!("../runtime/zig/messagepack.zig")),
    ("runtime/reader.zig", include_str!("../runtime/zig/reader.zig")),
    ("runtime/service.zig", include_str!("../runtime/zig/service.zig")),
    ("runtime/writer.zig", include_str!("../runtime/zig/writer.zig")),
];

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let zig = Zig { service, names };
    let module = &names.module;
    let mut files = vec![(format!("{module}_types.zig"), zig.types())];
    files.extend(RUNTIME.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let mut root = zig.head("The module");
    root.line("pub const mp = @import(\"runtime/messagepack.zig\");");
    root.line("pub const service = @import(\"runtime/service.zig\");");
    root.line("pub const Forks = @import(\"runtime/forks.zig\").Forks;");
    root.line(format!("pub const types = @import(\"{module}_types.zig\");"));
    if names.arguments.client {
        root.line(format!("pub const client = @import(\"{module}_client.zig\");"));
        files.push((format!("{module}_client.zig"), zig.client()));
    }
    if names.arguments.server {
        root.line(format!("pub const server = @import(\"{module}_server.zig\");"));
        files.push((format!("{module}_server.zig"), zig.server()));
    }
    files.push((format!("{module}.zig"), root.finish()));
    names.placed("src/", files)
}

struct Zig<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
}

impl Zig<'_> {
    fn head(&self, what: &str) -> Text {
        let mut text = Text::new("    ");
        text.comment("//!", &self.names.head(what));
        text.line("");
        text
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs");
        text.line("const mp = @import(\"runtime/messagepack.zig\");");
        text.line("const service = @import(\"runtime/service.zig\");");
        text.line("");
        text.line("/// SHA-256 of the schema; both ends compare it when they connect.");
        let hash: String = self.service.hash.iter().map(|byte| format!("\\x{byte:02x}")).collect();
        text.line(format!("pub const schema_hash: [32]u8 = \"{hash}\".*;"));
        text.line("/// The tag of the service's error.");
        text.line(format!("pub const error_tag = \"{}\";", self.service.error.tag));
        self.service.aliases.iter().for_each(|alias| self.alias(&mut text, alias));
        self.service.enums.iter().for_each(|of| enumeration(&mut text, of));
        self.names.records().iter().for_each(|record| self.structure(&mut text, record));
        self.sum(&mut text, Side::Request);
        self.sum(&mut text, Side::Response);
        self.access(&mut text);
        text.finish()
    }

    fn alias(&self, text: &mut Text, Alias { name, doc, of }: &Alias) {
        text.line("");
        text.comment("///", doc);
        match of {
            Type::Bin32 => {
                text.line(format!("pub const {name} = struct {{ bytes: [32]u8 }};"));
                text.line(format!("pub const {name}Codec = mp.Nominal({name});"));
            }
            of => text.line(format!("pub const {name} = {};", self.type_of(of))),
        }
    }

    fn structure(&self, text: &mut Text, Record { name, tag, doc, fields }: &Record<'_>) {
        let tag = tag.unwrap_or(name);
        text.line("");
        text.comment("///", doc);
        if fields.is_empty() {
            text.line(format!("pub const {name} = struct {{}};"));
            text.line(format!("pub const {name}Codec = mp.Struct({name}, \"{tag}\", .{{}});"));
            return;
        }
        text.block(format!("pub const {name} = struct {{"), "};", |text| {
            for field in *fields {
                text.comment("///", &field.doc);
                let default = if matches!(field.of, Type::Optional(_)) { " = null" } else { "" };
                text.line(format!("{}: {}{default},", snake(&field.name), self.type_of(&field.of)));
            }
        });
        text.block(format!("pub const {name}Codec = mp.Struct({name}, \"{tag}\", .{{"), "});", |text| {
            for field in *fields {
                text.line(format!(
                    ".{{ \"{}\", \"{}\", {} }},",
                    field.name,
                    snake(&field.name),
                    self.codec(&field.of)
                ));
            }
        });
    }

    fn sum(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let name = self.names.own(side.part());
        text.line("");
        text.line(format!("/// Any {kind} of the service."));
        text.block(format!("pub const {name} = union(enum) {{"), "};", |text| {
            for message in &messages {
                text.line(format!("{}: {},", snake(&message.stem), self.names.message(message)));
            }
        });
        text.line(format!("/// `decode(arena, frame)` and `encode(writer, value)` of whole {kind} frames."));
        text.block(format!("pub const {name}Codec = mp.Sum({name}, .{kind}, .{{"), "});", |text| {
            for message in &messages {
                text.line(format!(
                    ".{{ \"{}\", {}Codec }},",
                    snake(&message.stem),
                    self.names.message(message)
                ));
            }
        });
    }

    fn access(&self, text: &mut Text) {
        let scheduled: Vec<&Command> =
            self.service.commands.iter().filter(|command| command.schedule.is_some()).collect();
        text.line("");
        text.line("/// What a call does to its fork.");
        text.line("pub const Ordering = struct { access: service.Access, fork: service.Fork };");
        text.line("");
        text.line("/// What a call does to which fork, if it is ordered at all.");
        let request = self.names.own("Request");
        let parameter = if scheduled.is_empty() { "_" } else { "request" };
        text.block(format!("pub fn accessOf({parameter}: *const {request}) Ordering {{"), "}", |text| {
            if scheduled.is_empty() {
                text.line("return .{ .access = .unordered, .fork = .none };");
                return;
            }
            text.block("return switch (request.*) {", "};", |text| {
                for command in &scheduled {
                    text.line(self.access_of(command));
                }
                if scheduled.len() < self.service.commands.len() {
                    text.line("else => .{ .access = .unordered, .fork = .none },");
                }
            });
        });
    }

    fn access_of(&self, command: &Command) -> String {
        let name = snake(&command.request.stem);
        let Some(schedule) = &command.schedule else { return String::new() };
        let access = match schedule.access {
            Access::ReadCommitted => "read_committed",
            Access::Read => "read",
            Access::Write => "write",
        };
        let Some(field) = command.fork() else {
            return format!(".{name} => .{{ .access = .{access}, .fork = .none }},");
        };
        let place = format!("of.{}", snake(&field.name));
        // Bytes in the request itself are reached through a pointer, which lives as long as the request does.
        let (capture, fork) = match self.service.resolve(&field.of) {
            Type::Int(int) if int.signed => ("|of|", format!(".{{ .number = @bitCast(@as(i64, {place})) }}")),
            Type::Int(_) => ("|of|", format!(".{{ .number = {place} }}")),
            Type::Alias(_) => ("|*of|", format!(".{{ .bytes = &{place}.bytes }}")),
            Type::Bin32 => ("|*of|", format!(".{{ .bytes = &{place} }}")),
            _ => ("|of|", format!(".{{ .bytes = {place} }}")),
        };
        format!(".{name} => {capture} .{{ .access = .{access}, .fork = {fork} }},")
    }

    fn type_of(&self, of: &Type) -> String {
        match of {
            Type::Bool => "bool".to_owned(),
            Type::Int(int) => int.word(),
            Type::F32 => "f32".to_owned(),
            Type::F64 => "f64".to_owned(),
            Type::String | Type::Bytes => "[]const u8".to_owned(),
            Type::Bin32 => "[32]u8".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => name.clone(),
            Type::Optional(of) => format!("?{}", self.type_of(of)),
            Type::List(of) => format!("[]const {}", self.type_of(of)),
            Type::Array(of, count) => format!("[{count}]{}", self.type_of(of)),
            Type::Map(of) => format!("[]const mp.Entry({})", self.type_of(of)),
        }
    }

    fn codec(&self, of: &Type) -> String {
        match self.service.resolve(of) {
            Type::Bool => "mp.Boolean".to_owned(),
            Type::Int(int) => format!("mp.Integer({})", int.word()),
            Type::F32 => "mp.F32".to_owned(),
            Type::F64 => "mp.F64".to_owned(),
            Type::String => "mp.String".to_owned(),
            Type::Bytes => "mp.Bytes".to_owned(),
            Type::Bin32 => "mp.Bin32".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => format!("{name}Codec"),
            Type::Optional(of) => format!("mp.Optional({})", self.codec(of)),
            Type::List(of) => format!("mp.List({})", self.codec(of)),
            Type::Array(of, count) => format!("mp.Array({}, {count})", self.codec(of)),
            Type::Map(of) => format!("mp.Map({})", self.codec(of)),
        }
    }
}

fn enumeration(text: &mut Text, Enum { name, doc, members }: &Enum) {
    text.line("");
    text.comment("///", doc);
    let identifiers: Vec<String> = members.iter().map(|member| snake(member)).collect();
    let words: Vec<String> = members.iter().map(|member| format!("\"{member}\"")).collect();
    text.line(format!("pub const {name} = enum {{ {} }};", identifiers.join(", ")));
    // `zig fmt` gives a list of one no inner spaces.
    let words = if words.len() == 1 { words.join("") } else { format!(" {} ", words.join(", ")) };
    text.line(format!("pub const {name}Codec = mp.Words({name}, &.{{{words}}});"));
}
