//! Rust. Types borrow from the frame they were read from (`Cow`), and may own instead; encoding appends to a
//! buffer of the caller's. On `thalweg_wire::{messagepack, service}`.
//!
//! Output goes through `rustfmt` with its default settings, whatever directory the generator is called in.
//! Without `rustfmt`, which comes with Rust, nothing is written: the same schema and options are to give the
//! same bytes.

mod calls;
mod documentation;

use crate::borrowing::Borrowing;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::text::Text;
use crate::{Error, File};
use documentation::{documented, untested};
use std::io::Write;
use std::process::{Command as Process, Stdio};
use thalweg_schema::casing::{pascal, snake};
use thalweg_schema::{Access, Alias, Command, Enum, Field, Message, Service, Type};

pub(crate) fn emit(service: &Service, names: &Names) -> Result<Vec<File>, Error> {
    let runtime = names.arguments.runtime.as_deref().unwrap_or("thalweg_wire");
    let rust = Rust { service, names, runtime, borrowing: Borrowing::new(service) };
    let mut files = vec![("types.rs", rust.types())];
    let mut modules = Text::new("    ");
    modules.line(format!("//! {}", names.notice));
    modules.line("");
    if names.arguments.client {
        modules.line("pub mod client;");
        files.push(("client.rs", rust.client()));
    }
    if names.arguments.server {
        modules.line("pub mod server;");
        files.push(("server.rs", rust.server()));
    }
    modules.line("pub mod types;");
    // A package's root is its library.
    let root = if names.arguments.package.is_some() { "lib.rs" } else { "mod.rs" };
    files.push((root, modules.finish()));
    for (_, text) in &mut files {
        *text = formatted(text)?;
    }
    Ok(names.placed("src/", files))
}

