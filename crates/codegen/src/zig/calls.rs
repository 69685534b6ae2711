//! Clients and servers in Zig: one client that waits for each call, one with many under way, and the
//! dispatcher to a handler's methods. What is the generator's own in a client ends with an underscore, as no
//! command does.

use super::Zig;
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Command, Message};

impl Zig<'_> {
    pub(super) fn client(&self) -> String {
        let mut text = self.head("Clients");
        text.line("const std = @import(\"std\");");
        text.line("const mp = @import(\"runtime/messagepack.zig\");");
        text.line("const service = @import(\"runtime/service.zig\");");
        text.line(format!("const types = @import(\"{}_types.zig\");", self.names.module));
        text.line("");
        text.line(format!(
            "/// Calls {} and waits. What is returned borrows from the transport and the arena.",
            self.service.name
        ));
        self.client_type(&mut text, "Client", ["send", "ask"], "!u64", Self::waiting_method);
        text.line("");
        text.line(format!(
            "/// Calls {} without waiting: as many calls at once as are pending.",
            self.service.name
        ));
        self.client_type(
            &mut text,
            "Pipeline",
            ["begin", "beginAsk"],
            "!Transport.Begun",
            Self::pending_method,
        );
        text.finish()
    }

    /// A type over a transport, of which each command is a method. The second way is for requests that one
    /// frame answers; a transport need not have it.
    fn client_type(
        &self,
        text: &mut Text,
        name: &str,
        [way, unary]: [&str; 2],
        outcome: &str,
        method: fn(&Self, &mut Text, &Command),
    ) {
        text.block(
            format!("pub fn {}(comptime Transport: type) type {{", self.names.own(name)),
            "}",
            |text| {
                text.block("return struct {", "};", |text| {
                    text.lines(&format!(
                        "transport_: *Transport,\nwriter_: mp.Writer,\n\n\
                     /// A client over a transport; frames to send are made in the allocator's memory.\n\
                     pub fn init(allocator_: std.mem.Allocator, carrier_: *Transport) @This() {{\n    \
                     return .{{ .transport_ = carrier_, .writer_ = .{{ .allocator = allocator_ }} }};\n}}\n\n\
                     pub fn deinit(self: *@This()) void {{\n    self.writer_.deinit();\n}}\n\n\
                     fn {way}_(self: *@This(), comptime Codec: type, request_: Codec.T) {outcome} {{\n    \
                     self.writer_.clear();\n    errdefer service.unsent(self.transport_);\n    try mp.frameOf(true, Codec, &self.writer_, request_);\n    \
                     return self.transport_.{way}(self.writer_.written());\n}}\n\n\
                     fn {unary}_(self: *@This(), comptime Codec: type, request_: Codec.T) {outcome} {{\n    \
                     if (!@hasDecl(Transport, \"{unary}\")) return self.{way}_(Codec, request_);\n    \
                     self.writer_.clear();\n    errdefer service.unsent(self.transport_);\n    try mp.frameOf(true, Codec, &self.writer_, request_);\n    \
                     return self.transport_.{unary}(self.writer_.written());\n}}"
                    ));
                    self.service.commands.iter().for_each(|command| method(self, text, command));
                });
            },
        );
    }

    fn error_codec(&self) -> String {
        self.codec_of(&self.service.error)
    }

    fn type_name(&self, message: &Message) -> String {
        format!("types.{}", self.names.message(message))
    }

    fn codec_of(&self, message: &Message) -> String {
        format!("types.{}Codec", self.names.message(message))
    }

    fn waiting_method(&self, text: &mut Text, command: &Command) {
        let method = self.names.method_camel(command);
        let error = self.error_codec();
        let (request, response) = (self.type_name(&command.request), self.type_name(&command.response));
        text.line("");
        text.comment("///", &command.doc);
        match &command.item {
            None => text.lines(&format!(
                "pub fn {method}(self: *@This(), arena_: std.mem.Allocator, request_: {request}) !service.Answer({response}) {{\n    \
                 const call_ = try self.ask_({request}Codec, request_);\n    \
                 return service.answer({response}Codec, {error}, arena_, try self.transport_.receive(call_));\n}}"
            )),
            Some(item) => {
                let item = self.codec_of(item);
                let of = format!("service.Items(Transport, {item}, {response}Codec, {error})");
                text.lines(&format!(
                    "pub fn {method}(self: *@This(), request_: {request}) !{of} {{\n    \
                     return .{{ .transport = self.transport_, .call = try self.send_({request}Codec, request_) }};\n}}"
                ));
            }
        }
    }

    fn pending_method(&self, text: &mut Text, command: &Command) {
        let method = self.names.method_camel(command);
        let error = self.error_codec();
        let (request, response) = (self.type_name(&command.request), self.codec_of(&command.response));
        let (begin, credit) = match command.item {
            Some(_) => ("begin", ", .credit = begun_.credit"),
            None => ("beginAsk", ""),
        };
        let of = match &command.item {
            None => format!("service.Pending(Transport, {response}, {error})"),
            Some(item) => {
                let item = self.codec_of(item);
                format!("service.PendingItems(Transport, {item}, {response}, {error})")
            }
        };
        text.line("");
        text.comment("///", &command.doc);
        text.lines(&format!(
            "pub fn {method}(self: *@This(), request_: {request}) !{of} {{\n    \
             const begun_ = try self.{begin}_({request}Codec, request_);\n    \
             return .{{ .transport = self.transport_, .call = begun_.call{credit} }};\n}}"
        ));
    }

    pub(super) fn server(&self) -> String {
        let mut text = self.head("The server's side");
        text.line("const std = @import(\"std\");");
        text.line("const mp = @import(\"runtime/messagepack.zig\");");
        text.line("const service = @import(\"runtime/service.zig\");");
        text.line(format!("const types = @import(\"{}_types.zig\");", self.names.module));
        if self.service.is_ordered() {
            text.line("const Forks = @import(\"runtime/forks.zig\").Forks;");
        }
        let error = format!("types.{}Codec", self.names.message(&self.service.error));
        for command in &self.service.commands {
            let response = format!("types.{}Codec", self.names.message(&command.response));
            let item = command.item.as_ref().map_or("service.NoItem".to_owned(), |of| self.codec_of(of));
            let name = &command.name;
            text.line("");
            text.line(format!("/// Answers {name}."));
            text.lines(&format!(
                "pub const {name}Responder = service.Responder({response}, {item}, {error});"
            ));
        }
        let request = self.names.own("Request");
        text.lines(
            "\n/// Hands a request's frame to its method at once; requests borrow from the frame and the arena. A frame that is\n\
             /// no request is answered with the error, and so is what a method returns as an error before it has answered.\n\
             /// Of each command the handler has a method `name(request, responder) !void`.",
        );
        if self.service.is_ordered() {
            text.line("/// Calls of one fork may run side by side: `dispatch` keeps the schema's order.");
        }
        text.lines(
            "pub fn dispatchUnordered(\n    handler: anytype,\n    arena: std.mem.Allocator,\n    frame: []const u8,\n    \
             reply: service.Reply,\n) mp.EncodeError!void {",
        );
        self.decoded(&mut text);
        text.lines(
            "    handle(handler, arena, request, reply);\n}\n\n\
             /// Hands a request to its method, for servers that order calls before they handle them.",
        );
        text.block(
            format!(
                "pub fn handle(\n    handler: anytype,\n    arena: std.mem.Allocator,\n    request: types.{request},\n    \
                 reply: service.Reply,\n) void {{"
            ),
            "}",
            |text| {
                text.lines("reply.hold();\ndefer reply.drop();");
                text.block("const outcome: anyerror!void = switch (request) {", "};", |text| {
                    for command in &self.service.commands {
                        text.line(format!(
                            ".{} => |of| handler.{}(of, {}Responder{{ .reply = reply, .allocator = arena }}),",
                            snake(&command.request.stem),
                            self.names.method_camel(command),
                            command.name
                        ));
                    }
                });
                text.block("outcome catch |problem| {", "};", |text| {
                    text.line(format!(
                        "service.refuse({error}, arena, reply, problem) catch service.giveUp(reply);"
                    ));
                });
            },
        );
        if self.service.is_ordered() {
            self.dispatch(&mut text);
        }
        text.finish()
    }

    fn dispatch(&self, text: &mut Text) {
        text.lines(
            "\n/// Hands a request's frame to its method in the order that the schema says: calls that touch one fork wait for\n\
             /// their turn. Else as `dispatchUnordered`. The frame and the arena last until the reply is released. Methods\n\
             /// are called by the thread that dispatches and by the executor of the forks.\n\
             pub fn dispatch(\n    handler: anytype,\n    forks: *Forks,\n    arena: std.mem.Allocator,\n    \
             frame: []const u8,\n    reply: service.Reply,\n) mp.EncodeError!void {",
        );
        self.decoded(text);
        let request = self.names.own("Request");
        text.lines(&format!(
            "    const Call = struct {{\n        job: Forks.Job,\n        handler: @TypeOf(handler),\n        \
             arena: std.mem.Allocator,\n        request: types.{request},\n\n        \
             fn run(job: *Forks.Job) void {{\n            \
             const self: *@This() = @alignCast(@fieldParentPtr(\"job\", job));\n            \
             handle(self.handler, self.arena, self.request, job.inTurn());\n        }}\n    }};\n    \
             const job: Forks.Job = .{{ .call = Call.run, .reply = reply }};\n    \
             const call = try arena.create(Call);\n    \
             call.* = .{{ .job = job, .handler = handler, .arena = arena, .request = request }};\n    \
             const ordering = types.accessOf(&call.request);\n    \
             try forks.order(ordering.access, ordering.fork, &call.job);\n}}"
        ));
    }

    /// The request of a frame, or its refusal.
    fn decoded(&self, text: &mut Text) {
        let (request, error) = (self.names.own("Request"), self.error_codec());
        text.lines(&format!(
            "    var reader: mp.Reader = .{{ .frame = frame, .allocator = arena }};\n    \
             const request = types.{request}Codec.read(&reader) catch |problem| {{\n        \
             // No fault of the request's.\n        \
             if (problem == error.OutOfMemory) return error.OutOfMemory;\n        \
             const message = try std.fmt.allocPrint(\n            arena,\n            \"{{s}}: {{s}} at byte {{d}}\",\n            \
             .{{ reader.place, @errorName(problem), reader.at }},\n        );\n        \
             const fault: service.Fault = if (problem == error.UnknownMessage) .unknown_command else .bad_request;\n        \
             return service.fail({error}, arena, reply, fault, message);\n    }};"
        ));
    }
}
