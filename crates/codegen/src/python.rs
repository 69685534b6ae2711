//! Python 3.11 and newer. Structs are dataclasses with slots; codecs are functions beside them, so that a
//! field may have any name. The layout is the one `black` leaves alone, and types pass `mypy --strict`.

mod calls;

use crate::File;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::rust::map_header;
use crate::text::Text;
use thalweg_schema::casing::{shouting, snake};
use thalweg_schema::{Access, Alias, Command, Enum, Field, Service, Type};

const MESSAGEPACK: &str = include_str!("../runtime/python/messagepack.py");
const FAULTS: &str = include_str!("../runtime/python/faults.py");
const FORKS: &str = include_str!("../runtime/python/forks.py");
const SERVICE: &str = include_str!("../runtime/python/service.py");
/// Where `black` breaks lines.
const COLUMNS: usize = 88;
/// The types of Python's own that fields have.
const BUILTINS: [&str; 7] = ["bool", "int", "float", "str", "bytes", "list", "dict"];

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let python = Python { service, names };
    let module = &names.module;
    let mut files = vec![(format!("{module}_types.py"), python.types())];
    if names.arguments.client {
        files.push((format!("{module}_client.py"), python.client()));
    }
    if names.arguments.server {
        files.push((format!("{module}_server.py"), python.server()));
    }
    let mut root = Text::new("    ");
    docstring(&mut root, &format!("The service {}. {}", service.name, names.notice));
    files.push(("__init__.py".to_owned(), root.finish()));
    files.push(("py.typed".to_owned(), String::new()));
    if names.arguments.runtime.is_none() {
        files.push(("messagepack.py".to_owned(), MESSAGEPACK.to_owned()));
        files.push(("service.py".to_owned(), SERVICE.to_owned()));
        files.push(("forks.py".to_owned(), FORKS.to_owned()));
        files.push(("faults.py".to_owned(), FAULTS.to_owned()));
    }
    let package = names.arguments.package.as_deref().unwrap_or_default().replace('-', "_");
    names.placed(&format!("src/{package}/"), files)
}

struct Python<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
}