/// The text as `rustfmt` lays it out; the empty file keeps it from settings it would look for in the caller's
/// directory.
fn formatted(text: &str) -> Result<String, Error> {
    let settings = ["--edition", "2024", "--config-path", "/dev/null"];
    let mut process = Process::new("rustfmt");
    process.args(settings).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process.spawn().map_err(Error::NoLayout)?;
    // `rustfmt` reads everything before it writes anything, so no pipe can stall another.
    let sent = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(text.as_bytes()));
    let output = child.wait_with_output().map_err(|error| Error::Layout(error.to_string()))?;
    if !output.status.success() {
        return Err(Error::Layout(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    sent.map_err(|error| Error::Layout(error.to_string()))?;
    String::from_utf8(output.stdout).map_err(|error| Error::Layout(error.to_string()))
}

struct Rust<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
    runtime: &'a str,
    borrowing: Borrowing<'a>,
}

impl Rust<'_> {
    fn head(&self, what: &str) -> Text {
        let mut text = Text::new("    ");
        text.comment("//!", &untested(&self.names.head(what)));
        text.line("");
        text
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs");
        text.line("#![allow(clippy::type_complexity, reason = \"types are as deep as the schema says\")]");
        text.line("");
        text.line("use std::borrow::Cow;");
        text.line(format!(
            "use {}::messagepack::{{DecodeError, DecodeErrorKind, Fields, Message, Reader, request_frame, response_frame, write}};",
            self.runtime
        ));
        text.line(format!("use {}::service::{{self, Access, Fork}};", self.runtime));
        text.line("");
        text.line("/// SHA-256 of the schema; both ends compare it when they connect.");
        let bytes: Vec<String> = self.service.hash.iter().map(|byte| format!("0x{byte:02x}")).collect();
        text.line(format!("pub const SCHEMA_HASH: [u8; 32] = [{}];", bytes.join(", ")));
        self.service.aliases.iter().for_each(|alias| self.alias(&mut text, alias));
        self.service.enums.iter().for_each(|of| enumeration(&mut text, of, self.service.is_used(&of.name)));
        self.names.records().iter().for_each(|record| self.structure(&mut text, record));
        self.sum(&mut text, Side::Request);
        self.access(&mut text);
        self.sum(&mut text, Side::Response);
        self.markers(&mut text);
        text.finish()
    }

    fn alias(&self, text: &mut Text, alias: &Alias) {
        text.line("");
        text.comment("///", &documented(&alias.doc, &alias.name));
        if alias.is_nominal() {
            text.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
            text.line(format!("pub struct {}(pub [u8; 32]);", alias.name));
            // They would be unused, which compilers warn of.
            if !self.service.is_used(&alias.name) {
                return;
            }
            text.block(format!("impl {} {{", alias.name), "}", |text| {
                text.lines(
                    "fn write(out: &mut Vec<u8>, value: &Self) {\n    write::bin32(out, &value.0);\n}\n\n\
                     fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {\n    reader.bin32().map(Self)\n}",
                );
            });
        } else {
            let life = if self.borrowing.of(&alias.of) { "<'a>" } else { "" };
            text.line(format!("pub type {}{life} = {};", alias.name, self.type_of(&alias.of)));
        }
    }

    fn structure(&self, text: &mut Text, Record { name, tag, doc, fields }: &Record<'_>) {
        let life = self.life(fields);
        text.line("");
        text.comment("///", &documented(doc, name));
        text.line("#[derive(Clone, Debug, PartialEq)]");
        text.block(format!("pub struct {name}{life} {{"), "}", |text| {
            for field in *fields {
                text.comment("///", &documented(&field.doc, &field.name));
                text.line(format!("pub {}: {},", snake(&field.name), self.type_of(&field.of)));
            }
        });
        if !life.is_empty() {
            text.block(format!("impl {name}<'_> {{"), "}", |text| self.ownership(text, name, fields));
        }
        text.block(format!("impl<'a> Fields<'a> for {name}{life} {{"), "}", |text| {
            self.write_fields(text, fields);
            text.line("");
            self.read_fields(text, name, fields);
        });
        if let Some(tag) = tag {
            text.block(format!("impl<'a> Message<'a> for {name}{life} {{"), "}", |text| {
                text.line(format!("const TAG: &'static str = \"{tag}\";"));
            });
        }
    }

    fn ownership(&self, text: &mut Text, name: &str, fields: &[Field]) {
        text.line("/// The same, without borrowing from a frame.");
        text.block(format!("pub fn into_owned(self) -> {name}<'static> {{"), "}", |text| {
            text.block(format!("{name} {{"), "}", |text| {
                for field in fields {
                    let field_name = snake(&field.name);
                    let own = self.own(&field.of, &format!("self.{field_name}"));
                    text.line(format!("{field_name}: {own},"));
                }
            });
        });
    }

    fn write_fields(&self, text: &mut Text, fields: &[Field]) {
        text.block("fn write(&self, out: &mut Vec<u8>) {", "}", |text| {
            // The map's header goes with the first key.
            let mut before = map_header(fields.len());
            for field in fields {
                before.push_str(&string_literal(&field.name));
                text.line(format!("out.extend_from_slice(b\"{before}\");"));
                text.line(format!(
                    "{};",
                    self.write(&field.of, "out", &format!("&self.{}", snake(&field.name)))
                ));
                before.clear();
            }
            if !before.is_empty() {
                text.line(format!("out.extend_from_slice(b\"{before}\");"));
            }
        });
    }

    fn read_fields(&self, text: &mut Text, name: &str, fields: &[Field]) {
        let taken: Vec<String> = fields.iter().map(|field| snake(&field.name)).collect();
        let reader = fresh("reader", &taken);
        text.block(
            format!("fn read({reader}: &mut Reader<'a>) -> Result<Self, DecodeError> {{"),
            "}",
            |text| {
                if fields.is_empty() {
                    text.line(format!("{reader}.no_fields(\"{name}\")?;"));
                    text.line("Ok(Self {})");
                    return;
                }
                taken.iter().for_each(|field| text.line(format!("let mut {field} = None;")));
                text.block(format!("for _ in 0..{reader}.fields(\"{name}\")? {{"), "}", |text| {
                    text.block(format!("match {reader}.key()? {{"), "}", |text| {
                        for (field, local) in fields.iter().zip(&taken) {
                            let read = self.read(&field.of);
                            let place = format!("\"{name}.{}\"", field.name);
                            text.line(format!(
                                "b\"{}\" => {reader}.field(&mut {local}, {place}, {read})?,",
                                field.name
                            ));
                        }
                        text.line(format!(
                            "_ => return Err({reader}.refuse(DecodeErrorKind::UnknownField, \"{name}\")),"
                        ));
                    });
                });
                text.block("Ok(Self {", "})", |text| {
                    for (field, local) in fields.iter().zip(&taken) {
                        match field.of {
                            Type::Optional(_) => text.line(format!("{local}: {local}.flatten(),")),
                            _ => text.line(format!(
                                "{local}: {reader}.required({local}, \"{name}.{}\")?,",
                                field.name
                            )),
                        }
                    }
                });
            },
        );
    }

    /// All requests, or all answers, as one type.
    fn sum(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let what = match side {
            Side::Request => "A request",
            Side::Response => "A response, an item or the error",
        };
        let name = self.names.own(side.part());
        let borrowing = self.borrows(side);
        let life = if borrowing { "<'a>" } else { "" };
        text.line("");
        text.line(format!("/// {what} of the service, whichever it is."));
        text.line("#[derive(Clone, Debug, PartialEq)]");
        text.block(format!("pub enum {name}{life} {{"), "}", |text| {
            for message in &messages {
                let of = self.names.message(message);
                text.line(format!("/// `{}`", message.tag));
                text.line(format!("{}({of}{}),", message.stem, self.life(&message.fields)));
            }
        });
        let generics = if borrowing { "<'a>" } else { "" };
        let frame = if borrowing { "&'a [u8]" } else { "&[u8]" };
        text.block(format!("impl{generics} {name}{life} {{"), "}", |text| {
            text.lines(&format!(
                "/// Reads a whole frame.\n///\n/// # Errors\n/// It is no {kind} of this service.\n\
                 pub fn decode(frame: {frame}) -> Result<Self, DecodeError> {{\n    let mut reader = Reader::new(frame);"
            ));
            text.deeper(|text| {
                text.block(format!("let message = match reader.{kind}()? {{"), "};", |text| {
                    for message in &messages {
                        let of = self.names.message(message);
                        text.line(format!(
                            "b\"{}\" => Self::{}({of}::read(&mut reader)?),",
                            message.tag, message.stem
                        ));
                    }
                    text.line("_ => return Err(reader.refuse(DecodeErrorKind::UnknownMessage, \"frame\")),");
                });
                text.line("reader.finish()?;");
                text.line("Ok(message)");
            });
            text.line("}");
            text.line("");
            text.line("/// Writes the whole frame behind what `out` holds.");
            text.block("pub fn encode(&self, out: &mut Vec<u8>) {", "}", |text| {
                text.block("match self {", "}", |text| {
                    for message in &messages {
                        text.line(format!("Self::{}(message) => {kind}_frame(message, out),", message.stem));
                    }
                });
            });
        });
        if borrowing {
            self.sum_ownership(text, &name, &messages);
        }
    }

    fn sum_ownership(&self, text: &mut Text, name: &str, messages: &[&Message]) {
        text.block(format!("impl {name}<'_> {{"), "}", |text| {
            text.line("/// The same, without borrowing from a frame.");
            text.block(format!("pub fn into_owned(self) -> {name}<'static> {{"), "}", |text| {
                text.block("match self {", "}", |text| {
                    for message in messages {
                        let stem = &message.stem;
                        let own = if self.life(&message.fields).is_empty() { "" } else { ".into_owned()" };
                        text.line(format!("Self::{stem}(message) => {name}::{stem}(message{own}),"));
                    }
                });
            });
        });
    }

    /// What each command does to its fork.
    fn access(&self, text: &mut Text) {
        let life = if self.borrows(Side::Request) { "<'_>" } else { "" };
        text.block(format!("impl {}{life} {{", self.names.own("Request")), "}", |text| {
            text.line("/// What the call does to which fork, if it is ordered at all.");
            text.block("pub fn access(&self) -> Option<(Access, Fork<'_>)> {", "}", |text| {
                text.block("match self {", "}", |text| {
                    for command in &self.service.commands {
                        text.line(self.access_of(command));
                    }
                });
            });
        });
    }

    fn access_of(&self, command: &Command) -> String {
        let name = &command.name;
        let Some(schedule) = &command.schedule else { return format!("Self::{name}(_) => None,") };
        let access = match schedule.access {
            Access::ReadCommitted => "Access::ReadCommitted",
            Access::Read => "Access::Read",
            Access::Write => "Access::Write",
        };
        let Some(field) = command.fork() else {
            return format!("Self::{name}(_) => Some(({access}, Fork::None)),");
        };
        let place = format!("request.{}", snake(&field.name));
        let fork = match self.service.resolve(&field.of) {
            Type::Int(int) if int.signed => format!("Fork::Number(i64::from({place}).cast_unsigned())"),
            Type::Int(_) => format!("Fork::Number(u64::from({place}))"),
            Type::String => format!("Fork::Bytes(Cow::Borrowed({place}.as_bytes()))"),
            Type::Alias(_) => format!("Fork::Bytes(Cow::Borrowed(&{place}.0))"),
            _ => format!("Fork::Bytes(Cow::Borrowed(&{place}))"),
        };
        format!("Self::{name}(request) => Some(({access}, {fork})),")
    }

    /// An empty type per command, which says what belongs together.
    fn markers(&self, text: &mut Text) {
        let error = &self.service.error.tag;
        text.line("");
        text.line("/// What each command takes and answers.");
        text.block("pub mod commands {", "}", |text| {
            for (n, command) in self.service.commands.iter().enumerate() {
                let name = &command.name;
                let of = |message: &Message| {
                    format!("super::{}{}", self.names.message(message), self.life(&message.fields))
                };
                if n > 0 {
                    text.line("");
                }
                text.comment("///", &documented(&command.doc, name));
                // Nothing is imported here: a command may have any name.
                text.line("#[derive(Clone, Copy, Debug)]");
                text.line(format!("pub enum {name} {{}}"));
                text.block(format!("impl super::service::Command for {name} {{"), "}", |text| {
                    text.line(format!("type Request<'a> = {};", of(&command.request)));
                    text.line(format!("type Response<'a> = {};", of(&command.response)));
                    text.line(format!("const ERROR: &'static str = \"{error}\";"));
                });
                if let Some(item) = &command.item {
                    text.block(format!("impl super::service::Stream for {name} {{"), "}", |text| {
                        text.line(format!("type Item<'a> = {};", of(item)));
                    });
                }
            }
        });
    }

    fn with_life(&self, message: &Message, life: &str) -> String {
        let life = if self.life(&message.fields).is_empty() { "" } else { life };
        format!("{}{life}", self.names.message(message))
    }

    /// Whether a message of this side borrows from its frame.
    fn borrows(&self, side: Side) -> bool {
        side.messages(self.service).iter().any(|message| self.borrowing.any(&message.fields))
    }

    fn life(&self, fields: &[Field]) -> &'static str {
        if self.borrowing.any(fields) { "<'a>" } else { "" }
    }

    fn type_of(&self, of: &Type) -> String {
        match of {
            Type::Bool => "bool".to_owned(),
            Type::Int(int) => int.word(),
            Type::F32 => "f32".to_owned(),
            Type::F64 => "f64".to_owned(),
            Type::String => "Cow<'a, str>".to_owned(),
            Type::Bytes => "Cow<'a, [u8]>".to_owned(),
            Type::Bin32 => "[u8; 32]".to_owned(),
            Type::Enum(name) => name.clone(),
            Type::Alias(name) | Type::Struct(name) => {
                format!("{name}{}", if self.borrowing.of(of) { "<'a>" } else { "" })
            }
            Type::Optional(of) => format!("Option<{}>", self.type_of(of)),
            Type::List(of) => format!("Vec<{}>", self.type_of(of)),
            Type::Array(of, count) => format!("[{}; {count}]", self.type_of(of)),
            Type::Map(of) => format!("std::collections::BTreeMap<Cow<'a, str>, {}>", self.type_of(of)),
        }
    }

    /// The statement that writes `value`, which is a reference.
    fn write(&self, of: &Type, out: &str, value: &str) -> String {
        match self.service.resolve(of) {
            Type::Optional(of) => format!("write::optional({out}, {value}, {})", self.writer(of)),
            Type::List(of) | Type::Array(of, _) => {
                format!("write::list({out}, {value}, {})", self.writer(of))
            }
            Type::Map(of) => format!("write::map({out}, {value}, {})", self.writer(of)),
            Type::Struct(_) => format!("{}.write({out})", value.trim_start_matches('&')),
            leaf => format!("{}({out}, {value})", self.writer(leaf)),
        }
    }

    /// A function that writes a value.
    fn writer(&self, of: &Type) -> String {
        match self.service.resolve(of) {
            Type::Bool => "write::boolean".to_owned(),
            Type::Int(int) => format!("write::{}", int.word()),
            Type::F32 => "write::f32".to_owned(),
            Type::F64 => "write::f64".to_owned(),
            Type::String => "write::string".to_owned(),
            Type::Bytes => "write::bytes".to_owned(),
            Type::Bin32 => "write::bin32".to_owned(),
            Type::Alias(name) | Type::Enum(name) => format!("{name}::write"),
            Type::Struct(_) => "|out, value| value.write(out)".to_owned(),
            compound => format!("|out, value| {}", self.write(compound, "out", "value")),
        }
    }

    /// A function that reads a value.
    fn read(&self, of: &Type) -> String {
        let inner = |of: &Type| self.read(of);
        let bytes_min = |of: &Type| self.service.encoded_bytes_min(of);
        match self.service.resolve(of) {
            Type::Bool => "Reader::boolean".to_owned(),
            Type::Int(int) => format!("Reader::{}", int.word()),
            Type::F32 => "Reader::f32".to_owned(),
            Type::F64 => "Reader::f64".to_owned(),
            Type::String => "Reader::string".to_owned(),
            Type::Bytes => "Reader::bytes".to_owned(),
            Type::Bin32 => "Reader::bin32".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => format!("{name}::read"),
            Type::Optional(of) => format!("|r| r.optional({})", inner(of)),
            Type::List(of) => format!("|r| r.list({}, {})", bytes_min(of), inner(of)),
            Type::Array(of, _) => format!("|r| r.array({})", inner(of)),
            Type::Map(of) => format!("|r| r.map({}, {})", bytes_min(of), inner(of)),
        }
    }

    /// An expression that makes a value own what it holds.
    fn own(&self, of: &Type, value: &str) -> String {
        if !self.borrowing.of(of) {
            return value.to_owned();
        }
        match self.service.resolve(of) {
            Type::String | Type::Bytes => format!("Cow::Owned({value}.into_owned())"),
            Type::Struct(_) => format!("{value}.into_owned()"),
            Type::Optional(of) | Type::Array(of, _) => format!("{value}.map(|v| {})", self.own(of, "v")),
            Type::List(of) => format!("{value}.into_iter().map(|v| {}).collect()", self.own(of, "v")),
            Type::Map(of) => format!(
                "{value}.into_iter().map(|(k, v)| (Cow::Owned(k.into_owned()), {})).collect()",
                self.own(of, "v")
            ),
            _ => value.to_owned(),
        }
    }
}

