//! TypeScript, as ECMAScript modules clean under `--strict`. Structs are plain objects; `u64` and `i64` are
//! bigints, since a number holds only 53 bits; bytes are views of the frame they were read from.

mod calls;

use crate::File;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::text::Text;
use thalweg_schema::casing::camel;
use thalweg_schema::{Access, Alias, Command, Enum, Field, Service, Type};

/// The runtime: every file's name and text.
const RUNTIME: [(&str, &str); 4] = [
    ("messagepack.ts", include_str!("../runtime/ts/messagepack.ts")),
    ("reader.ts", include_str!("../runtime/ts/reader.ts")),
    ("service.ts", include_str!("../runtime/ts/service.ts")),
    ("writer.ts", include_str!("../runtime/ts/writer.ts")),
];

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let ts = TypeScript { service, names };
    let module = &names.module;
    let mut files = vec![(format!("{module}_types.ts"), ts.types())];
    if names.arguments.client {
        files.push((format!("{module}_client.ts"), ts.client()));
    }
    if names.arguments.server {
        files.push((format!("{module}_server.ts"), ts.server()));
    }
    if names.arguments.runtime.is_none() {
        files.extend(RUNTIME.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
    names.placed("src/", files)
}

struct TypeScript<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
}

impl TypeScript<'_> {
    fn head(&self, what: &str) -> Text {
        let mut text = Text::new("  ");
        text.comment("//", &self.names.head(what));
        text.line("");
        text
    }

    /// Where a runtime module is imported from.
    fn module(&self, name: &str) -> String {
        match &self.names.arguments.runtime {
            Some(runtime) => runtime.clone(),
            None => format!("./{name}.js"),
        }
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs");
        text.line(format!("import {{ Reader, Writer }} from \"{}\";", self.module("messagepack")));
        if self.service.is_ordered() {
            text.line(format!("import type {{ Access }} from \"{}\";", self.module("service")));
        }
        text.line("");
        text.line("/** SHA-256 of the schema in hexadecimal; both ends compare it when they connect. */");
        text.line(format!("export const SCHEMA_HASH = \"{}\";", self.names.hash));
        self.service.aliases.iter().for_each(|alias| self.alias(&mut text, alias));
        self.service.enums.iter().for_each(|of| enumeration(&mut text, of, self.service.is_used(&of.name)));
        self.names.records().iter().for_each(|record| self.structure(&mut text, record));
        self.sum(&mut text, Side::Request);
        self.access(&mut text);
        self.sum(&mut text, Side::Response);
        text.finish()
    }

    fn alias(&self, text: &mut Text, alias: &Alias) {
        let name = &alias.name;
        text.line("");
        if !alias.is_nominal() {
            doc(text, &alias.doc);
            text.line(format!("export type {name} = {};", self.type_of(&alias.of)));
            return;
        }
        text.line(format!("declare const is{name}: unique symbol;"));
        doc(text, &alias.doc);
        text.line(format!("export type {name} = Uint8Array & {{ readonly [is{name}]: true }};"));
        text.lines(&format!(
            "\n/** Takes 32 bytes for a {name}. */\nexport function to{name}(bytes: Uint8Array): {name} {{\n  \
             if (bytes.length !== 32) throw new RangeError(`${{bytes.length}} bytes are no {name}`);\n  \
             return bytes as {name};\n}}"
        ));
        if self.service.is_used(name) {
            text.lines(&format!(
                "\nfunction read{name}(reader: Reader): {name} {{\n  return reader.bin32() as {name};\n}}"
            ));
        }
    }

    fn structure(&self, text: &mut Text, Record { name, doc: about, fields, .. }: &Record<'_>) {
        text.line("");
        doc(text, about);
        if fields.is_empty() {
            text.line(format!("export type {name} = Record<never, never>;"));
        } else {
            text.block(format!("export interface {name} {{"), "}", |text| {
                for field in *fields {
                    doc(text, &field.doc);
                    let absent = if matches!(field.of, Type::Optional(_)) { "?" } else { "" };
                    text.line(format!("{}{absent}: {};", camel(&field.name), self.type_of(&field.of)));
                }
            });
        }
        text.line("");
        text.block(
            format!("export function write{name}(writer: Writer, value: {name}): void {{"),
            "}",
            |text| {
                text.line(format!("writer.fields({}, value);", fields.len()));
                for field in *fields {
                    text.line(format!("writer.field(\"{}\", \"{name}.{}\");", field.name, field.name));
                    let value = format!("value.{}", camel(&field.name));
                    text.line(format!("{};", self.write(&field.of, &value, 0)));
                }
            },
        );
        text.line("");
        self.read_fields(text, name, fields);
    }

    fn read_fields(&self, text: &mut Text, name: &str, fields: &[Field]) {
        text.block(format!("export function read{name}(reader: Reader): {name} {{"), "}", |text| {
            if fields.is_empty() {
                text.line(format!("if (reader.fields(\"{name}\", 0) === 0) return {{}};"));
                text.line("reader.key();");
                return text.line(format!("throw reader.refuse(\"a field nobody declared\", \"{name}\");"));
            }
            for field in fields {
                text.line(format!("let {}: {} | undefined;", local(field), self.type_of(&field.of)));
                if matches!(field.of, Type::Optional(_)) {
                    text.line(format!("let {}Seen = false;", local(field)));
                }
            }
            text.block(
                format!("for (let left = reader.fields(\"{name}\", {}); left > 0; left--) {{", fields.len()),
                "}",
                |text| {
                    text.block(format!("switch (reader.fieldOf(\"{name}\")) {{"), "}", |text| {
                        for field in fields {
                            self.read_field(text, name, field);
                        }
                        text.line(format!(
                            "default: throw reader.refuse(\"a field nobody declared\", \"{name}\");"
                        ));
                    });
                },
            );
            text.block("return {", "};", |text| {
                for field in fields {
                    let (field_name, local) = (camel(&field.name), local(field));
                    match field.of {
                        Type::Optional(_) => text.line(format!("{field_name}: {local},")),
                        _ => text.line(format!(
                            "{field_name}: reader.required({local}, \"{name}.{}\"),",
                            field.name
                        )),
                    }
                }
            });
        });
    }

    fn read_field(&self, text: &mut Text, name: &str, field: &Field) {
        let local = local(field);
        let place = format!("{name}.{}", field.name);
        text.block(format!("case \"{}\":", field.name), "  break;", |text| {
            let optional = matches!(field.of, Type::Optional(_));
            let seen = if optional { format!("{local}Seen") } else { format!("{local} !== undefined") };
            text.line(format!("reader.once({seen}, \"{place}\");"));
            if optional {
                text.line(format!("{local}Seen = true;"));
            }
            text.line(format!("{local} = {};", self.read(&field.of, "reader")));
        });
    }

    fn sum(&self, text: &mut Text, side: Side) {
        let (part, kind, messages) = (side.part(), side.kind(), side.messages(self.service));
        let name = self.names.own(part);
        text.line("");
        text.line(format!("/** Any {kind} of the service, told apart by its tag on the wire. */"));
        text.line(format!("export type {name} ="));
        text.deeper(|text| {
            for (n, message) in messages.iter().enumerate() {
                let end = if n + 1 == messages.len() { ";" } else { "" };
                text.line(format!(
                    "| {{ readonly tag: \"{}\"; readonly value: {} }}{end}",
                    message.tag,
                    self.names.message(message)
                ));
            }
        });
        text.line("");
        text.line(format!("/** Reads a whole {kind} frame; throws DecodeError. */"));
        text.block(format!("export function decode{part}(frame: Uint8Array): {name} {{"), "}", |text| {
            text.line("const reader = new Reader(frame);");
            text.line(format!("const tag = reader.{kind}();"));
            text.line(format!("let message: {name};"));
            text.block("switch (tag) {", "}", |text| {
                for message in &messages {
                    let of = self.names.message(message);
                    text.block(format!("case \"{}\":", message.tag), "  break;", |text| {
                        text.line(format!("message = {{ tag, value: read{of}(reader) }};"));
                    });
                }
                text.line("default: throw reader.refuse(\"a message nobody declared\", \"frame\");");
            });
            text.line("reader.finish();");
            text.line("return message;");
        });
        text.line("");
        text.line(format!("/** Writes a whole {kind} frame. */"));
        text.block(format!("export function encode{part}(message: {name}): Uint8Array {{"), "}", |text| {
            text.line("const writer = new Writer();");
            text.line(format!("writer.{kind}(message.tag);"));
            text.block("switch (message.tag) {", "}", |text| {
                for message in &messages {
                    let of = self.names.message(message);
                    text.block(format!("case \"{}\":", message.tag), "  break;", |text| {
                        text.line(format!("write{of}(writer, message.value);"));
                    });
                }
                text.line("default: throw writer.refuse(\"a message nobody declared\");");
            });
            text.line("return writer.finish();");
        });
    }

    fn access(&self, text: &mut Text) {
        if !self.service.is_ordered() {
            return;
        }
        text.line("");
        text.line("/** What a call does to which fork, if it is ordered at all. */");
        let request = self.names.own("Request");
        text.block(
            format!("export function accessOf(request: {request}): Access | undefined {{"),
            "}",
            |text| {
                text.block("switch (request.tag) {", "}", |text| {
                    for command in self.service.commands.iter().filter(|command| command.schedule.is_some()) {
                        let access = self.access_of(command);
                        text.line(format!("case \"{}\": return {access};", command.request.tag));
                    }
                    text.line("default: return undefined;");
                });
            },
        );
    }

    fn access_of(&self, command: &Command) -> String {
        let Some(schedule) = &command.schedule else { return "undefined".to_owned() };
        let access = match schedule.access {
            Access::ReadCommitted => "read committed",
            Access::Read => "read",
            Access::Write => "write",
        };
        let Some(field) = command.fork() else { return format!("{{ access: \"{access}\" }}") };
        let place = format!("request.value.{}", camel(&field.name));
        let fork = match self.service.resolve(&field.of) {
            Type::Int(int) if int.bits < 64 => format!("BigInt({place})"),
            _ => place,
        };
        format!("{{ access: \"{access}\", fork: {fork} }}")
    }

    fn type_of(&self, of: &Type) -> String {
        match of {
            Type::Bool => "boolean".to_owned(),
            Type::Int(int) => if int.bits == 64 { "bigint" } else { "number" }.to_owned(),
            Type::F32 | Type::F64 => "number".to_owned(),
            Type::String => "string".to_owned(),
            Type::Bytes | Type::Bin32 => "Uint8Array".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => name.clone(),
            Type::Optional(of) => format!("{} | undefined", self.type_of(of)),
            Type::List(of) | Type::Array(of, _) => match **of {
                Type::Optional(_) => format!("({})[]", self.type_of(of)),
                _ => format!("{}[]", self.type_of(of)),
            },
            Type::Map(of) => format!("Map<string, {}>", self.type_of(of)),
        }
    }

    /// The expression that writes a value.
    fn write(&self, of: &Type, value: &str, depth: usize) -> String {
        let inner = |of: &Type| {
            let v = format!("v{}", if depth == 0 { String::new() } else { depth.to_string() });
            format!("(w, {v}) => {}", self.write(of, &v, depth + 1))
        };
        let writer = if depth == 0 { "writer" } else { "w" };
        match self.service.resolve(of) {
            Type::Bool => format!("{writer}.boolean({value})"),
            Type::Int(int) => format!("{writer}.{}({value})", int.word()),
            Type::F32 => format!("{writer}.f32({value})"),
            Type::F64 => format!("{writer}.f64({value})"),
            Type::String => format!("{writer}.string({value})"),
            Type::Bytes => format!("{writer}.bytes({value})"),
            Type::Bin32 | Type::Alias(_) => format!("{writer}.bin32({value})"),
            Type::Enum(name) | Type::Struct(name) => format!("write{name}({writer}, {value})"),
            Type::Optional(of) => format!("{writer}.optional({value}, {})", inner(of)),
            Type::List(of) => format!("{writer}.list({value}, {})", inner(of)),
            Type::Array(of, count) => format!("{writer}.array({count}, {value}, {})", inner(of)),
            Type::Map(of) => format!("{writer}.map({value}, {})", inner(of)),
        }
    }

    /// The expression that reads a value.
    fn read(&self, of: &Type, reader: &str) -> String {
        let inner = |of: &Type| match self.service.resolve(of) {
            Type::Enum(name) | Type::Struct(name) | Type::Alias(name) => format!("read{name}"),
            _ => format!("(r) => {}", self.read(of, "r")),
        };
        let bytes_min = |of: &Type| self.service.encoded_bytes_min(of);
        match self.service.resolve(of) {
            Type::Bool => format!("{reader}.boolean()"),
            Type::Int(int) => format!("{reader}.{}()", int.word()),
            Type::F32 => format!("{reader}.f32()"),
            Type::F64 => format!("{reader}.f64()"),
            Type::String => format!("{reader}.string()"),
            Type::Bytes => format!("{reader}.bytes()"),
            Type::Bin32 => format!("{reader}.bin32()"),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => format!("read{name}({reader})"),
            Type::Optional(of) => format!("{reader}.optional({})", inner(of)),
            Type::List(of) => format!("{reader}.list({}, {})", bytes_min(of), inner(of)),
            Type::Array(of, count) => format!("{reader}.array({count}, {})", inner(of)),
            Type::Map(of) => format!("{reader}.map({}, {})", bytes_min(of), inner(of)),
        }
    }
}

