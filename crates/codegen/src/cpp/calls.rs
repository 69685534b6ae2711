//! Clients and servers in C++: one client that waits for each call, one with many under way, and a handler of
//! which each command is a method. What is the generator's own there ends with an underscore, as no command
//! does.

use super::Cpp;
use crate::text::Text;
use thalweg_schema::Command;

/// What both clients' methods take.
struct Taken {
    method: String,
    /// `template <class S>` where a request may be owned or borrowed.
    template: Option<&'static str>,
    request: String,
}

impl Cpp<'_> {
    pub(super) fn client(&self) -> String {
        let types = format!("{}_types.hpp", self.names.module);
        let mut text = self.head("Clients", &[types, self.runtime("pending")]);
        self.begin_namespace(&mut text);
        text.line("");
        self.waiting_client(&mut text);
        text.line("");
        self.async_client(&mut text);
        text.line("");
        text.line(format!("}} // namespace {}", self.namespace));
        text.finish()
    }

    fn waiting_client(&self, text: &mut Text) {
        let client = self.names.own("Client");
        text.line(format!(
            "/// Calls {} and waits. What is returned borrows from the transport until the next call.",
            self.service.name
        ));
        text.line("/// Methods throw thalweg::Refused when the server answers with its error.");
        text.block(format!("class {client} {{"), "};", |text| {
            text.line("public:");
            text.line(format!(
                "    explicit {client}(thalweg::Transport& transport) : transport_(transport) {{}}"
            ));
            text.deeper(|text| {
                for command in &self.service.commands {
                    text.line("");
                    self.waiting_method(text, command);
                }
            });
            text.line("");
            text.line("private:");
            text.lines(
                "    template <class T> thalweg::FrameView frame_of_(const T& request) {\n        frame_.clear();\n        \
                 thalweg::request_for(transport_, request, frame_);\n        return frame_;\n    }\n\n    \
                 thalweg::Transport& transport_;\n    thalweg::Frame frame_;",
            );
        });
    }

    fn taken(&self, command: &Command) -> Taken {
        let request = self.names.message(&command.request);
        let borrows = self.borrowing.any(&command.request.fields);
        Taken {
            method: self.names.method_snake(command),
            template: borrows.then_some("class S"),
            request: if borrows { format!("Basic{request}<S>") } else { request },
        }
    }

    fn waiting_method(&self, text: &mut Text, command: &Command) {
        let Taken { method, template, request } = self.taken(command);
        let response = format!("{}View", self.names.message(&command.response));
        text.comment("///", &command.doc);
        let Some(item) = &command.item else {
            if let Some(template) = template {
                text.line(format!("template <{template}>"));
            }
            text.block(format!("{response} {method}(const {request}& request) {{"), "}", |text| {
                text.line("const std::uint64_t call = transport_.ask(frame_of_(request));");
                text.line(format!(
                    "return thalweg::answer<{response}>(transport_.receive(call), error_tag);"
                ));
            });
            return;
        };
        let item = format!("{}View", self.names.message(item));
        let parameters: Vec<&str> = template.into_iter().chain(["class F"]).collect();
        text.line(
            "/// Hands each item to `take`, and returns what ends the stream. What `take` throws leaves it, and so does another",
        );
        text.line(
            "/// call that waits on the same transport: then this throws thalweg::Error, Fault::cancelled.",
        );
        text.line(format!("template <{}>", parameters.join(", ")));
        text.block(format!("{response} {method}(const {request}& request, F&& take) {{"), "}", |text| {
            text.line("thalweg::Reading reading(transport_, transport_.send(frame_of_(request)));");
            text.block("for (;;) {", "}", |text| {
                text.line(format!(
                    "auto heard = thalweg::next<{item}, {response}>(reading.next(), error_tag);"
                ));
                text.line(format!(
                    "if (auto* end = std::get_if<{response}>(&heard)) return std::move(*end);"
                ));
                text.line(format!("take(std::get<{item}>(heard));"));
            });
        });
    }

    fn async_client(&self, text: &mut Text) {
        let client = self.names.own("AsyncClient");
        text.line(format!(
            "/// Calls {} without waiting: as many calls at once as there are Pendings.",
            self.service.name
        ));
        text.block(format!("class {client} {{"), "};", |text| {
            text.line("public:");
            text.line(format!(
                "    explicit {client}(thalweg::AsyncTransport& transport) : transport_(transport) {{}}"
            ));
            text.deeper(|text| {
                for command in &self.service.commands {
                    let Taken { method, template, request } = self.taken(command);
                    let pending = match &command.item {
                        Some(_) => format!("thalweg::Items<{}>", self.answered(command)),
                        None => format!("thalweg::Pending<{}>", self.answered(command)),
                    };
                    text.line("");
                    text.comment("///", &command.doc);
                    if let Some(template) = template {
                        text.line(format!("template <{template}>"));
                    }
                    text.block(format!("{pending} {method}(const {request}& request) {{"), "}", |text| {
                        text.line(format!("return begin_<{pending}>(request);"));
                    });
                }
            });
            text.line("");
            text.line("private:");
            text.lines(
                "    template <class P, class T> P begin_(const T& request) {\n        thalweg::Scratch frame;\n        \
                 thalweg::request_for(transport_, request, frame.bytes);\n        \
                 return P(transport_, frame.bytes, error_tag);\n    }\n\n    \
                 thalweg::AsyncTransport& transport_;",
            );
        });
    }

    pub(super) fn server(&self) -> String {
        let types = format!("{}_types.hpp", self.names.module);
        let is_ordered = self.service.is_ordered();
        let runtime = self.runtime(if is_ordered { "forks" } else { "reply" });
        let mut text = self.head("The server's side", &[types, runtime]);
        self.begin_namespace(&mut text);
        text.line("");
        self.handler(&mut text);
        text.line("");
        self.handle(&mut text);
        text.line("");
        self.dispatch_unordered(&mut text);
        if is_ordered {
            text.line("");
            self.dispatch(&mut text);
        }
        text.line("");
        text.line(format!("}} // namespace {}", self.namespace));
        text.finish()
    }

    fn handler(&self, text: &mut Text) {
        let handler = self.names.own("Handler");
        text.line(format!(
            "/// What {} does. Each method may answer now, or later from any thread: requests borrow",
            self.service.name
        ));
        text.line("/// from the frame, so take thalweg::own(request) along. What a method throws before it has passed its");
        text.line("/// responder on is answered with the error.");
        text.block(format!("class {handler} {{"), "};", |text| {
            text.line("public:");
            text.deeper(|text| {
                text.line(format!("virtual ~{handler}() = default;"));
                for command in &self.service.commands {
                    text.line("");
                    text.comment("///", &command.doc);
                    text.line(format!(
                        "virtual void {}({}View request, {} responder) = 0;",
                        self.names.method_snake(command),
                        self.names.message(&command.request),
                        self.responder(command)
                    ));
                }
            });
        });
    }

    fn handle(&self, text: &mut Text) {
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        text.line("/// Hands a request to its method, for servers that order calls before they handle them.");
        text.block(
            format!("inline void handle({handler}& handler, const {request}View& request, std::unique_ptr<thalweg::Reply> reply) {{"),
            "}",
            |text| {
                for command in &self.service.commands {
                    let of = self.names.message(&command.request);
                    text.block(format!("if (const auto* of = std::get_if<{of}View>(&request)) {{"), "}", |text| {
                        text.block(
                            "return thalweg::answering(std::move(reply), error_tag, [&](std::unique_ptr<thalweg::Reply> call) {",
                            "});",
                            |text| {
                                text.line(format!(
                                    "handler.{}(*of, {}(std::move(call), error_tag));",
                                    self.names.method_snake(command),
                                    self.responder(command)
                                ));
                            },
                        );
                    });
                }
            },
        );
    }

    fn dispatch_unordered(&self, text: &mut Text) {
        let handler = self.names.own("Handler");
        text.line("/// Hands a request's frame to its method at once. A frame that is no request is answered with the error.");
        if self.service.is_ordered() {
            text.line("/// Calls of one fork may run side by side: `dispatch` keeps the schema's order.");
        }
        text.block(
            format!("inline void dispatch_unordered({handler}& handler, thalweg::FrameView frame, std::unique_ptr<thalweg::Reply> reply) {{"),
            "}",
            |text| {
                self.decoded(text);
                text.line("handle(handler, *request, std::move(reply));");
            },
        );
    }

    fn dispatch(&self, text: &mut Text) {
        let handler = self.names.own("Handler");
        text.line("/// Hands a request's frame to its method in the order that the schema says: calls that touch one fork wait for their");
        text.line("/// turn. The thread that dispatches calls the handler, and so does the executor of the forks: where these are two");
        text.line("/// threads, the handler guards what it shares. A frame that is no request is answered with the error.");
        text.line("inline void dispatch(");
        text.line(format!(
            "    {handler}& handler, thalweg::Forks& forks, thalweg::FrameView frame, std::unique_ptr<thalweg::Reply> reply"
        ));
        text.block(") {", "}", |text| {
            self.decoded(text);
            text.lines(
                "const auto now = [&](std::unique_ptr<thalweg::Reply> call) { handle(handler, *request, std::move(call)); };\n\
                 const auto later = [&] {\n    \
                 return [&handler, kept = thalweg::Frame(frame.begin(), frame.end())](std::unique_ptr<thalweg::Reply> call) {\n        \
                 handle(handler, decode_request(kept), std::move(call));\n    };\n};\n\
                 forks.order(access_of(*request), std::move(reply), now, later);",
            );
        });
    }

    /// The request of a frame, or its refusal.
    fn decoded(&self, text: &mut Text) {
        let request = self.names.own("Request");
        text.lines(&format!(
            "std::optional<{request}View> request;\ntry {{\n    request = decode_request(frame);\n\
             }} catch (const thalweg::DecodeError& refusal) {{\n    \
             return thalweg::refuse(std::move(reply), error_tag, refusal);\n}}"
        ));
    }

    fn responder(&self, command: &Command) -> String {
        let response = self.names.message(&command.response);
        match &command.item {
            Some(item) => format!("thalweg::Responder<{response}, {}>", self.names.message(item)),
            None => format!("thalweg::Responder<{response}>"),
        }
    }

    /// What a call brings: a stream's items before its response.
    fn answered(&self, command: &Command) -> String {
        let response = self.names.message(&command.response);
        command
            .item
            .as_ref()
            .map_or(response.clone(), |item| format!("{}, {response}", self.names.message(item)))
    }
}