impl Python<'_> {
    fn head(&self, what: &str) -> Text {
        let mut text = Text::new("    ");
        docstring(&mut text, &self.names.head(what));
        text.line("");
        text.line("from __future__ import annotations");
        text.line("");
        text
    }

    /// Where a runtime module is imported from.
    fn module(&self, name: &str) -> String {
        match &self.names.arguments.runtime {
            Some(runtime) => format!("{runtime}.{name}"),
            None => format!(".{name}"),
        }
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs");
        let enums = !self.service.enums.is_empty();
        if self.shadows_builtins() {
            text.line("import builtins");
        }
        text.line("from dataclasses import dataclass");
        if enums {
            text.line("from enum import StrEnum");
        }
        text.line("from typing import Final, NewType, TypeAlias");
        text.line("");
        let runtime = self.names.arguments.runtime.as_deref();
        text.line(format!("from {} import messagepack as mp", runtime.unwrap_or(".")));
        text.line(format!("from {} import Fields, Reader", self.module("messagepack")));
        text.line("");
        text.line(format!("SCHEMA_HASH: Final = bytes.fromhex(\n    \"{}\"\n)", self.names.hash));
        text.line("\"\"\"SHA-256 of the schema; both ends compare it when they connect.\"\"\"");
        self.aliases(&mut text);
        self.service.enums.iter().for_each(|of| enumeration(&mut text, of));
        let records = self.names.records();
        records.iter().for_each(|record| self.structure(&mut text, record));
        self.tables(&mut text, &records);
        self.sum(&mut text, Side::Request);
        self.sum(&mut text, Side::Response);
        self.access(&mut text);
        text.finish()
    }

    /// Whether a field is called like a type that a field beside it has.
    fn shadows_builtins(&self) -> bool {
        self.names.records().iter().any(|record| {
            record.fields.iter().any(|field| {
                let of = self.type_of(&field.of);
                qualified(&of, record.fields) != of
            })
        })
    }

    fn aliases(&self, text: &mut Text) {
        for Alias { name, doc, of } in &self.service.aliases {
            text.line("");
            match of {
                Type::Bin32 => text.line(format!("{name} = NewType(\"{name}\", bytes)")),
                of => text.line(format!("{name}: TypeAlias = {}", self.type_of(of))),
            }
            docstring(text, doc);
        }
    }

    fn structure(&self, text: &mut Text, Record { name, doc, fields, .. }: &Record<'_>) {
        text.lines("\n\n@dataclass(slots=True, kw_only=True)");
        text.line(format!("class {name}:"));
        text.deeper(|text| {
            docstring(text, if doc.is_empty() { name } else { doc });
            if !fields.is_empty() {
                text.line("");
            }
            for field in *fields {
                let default = if matches!(field.of, Type::Optional(_)) { " = None" } else { "" };
                let of = qualified(&self.type_of(&field.of), fields);
                text.line(format!("{}: {of}{default}", snake(&field.name)));
                docstring(text, &field.doc);
            }
        });
        text.lines("\n\n");
        let function = format!("def write_{}", snake(name));
        let value = if fields.is_empty() { "_" } else { "value" };
        let parameters = ["out: bytearray".to_owned(), format!("{value}: {name}")];
        text.lines(&self.signature(&function, &parameters, "None"));
        text.deeper(|text| {
            let mut before = map_header(fields.len());
            for field in *fields {
                before.push_str(&key_literal(&field.name));
                text.line(format!("out += b\"{before}\""));
                let (function, arguments) = self.write(&field.of, &format!("value.{}", snake(&field.name)));
                self.call(text, "", &function, &arguments, "");
                before.clear();
            }
            if !before.is_empty() {
                text.line(format!("out += b\"{before}\""));
            }
        });
        let table = format!("_{}", shouting(name));
        text.lines(&format!("\n\ndef read_{}(reader: Reader) -> {name}:", snake(name)));
        text.deeper(|text| {
            let inner = format!("reader.struct(\"{name}\", {table})");
            self.call(text, "return ", name, &[format!("**{inner}")], "");
        });
    }

    /// How each struct's fields are read; behind everything a reader may call. Every other table has two
    /// underscores in its name, as no struct's has.
    fn tables(&self, text: &mut Text, records: &[Record<'_>]) {
        text.lines("\n\n");
        for Record { name, fields, .. } in records {
            let table = format!("_{}: Final[Fields] = ", shouting(name));
            if fields.is_empty() {
                text.line(format!("{table}{{}}"));
                continue;
            }
            text.block(format!("{table}{{"), "}", |text| {
                for field in *fields {
                    let required = if matches!(field.of, Type::Optional(_)) { "False" } else { "True" };
                    let parts =
                        [format!("\"{}\"", snake(&field.name)), required.to_owned(), self.read(&field.of)];
                    self.call(text, &format!("b\"{}\": ", field.name), "", &parts, ",");
                }
            });
        }
    }

    fn sum(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let name = self.names.own(side.part());
        let reads = format!("_{}__READS", side.part().to_uppercase());
        let types: Vec<String> = messages.iter().map(|message| self.names.message(message)).collect();
        text.line("");
        union(text, &name, &types);
        docstring(text, &format!("Any {kind} of the service."));
        text.line("");
        text.block(format!("{reads}: Final[dict[str, mp.Read[{name}]]] = {{"), "}", |text| {
            for (message, of) in messages.iter().zip(&types) {
                text.line(format!("\"{}\": read_{},", message.tag, snake(of)));
            }
        });
        text.lines(&format!("\n\ndef decode_{kind}(frame: bytes) -> {name}:"));
        text.deeper(|text| {
            docstring(text, &format!("Reads a whole {kind} frame; raises DecodeError."));
            text.lines(&format!(
                "reader = Reader(frame)\nread = {reads}.get(reader.{kind}())\nif read is None:\n    \
                 raise reader.refuse(\"a message nobody declared\", \"frame\")\nvalue = read(reader)\n\
                 reader.finish()\nreturn value"
            ));
        });
        text.lines(&format!("\n\ndef encode_{kind}(value: {name}) -> bytes:"));
        text.deeper(|text| {
            docstring(text, &format!("Writes a whole {kind} frame; raises EncodeError."));
            let head = if kind == "request" { "\\x91\\x92" } else { "\\x92" };
            text.lines("out = bytearray()\ntry:\n    match value:");
            text.deeper(|text| {
                text.deeper(|text| {
                    for (message, of) in messages.iter().zip(&types) {
                        text.line(format!("case {of}():"));
                        text.deeper(|text| {
                            text.line(format!("out += b\"{head}{}\"", key_literal(&message.tag)));
                            text.line(format!("write_{}(out, value)", snake(of)));
                        });
                    }
                });
            });
            text.lines(&format!(
                "except (mp.EncodeError, *mp.MISFITS) as error:\n    \
                 raise mp.misfit(out, decode_{kind}, error) from error\nif not out:\n    \
                 raise mp.EncodeError(f\"a {{type(value).__name__}} is no message of the service\")\n\
                 return bytes(out)"
            ));
        });
        text.line("");
    }

    fn access(&self, text: &mut Text) {
        if !self.service.is_ordered() {
            return text.trim_end();
        }
        text.lines("\n_REQUEST__ACCESS: Final[dict[type, tuple[str, str | None]]] = {");
        text.deeper(|text| {
            for command in self.service.commands.iter().filter(|command| command.schedule.is_some()) {
                text.line(format!("{}: {},", self.names.message(&command.request), access_of(command)));
            }
        });
        text.line("}");
        text.lines("\n\n");
        let request = self.names.own("Request");
        text.block(format!("def access_of(request: {request}) -> tuple[str, object] | None:"), "", |text| {
            docstring(text, "What a call does to which fork, if it is ordered at all.");
            text.lines(
                "found = _REQUEST__ACCESS.get(type(request))\nif found is None:\n    return None\naccess, field = found\n\
                 return access, None if field is None else getattr(request, field)",
            );
        });
        text.trim_end();
    }

    /// `function(parameters) -> returns:`, broken as `black` breaks it at the outermost depth.
    fn signature(&self, function: &str, parameters: &[String], returns: &str) -> String {
        self.signature_at(0, function, parameters, returns)
    }

    fn signature_at(&self, column: usize, function: &str, parameters: &[String], returns: &str) -> String {
        let whole = format!("{function}({}) -> {returns}:", parameters.join(", "));
        if column + whole.len() <= COLUMNS {
            return whole;
        }
        let (inside, end) = (parameters.join(", "), returning(column, returns));
        if column + 4 + inside.len() <= COLUMNS {
            return format!("{function}(\n    {inside}\n{end}");
        }
        format!("{function}(\n    {},\n{end}", parameters.join(",\n    "))
    }

    /// `before function(arguments) after`, broken as `black` breaks it.
    fn call(&self, text: &mut Text, before: &str, function: &str, arguments: &[String], after: &str) {
        let whole = format!("{before}{function}({}){after}", arguments.join(", "));
        if text.column() + whole.len() <= COLUMNS {
            return text.line(whole);
        }
        text.block(format!("{before}{function}("), &format!("){after}"), |text| {
            let inside = arguments.join(", ");
            // A tuple keeps one part a line; a call's arguments share one where they fit.
            if !function.is_empty() && text.column() + inside.len() <= COLUMNS {
                return text.line(inside);
            }
            arguments.iter().for_each(|argument| broken(text, argument));
        });
    }

    fn type_of(&self, of: &Type) -> String {
        match of {
            Type::Bool => "bool".to_owned(),
            Type::Int(_) => "int".to_owned(),
            Type::F32 | Type::F64 => "float".to_owned(),
            Type::String => "str".to_owned(),
            Type::Bytes | Type::Bin32 => "bytes".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => name.clone(),
            Type::Optional(of) => format!("{} | None", self.type_of(of)),
            Type::List(of) | Type::Array(of, _) => format!("list[{}]", self.type_of(of)),
            Type::Map(of) => format!("dict[str, {}]", self.type_of(of)),
        }
    }

    /// The call that writes a value.
    fn write(&self, of: &Type, value: &str) -> (String, Vec<String>) {
        let (out, value) = ("out".to_owned(), value.to_owned());
        match self.service.resolve(of) {
            Type::Optional(of) => ("mp.write_optional".to_owned(), vec![out, value, self.writer(of)]),
            Type::List(of) => ("mp.write_list".to_owned(), vec![out, value, self.writer(of)]),
            Type::Array(of, count) => {
                ("mp.write_array".to_owned(), vec![out, count.to_string(), value, self.writer(of)])
            }
            Type::Map(of) => ("mp.write_map".to_owned(), vec![out, value, self.writer(of)]),
            leaf => (self.writer(leaf), vec![out, value]),
        }
    }

    /// A function that writes a value.
    fn writer(&self, of: &Type) -> String {
        match self.service.resolve(of) {
            Type::Bool => "mp.write_boolean".to_owned(),
            Type::Int(int) => format!("mp.write_{}", int.word()),
            Type::F32 => "mp.write_f32".to_owned(),
            Type::F64 => "mp.write_f64".to_owned(),
            Type::String => "mp.write_string".to_owned(),
            Type::Bytes => "mp.write_bytes".to_owned(),
            Type::Bin32 | Type::Alias(_) => "mp.write_bin32".to_owned(),
            Type::Enum(name) | Type::Struct(name) => format!("write_{}", snake(name)),
            compound => {
                let (function, mut arguments) = self.write(compound, "v");
                arguments[0] = "o".to_owned();
                format!("lambda o, v: {function}({})", arguments.join(", "))
            }
        }
    }

    /// A function that reads a value.
    fn read(&self, of: &Type) -> String {
        let bytes_min = |of: &Type| self.service.encoded_bytes_min(of);
        match self.service.resolve(of) {
            Type::Bool => "Reader.boolean".to_owned(),
            Type::Int(int) => format!("Reader.{}", int.word()),
            Type::F32 => "Reader.f32".to_owned(),
            Type::F64 => "Reader.f64".to_owned(),
            Type::String => "Reader.string".to_owned(),
            Type::Bytes => "Reader.bytes".to_owned(),
            Type::Bin32 | Type::Alias(_) => "Reader.bin32".to_owned(),
            Type::Enum(name) | Type::Struct(name) => format!("read_{}", snake(name)),
            Type::Optional(of) => format!("lambda r: r.optional({})", self.read(of)),
            Type::List(of) => format!("lambda r: r.list({}, {})", bytes_min(of), self.read(of)),
            Type::Array(of, count) => format!("lambda r: r.array({count}, {})", self.read(of)),
            Type::Map(of) => format!("lambda r: r.map({}, {})", bytes_min(of), self.read(of)),
        }
    }
}

