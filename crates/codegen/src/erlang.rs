//! Erlang/OTP 25 and newer. Structs are maps with atoms for keys, messages are tagged with their names; the
//! codec is driven by constant terms, so that the generated modules are data and types.

use crate::File;
use crate::names::Names;
use crate::records::{Record, Side};
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Access, Command, Field, Service, Type};

const MESSAGEPACK: &str = include_str!("../runtime/erlang/thalweg_messagepack.erl");

pub(crate) fn emit(service: &Service, names: &Names) -> Vec<File> {
    let erlang = Erlang { service, names };
    let module = &names.module;
    let mut files = vec![
        (format!("{module}_types.erl"), erlang.types()),
        ("thalweg_messagepack.erl".to_owned(), MESSAGEPACK.to_owned()),
    ];
    if names.arguments.client {
        files.push((format!("{module}_client.erl"), erlang.client()));
    }
    if names.arguments.server {
        files.push((format!("{module}_server.erl"), erlang.server()));
    }
    names.placed("src/", files)
}

/// Modules of Erlang/OTP's applications that are called as those of a service might be.
const MODULES: &str = "beam_call_types beam_types code_server ct_telnet_client dets_server diameter_types disk_log_server \
    edoc_types erl_bif_types erl_boot_server erl_compile_server erl_types eunit_server file_io_server file_server \
    gen_server logger_server mod_auth_server mod_security_server reltool_server snmpm_server ssh_fsm_userauth_client \
    ssh_fsm_userauth_server ssh_tcpip_forward_client test_server wxe_server";

/// Whether Erlang/OTP has a module of this name.
pub(crate) fn has_module(name: &str) -> bool {
    MODULES.split_whitespace().any(|module| module == name)
}

struct Erlang<'a> {
    service: &'a Service,
    names: &'a Names<'a>,
}

