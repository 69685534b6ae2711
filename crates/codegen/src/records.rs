//! What every emitter writes in turn: the structs and messages of a schema as one list, and the two sides of
//! a call.

use thalweg_schema::{Field, Message, Service};

/// A struct to be written, be it the schema's own or a message.
pub(crate) struct Record<'a> {
    /// Its name in generated code.
    pub(crate) name: String,
    /// Its name on the wire, if it is a message.
    pub(crate) tag: Option<&'a str>,
    /// What the schema says about it.
    pub(crate) doc: &'a str,
    /// In the order in which they are written.
    pub(crate) fields: &'a [Field],
}

/// What is sent, or what comes back.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Request,
    Response,
}

impl Side {
    /// What its type is called, behind the prefix.
    pub(crate) fn part(self) -> &'static str {
        match self {
            Self::Request => "Request",
            Self::Response => "Response",
        }
    }

    /// What its frames are called.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }

    /// The messages that stand in its frames: every command's request, or every command's item and own
    /// response, then the error.
    pub(crate) fn messages(self, service: &Service) -> Vec<&Message> {
        let requests = service.commands.iter().map(|command| &command.request);
        match self {
            Self::Request => requests.collect(),
            Self::Response => {
                let requests: Vec<&str> = requests.map(|request| request.tag.as_str()).collect();
                let is_answer = |of: &&Message| !requests.contains(&of.tag.as_str());
                service.messages().into_iter().filter(is_answer).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Names;
    use crate::{Arguments, Language};

    #[test]
    fn structs_and_messages_are_one_list_and_each_message_stands_on_one_side() {
        let text = r#"{
            "service": "Echo",
            "types": { "A": { "b": "B" }, "B": { "c": "u8" } },
            "error": { "message": "string" },
            "commands": {
                "Say": { "request": { "a": "A" }, "stream": { "b": "B" }, "response": {} },
                "Again": { "request": {}, "response": "SayResponse" },
            },
        }"#;
        let service = thalweg_schema::parse("t", text).unwrap();
        let arguments = Arguments { prefix: Some("My".into()), ..Arguments::new("t", Language::Rust, "out") };
        let names = Names::new(&service, &arguments);
        let named = |records: Vec<Record<'_>>| {
            let name = |of: Record<'_>| format!("{} {}", of.name, of.tag.unwrap_or("-"));
            records.into_iter().map(name).collect::<Vec<_>>()
        };
        let messages =
            ["MySay EchoSay", "MySayItem EchoSayItem", "MySayResponse EchoSayResponse", "MyAgain EchoAgain"];
        let messages = [&messages[..], &["MyErrorResponse EchoErrorResponse"]].concat();
        assert_eq!(named(names.records()), [&["A -", "B -"], &messages[..]].concat());
        assert_eq!(named(names.records_by_dependency()), [&["B -", "A -"], &messages[..]].concat());
        let tags = |side: Side| side.messages(&service).iter().map(|of| of.tag.as_str()).collect::<Vec<_>>();
        assert_eq!(tags(Side::Request), ["EchoSay", "EchoAgain"]);
        assert_eq!(tags(Side::Response), ["EchoSayItem", "EchoSayResponse", "EchoErrorResponse"]);
    }
}