/// A type in a class where some of its words are names of fields.
fn qualified(of: &str, fields: &[Field]) -> String {
    let mut qualified = String::new();
    for part in of.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        let word = part.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        if BUILTINS.contains(&word) && fields.iter().any(|field| snake(&field.name) == word) {
            qualified.push_str("builtins.");
        }
        qualified.push_str(part);
    }
    qualified
}

/// An alias for a union, broken as `black` breaks it.
fn union(text: &mut Text, name: &str, types: &[String]) {
    let whole = format!("{name}: TypeAlias = {}", types.join(" | "));
    if whole.len() <= COLUMNS {
        return text.line(whole);
    }
    text.block(format!("{name}: TypeAlias = ("), ")", |text| {
        let inside = types.join(" | ");
        if text.column() + inside.len() <= COLUMNS {
            return text.line(inside);
        }
        for (n, of) in types.iter().enumerate() {
            text.line(if n == 0 { of.clone() } else { format!("| {of}") });
        }
    });
}

/// One argument on its own lines; a lambda that is too long is broken in its call.
fn broken(text: &mut Text, argument: &str) {
    let call = argument.split_once('(').and_then(|(head, rest)| Some((head, rest.strip_suffix(')')?)));
    let (Some((head, inside)), true) = (call, text.column() + argument.len() + 1 > COLUMNS) else {
        return text.line(format!("{argument},"));
    };
    text.block(format!("{head}("), "),", |text| {
        if text.column() + inside.len() <= COLUMNS {
            return text.line(inside);
        }
        // The lambda inside is the last argument, and has a comma of its own.
        let (before, last) = inside.split_once(", lambda").unwrap_or((inside, ""));
        before.split(", ").for_each(|argument| text.line(format!("{argument},")));
        if !last.is_empty() {
            broken(text, &format!("lambda{last}"));
        }
    });
}

