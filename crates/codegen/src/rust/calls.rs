//! Rust's clients and the server's side, over the interfaces of `thalweg_wire::service`.

use super::Rust;
use super::documentation::documented;
use crate::records::Side;
use crate::text::Text;

impl Rust<'_> {
    pub(super) fn client(&self) -> String {
        let mut text = self.head("Clients");
        let runtime = self.runtime;
        text.line("use super::types::*;");
        text.line(format!("use {runtime}::messagepack::request_frame;"));
        let unary =
            if self.service.commands.iter().any(|command| command.item.is_none()) { ", answer" } else { "" };
        text.line(format!("use {runtime}::service::{{AsyncCall, Call, CallError{unary}}};"));
        if self.service.has_streams() {
            text.line(format!("use {runtime}::service::{{AsyncItems, Items}};"));
        }
        self.sync_client(&mut text);
        self.async_client(&mut text);
        text.finish()
    }

    fn sync_client(&self, text: &mut Text) {
        let client = self.names.own("Client");
        let service = &self.service.name;
        text.lines(&format!(
            "\n/// Calls {service} and waits. Responses borrow from the transport's buffer.\n#[derive(Debug)]\n\
             pub struct {client}<C> {{\n    call: C,\n    frame: Vec<u8>,\n}}"
        ));
        text.block(format!("impl<C: Call> {client}<C> {{"), "}", |text| {
            text.lines(
                "/// A client over a transport.\npub fn new(call: C) -> Self {\n    Self { call, frame: Vec::new() }\n}",
            );
            for command in &self.service.commands {
                let (name, method) = (&command.name, self.names.method_snake(command));
                let request = self.with_life(&command.request, "<'_>");
                let returns = match command.item {
                    Some(_) => format!("Items<'_, C, commands::{name}>"),
                    None => self.with_life(&command.response, "<'_>"),
                };
                text.line("");
                text.comment("///", &documented(&command.doc, name));
                text.line("///\n/// # Errors\n/// The transport failed, the server refused, or it answered nonsense.");
                text.block(
                    format!("pub fn {method}(&mut self, request: &{request}) -> Result<{returns}, CallError<C::Error>> {{"),
                    "}",
                    |text| {
                        text.line("self.frame.clear();");
                        text.line("request_frame(request, &mut self.frame);");
                        let how = if command.item.is_some() { "send" } else { "ask" };
                        text.line(format!("self.call.{how}(&self.frame).map_err(CallError::Transport)?;"));
                        text.line(match command.item {
                            Some(_) => "Ok(Items::new(&mut self.call))".to_owned(),
                            None => format!(
                                "answer::<commands::{name}, _>(self.call.receive().map_err(CallError::Transport)?)"
                            ),
                        });
                    },
                );
            }
        });
    }

    fn async_client(&self, text: &mut Text) {
        let client = self.names.own("AsyncClient");
        let service = &self.service.name;
        text.lines(&format!(
            "\n/// Calls {service} without waiting for one call before the next.\n#[derive(Clone, Debug)]\n\
             pub struct {client}<C> {{\n    call: C,\n}}"
        ));
        text.block(format!("impl<C: AsyncCall> {client}<C> {{"), "}", |text| {
            text.lines("/// A client over a transport.\npub fn new(call: C) -> Self {\n    Self { call }\n}");
            for command in &self.service.commands {
                let (name, method) = (&command.name, self.names.method_snake(command));
                let request = self.with_life(&command.request, "<'_>");
                let returns = match command.item {
                    Some(_) => format!("AsyncItems<C::Frames, commands::{name}>"),
                    None => self.with_life(&command.response, "<'static>"),
                };
                text.line("");
                text.comment("///", &documented(&command.doc, name));
                text.line("///\n/// # Errors\n/// The transport failed, the server refused, or it answered nonsense.");
                text.block(
                    format!("pub async fn {method}(&self, request: &{request}) -> Result<{returns}, CallError<C::Error>> {{"),
                    "}",
                    |text| {
                        text.line("let mut frame = Vec::new();");
                        text.line("request_frame(request, &mut frame);");
                        if command.item.is_some() {
                            text.line("let frames = self.call.stream(frame).await.map_err(CallError::Transport)?;");
                            text.line("Ok(AsyncItems::new(frames))");
                            return;
                        }
                        text.line("let frame = self.call.call(frame).await.map_err(CallError::Transport)?;");
                        let own = match self.life(&command.response.fields) {
                            "" => String::new(),
                            _ => format!(".map({}::into_owned)", self.names.message(&command.response)),
                        };
                        text.line(format!("answer::<commands::{name}, _>(&frame){own}"));
                    },
                );
            }
        });
    }

    pub(super) fn server(&self) -> String {
        let mut text = self.head("The server's side");
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        let service = self.names.own("Service");
        let runtime = self.runtime;
        text.line("use super::types::*;");
        text.line(format!("use {runtime}::messagepack::DecodeError;"));
        text.line(format!("use {runtime}::service::{{Access, Fork, Reply, Responder, Service, refuse}};"));
        text.line("");
        text.line(format!(
            "/// What {} does. Each method may answer now, or later from any thread.",
            self.service.name
        ));
        text.block(format!("pub trait {handler} {{"), "}", |text| {
            for (n, command) in self.service.commands.iter().enumerate() {
                let of = self.with_life(&command.request, "<'_>");
                if n > 0 {
                    text.line("");
                }
                text.comment("///", &documented(&command.doc, &command.name));
                let method = self.names.method_snake(command);
                let responder = format!("Responder<commands::{}>", command.name);
                text.line(format!("fn {method}(&self, request: {of}, responder: {responder});"));
            }
        });
        text.lines(&format!(
            "\n/// Hands a request's frame to its method at once, whatever else runs of the same fork: `{service}` is for\n\
             /// servers that keep the schema's order. A frame that is no request is answered with the error.\n\
             pub fn dispatch_unordered<H: {handler} + ?Sized>(handler: &H, frame: &[u8], mut reply: Box<dyn Reply>) {{\n    \
             match {request}::decode(frame) {{\n        Ok(request) => handle(handler, request, reply),\n        \
             Err(refusal) => refuse(&mut *reply, \"{}\", &refusal),\n    }}\n}}",
            self.service.error.tag
        ));
        text.line("");
        text.line("/// Hands a request to its method, for servers that order calls before they handle them.");
        let borrowing = self.borrows(Side::Request);
        let of = if borrowing { format!("{request}<'_>") } else { request.clone() };
        text.block(
            format!(
                "pub fn handle<H: {handler} + ?Sized>(handler: &H, request: {of}, reply: Box<dyn Reply>) {{"
            ),
            "}",
            |text| {
                text.block("match request {", "}", |text| {
                    for command in &self.service.commands {
                        let method = self.names.method_snake(command);
                        text.line(format!(
                            "{request}::{}(request) => handler.{method}(request, Responder::new(reply)),",
                            command.name
                        ));
                    }
                });
            },
        );
        self.service_impl(&mut text, borrowing);
        text.finish()
    }

    /// The type that stands for the service, for servers that order its calls.
    fn service_impl(&self, text: &mut Text, borrowing: bool) {
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        let service = self.names.own("Service");
        let life = |life: &str| if borrowing { format!("{request}<{life}>") } else { request.clone() };
        text.lines(&format!(
            "\n/// {}, for servers that order calls before they handle them.\n#[derive(Debug)]\n\
             pub enum {service} {{}}\n\n",
            self.service.name
        ));
        text.block(format!("impl<H: {handler} + ?Sized> Service<H> for {service} {{"), "}", |text| {
            text.line(format!("type Request<'a> = {};", life("'a")));
            text.line(format!("const ERROR: &'static str = \"{}\";", self.service.error.tag));
            text.line("");
            text.line(format!(
                "fn decode(frame: &[u8]) -> Result<{}, DecodeError> {{ {request}::decode(frame) }}",
                life("'_")
            ));
            text.line("");
            text.line(format!(
                "fn access<'r>(request: &'r {}) -> Option<(Access, Fork<'r>)> {{ request.access() }}",
                life("'_")
            ));
            text.line("");
            text.line(format!(
                "fn handle(handler: &H, request: {}, reply: Box<dyn Reply>) {{ handle(handler, request, reply); }}",
                life("'_")
            ));
        });
    }
}