fn enumeration(text: &mut Text, of: &Enum, is_used: bool) {
    text.line("");
    text.comment("///", &documented(&of.doc, &of.name));
    text.line("#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]");
    text.block(format!("pub enum {} {{", of.name), "}", |text| {
        for member in &of.members {
            text.line(format!("/// `{member}`"));
            text.line(format!("{},", pascal(member)));
        }
    });
    text.block(format!("impl {} {{", of.name), "}", |text| {
        text.line("/// The word on the wire.");
        text.block("pub fn word(self) -> &'static str {", "}", |text| {
            text.block("match self {", "}", |text| {
                for member in &of.members {
                    text.line(format!("Self::{} => \"{member}\",", pascal(member)));
                }
            });
        });
        if !is_used {
            return;
        }
        text.line("");
        text.lines("fn write(out: &mut Vec<u8>, value: &Self) {\n    write::string(out, value.word());\n}");
        text.line("");
        text.block("fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {", "}", |text| {
            text.block("reader.word(|word| match word {", "})", |text| {
                for member in &of.members {
                    text.line(format!("b\"{member}\" => Some(Self::{}),", pascal(member)));
                }
                text.line("_ => None,");
            });
        });
    });
}

/// `base`, or the first longer word that is not taken.
fn fresh(base: &str, taken: &[String]) -> String {
    let mut name = base.to_owned();
    while taken.contains(&name) {
        name.push('_');
    }
    name
}

/// A map's header in a byte string.
pub(crate) fn map_header(count: usize) -> String {
    match count {
        0..16 => format!("\\x{:02x}", 0x80 | count),
        _ => format!("\\xde\\x{:02x}\\x{:02x}", count >> 8, count & 0xff),
    }
}

/// A string's header and letters in a byte string.
fn string_literal(text: &str) -> String {
    match text.len() {
        length @ 0..32 => format!("\\x{:02x}{text}", 0xa0 | length),
        length => format!("\\xd9\\x{length:02x}{text}"),
    }
}