/// A local for a field: never a word the function itself uses.
fn local(field: &Field) -> String {
    format!("{}Field", camel(&field.name))
}

fn enumeration(text: &mut Text, of: &Enum, is_used: bool) {
    let name = &of.name;
    let words: Vec<String> = of.members.iter().map(|member| format!("\"{member}\"")).collect();
    text.line("");
    doc(text, &of.doc);
    text.line(format!("export type {name} = {};", words.join(" | ")));
    // What reads and writes it would be unused, which compilers warn of.
    if !is_used {
        return;
    }
    text.line("");
    text.block(format!("function write{name}(writer: Writer, value: {name}): void {{"), "}", |text| {
        text.line(format!("writer.word(value, [{}]);", words.join(", ")));
    });
    text.line("");
    text.block(format!("function read{name}(reader: Reader): {name} {{"), "}", |text| {
        text.line("const { at } = reader;");
        text.line("const word = reader.key();");
        text.block("switch (word) {", "}", |text| {
            of.members.iter().for_each(|member| text.line(format!("case \"{member}\":")));
            text.line("  return word;");
            text.line("default: throw reader.unknownWord(at);");
        });
    });
}

fn doc(text: &mut Text, doc: &str) {
    let safe = doc.replace("*/", "* /");
    match safe.lines().count() {
        0 => {}
        1 => text.line(format!("/** {safe} */")),
        _ => {
            text.line("/**");
            text.comment(" *", &safe);
            text.line(" */");
        }
    }
}