/// What the schema says about a command, or else its name.
fn documented(command: &Command) -> String {
    if command.doc.is_empty() { format!("``{}``.", command.name) } else { command.doc.clone() }
}

fn access_of(command: &Command) -> String {
    let Some(schedule) = &command.schedule else { return "None".to_owned() };
    let access = match schedule.access {
        Access::ReadCommitted => "read committed",
        Access::Read => "read",
        Access::Write => "write",
    };
    match command.fork() {
        Some(fork) => format!("(\"{access}\", \"{}\")", snake(&fork.name)),
        None => format!("(\"{access}\", None)"),
    }
}

fn enumeration(text: &mut Text, of: &Enum) {
    let name = &of.name;
    text.lines("\n\n");
    text.block(format!("class {name}(StrEnum):"), "", |text| {
        docstring(text, if of.doc.is_empty() { name } else { &of.doc });
        text.line("");
        for member in &of.members {
            text.line(format!("{} = \"{member}\"", shouting(member)));
        }
    });
    text.line("");
    text.block(format!("_{}__WORDS: Final = {{", shouting(name)), "}", |text| {
        for member in &of.members {
            text.line(format!("b\"{member}\": {name}.{},", shouting(member)));
        }
    });
    text.lines("\n\n");
    text.block(format!("def write_{}(out: bytearray, value: {name}) -> None:", snake(name)), "", |text| {
        text.lines(&format!(
            "try:\n    mp.write_string(out, {name}(value))\nexcept ValueError:\n    \
             raise mp.EncodeError(f\"{{value!r}} is no {name}\") from None"
        ));
    });
    text.lines("\n");
    text.block(format!("def read_{}(reader: Reader) -> {name}:", snake(name)), "", |text| {
        text.lines(&format!("return reader.word(_{}__WORDS)", shouting(name)));
    });
    text.trim_end();
}