impl Erlang<'_> {
    fn head(&self, what: &str, part: &str) -> Text {
        let mut text = Text::new("    ");
        text.comment("%%", &self.names.head(what));
        text.line(format!("-module({}_{part}).", self.names.module));
        text.line("");
        text
    }

    fn types(&self) -> String {
        let mut text = self.head("Types and codecs", "types");
        text.line("-export([schema_hash/0, access_of/1, requests/0, responses/0]).");
        text.line("-export([decode_request/1, encode_request/1, decode_response/1, encode_response/1]).");
        if !self.service.types.is_empty() {
            let shapes: Vec<String> =
                self.service.types.iter().map(|of| format!("{}/0", described(&of.name))).collect();
            text.line("%% The structs as the codec reads them.");
            text.block("-export([", "]).", |text| list(text, &shapes, ","));
        }
        let records = self.names.records();
        let declared = self.service.aliases.iter().map(|of| &of.name);
        let declared = declared.chain(self.service.enums.iter().map(|of| &of.name));
        let declared = declared.chain(records.iter().map(|of| &of.name));
        let exported: Vec<String> = declared.map(|name| format!("'{name}'/0")).collect();
        text.block("-export_type([", "]).", |text| {
            text.line("request/0,");
            text.line("response/0,");
            list(text, &exported, ",");
        });
        for alias in &self.service.aliases {
            text.line("");
            text.comment("%%", &alias.doc);
            text.line(format!("-type '{}'() :: {}.", alias.name, self.type_of(&alias.of)));
        }
        for of in &self.service.enums {
            text.line("");
            text.comment("%%", &of.doc);
            let members: Vec<String> = of.members.iter().map(|member| atom(member)).collect();
            text.line(format!("-type '{}'() :: {}.", of.name, members.join(" | ")));
        }
        records.iter().for_each(|record| self.structure(&mut text, record));
        let hash: Vec<String> = self.service.hash.iter().map(|byte| format!("16#{byte:02x}")).collect();
        text.lines(&format!(
            "\n%% SHA-256 of the schema; both ends compare it when they connect.\n-spec schema_hash() -> <<_:256>>.\n\
             schema_hash() ->\n    <<{}>>.",
            hash.join(", ")
        ));
        self.sum(&mut text, Side::Request);
        self.sum(&mut text, Side::Response);
        for of in &self.service.types {
            let function = described(&of.name);
            text.line("");
            text.line(format!("-spec {function}() -> thalweg_messagepack:type()."));
            text.line(format!("{function}() ->"));
            text.line(format!("    {}.", self.shape(&of.name, &of.fields)));
        }
        self.access(&mut text);
        text.finish()
    }

    fn structure(&self, text: &mut Text, Record { name, doc, fields, .. }: &Record<'_>) {
        text.line("");
        text.comment("%%", doc);
        if fields.is_empty() {
            return text.line(format!("-type '{name}'() :: #{{}}."));
        }
        text.block(format!("-type '{name}'() :: #{{"), "}.", |text| {
            for (n, field) in fields.iter().enumerate() {
                text.comment("%%", &field.doc);
                let arrow = if matches!(field.of, Type::Optional(_)) { "=>" } else { ":=" };
                let end = if n + 1 < fields.len() { "," } else { "" };
                text.line(format!("{} {arrow} {}{end}", atom(&field.name), self.type_of(&field.of)));
            }
        });
    }

    fn sum(&self, text: &mut Text, side: Side) {
        let (kind, messages) = (side.kind(), side.messages(self.service));
        let types: Vec<String> = messages
            .iter()
            .map(|message| format!("{{{}, '{}'()}}", atom(&message.stem), self.names.message(message)))
            .collect();
        text.line("");
        text.line(format!("%% Any {kind} of the service."));
        text.block(format!("-type {kind}() ::"), "", |text| {
            for (n, of) in types.iter().enumerate() {
                let end = if n + 1 == types.len() { "." } else { "" };
                text.line(format!("{}{of}{end}", if n > 0 { "| " } else { "" }));
            }
        });
        text.line(format!("%% Reads a whole {kind} frame."));
        text.lines(&format!(
            "-spec decode_{kind}(binary()) -> {{ok, {kind}()}} | {{error, thalweg_messagepack:decode_error()}}.\n\
             decode_{kind}(Frame) ->\n    thalweg_messagepack:decode({kind}, {kind}s(), Frame).\n\n\
             %% Writes a whole {kind} frame; error({{bad_value, Place, _, _}}) on a value that its type cannot hold.\n\
             -spec encode_{kind}({kind}()) -> iodata().\n\
             encode_{kind}(Message) ->\n    thalweg_messagepack:encode({kind}, {kind}s(), Message).\n\n\
             %% The {kind}s as the codec reads them.\n-spec {kind}s() -> [thalweg_messagepack:message()].\n{kind}s() ->"
        ));
        text.deeper(|text| {
            text.block("[", "].", |text| {
                for (n, message) in messages.iter().enumerate() {
                    let end = if n + 1 < messages.len() { "," } else { "" };
                    text.block(format!("{{<<\"{}\">>, {},", message.tag, atom(&message.stem)), "", |text| {
                        text.line(format!("{}}}{end}", self.shape(&message.tag, &message.fields)));
                    });
                    text.trim_end();
                }
            });
        });
    }

    fn access(&self, text: &mut Text) {
        text.lines(
            "\n%% What a call does to which fork, if it is ordered at all.\n\
             -spec access_of(request()) -> unordered | {read_committed | read | write, undefined | integer() | binary()}.",
        );
        for command in self.service.commands.iter().filter(|command| command.schedule.is_some()) {
            text.lines(&access_of(command));
        }
        text.lines("access_of(_) ->\n    unordered.");
    }

    fn client(&self) -> String {
        let mut text = self.head("A client", "client");
        text.line("-compile(no_auto_import).");
        text.line("");
        let streams = |command: &&Command| command.item.is_some();
        let exported: Vec<String> = self
            .service
            .commands
            .iter()
            .map(|c| format!("{}/{}", atom(&self.names.method_snake(c)), if streams(&c) { 4 } else { 2 }))
            .collect();
        text.block("-export([", "]).", |text| list(text, &exported, ","));
        text.lines(
            "-export_type([transport/0, stream_transport/0, next/0, outcome/1]).\n\n\
             %% Sends a request and returns the frame that answers it.\n\
             -type transport() :: fun((iodata()) -> {ok, binary()} | {error, term()}).\n\
             %% Sends a request and returns two functions: what brings one frame of the answering stream after the other, items and\n\
             %% then the end, and what leaves the stream, which does nothing behind its end.\n\
             -type stream_transport() :: fun((iodata()) -> {ok, {next(), fun(() -> ok)}} | {error, term()}).\n\
             -type next() :: fun(() -> {item, binary()} | {ok, binary()} | {error, term()}).\n\
             %% The response, the words of the server's error, or why there is neither.\n\
             -type outcome(Response) :: {ok, Response} | {refused, binary()} | {error, term()}.",
        );
        let error = atom(&self.service.error.stem);
        let module = format!("{}_types", self.names.module);
        for command in &self.service.commands {
            let method = atom(&self.names.method_snake(command));
            let request = format!("{module}:'{}'()", self.names.message(&command.request));
            let response = format!("{module}:'{}'()", self.names.message(&command.response));
            let (asks, answers) = (atom(&command.request.stem), atom(&command.response.stem));
            text.line("");
            text.comment("%%", &command.doc);
            match &command.item {
                None => text.lines(&format!(
                    "-spec {method}(transport(), {request}) -> outcome({response}).\n{method}(Transport, Request) ->\n    \
                     case ask_(Transport, {{{asks}, Request}}) of\n        {{ok, {{{answers}, Response}}}} -> {{ok, Response}};\n        \
                     Other -> no_answer_(Other)\n    end."
                )),
                Some(item) => {
                    let item_type = format!("{module}:'{}'()", self.names.message(item));
                    let item = atom(&item.stem);
                    text.lines(&format!(
                        "%% Folds over the items. However that ends, nothing is left of the stream.\n\
                         -spec {method}(stream_transport(), {request}, fun(({item_type}, Acc) -> Acc), Acc) ->\n    \
                         outcome({{{response}, Acc}}).\n{method}(Transport, Request, Fold, Acc) ->\n    \
                         case Transport({module}:encode_request({{{asks}, Request}})) of\n        \
                         {{ok, {{Next, Cancel}}}} ->\n            try\n                {method}_items_(Next, Fold, Acc)\n            \
                         after\n                Cancel()\n            end;\n        \
                         Other -> no_answer_(Other)\n    end.\n\n\
                         {method}_items_(Next, Fold, Acc) ->\n    case heard_(Next()) of\n        \
                         {{item, {{{item}, Item}}}} -> {method}_items_(Next, Fold, Fold(Item, Acc));\n        \
                         {{ok, {{{answers}, Response}}}} -> {{ok, {{Response, Acc}}}};\n        \
                         Other -> no_answer_(Other)\n    end."
                    ));
                }
            }
        }
        if self.service.commands.iter().any(|command| command.item.is_none()) {
            text.lines(&format!(
                "\nask_(Transport, Request) ->\n    heard_(Transport({module}:encode_request(Request)))."
            ));
        }
        self.answers(&mut text, &module, &error);
        text.finish()
    }

    /// What came of a request: read, and said why it is no answer.
    fn answers(&self, text: &mut Text, module: &str, error: &str) {
        text.line("");
        let is_streaming = self.service.commands.iter().any(|command| command.item.is_some());
        if is_streaming {
            text.lines(&format!(
                "heard_({{item, Frame}}) ->\n    case {module}:decode_response(Frame) of\n        \
                 {{ok, What}} -> {{item, What}};\n        Error -> Error\n    end;"
            ));
        }
        text.lines(&format!(
            "heard_({{ok, Frame}}) -> {module}:decode_response(Frame);\nheard_(Error) -> Error.\n\n\
             no_answer_({{ok, {{{error}, #{{message := Message}}}}}}) -> {{refused, Message}};\n\
             no_answer_({{ok, {{Name, _}}}}) -> {{error, {{unexpected, Name}}}};"
        ));
        if is_streaming {
            text.line("no_answer_({item, {Name, _}}) -> {error, {unexpected, Name}};");
        }
        text.line("no_answer_({error, _} = Error) -> Error.");
    }

    fn server(&self) -> String {
        let mut text = self.head("The server's side", "server");
        let module = format!("{}_types", self.names.module);
        text.lines(
            "-export([dispatch_unordered/3, handle/3]).\n-export_type([reply/0]).\n\n\
             %% Takes the frames that answer one request. False after an item says that nobody waits for more.\n\
             -type reply() :: fun(({item | last, iodata()}) -> boolean()).\n\
             -type outcome(Response) :: {ok, Response} | {error, unicode:chardata()}.",
        );
        for command in &self.service.commands {
            let method = atom(&self.names.method_snake(command));
            let request = format!("{module}:'{}'()", self.names.message(&command.request));
            let response = format!("{module}:'{}'()", self.names.message(&command.response));
            text.line("");
            text.comment("%%", &command.doc);
            match &command.item {
                None => text.line(format!("-callback {method}({request}) -> outcome({response}).")),
                Some(item) => {
                    let item = format!("{module}:'{}'()", self.names.message(item));
                    text.line("%% The function sends an item; false says that nobody waits for more.");
                    text.line(format!(
                        "-callback {method}({request}, fun(({item}) -> boolean())) -> outcome({response})."
                    ));
                }
            }
        }
        let error = atom(&self.service.error.stem);
        text.lines(&format!(
            "\n%% Hands a request's frame to its callback at once, in the process that calls. A frame that is no request is\n\
             %% answered with the error. A server that keeps the order of a fork's calls asks access_of first.\n\
             -spec dispatch_unordered(module(), binary(), reply()) -> boolean().\ndispatch_unordered(Module, Frame, Reply) ->\n    \
             case {module}:decode_request(Frame) of\n        {{ok, Request}} -> handle(Module, Request, Reply);\n        \
             {{error, Error}} -> Reply({{last, fail(Error)}})\n    end.\n\n\
             %% Hands a request to its callback, for servers that order calls before they handle them. What it throws is\n\
             %% answered with the error.\n-spec handle(module(), {module}:request(), reply()) -> boolean().\n\
             handle(Module, Request, Reply) ->\n    Last =\n        try\n            call(Module, Request, Reply)\n        \
             catch\n            Class:Reason -> fail({{Class, Reason}})\n        end,\n    Reply({{last, Last}})."
        ));
        text.line("");
        for (n, command) in self.service.commands.iter().enumerate() {
            let method = atom(&self.names.method_snake(command));
            let (asks, answers) = (atom(&command.request.stem), atom(&command.response.stem));
            let end = if n + 1 < self.service.commands.len() { ";" } else { "." };
            let reply = if command.item.is_some() { "Reply" } else { "_" };
            text.line(format!("call(Module, {{{asks}, Request}}, {reply}) ->"));
            text.deeper(|text| match &command.item {
                None => text.line(format!("answer({answers}, Module:{method}(Request)){end}")),
                Some(item) => {
                    let encode = format!("{module}:encode_response({{{}, Item}})", atom(&item.stem));
                    text.line(format!("Send = fun(Item) -> Reply({{item, {encode}}}) end,"));
                    text.line(format!("answer({answers}, Module:{method}(Request, Send)){end}"));
                }
            });
        }
        text.lines(&format!(
            "\nanswer(Name, {{ok, Response}}) -> {module}:encode_response({{Name, Response}});\n\
             answer(_, {{error, Problem}}) -> fail(Problem).\n\n\
             fail(Problem) ->\n    thalweg_messagepack:error_frame({module}:responses(), {error}, Problem)."
        ));
        text.finish()
    }

    fn type_of(&self, of: &Type) -> String {
        match of {
            Type::Bool => "boolean()".to_owned(),
            Type::Int(int) if !int.signed => format!("0..{}", most(int.bits, false)),
            Type::Int(int) => format!("-{}..{}", most(int.bits, true) + 1, most(int.bits, true)),
            Type::F32 | Type::F64 => "thalweg_messagepack:number64()".to_owned(),
            Type::String | Type::Bytes => "binary()".to_owned(),
            Type::Bin32 => "<<_:256>>".to_owned(),
            Type::Alias(name) | Type::Enum(name) | Type::Struct(name) => format!("'{name}'()"),
            Type::Optional(of) => format!("{} | undefined", self.type_of(of)),
            Type::List(of) | Type::Array(of, _) => format!("[{}]", self.type_of(of)),
            Type::Map(of) => format!("#{{binary() => {}}}", self.type_of(of)),
        }
    }

    /// The term that describes a struct to the codec.
    fn shape(&self, place: &str, fields: &[Field]) -> String {
        let fields: Vec<String> = fields
            .iter()
            .map(|field| {
                let needed = if matches!(field.of, Type::Optional(_)) { "optional" } else { "required" };
                format!(
                    "{{<<\"{}\">>, {}, {needed}, {}}}",
                    field.name,
                    atom(&field.name),
                    self.term(&field.of)
                )
            })
            .collect();
        format!("{{struct, <<\"{place}\">>, [{}]}}", fields.join(", "))
    }

    /// The term that describes a type to the codec.
    fn term(&self, of: &Type) -> String {
        let bytes_min = |of: &Type| self.service.encoded_bytes_min(of);
        match self.service.resolve(of) {
            Type::Bool => "boolean".to_owned(),
            Type::Int(int) if !int.signed => format!("{{integer, 0, {}}}", most(int.bits, false)),
            Type::Int(int) => {
                format!("{{integer, -{}, {}}}", most(int.bits, true) + 1, most(int.bits, true))
            }
            Type::F32 => "f32".to_owned(),
            Type::F64 => "f64".to_owned(),
            Type::String => "string".to_owned(),
            Type::Bytes => "bytes".to_owned(),
            Type::Bin32 | Type::Alias(_) => "bin32".to_owned(),
            Type::Enum(name) => {
                let members = self.service.enumeration(name).map_or(&[][..], |of| &of.members);
                let words: Vec<String> =
                    members.iter().map(|word| format!("{{<<\"{word}\">>, {}}}", atom(word))).collect();
                format!("{{enum, [{}]}}", words.join(", "))
            }
            // By its name: written out wherever it is used, it would be there as often as there are ways to
            // it.
            Type::Struct(name) => format!("fun {}_types:{}/0", self.names.module, described(name)),
            Type::Optional(of) => format!("{{optional, {}}}", self.term(of)),
            Type::List(of) => format!("{{list, {}, {}}}", bytes_min(of), self.term(of)),
            Type::Array(of, count) => format!("{{array, {count}, {}}}", self.term(of)),
            Type::Map(of) => format!("{{map, {}, {}}}", bytes_min(of), self.term(of)),
        }
    }
}

