//! JSON and frames that say the same, by a schema with everything in it.

use std::sync::OnceLock;
use thalweg_rpc::Translator;

/// The commands of the schema that are called by turns.
const COMMANDS: [&str; 9] =
    ["Bytes", "Fields", "Nested", "Aliases", "Blobs", "Fail", "Numbers", "Places", "Count"];

fn translator() -> &'static Translator {
    static TRANSLATOR: OnceLock<Translator> = OnceLock::new();
    TRANSLATOR.get_or_init(|| {
        let schema = include_str!("../../schemas/echo.jsonc");
        Translator::new(&thalweg_schema::parse("echo.jsonc", schema).expect("the schema of the repository"))
    })
}

/// Parameters that fit come back from their frame, and a result from its. The first byte says of which
/// command.
pub fn json(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (ours, command) = (translator(), COMMANDS[usize::from(*which) % COMMANDS.len()]);
    let mut frame = Vec::new();
    if ours.request(command, text, &mut frame).is_ok() {
        asked(&frame, Some(command));
    }
    frame.clear();
    if ours.response(command, text, &mut frame).is_ok() {
        let mut said = Vec::new();
        ours.result(command, &frame, &mut said).expect("a frame of ours says nothing");
        let (said, mut again) = (String::from_utf8(said).expect("JSON is text"), Vec::new());
        ours.response(command, &said, &mut again).expect("a result of ours does not fit");
        same(&frame, &again, |frame, json| ours.result(command, frame, json).is_ok());
    }
}

/// A frame that is read says JSON, which says a frame that says the same.
pub fn frames(data: &[u8]) {
    asked(data, None);
    let Some((which, data)) = data.split_first() else { return };
    let (ours, command) = (translator(), COMMANDS[usize::from(*which) % COMMANDS.len()]);
    let mut said = Vec::new();
    if ours.result(command, data, &mut said).is_ok() {
        assert!(serde_json::from_slice::<serde::de::IgnoredAny>(&said).is_ok(), "what is said is not JSON");
    } else {
        assert!(said.is_empty());
    }
}

fn asked(frame: &[u8], command: Option<&str>) {
    let (ours, mut params) = (translator(), Vec::new());
    let Ok(name) = ours.params(frame, &mut params) else {
        assert!(params.is_empty() && command.is_none(), "a request of ours cannot be read");
        return;
    };
    assert!(command.is_none_or(|command| command == name));
    let text = std::str::from_utf8(&params).expect("JSON is text");
    assert!(serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok(), "what is said is not JSON");
    let mut again = Vec::new();
    ours.request(name, text, &mut again).expect("parameters of ours do not fit");
    same(frame, &again, |frame, json| ours.params(frame, json).is_ok());
}

/// Two frames say the same.
fn same(one: &[u8], other: &[u8], say: impl Fn(&[u8], &mut Vec<u8>) -> bool) {
    let [one, other] = [one, other].map(|frame| {
        let mut json = Vec::new();
        assert!(say(frame, &mut json));
        json
    });
    assert_eq!(String::from_utf8_lossy(&one), String::from_utf8_lossy(&other));
}
