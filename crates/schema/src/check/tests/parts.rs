//! Parts of a schema and of a command that are missing, misspelt or unknown: what else is told then.

use super::{broken, schema, valid};
use crate::parse;

#[test]
fn what_is_there_of_a_command_is_looked_at_whatever_is_missing() {
    let text = schema("", "\"request\": { \"a\": \"u88\" }, \"stream\": { \"b\": 7 }");
    let told = parse("t", &text.replace("\"error\": { \"message\": \"string\" },", "")).unwrap_err();
    let told: Vec<&str> = told.list.iter().map(|problem| problem.what.as_str()).collect();
    let type_of = "a field's type is a string, not a number";
    assert_eq!(told, ["the schema has no error", "Say has no response", "no type is called u88", type_of]);
}

/// A misspelt part is what it was meant to be, so nothing is told of what refers to it.
#[test]
fn a_misspelt_part_is_told_alone() {
    let text = "{\n\"service\": \"Echo\",\n\"aliases\": { \"Id\": \"u8\" },\n\"enums\": { \"Mood\": [\"calm\"] },\n\
                \"types\": { \"Inner\": { \"id\": \"Id\" } },\n\"error\": { \"message\": \"string\" },\n\
                \"commands\": { \"Fields\": {\n\"request\": { \"id\": \"Id\", \"mood\": \"Mood\" },\n\
                \"response\": { \"inner\": \"Inner\" },\n\"schedule\": \"read\",\n\"fork\": \"id\"\n} }\n}";
    valid(text);
    for (part, typo) in [
        ("service", "servce"),
        ("aliases", "alises"),
        ("enums", "ENUMS"),
        ("types", "tpyes"),
        ("error", "errors"),
        ("commands", "command"),
        ("commands", "commads"),
        ("request", "reqest"),
        ("response", "Response"),
        ("response", "respones"),
        ("schedule", "shedule"),
        ("fork", "frok"),
    ] {
        let wrong = text.replacen(&format!("\"{part}\":"), &format!("\"{typo}\":"), 1);
        broken(&wrong, &format!("\"{typo}\""), &format!("did you mean \"{part}\"?"));
    }
    // What nothing is like is missing, and nothing else is wrong for that.
    broken(&text.replace("\"service\": \"Echo\",", ""), "{", "no service");
}

/// Beside all that a command needs, a part of no known name is only that: it is not taken for the fork or the
/// stream that it may resemble.
#[test]
fn a_part_that_only_resembles_another_is_taken_for_none() {
    let with = |part: &str| schema("", &format!("\"request\": {{}}, \"response\": {{}},\n{part}"));
    for (part, name) in [
        ("\"format\": \"json\"", "format"),
        ("\"forward\": \"all\"", "forward"),
        ("\"force\": true", "force"),
        ("\"streaming\": true", "streaming"),
        ("\"requests_max\": 7", "requests_max"),
    ] {
        broken(&with(part), &format!("\"{name}\""), &format!("a command has no member {name}"));
    }
    for name in ["result", "returns"] {
        let problems = parse("t", &schema("", &format!("\"{name}\": 7, \"response\": {{}}"))).unwrap_err();
        let told: Vec<&str> = problems.list.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(told, ["Say has no request", &format!("a command has no member {name}")], "{problems}");
    }
}

/// What is wrong with a part calls it by its name, however it is misspelt.
#[test]
fn a_misspelt_part_is_called_by_its_name() {
    let problems = parse("t", &schema("", "\"reqest\": 7")).unwrap_err();
    let told: Vec<&str> = problems.list.iter().map(|problem| problem.what.as_str()).collect();
    let request = "a request is an object, not a number";
    assert_eq!(told, ["Say has no response", "a command has no member reqest", request]);
}
