//! Python's clients and the server's side, over the interfaces of `runtime/python/service.py`.

use super::{COLUMNS, Python, docstring, documented, union};
use crate::text::Text;
use thalweg_schema::casing::snake;
use thalweg_schema::{Access, Command, Message};

impl Python<'_> {
    pub(super) fn client(&self) -> String {
        let mut text = self.head("Clients");
        let streams = self.service.has_streams();
        if streams {
            text.line("from collections.abc import AsyncIterator, Iterator");
            text.line("from typing import TypeAlias");
            text.line("");
        }
        text.line(format!("from . import {}_types as types", self.names.module));
        if streams {
            text.line(format!("from {} import Read", self.module("messagepack")));
        }
        let words = if streams { "answer, unended" } else { "answer" };
        text.line(format!("from {} import SyncTransport, Transport, {words}", self.module("service")));
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
        let mut parameters = vec!["self".to_owned(), format!("request: {}", types(&command.request))];
        let mut asked = vec!["types.encode_request(request)".to_owned(), "deadline=deadline".to_owned()];
        parameters.extend(["*".to_owned(), "deadline: float | None = None".to_owned()]);
        if command.item.is_some() {
            parameters.push("credit: int | None = None".to_owned());
            asked.push("credit=credit".to_owned());
        }
        text.line("");
        let Some(item) = &command.item else {
            let returns = types(&command.response);
            text.lines(&self.signature_at(4, &format!("{keyword} {method}"), &parameters, &returns));
            text.deeper(|text| {
                docstring(text, &documented(command));
                self.call(text, &format!("frame = {wait}"), "self._transport.call", &asked, "");
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
            self.call(text, &format!("{keyword} frame in "), "self._transport.stream", &asked, ":");
            text.deeper(|text| {
                text.line("value = answer(frame, _ERROR, reads)");
                text.line("yield value");
                text.line(format!("if isinstance(value, {}):", types(&command.response)));
                text.line("    return");
            });
            text.line("raise unended()");
        });
    }

    pub(super) fn server(&self) -> String {
        let mut text = self.head("The server's side");
        let streams = self.service.has_streams();
        if streams {
            text.line("from collections.abc import AsyncGenerator, Generator");
        }
        text.line("from functools import partial");
        text.line("from typing import Protocol");
        text.line("");
        text.line(format!("from . import {}_types as types", self.names.module));
        let words = ["Reply", "Service", "SyncReply", "SyncService", "failed", "refuse"];
        let ordering = self.service.is_ordered().then_some("Forks");
        let streaming: &[&str] = if streams { &["send_items", "send_items_sync"] } else { &[] };
        let words = ordering.into_iter().chain(words).chain(streaming.iter().copied());
        self.import(&mut text, "service", &words.map(str::to_owned).collect::<Vec<_>>());
        for side in [LETS, WAITS] {
            self.handler(&mut text, side);
            self.dispatch(&mut text, side);
        }
        text.finish()
    }

    /// `from module import words`, broken as `black` breaks it.
    fn import(&self, text: &mut Text, module: &str, words: &[String]) {
        let whole = format!("from {} import {}", self.module(module), words.join(", "));
        if whole.len() <= COLUMNS {
            return text.line(whole);
        }
        text.block(format!("from {} import (", self.module(module)), ")", |text| {
            words.iter().for_each(|word| text.line(format!("{word},")));
        });
    }

    fn handler(&self, text: &mut Text, side: Side) {
        text.lines("\n\n");
        text.block(format!("class {}(Protocol):", self.names.own(side.handler)), "", |text| {
            docstring(
                text,
                &format!(
                    "What {} does{}.\n\nA method that raises answers with the error. What it raises is logged unless it \
                     is\nRefused. A stream yields items and, at its end, its response.",
                    self.service.name, side.how
                ),
            );
            self.service.commands.iter().for_each(|command| self.handler_method(text, command, side));
        });
        text.trim_end();
    }

    fn handler_method(&self, text: &mut Text, command: &Command, side: Side) {
        let types = |message: &Message| format!("types.{}", self.names.message(message));
        let method = self.names.method_snake(command);
        let parameters = ["self".to_owned(), format!("request: {}", types(&command.request))];
        let (keyword, returns) = match &command.item {
            Some(item) => {
                let frames = format!("{} | {}", types(item), types(&command.response));
                ("def", side.generator.replace("{}", &frames))
            }
            None => (side.keyword, types(&command.response)),
        };
        text.line("");
        text.lines(&self.signature_at(4, &format!("{keyword} {method}"), &parameters, &returns));
        text.deeper(|text| {
            docstring(text, &documented(command));
            text.line("...");
        });
    }

    fn dispatch(&self, text: &mut Text, side: Side) {
        let (handler, request) = (self.names.own(side.handler), self.names.own("Request"));
        let error = &self.service.error.tag;
        let Side { keyword, wait, suffix, .. } = side;
        text.lines("\n\n");
        let head = |name: &str, of: &str| {
            let parameters = [format!("handler: {handler}"), of.to_owned(), format!("reply: {}", side.reply)];
            self.signature(&format!("{keyword} {name}{suffix}"), &parameters, "None")
        };
        text.lines(&head("dispatch_unordered", "frame: bytes"));
        text.deeper(|text| {
            let order = match (self.service.is_ordered(), side.lets_others_run) {
                (true, true) => "\nCalls of one fork may run side by side: `service` keeps the schema's order.",
                (true, false) => "\nThe schema's order is kept where one call runs after the other.",
                (false, _) => "",
            };
            docstring(
                text,
                &format!(
                    "Hands a request's frame to its method at once.\n\nA frame that is no request is answered with the error.{order}"
                ),
            );
            text.lines(&format!(
                "try:\n    request = types.decode_request(frame)\nexcept Exception as error:\n    \
                 return refuse(reply, \"{error}\", error)\n\
                 try:\n    {wait}handle{suffix}(handler, request, reply)\nexcept Exception as error:\n    \
                 failed(reply, \"{error}\", request, error)"
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
            text.deeper(|text| self.service.commands.iter().for_each(|command| self.case(text, command, side)));
        });
        self.whole_service(text, side);
    }

    /// What a server is given: everything it has to know.
    fn whole_service(&self, text: &mut Text, side: Side) {
        let (handler, error) = (self.names.own(side.handler), &self.service.error.tag);
        let (class, suffix) = (side.service, side.suffix);
        // Plain functions run one after the other.
        let orders = side.lets_others_run && self.service.is_ordered();
        text.lines("\n\n");
        text.lines(&self.signature(&format!("def service{suffix}"), &[format!("handler: {handler}")], class));
        text.deeper(|text| {
            let how = if orders { ", its calls ordered per fork as the schema says" } else { "" };
            docstring(text, &format!("The handler, ready to be served{how}."));
            let dispatch =
                if orders { "ordered".to_owned() } else { format!("partial(dispatch_unordered{suffix}, handler)") };
            if orders {
                text.lines(&format!(
                    "forks = Forks()\n\nasync def ordered(frame: bytes, reply: Reply) -> None:\n    try:\n        \
                     request = types.decode_request(frame)\n    except Exception as error:\n        \
                     return refuse(reply, \"{error}\", error)\n    try:\n        \
                     job = partial(handle, handler, request, reply)\n        \
                     await forks.order(types.access_of(request), job)\n    except Exception as error:\n        \
                     failed(reply, \"{error}\", request, error)"
                ));
                text.line("");
            }
            let parts = [dispatch, "types.SCHEMA_HASH".to_owned(), format!("\"{error}\"")];
            self.call(text, "return ", class, &parts, "");
        });
    }

    /// What becomes of one command's request.
    fn case(&self, text: &mut Text, command: &Command, side: Side) {
        let method = self.names.method_snake(command);
        let Side { wait, suffix, .. } = side;
        text.line(format!("case types.{}():", self.names.message(&command.request)));
        text.deeper(|text| {
            if command.item.is_none() {
                let frame = format!("types.encode_response({wait}handler.{method}(request))");
                return self.call(text, "", "reply.end", &[frame], "");
            }
            let end = self.names.message(&command.response);
            let mut parts = vec![
                format!("handler.{method}(request)"),
                "reply".to_owned(),
                "types.encode_response".to_owned(),
                format!("types.{end}"),
            ];
            let in_turn = command.schedule.as_ref().is_some_and(|of| of.access != Access::ReadCommitted);
            if !side.lets_others_run && in_turn {
                // Nothing else orders the calls of its fork.
                parts.push("in_turn=True".to_owned());
            }
            self.call(text, wait, &format!("send_items{suffix}"), &parts, "");
        });
    }
}

/// A server whose handlers let others run while they wait, or one whose handlers wait.
#[derive(Clone, Copy)]
struct Side {
    handler: &'static str,
    lets_others_run: bool,
    how: &'static str,
    keyword: &'static str,
    wait: &'static str,
    generator: &'static str,
    suffix: &'static str,
    reply: &'static str,
    service: &'static str,
}

const LETS: Side = Side {
    handler: "Handler",
    lets_others_run: true,
    how: "",
    keyword: "async def",
    wait: "await ",
    generator: "AsyncGenerator[{}, None]",
    suffix: "",
    reply: "Reply",
    service: "Service",
};

const WAITS: Side = Side {
    handler: "SyncHandler",
    lets_others_run: false,
    how: ", in plain functions",
    keyword: "def",
    wait: "",
    generator: "Generator[{}, None, None]",
    suffix: "_sync",
    reply: "SyncReply",
    service: "SyncService",
};