/// A string's header and letters in a byte string.
fn key_literal(name: &str) -> String {
    match name.len() {
        length @ 0..32 => format!("\\x{:02x}{name}", 0xa0 | length),
        length => format!("\\xd9\\x{length:02x}{name}"),
    }
}

/// A docstring in the layout `black` leaves alone; nothing for no words.
fn docstring(text: &mut Text, doc: &str) {
    let safe = doc.replace('\\', "\\\\").replace("\"\"\"", "'''");
    let safe = safe.trim();
    if safe.is_empty() {
        return;
    }
    // A quote at the end would run into the closing ones.
    let safe = if safe.ends_with('"') { format!("{safe}.") } else { safe.to_owned() };
    if safe.contains('\n') {
        text.lines(&format!("\"\"\"{safe}\n\"\"\""));
    } else {
        text.line(format!("\"\"\"{safe}\"\"\""));
    }
}

/// What stands behind parameters on lines of their own, broken as `black` breaks it.
fn returning(column: usize, returns: &str) -> String {
    let whole = format!(") -> {returns}:");
    let generic = returns.strip_suffix(']').and_then(|of| of.split_once('['));
    match generic {
        Some((of, inside)) if column + whole.len() > COLUMNS => {
            let fits = column + 4 + inside.len() <= COLUMNS;
            let inside = if fits { inside.to_owned() } else { inside.replace(", ", ",\n    ") + "," };
            format!(") -> {of}[\n    {inside}\n]:")
        }
        _ => whole,
    }
}
