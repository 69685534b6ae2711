//! C++20, headers only. A struct that holds strings or bytes is a template over what they are made of:
//! `EchoBytes` owns them, `EchoBytesView` borrows them from the frame it was read from. Codecs are found by
//! type.

mod calls;
pub(crate) mod globals;

use crate::File;
use crate::borrowing::Borrowing;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Access, Alias, Command, Enum, Field, Service, Type};

/// The runtime: every file's name and text.
const RUNTIME: [(&str, &str); 10] = [
    ("runtime.hpp", include_str!("../runtime/cpp/runtime.hpp")),
    ("faults.hpp", include_str!("../runtime/cpp/faults.hpp")),
    ("bytes.hpp", include_str!("../runtime/cpp/bytes.hpp")),
    ("reader.hpp", include_str!("../runtime/cpp/reader.hpp")),
    ("writer.hpp", include_str!("../runtime/cpp/writer.hpp")),
    ("messagepack.hpp", include_str!("../runtime/cpp/messagepack.hpp")),
    ("service.hpp", include_str!("../runtime/cpp/service.hpp")),
    ("pending.hpp", include_str!("../runtime/cpp/pending.hpp")),
    ("reply.hpp", include_str!("../runtime/cpp/reply.hpp")),
    ("forks.hpp", include_str!("../runtime/cpp/forks.hpp")),
];

/// What a struct calls the choice between owning and borrowing; the underscore is no type's.
const STORAGE: &str = "S_";

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let default = names.module.clone();
    let namespace = names.arguments.cpp_namespace.clone().unwrap_or(default);
    let cpp = Cpp { service, names, namespace, borrowing: Borrowing::new(service) };
    let module = &names.module;
    let mut files = vec![(format!("{module}_types.hpp"), cpp.types())];
    if names.arguments.client {
        files.push((format!("{module}_client.hpp"), cpp.client()));
    }
    if names.arguments.server {
        files.push((format!("{module}_server.hpp"), cpp.server()));
    }
    if names.arguments.runtime.is_none() {
        files.extend(RUNTIME.map(|(name, text)| (format!("thalweg/{name}"), text.to_owned())));
    }
    names.placed("include/", files)
}

struct Cpp<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
    namespace: String,
    borrowing: Borrowing<'a>,
}