/// The largest integer of so many bits.
fn most(bits: u8, signed: bool) -> u128 {
    (1_u128 << (u32::from(bits) - u32::from(signed))) - 1
}

/// A name as an atom: none of ours is reserved, and none needs quotes.
fn atom(name: &str) -> String {
    snake(name)
}

/// The function that describes a struct; the underscore at its end is no other function's.
fn described(name: &str) -> String {
    format!("{}_", atom(name))
}

fn access_of(command: &Command) -> String {
    let Some(schedule) = &command.schedule else { return String::new() };
    let access = match schedule.access {
        Access::ReadCommitted => "read_committed",
        Access::Read => "read",
        Access::Write => "write",
    };
    let name = atom(&command.request.stem);
    match command.fork() {
        Some(fork) => {
            format!("access_of({{{name}, #{{{} := Fork}}}}) ->\n    {{{access}, Fork}};", atom(&fork.name))
        }
        None => format!("access_of({{{name}, _}}) ->\n    {{{access}, undefined}};"),
    }
}

/// One item a line, separated.
fn list(text: &mut Text, items: &[String], separator: &str) {
    for (n, item) in items.iter().enumerate() {
        let end = if n + 1 < items.len() { separator } else { "" };
        text.line(format!("{item}{end}"));
    }
}
