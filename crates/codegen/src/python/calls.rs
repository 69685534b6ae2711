//! Python's clients and the server's side, over the interfaces of `runtime/python/service.py`.

use super::{Python, docstring, documented, union};
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Command, Message};

impl Python<'_> {
    pub(super) fn client(&self) -> String {
        let mut text = self.head("Clients");
        let streams = self.service.commands.iter().any(|command| command.item.is_some());
        if streams {
            text.line("from collections.abc import AsyncIterator, Iterator");
            text.line("from typing import TypeAlias");
            text.line("");
        }
        text.line(format!("from . import {}_types as types", self.names.module));
        if streams {
            text.line(format!("from {} import Read", self.module("messagepack")));
        }
        text.line(format!("from {} import SyncTransport, Transport, answer", self.module("service")));
        text.line("");
        text.line(format!("_ERROR = \"{}\"", self.service.error.tag));
        for command in &self.service.commands {
            let Some(item) = &command.item else { continue };
            let messages = [item, &command.response].map(|of| format!("types.{}", self.names.message(of)));
            union(&mut text, &format!("_{}Heard", command.name), &messages);
        }
        self.class(&mut text, false);
        self.class(&mut text, true);
        text.finish()
    }

    fn class(&self, text: &mut Text, waits: bool) {
        let (class, transport, how) = match waits {
            true => ("SyncClient", "SyncTransport", "Calls {} and waits for each answer."),
            false => ("Client", "Transport", "Calls {} without waiting for one call before the next."),
        };
        text.lines("\n\n");
        text.block(format!("class {}:", self.names.own(class)), "", |text| {
            let how = how.replace("{}", &self.service.name);
            docstring(
                text,
                &format!("{how}\n\nMethods raise Refused when the server answers with its error."),
            );
            text.line("");
            text.lines(&format!(
                "def __init__(self, transport: {transport}) -> None:\n    self._transport = transport"
            ));
            self.service.commands.iter().for_each(|command| self.client_method(text, command, waits));
        });
        text.trim_end();
    }

    fn client_method(&self, text: &mut Text, command: &Command, waits: bool) {
        let types = |message: &Message| format!("types.{}", self.names.message(message));
        let read = |message: &Message| {
            format!("\"{}\": types.read_{}", message.tag, snake(&self.names.message(message)))
        };
        let (keyword, wait, iterator) = match waits {
            true => ("def", "", "Iterator"),
            false => ("async def", "await ", "AsyncIterator"),
        };
        let method = self.names.method_snake(command);
        let parameters = ["self".to_owned(), format!("request: {}", types(&command.request))];
        let ask = "types.encode_request(request)";
        text.line("");
        let Some(item) = &command.item else {
            let returns = types(&command.response);
            text.lines(&self.signature_at(4, &format!("{keyword} {method}"), &parameters, &returns));
            text.deeper(|text| {
                docstring(text, &documented(command));
                text.line(format!("frame = {wait}self._transport.call({ask})"));
                let parts =
                    ["frame".to_owned(), "_ERROR".to_owned(), format!("{{{}}}", read(&command.response))];
                self.call(text, "return ", "answer", &parts, "");
            });
            return;
        };
        let returns = format!("{iterator}[{} | {}]", types(item), types(&command.response));
        text.lines(&self.signature_at(4, &format!("{keyword} {method}"), &parameters, &returns));
        text.deeper(|text| {
            docstring(text, &documented(command));
            text.block(format!("reads: dict[str, Read[_{}Heard]] = {{", command.name), "}", |text| {
                text.line(format!("{},", read(item)));
                text.line(format!("{},", read(&command.response)));
            });
            let keyword = if waits { "for" } else { "async for" };
            text.line(format!("{keyword} frame in self._transport.stream({ask}):"));
            text.deeper(|text| {
                text.line("value = answer(frame, _ERROR, reads)");
                text.line("yield value");
                text.line(format!("if isinstance(value, {}):", types(&command.response)));
                text.line("    return");
            });
        });
    }

    pub(super) fn server(&self) -> String {
        let mut text = self.head("The server's side");
        if self.service.commands.iter().any(|command| command.item.is_some()) {
            text.line("from collections.abc import AsyncGenerator");
        }
        text.line("from typing import Protocol");
        text.line("");
        text.line(format!("from . import {}_types as types", self.names.module));
        text.line(format!("from {} import Reply, error_frame", self.module("service")));
        text.lines("\n\n");
        text.block(format!("class {}(Protocol):", self.names.own("Handler")), "", |text| {
            docstring(text, &format!(
                "What {} does.\n\nA method that raises answers with the error. A stream yields items and, at its end,\n\
                 its response.",
                self.service.name
            ));
            self.service.commands.iter().for_each(|command| self.handler_method(text, command));
        });
        text.trim_end();
        self.dispatch(&mut text);
        text.finish()
    }

    fn handler_method(&self, text: &mut Text, command: &Command) {
        let types = |message: &Message| format!("types.{}", self.names.message(message));
        let method = self.names.method_snake(command);
        let parameters = ["self".to_owned(), format!("request: {}", types(&command.request))];
        let (keyword, returns) = match &command.item {
            Some(item) => {
                ("def", format!("AsyncGenerator[{} | {}, None]", types(item), types(&command.response)))
            }
            None => ("async def", types(&command.response)),
        };
        text.line("");
        text.lines(&self.signature_at(4, &format!("{keyword} {method}"), &parameters, &returns));
        text.deeper(|text| {
            docstring(text, &documented(command));
            text.line("...");
        });
    }

    fn dispatch(&self, text: &mut Text) {
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        let error = &self.service.error.tag;
        text.lines("\n\n");
        let head = |name: &str, of: &str| {
            let parameters = [format!("handler: {handler}"), of.to_owned(), "reply: Reply".to_owned()];
            self.signature(&format!("async def {name}"), &parameters, "None")
        };
        text.lines(&head("dispatch", "frame: bytes"));
        text.deeper(|text| {
            docstring(text, "Hands a request's frame to its method.\n\nA frame that is no request is answered with the error.");
            text.lines(&format!(
                "try:\n    await handle(handler, types.decode_request(frame), reply)\nexcept Exception as error:\n    \
                 reply.end(error_frame(\"{error}\", error))"
            ));
        });
        text.lines("\n\n");
        text.lines(&head("handle", &format!("request: types.{request}")));
        text.deeper(|text| {
            docstring(
                text,
                "Hands a request to its method, for servers that order calls beforehand.\n\nRaises what the method raises.",
            );
            text.line("match request:");
            text.deeper(|text| {
                for command in &self.service.commands {
                    let method = self.names.method_snake(command);
                    text.line(format!("case types.{}():", self.names.message(&command.request)));
                    text.deeper(|text| match &command.item {
                        None => {
                            let frame = format!("types.encode_response(await handler.{method}(request))");
                            self.call(text, "", "reply.end", &[frame], "");

                        }
                        Some(_) => {
                            let end = self.names.message(&command.response);
                            text.lines(&format!(
                                "items = handler.{method}(request)\nasync for value in items:\n    \
                                 frame = types.encode_response(value)\n    if isinstance(value, types.{end}):\n        \
                                 return reply.end(frame)\n    if not await reply.item(frame):\n        \
                                 await items.aclose()\n        raise ConnectionError(\"the reader went away\")\n\
                                 raise RuntimeError(\"the stream ended without its response\")"
                            ));
                        }
                    });
                }
            });
        });
    }
}