impl Cpp<'_> {
    fn head(&self, what: &str, includes: &[String]) -> Text {
        let mut text = Text::new("    ");
        text.comment("//", &self.names.head(what));
        text.line("#pragma once");
        text.line("");
        includes.iter().for_each(|include| text.line(format!("#include \"{include}\"")));
        text.line("");
        text
    }

    fn runtime(&self, name: &str) -> String {
        format!("{}/{name}.hpp", self.names.arguments.runtime.as_deref().unwrap_or("thalweg"))
    }

    /// Within it, one of the runtime's number: code that was generated on another runtime has names of its
    /// own.
    fn begin_namespace(&self, text: &mut Text) {
        text.line(format!("namespace {}::inline THALWEG_RUNTIME_NAMESPACE {{", self.namespace));
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs", &[self.runtime("service")]);
        let hash: Vec<String> = self.service.hash.iter().map(|byte| format!("0x{byte:02x}")).collect();
        self.begin_namespace(&mut text);
        text.line("");
        text.line("/// SHA-256 of the schema; both ends compare it when they connect.");
        text.line(format!(
            "inline constexpr std::array<std::uint8_t, 32> schema_hash{{{}}};",
            hash.join(", ")
        ));
        text.line("/// The tag of the service's error.");
        text.line(format!("inline constexpr std::string_view error_tag = \"{}\";", self.service.error.tag));
        self.service.aliases.iter().for_each(|alias| self.alias(&mut text, alias));
        for Enum { name, doc, members } in &self.service.enums {
            text.line("");
            text.comment("///", doc);
            let members: Vec<String> = members.iter().map(|member| snake(member)).collect();
            text.line(format!("enum class {name} {{ {} }};", members.join(", ")));
        }
        let records = self.names.records_by_dependency();
        records.iter().for_each(|record| self.structure(&mut text, record));
        text.line("");
        self.variant(&mut text, Side::Request);
        self.variant(&mut text, Side::Response);
        text.line("");
        text.line(format!("}} // namespace {}", self.namespace));
        text.line("");
        text.line("namespace thalweg {");
        self.service.enums.iter().for_each(|of| self.enum_codec(&mut text, of));
        records.iter().for_each(|record| self.codec(&mut text, record));
        text.line("");
        text.line("} // namespace thalweg");
        text.line("");
        self.begin_namespace(&mut text);
        self.decode(&mut text, Side::Request);
        self.decode(&mut text, Side::Response);
        self.access(&mut text);
        text.line("");
        text.line(format!("}} // namespace {}", self.namespace));
        text.finish()
    }

    fn alias(&self, text: &mut Text, Alias { name, doc, of }: &Alias) {
        text.line("");
        text.comment("///", doc);
        match of {
            Type::Bin32 => {
                text.block(format!("struct {name} : thalweg::Bin32 {{"), "};", |text| {
                    text.line(format!("auto operator<=>(const {name}&) const = default;"));
                });
            }
            of => text.line(format!("using {name} = {};", self.type_of(of, "thalweg::Owned"))),
        }
    }

    fn structure(&self, text: &mut Text, Record { name, doc, fields, .. }: &Record<'_>) {
        let borrows = self.borrowing.any(fields);
        let of = if borrows { format!("Basic{name}") } else { name.clone() };
        text.line("");
        text.comment("///", doc);
        if borrows {
            text.line(format!("template <class {STORAGE}>"));
        }
        text.block(format!("struct {of} {{"), "};", |text| {
            for field in *fields {
                text.comment("///", &field.doc);
                text.line(format!("{} {}{{}};", self.type_of(&field.of, STORAGE), snake(&field.name)));
            }
            text.line(format!("bool operator==(const {of}&) const = default;"));
        });
        if borrows {
            text.line(format!("using {name} = Basic{name}<thalweg::Owned>;"));
            text.line(format!("using {name}View = Basic{name}<thalweg::Borrowed>;"));
        } else {
            text.line(format!("using {name}View = {name};"));
        }
    }

    fn variant(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let name = self.names.own(side.part());
        for (end, what) in [("", "owned"), ("View", "borrowed from a frame")] {
            let types: Vec<String> =
                messages.iter().map(|message| format!("{}{end}", self.names.message(message))).collect();
            text.line(format!("/// Any {kind} of the service, {what}."));
            text.line(format!("using {name}{end} = std::variant<{}>;", types.join(", ")));
        }
    }

    /// The namespace as the runtime sees it, which may have one of the same name within.
    fn space(&self) -> String {
        format!("::{}", self.namespace)
    }

    fn enum_codec(&self, text: &mut Text, of: &Enum) {
        let name = format!("{}::{}", self.space(), of.name);
        let least = of.members.iter().map(String::len).min().unwrap_or(0) + 1;
        text.line("");
        text.block(format!("template <> struct Codec<{name}> {{"), "};", |text| {
            text.line(format!("static constexpr std::size_t bytes_min = {least};"));
            text.block(format!("static {name} read(Reader& reader) {{"), "}", |text| {
                text.line("const std::size_t at = reader.at();");
                text.line("const std::string_view word = reader.key();");
                for member in &of.members {
                    text.line(format!("if (word == \"{member}\") return {name}::{};", snake(member)));
                }
                text.line("throw reader.error(DecodeErrorKind::unknown_word, at);");
            });
            text.block(format!("static std::string_view word(const {name}& value) {{"), "}", |text| {
                text.block("switch (value) {", "}", |text| {
                    for member in &of.members {
                        text.line(format!("case {name}::{}: return \"{member}\";", snake(member)));
                    }
                });
                text.line(format!("throw std::invalid_argument(\"no word of {}\");", of.name));
            });
            text.line(format!(
                "static void write(Writer& writer, const {name}& value) {{ writer.string(word(value)); }}"
            ));
        });
    }

    fn codec(&self, text: &mut Text, Record { name, fields, tag, .. }: &Record<'_>) {
        let borrows = self.borrowing.any(fields);
        let space = self.space();
        let of = if borrows { format!("{space}::Basic{name}<S>") } else { format!("{space}::{name}") };
        text.line("");
        let template = if borrows { "template <class S>" } else { "template <>" };
        text.block(format!("{template} struct Codec<{of}> {{"), "};", |text| {
            text.line(format!("using T = {of};"));
            text.line(format!("using View = {space}::{name}View;"));
            if let Some(tag) = tag {
                text.line(format!("static constexpr std::string_view tag = \"{tag}\";"));
            }
            let bytes_min = self.service.fields_bytes_min(fields);
            text.line(format!("static constexpr std::size_t bytes_min = {bytes_min};"));
            self.read(text, name, fields);
            let value = if fields.is_empty() { "" } else { " value" };
            text.block(format!("static void write(Writer& writer, const T&{value}) {{"), "}", |text| {
                text.line(format!("writer.map({});", fields.len()));
                for field in *fields {
                    let (key, member) = (&field.name, snake(&field.name));
                    text.line(format!("writer.field(\"{key}\", value.{member}, \"{name}.{key}\");"));
                }
            });
            if borrows {
                text.block(format!("static {space}::{name} own(const T& value) {{"), "}", |text| {
                    text.block("return {", "};", |text| {
                        for field in *fields {
                            text.line(format!("thalweg::own(value.{}),", snake(&field.name)));
                        }
                    });
                });
            }
        });
    }

    fn read(&self, text: &mut Text, name: &str, fields: &[Field]) {
        text.block("static T read(Reader& reader) {", "}", |text| {
            if fields.is_empty() {
                text.line(format!("if (reader.fields(\"{name}\") == 0) return {{}};"));
                text.line("reader.key();");
                return text
                    .line(format!("throw reader.refuse(DecodeErrorKind::unknown_field, \"{name}\");"));
            }
            text.line("T value{};");
            text.line(format!("std::bitset<{}> seen;", fields.len()));
            text.block(
                format!("for (std::size_t left = reader.fields(\"{name}\"); left > 0; left--) {{"),
                "}",
                |text| {
                    text.line("const std::string_view key = reader.key();");
                    for (n, field) in fields.iter().enumerate() {
                        text.line(format!(
                            "{}if (key == \"{}\") reader.field(value.{}, seen, {n}, \"{name}.{}\");",
                            if n > 0 { "else " } else { "" },
                            field.name,
                            snake(&field.name),
                            field.name
                        ));
                    }
                    text.line(format!(
                        "else throw reader.refuse(DecodeErrorKind::unknown_field, \"{name}\");"
                    ));
                },
            );
            for (n, field) in fields.iter().enumerate() {
                if !matches!(field.of, Type::Optional(_)) {
                    text.line(format!("reader.required(seen, {n}, \"{name}.{}\");", field.name));
                }
            }
            text.line("return value;");
        });
    }

    fn decode(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let name = self.names.own(side.part());
        text.line("");
        text.line(format!("/// Reads a whole {kind} frame, which has to outlive what is returned."));
        text.block(format!("inline {name}View decode_{kind}(thalweg::FrameView frame) {{"), "}", |text| {
            text.line("thalweg::Reader reader(frame);");
            text.line(format!("const std::string_view tag = reader.{kind}();"));
            text.line("const auto whole = [&reader](auto message) {");
            text.line("    reader.finish();");
            text.line(format!("    return {name}View(std::move(message));"));
            text.line("};");
            for message in messages {
                text.line(format!(
                    "if (tag == \"{}\") return whole(thalweg::Codec<{}View>::read(reader));",
                    message.tag,
                    self.names.message(message)
                ));
            }
            text.line("throw reader.refuse(thalweg::DecodeErrorKind::unknown_message, \"frame\");");
        });
        text.line("");
        text.line(format!(
            "/// Writes a whole {kind} frame of {name} or {name}View behind what `out` holds."
        ));
        text.lines(&format!(
            "template <class... Ts> void encode_{kind}(const std::variant<Ts...>& message, thalweg::Frame& out) {{\n    \
             std::visit([&out](const auto& of) {{ thalweg::{kind}_frame(of, out); }}, message);\n}}"
        ));
    }

    fn access(&self, text: &mut Text) {
        text.line("");
        text.line("/// What a call does to which fork, if it is ordered at all.");
        let scheduled: Vec<&Command> =
            self.service.commands.iter().filter(|command| command.schedule.is_some()).collect();
        let request = self.names.own("Request");
        let unused = if scheduled.is_empty() { "" } else { " request" };
        text.block(
            format!("inline std::pair<thalweg::Access, thalweg::Fork> access_of(const {request}View&{unused}) {{"),
            "}",
            |text| {
                for command in scheduled {
                    let of = self.names.message(&command.request);
                    let (access, fork) = access_of(command);
                    let named = if fork.is_some() { "const auto* of = " } else { "" };
                    let fork = fork.map_or("{}".to_owned(), |f| format!("thalweg::fork_of(of->{f})"));
                    text.line(format!(
                        "if ({named}std::get_if<{of}View>(&request)) return {{thalweg::Access::{access}, {fork}}};"
                    ));
                }
                text.line("return {thalweg::Access::unordered, {}};");
            },
        );
    }

    fn type_of(&self, of: &Type, storage: &str) -> String {
        let inner = |of: &Type| self.type_of(of, storage);
        let member =
            |name: &str| format!("{}{storage}::{name}", if storage == STORAGE { "typename " } else { "" });
        match of {
            Type::Bool => "bool".to_owned(),
            Type::Int(int) => format!("std::{}int{}_t", if int.signed { "" } else { "u" }, int.bits),
            Type::F32 => "float".to_owned(),
            Type::F64 => "double".to_owned(),
            Type::String => member("string"),
            Type::Bytes => member("bytes"),
            Type::Bin32 => "thalweg::Bin32".to_owned(),
            Type::Alias(name) if self.borrowing.of(of) => match self.service.alias(name) {
                Some(alias) => inner(&alias.of),
                None => name.clone(),
            },
            Type::Struct(name) if self.borrowing.of(of) => format!("Basic{name}<{storage}>"),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => name.clone(),
            Type::Optional(of) => format!("std::optional<{}>", inner(of)),
            Type::List(of) => format!("std::vector<{}>", inner(of)),
            Type::Array(of, count) => format!("std::array<{}, {count}>", inner(of)),
            Type::Map(of) => format!("std::map<{}, {}>", member("string"), inner(of)),
        }
    }
}

