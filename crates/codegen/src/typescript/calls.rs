//! TypeScript's clients and the server's side, over the interfaces of `runtime/ts/service.ts`.

use super::{TypeScript, doc};
use crate::text::Text;
use thalweg_schema::Command;

impl TypeScript<'_> {
    pub(super) fn client(&self) -> String {
        let mut text = self.head("Clients");
        text.line(format!("import {{ Reader, Writer }} from \"{}\";", self.module("messagepack")));
        let words = if self.service.has_streams() { "items, refused, syncItems" } else { "refused" };
        text.line(format!("import {{ {words} }} from \"{}\";", self.module("service")));
        let interfaces = "CallOptions, SyncCallOptions, SyncTransport, Transport";
        text.line(format!("import type {{ {interfaces} }} from \"{}\";", self.module("service")));
        text.line(format!("import * as types from \"./{}_types.js\";", self.names.module));
        self.frames(&mut text);
        for command in &self.service.commands {
            self.request_and_answer(&mut text, command);
        }
        self.class(&mut text, false);
        self.class(&mut text, true);
        text.finish()
    }

    /// What all methods share.
    fn frames(&self, text: &mut Text) {
        let error = &self.service.error.tag;
        text.lines(&format!(
            "\nfunction request<T>(tag: string, value: T, write: (writer: Writer, value: T) => void): Uint8Array {{\n  \
             const writer = new Writer();\n  writer.request(tag);\n  write(writer, value);\n  return writer.finish();\n}}\n\n\
             function whole<T>(reader: Reader, read: (reader: Reader) => T): T {{\n  const value = read(reader);\n  \
             reader.finish();\n  return value;\n}}\n\n\
             function noAnswer(reader: Reader, tag: string): Error {{\n  \
             if (tag === \"{error}\") return refused(reader, \"{error}\");\n  \
             return reader.refuse(\"a message nobody declared\", \"frame\");\n}}"
        ));
    }

    /// A command's frames, shared by both clients.
    fn request_and_answer(&self, text: &mut Text, command: &Command) {
        let name = &command.name;
        let (request, response) =
            (self.names.message(&command.request), self.names.message(&command.response));
        text.lines(&format!(
            "\nfunction ask{name}(value: types.{request}): Uint8Array {{\n  \
             return request(\"{}\", value, types.write{request});\n}}\n",
            command.request.tag
        ));
        let Some(item) = &command.item else {
            text.lines(&format!(
                "function hear{name}(frame: Uint8Array): types.{response} {{\n  const reader = new Reader(frame);\n  \
                 const tag = reader.response();\n  \
                 if (tag === \"{}\") return whole(reader, types.read{response});\n  throw noAnswer(reader, tag);\n}}",
                command.response.tag
            ));
            return;
        };
        let item_type = self.names.message(item);
        text.lines(&format!(
            "function hear{name}(frame: Uint8Array): {{ item: types.{item_type} }} | {{ end: types.{response} }} {{\n  \
             const reader = new Reader(frame);\n  const tag = reader.response();\n  \
             if (tag === \"{}\") return {{ item: whole(reader, types.read{item_type}) }};\n  \
             if (tag === \"{}\") return {{ end: whole(reader, types.read{response}) }};\n  throw noAnswer(reader, tag);\n}}",
            item.tag, command.response.tag
        ));
    }

    fn class(&self, text: &mut Text, waits: bool) {
        let (client, transport, what) = match waits {
            true => (self.names.own("SyncClient"), "SyncTransport", "waiting for each answer"),
            false => (self.names.own("Client"), "Transport", "without waiting for one call before the next"),
        };
        text.line("");
        text.line(format!(
            "/** Calls {}, {what}. Methods throw Refused when the server answers with its error. */",
            self.service.name
        ));
        text.block(format!("export class {client} {{"), "}", |text| {
            text.lines(&format!(
                "readonly #transport: {transport};\n\nconstructor(transport: {transport}) {{\n  this.#transport = transport;\n}}"
            ));
            for command in &self.service.commands {
                text.line("");
                doc(text, &command.doc);
                self.client_method(text, command, waits);
            }
        });
    }

    fn client_method(&self, text: &mut Text, command: &Command, waits: bool) {
        let (name, method) = (&command.name, self.names.method_camel(command));
        let (request, response) =
            (self.names.message(&command.request), self.names.message(&command.response));
        let default = if command.request.fields.is_empty() { " = {}" } else { "" };
        let options = if waits { "SyncCallOptions" } else { "CallOptions" };
        let parameters = format!("request: types.{request}{default}, options?: {options}");
        match (&command.item, waits) {
            (None, true) => text.lines(&format!(
                "{method}({parameters}): types.{response} {{\n  return hear{name}(this.#transport.call(ask{name}(request), options));\n}}"
            )),
            (None, false) => text.lines(&format!(
                "async {method}({parameters}): Promise<types.{response}> {{\n  \
                 return hear{name}(await this.#transport.call(ask{name}(request), options));\n}}"
            )),
            (Some(item), _) => {
                let item = self.names.message(item);
                let (generator, items) =
                    if waits { ("Generator", "syncItems") } else { ("AsyncGenerator", "items") };
                text.lines(&format!(
                    "{method}({parameters}): {generator}<types.{item}, types.{response}, void> {{\n  \
                     return {items}(this.#transport.stream(ask{name}(request), options), hear{name});\n}}"
                ));
            }
        }
    }

    pub(super) fn server(&self) -> String {
        let mut text = self.head("The server's side");
        text.line(format!("import {{ Writer }} from \"{}\";", self.module("messagepack")));
        let values =
            if self.service.is_ordered() { "Forks, errorFrame, refuse" } else { "errorFrame, refuse" };
        text.line(format!("import {{ {values} }} from \"{}\";", self.module("service")));
        text.line(format!("import type {{ Call, Reply, Service }} from \"{}\";", self.module("service")));
        text.line(format!("import * as types from \"./{}_types.js\";", self.names.module));
        text.line("");
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        text.line(format!(
            "/** What {} does. A method that throws answers with the error; a stream yields items and returns its end. */",
            self.service.name
        ));
        text.block(format!("export interface {handler} {{"), "}", |text| {
            for command in &self.service.commands {
                doc(text, &command.doc);
                let of = format!("types.{}", self.names.message(&command.request));
                let method = self.names.method_camel(command);
                let answer = format!("types.{}", self.names.message(&command.response));
                let returns = match &command.item {
                    Some(item) => {
                        format!("AsyncGenerator<types.{}, {answer}, void>", self.names.message(item))
                    }
                    None => format!("Promise<{answer}> | {answer}"),
                };
                text.line(format!("{method}(request: {of}, call: Call): {returns};"));
            }
        });
        let error = &self.service.error.tag;
        let order = if self.service.is_ordered() {
            "\n * Calls of one fork may run side by side: `service` keeps the schema's order."
        } else {
            ""
        };
        text.lines(&format!(
            "\n/**\n * Hands a request's frame to its method at once. A frame that is no request is answered with the error.{order}\n */\n\
             export async function dispatchUnordered(handler: {handler}, frame: Uint8Array, reply: Reply): Promise<void> {{\n  \
             let request: types.{request};\n  try {{\n    request = types.decodeRequest(frame);\n  }} catch (error) {{\n    \
             return refuse(reply, \"{error}\", error);\n  }}\n  \
             try {{\n    await handle(handler, request, reply);\n  }} catch (error) {{\n    \
             reply.end(errorFrame(\"{error}\", error));\n  }}\n}}\n\n\
             function answer<T>(tag: string, value: T, write: (writer: Writer, value: T) => void): Uint8Array {{\n  \
             const writer = new Writer();\n  writer.response(tag);\n  write(writer, value);\n  return writer.finish();\n}}\n\n\
             /** Hands a request to its method, for servers that order calls before they handle them; rejects as it throws. */"
        ));
        text.block(
            format!(
                "export async function handle(handler: {handler}, request: types.{request}, reply: Reply): Promise<void> {{"
            ),
            "}",
            |text| {
                text.block("switch (request.tag) {", "}", |text| {
                    self.service.commands.iter().for_each(|command| self.handle(text, command));
                });
            },
        );
        self.whole_service(&mut text);
        text.finish()
    }

    /// What a server is given: everything it has to know.
    fn whole_service(&self, text: &mut Text) {
        let (handler, request) = (self.names.own("Handler"), self.names.own("Request"));
        let error = &self.service.error.tag;
        let (name, ordered) = (&self.service.name, self.service.is_ordered());
        let how = if ordered { ", its calls ordered per fork as the schema says" } else { "" };
        text.line("");
        text.line(format!("/** {name} for a server{how}. */"));
        text.block(format!("export function service(handler: {handler}): Service {{"), "}", |text| {
            if !ordered {
                text.lines(&format!(
                    "return {{\n  schema: types.SCHEMA_HASH,\n  errorTag: \"{error}\",\n  \
                     dispatch: (frame, reply) => dispatchUnordered(handler, frame, reply),\n}};"
                ));
                return;
            }
            text.lines(&format!(
                "const forks = new Forks();\nreturn {{\n  schema: types.SCHEMA_HASH,\n  errorTag: \"{error}\",\n  \
                 async dispatch(frame, reply) {{\n    let request: types.{request};\n    try {{\n      \
                 request = types.decodeRequest(frame);\n    }} catch (error) {{\n      \
                 return refuse(reply, \"{error}\", error);\n    }}\n    try {{\n      \
                 await forks.order(types.accessOf(request), () => handle(handler, request, reply), reply);\n    \
                 }} catch (error) {{\n      reply.end(errorFrame(\"{error}\", error));\n    }}\n  }},\n}};"
            ));
        });
    }

    fn handle(&self, text: &mut Text, command: &Command) {
        let method = self.names.method_camel(command);
        let response = self.names.message(&command.response);
        let tag = &command.response.tag;
        text.block(format!("case \"{}\": {{", command.request.tag), "}", |text| {
            let Some(item) = &command.item else {
                text.line(format!("const value = await handler.{method}(request.value, reply);"));
                text.line(format!("return reply.end(answer(\"{tag}\", value, types.write{response}));"));
                return;
            };
            let of = self.names.message(item);
            text.lines(&format!(
                "const items = handler.{method}(request.value, reply);\ntry {{\n  for (;;) {{\n    \
                 const next = await items.next();\n    \
                 if (next.done) return reply.end(answer(\"{tag}\", next.value, types.write{response}));\n    \
                 if (await reply.item(answer(\"{}\", next.value, types.write{of}))) continue;\n    \
                 // Nobody waits for more: the generator's `finally` blocks run, and the error says why it ended.\n    \
                 await items.throw(new Error(\"the reader went away\"));\n    \
                 throw new Error(\"the reader went away\");\n  }}\n}} finally {{\n  \
                 // They run, too, when what it made cannot be written; one that is over takes no notice.\n  \
                 await items.return(undefined as never);\n}}",
                item.tag
            ));
        });
    }
}
