//! Commands: requests, responses, streams, scheduling.

use super::{Check, meant};
use crate::jsonc::{Member, Node, Value};
use crate::model::{Access, Command, Field, Message, Schedule, Type};
use crate::problem::did_you_mean_or;
use std::collections::BTreeMap;

const MEMBERS: [&str; 5] = ["request", "response", "stream", "schedule", "fork"];
const ACCESSES: [(&str, Access); 3] =
    [("read committed", Access::ReadCommitted), ("read", Access::Read), ("write", Access::Write)];

impl Check {
    pub(super) fn commands(&mut self, root: &Node, section: Option<&Member>) -> Vec<Command> {
        let Some(section) = section else {
            self.wrong(root.span, "the schema has no commands", "add \"commands\": { … }");
            return Vec::new();
        };
        let members = self.object(&section.node, "commands").unwrap_or(&[]);
        if members.is_empty() && matches!(section.node.value, Value::Object(_)) {
            self.wrong(
                section.node.span,
                "a service has at least one command",
                "add \"Name\": { \"request\": {}, \"response\": {} }",
            );
        }
        let mut commands: Vec<Command> = Vec::new();
        let mut borrowed = Vec::new();
        for member in members {
            self.command_name(&member.key, member.key_span);
            self.commands.add(&member.key, member.key_span);
            let Some(parts) = self.object(&member.node, "a command") else { continue };
            self.known_members(parts, &MEMBERS, "a command");
            if let Some((command, response)) = self.command(member, parts) {
                borrowed.extend(response.map(|node| (commands.len(), node)));
                commands.push(command);
            }
        }
        self.borrow_responses(&mut commands, borrowed);
        commands
    }

    /// One command, and the node that names another's response when it has none of its own.
    fn command<'n>(&mut self, member: &Member, parts: &'n [Member]) -> Option<(Command, Option<&'n Node>)> {
        let part = |name: &str| meant(parts, &MEMBERS, name);
        let name = &member.key;
        let (Some(request), Some(response)) = (part("request"), part("response")) else {
            for missing in ["request", "response"].into_iter().filter(|name| part(name).is_none()) {
                let hint = format!("one without fields is written \"{missing}\": {{}}");
                self.wrong(member.key_span, format!("{name} has no {missing}"), hint);
            }
            // What is there is looked at all the same; a string is another command's response.
            for of in ["request", "response", "stream"] {
                let Some(part) = part(of) else { continue };
                if !matches!(part.node.value, Value::String(_)) {
                    self.fields(&part.node, &format!("a {of}"));
                }
            }
            return None;
        };
        let request_fields = self.fields(&request.node, "a request");
        let owns_response = !matches!(response.node.value, Value::String(_));
        let response_fields =
            if owns_response { self.fields(&response.node, "a response") } else { Vec::new() };
        let item = part("stream").map(|stream| {
            let fields = self.fields(&stream.node, "a stream");
            self.message(&format!("{name}Item"), stream.doc.clone(), fields)
        });
        let schedule = self.schedule(part("schedule"), part("fork"), &request_fields);
        let command = Command {
            name: name.clone(),
            doc: member.doc.clone(),
            request: self.message(name, request.doc.clone(), request_fields),
            response: self.message(&format!("{name}Response"), response.doc.clone(), response_fields),
            owns_response,
            item,
            schedule,
        };
        Some((command, (!owns_response).then_some(&response.node)))
    }

    /// Gives each of these commands the response of another: the command's place in the list, and the node
    /// that names the response by its tag or its stem.
    fn borrow_responses(&mut self, commands: &mut [Command], borrowed: Vec<(usize, &Node)>) {
        let mut owners = BTreeMap::new();
        for (n, command) in commands.iter().enumerate().filter(|(_, command)| command.owns_response) {
            owners.entry(command.response.tag.clone()).or_insert(n);
            owners.entry(command.response.stem.clone()).or_insert(n);
        }
        for (n, node) in borrowed {
            let Value::String(wanted) = &node.value else { continue };
            if let Some(owner) = owners.get(wanted) {
                commands[n].response = commands[*owner].response.clone();
                continue;
            }
            let stems = commands.iter().filter(|c| c.owns_response).map(|c| c.response.stem.as_str());
            let otherwise = "name a command that declares its response: \"<Command>Response\"";
            let hint = self.suggestions.hint(wanted, stems, otherwise);
            self.wrong(node.span, format!("no command declares a response {wanted}"), hint);
        }
    }

    fn schedule(
        &mut self,
        schedule: Option<&Member>,
        fork: Option<&Member>,
        request: &[Field],
    ) -> Option<Schedule> {
        let fork_field = fork.and_then(|member| self.fork(member, request));
        let Some(member) = schedule else {
            if let Some(fork) = fork {
                let hint = "add \"schedule\": \"read committed\", \"read\" or \"write\"";
                self.wrong(fork.key_span, "a fork without a schedule orders nothing", hint);
            }
            return None;
        };
        let word = self.string(&member.node, "a schedule")?;
        let Some((_, access)) = ACCESSES.iter().find(|(name, _)| *name == word) else {
            let words = ACCESSES.iter().map(|(name, _)| *name);
            let hint = did_you_mean_or(word, words, "it is \"read committed\", \"read\" or \"write\"");
            self.wrong(member.node.span, format!("no schedule is called {word:?}"), hint);
            return None;
        };
        if *access != Access::ReadCommitted && fork.is_none() {
            let hint = "add \"fork\": \"<the request's field that names it>\"";
            self.wrong(member.node.span, format!("{word:?} is ordered per fork, and no fork is named"), hint);
        }
        Some(Schedule { access: *access, fork: fork_field })
    }

    /// The request's field that names the fork.
    fn fork(&mut self, member: &Member, request: &[Field]) -> Option<String> {
        let name = self.string(&member.node, "a fork")?;
        let Some(field) = request.iter().find(|field| field.name == name) else {
            let names = request.iter().map(|field| field.name.as_str());
            let hint = did_you_mean_or(name, names, "name one of the request's fields");
            self.wrong(member.node.span, format!("the request has no field {name}"), hint);
            return None;
        };
        let leaf = match &field.of {
            Type::Alias(name) => self.alias(name).map(|alias| alias.of.clone()),
            of => Some(of.clone()),
        };
        if !matches!(leaf, Some(Type::Int(_) | Type::String | Type::Bytes | Type::Bin32)) {
            let what =
                format!("{name} is {}: a fork is named by an integer, string or bytes", field.of.notation());
            self.wrong(member.node.span, what, "name another field, or give this one such a type");
        }
        Some(name.to_owned())
    }
}

/// The messages of one command, to look at all of them.
pub(super) fn messages(command: &Command) -> impl Iterator<Item = &Message> {
    let own = command.owns_response.then_some(&command.response);
    std::iter::once(&command.request).chain(&command.item).chain(own)
}