/// A command's access and the field that names its fork.
fn access_of(command: &Command) -> (&'static str, Option<String>) {
    let Some(schedule) = &command.schedule else { return ("unordered", None) };
    let access = match schedule.access {
        Access::ReadCommitted => "read_committed",
        Access::Read => "read",
        Access::Write => "write",
    };
    (access, command.fork().map(|fork| snake(&fork.name)))
}

#[cfg(test)]
mod tests {
    use super::RUNTIME;
    use sha2::{Digest, Sha256};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// Two versions under one number would be taken for one, and a program with both would have either. Of
    /// the generator, what it makes of a schema with everything in it is what counts.
    #[test]
    fn the_runtime_has_the_number_of_its_files() {
        let mut digest = Sha256::new();
        let (says, files) = RUNTIME.split_first().unwrap();
        let mut add = |name: &str, text: &str| digest.update(format!("{name} {}\n{text}", text.len()));
        files.iter().for_each(|(name, text)| add(name, text));
        for folder in ["faces/cpp/include/thalweg", "schemas/generated/cpp"] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let headers: BTreeSet<_> =
                entries.filter(|path| path.extension() == Some("hpp".as_ref())).collect();
            assert!(!headers.is_empty());
            for path in headers {
                add(path.file_name().unwrap().to_str().unwrap(), &fs::read_to_string(&path).unwrap());
            }
        }
        let number: String = digest.finalize()[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        for line in ["#define THALWEG_RUNTIME 0x", "#define THALWEG_RUNTIME_NAMESPACE runtime_", "!= 0x"] {
            let whole = format!("{line}{number}\n");
            assert!(says.1.contains(&whole), "the runtime changed: {} is to say {whole}", says.0);
        }
    }
}
