//! Every rule of `docs/schema.md` broken once: where it is told, in which words, with which hint.

mod parts;

use crate::{Service, parse};

/// A schema with `extra` beside its service and error, and `command` as the body of its one command.
fn schema(extra: &str, command: &str) -> String {
    format!(
        "{{\n\"service\": \"Echo\",\n{extra}\n\"error\": {{ \"message\": \"string\" }},\n\"commands\": {{ \"Say\": {{\n{command}\n}} }} }}"
    )
}

fn types(extra: &str) -> String {
    schema(extra, "\"request\": {}, \"response\": {}")
}

fn request(fields: &str) -> String {
    schema("", &format!("\"request\": {{ {fields} }},\n\"response\": {{}}"))
}

fn valid(text: &str) -> Service {
    parse("t", text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Asserts that the text has exactly one problem, with these words, at the place where `place` begins.
fn broken(text: &str, place: &str, says: &str) {
    let problems = parse("t", text).expect_err(text);
    assert_eq!(problems.list.len(), 1, "{text}\n{problems}");
    let problem = &problems.list[0];
    assert!(!problem.hint.is_empty(), "{text}\n{problems}");
    let whole = format!("{} / {}", problem.what, problem.hint);
    assert!(whole.contains(says), "{text}\n{whole}");
    let line = text.lines().nth(problem.line - 1).unwrap();
    let rest: String = line.chars().skip(problem.column - 1).collect();
    assert!(rest.starts_with(place), "{text}\ntold at {rest:?}, not {place:?}");
}

#[test]
fn the_frame_is_checked() {
    broken("[]", "[", "a schema is an object, not an array");
    let whole = types("");
    broken(&whole.replace("\"Echo\"", "7"), "7", "service is a string, not a number");
    broken(&whole.replace("\"Echo\"", "\"\""), "\"\"", "is empty");
    broken(&whole.replace("\"Echo\"", "\"echo\""), "\"echo\"", "write Echo");
    broken(&whole.replace("\"service\": \"Echo\",", ""), "{", "no service");
    broken(&whole.replace("\"error\": { \"message\": \"string\" },", ""), "{", "no error");
    broken(&whole.replace("\"message\": \"string\"", "\"message\": \"bytes\""), "{", "exactly one field");
    broken(&whole.replace("\"message\": \"string\"", ""), "{", "exactly one field");
    broken(&types("\"typos\": {},"), "\"typos\"", "did you mean \"types\"?");
    broken(&types("\"types\": {}, \"types\": {},"), "\"types\": {},\n".trim_end(), "is there twice");
    broken(
        &whole.replace("{ \"Say\": {\n\"request\": {}, \"response\": {}\n} }", "{}"),
        "{}",
        "at least one command",
    );
}

#[test]
fn declarations_are_checked() {
    broken(&types("\"aliases\": { \"Id\": \"u33\" },"), "\"u33\"", "did you mean \"u32\"?");
    broken(&types("\"aliases\": { \"Id\": \"u32[]\" },"), "\"u32[]\"", "u32[] is no leaf");
    broken(
        &types("\"aliases\": { \"Id\": \"u8\" }, \"types\": { \"Id\": {} },"),
        "\"Id\": {}",
        "declared twice",
    );
    broken(&types("\"types\": { \"A\": {}, \"A\": {} },"), "\"A\": {} }", "is there twice");
    broken(&types("\"types\": { \"option\": {} },"), "\"option\"", "write Option");
    broken(&types("\"types\": { \"Option\": {} },"), "\"Option\"", "taken by the generated code");
    broken(&types("\"types\": { \"EchoSay\": {} },"), "\"Say\"", "EchoSay");
    broken(&types("\"types\": { \"EchoErrorResponse\": {} },"), "\"EchoErr", "the error EchoErrorResponse");
    broken(&types("\"types\": { \"AB\": {}, \"Ab\": {} },"), "\"Ab\"", "become one identifier");
    broken(&types("\"enums\": { \"Mood\": [] },"), "[]", "no words");
    broken(&types("\"enums\": { \"Mood\": \"calm\" },"), "\"calm\"", "an array of words");
    broken(&types("\"enums\": { \"Mood\": [\"calm\", \"calm\"] },"), "\"calm\"]", "become one identifier");
    broken(&types("\"enums\": { \"Mood\": [\"so-so\", \"so_so\"] },"), "\"so_so\"", "become one identifier");
    broken(&types("\"enums\": { \"Mood\": [\"nil\", \"and\"] },"), "\"and\"", "reserved in C++");
}

/// Who writes a type as another notation has it is told how it is written here.
#[test]
fn the_types_of_other_notations_are_known() {
    for (written, place, hint) in [
        ("int32", "int32", "an integer of 32 bits is \"i32\""),
        ("uint64[]", "uint64", "an integer of 64 bits without a sign is \"u64\""),
        ("u128", "u128", "64 bits"),
        ("float", "float", "\"f32\" or \"f64\""),
        ("double", "double", "\"f64\""),
        ("char", "char", "\"string\""),
        ("bytes32", "bytes32", "\"bin32\""),
        ("list<u8>", "list<", "T[]"),
        ("Vec<u8>", "Vec<", "T[]"),
        ("Option<u8>", "Option<", "T?"),
        ("map<string,u8>", ",u8>", "keys are strings"),
        ("?u8", "?u8", "behind its type"),
        ("[u8]", "[u8]", "behind its type"),
    ] {
        broken(&request(&format!("\"a\": \"{written}\"")), place, hint);
    }
    broken(&request("\"a\": [\"u8\"]"), "[", "\"T[]\"");
    broken(&request("\"a\": { \"b\": \"u8\" }"), "{", "declare it in types");
    broken(&types("\"aliases\": { \"Id\": \"uint32\" },"), "\"uint32\"", "\"u32\"");
    // What the schema declares is nearer.
    let declared =
        request("\"a\": \"double\"").replacen("{", "{ \"types\": { \"Double\": { \"b\": \"f64\" } },", 1);
    broken(&declared, "double", "did you mean \"Double\"?");
}

#[test]
fn fields_are_checked() {
    broken(&request("\"a\": \"strin\""), "strin\"", "did you mean \"string\"?");
    broken(&request("\"a\": \"map<strin>[]\""), "strin>", "did you mean \"string\"?");
    broken(&request("\"a\": \"int\""), "int\"", "say how wide");
    broken(&request("\"a\": \"map\""), "map\"", "map<T>");
    broken(&request("\"a\": \"u8[\""), "[\"", "add ]");
    broken(&request("\"a\": 7"), "7", "a field's type is a string");
    broken(&request("\"class\": \"u8\""), "\"class\"", "reserved in C++");
    broken(&request("\"orelse\": \"u8\""), "\"orelse\"", "reserved in Zig");
    broken(&request("\"debugger\": \"u8\""), "\"debugger\"", "reserved in TypeScript");
    for of_every_object in ["valueOf", "to_string", "hasOwnProperty"] {
        broken(&request(&format!("\"{of_every_object}\": \"u8?\"")), "\"", "reserved in TypeScript");
    }
    broken(&request("\"receive\": \"u8\""), "\"receive\"", "reserved in Erlang");
    broken(&request("\"Lambda\": \"u8\""), "\"Lambda\"", "reserved in Python");
    broken(
        &request("\"treeId\": \"u8\", \"tree_id\": \"u8\""),
        "\"tree_id\"",
        "become one identifier, tree_id",
    );
    broken(&request("\"a\": \"u8\", \"a\": \"u8\""), "\"a\": \"u8\" }", "is there twice");
    broken(&request("\"a b\": \"u8\""), "\"a b\"", "letters and digits only");
    broken(&request("\"a__b\": \"u8\""), "\"a__b\"", "no two together");
    broken(&request("\"1a\": \"u8\""), "\"1a\"", "must begin with a letter");
    broken(&request(&format!("\"{}\": \"u8\"", "a".repeat(65))), "\"aaa", "longer than 64");
    assert_eq!(
        valid(&request("\"u8\": \"u8\"").replace("\"u8\":", "\"u9\":")).commands[0].request.fields.len(),
        1
    );
}

#[test]
fn a_service_is_not_called_what_a_namespace_cannot_be() {
    for (name, owner) in [("Export", "reserved by C++"), ("Std", "the generated code")] {
        let text =
            request("\"a\": \"u8\"").replace("\"service\": \"Echo\"", &format!("\"service\": \"{name}\""));
        broken(&text, &format!("\"{name}\""), owner);
    }
    // A keyword of Zig's, where a service is a file.
    assert_eq!(valid(&types("").replace("Echo", "Test")).name, "Test");
}

/// `KVID` is one word and `KVId` two, and the method of either is `id`.
#[test]
fn commands_that_are_one_without_the_service_in_front_are_refused() {
    let of = |commands: &str| {
        let whole = types("").replace("\"Echo\"", "\"KV\"");
        whole.replace("\"Say\": {\n\"request\": {}, \"response\": {}\n}", commands)
    };
    const EMPTY: &str = "{ \"request\": {}, \"response\": {} }";
    broken(
        &of(&format!("\"ID\": {EMPTY},\n\"Id\": {EMPTY}")),
        "\"Id\"",
        "the command ID and the command Id become one identifier, id",
    );
    // A stream's items beside a command.
    let stream = EMPTY.replace("} }", "}, \"stream\": {} }");
    broken(
        &of(&format!("\"IDItem\": {EMPTY},\n\"Id\": {stream}")),
        "\"Id\"",
        "the command IDItem and the message IdItem become one identifier, id_item",
    );
    // Told once where they are one with the service in front too: of request and response.
    let whole = parse("t", &of(&format!("\"GetID\": {EMPTY}, \"GetId\": {EMPTY}"))).unwrap_err();
    assert_eq!(whole.list.len(), 2, "{whole}");
    assert_eq!(valid(&of(&format!("\"ID\": {EMPTY}, \"Ids\": {EMPTY}"))).commands.len(), 2);
}

#[test]
fn a_message_is_not_called_what_generated_code_uses() {
    let stream = schema("", "\"request\": {}, \"stream\": {}, \"response\": {}");
    let named = |service: &str, command: &str| stream.replace("Echo", service).replace("Say", command);
    for (service, command, tag) in [
        ("Async", "Items", "AsyncItems"),
        ("Async", "Call", "AsyncCall"),
        ("Uint8", "Array", "Uint8Array"),
        ("E", "OF", "EOF"),
    ] {
        let says = format!("the message {tag} is taken by");
        let problems = parse("t", &named(service, command)).expect_err(tag);
        assert!(problems.list.iter().any(|problem| problem.what.contains(&says)), "{problems}");
        valid(&named(service, &format!("{command}Value")));
    }
    broken(&named("Uint8", "Array"), "\"Array\"", "add a word, as in ArrayValue");
}

#[test]
fn words_that_some_language_has_already_are_refused() {
    for method in ["ErrorTag", "Then", "Be16toh", "Service", "Major", "VaArg", "StMtime"] {
        let problems = parse("t", &types("").replace("Say", method)).expect_err(method);
        let is_told = problems.list.iter().any(|problem| problem.what.contains("a method cannot be called"));
        assert!(is_told, "{problems}");
    }
    for name in ["EOF", "NULL", "NAN", "BUFSIZ", "EIO"] {
        broken(&types(&format!("\"types\": {{ \"{name}\": {{}} }},")), "\"", "a macro of C's library");
        broken(&types(&format!("\"enums\": {{ \"{name}\": [\"one\"] }},")), "\"", "a macro of C's library");
    }
    for field in ["si_pid", "saHandler", "st_mtime", "h_addr", "s6_addr", "d_fileno", "ifr_name"] {
        broken(&types(&format!("\"types\": {{ \"T\": {{ \"{field}\": \"u8\" }} }},")), "\"", "reserved");
    }
    let fine = types("\"types\": { \"Version\": { \"major\": \"u8\", \"minor\": \"u8\" } },");
    assert!(parse("echo.jsonc", &fine).is_ok(), "a macro that takes arguments is in no field's way");
    broken(&types("\"types\": { \"ValueError\": {} },"), "\"ValueError\"", "taken by the generated code");
    let both = "\"types\": { \"BasicInner\": {},\n\"InnerView\": {} },";
    broken(
        &types(both),
        "\"InnerView\"",
        "the type BasicInner and the type InnerView both have BasicInnerView",
    );
    // No language has both of what stands beside these.
    for fine in [
        r#""types": { "BasicKey": {}, "KeyCodec": {} },"#,
        r#""enums": { "BasicMode": ["on"] }, "types": { "ModeView": {} },"#,
        r#""aliases": { "BasicName": "string" }, "types": { "NameView": {} },"#,
    ] {
        assert!(parse("echo.jsonc", &types(fine)).is_ok(), "{fine}");
    }
}

/// The tag of each is `EchoSayResponse`, and both are declared.
#[test]
fn a_command_is_not_another_commands_response_or_item() {
    const EMPTY: &str = "{ \"request\": {}, \"response\": {} }";
    let of = |stream: &str, other: &str| {
        let say = format!("\"Say\": {{ \"request\": {{}},{stream} \"response\": {{}} }}");
        let (one, two) = (format!("{say},\n\"{other}\": {EMPTY}"), format!("\"{other}\": {EMPTY},\n{say}"));
        [one, two]
            .map(|commands| types("").replace("\"Say\": {\n\"request\": {}, \"response\": {}\n}", &commands))
    };
    let stream = " \"stream\": {},";
    for (stream, other) in [("", "SayResponse"), (stream, "SayItem")] {
        let [before, behind] = of(stream, other);
        let (tag, message) =
            (format!("the message Echo{other}"), format!("the message Echo{other} of the command Say"));
        broken(&before, &format!("\"{other}\""), &format!("{message} and {tag} become one identifier"));
        broken(&behind, "\"Say\"", &format!("{tag} and {message} become one identifier"));
        assert_eq!(valid(&of(stream, &format!("{other}s"))[0]).commands.len(), 2);
    }
}

#[test]
fn a_prefix_that_makes_a_name_anew_that_is_taken_is_told() {
    let service = valid(&types("\"types\": { \"MirrorSay\": {}, \"OtherSayView\": {} },"));
    let clash = |prefix: &str| crate::prefix_clash(&service, prefix);
    assert_eq!(clash("Mirror"), Some(("MirrorSay".to_owned(), "the type MirrorSay".to_owned())));
    assert_eq!(clash("Other"), Some(("OtherSay".to_owned(), "the type OtherSayView".to_owned())));
    assert_eq!(clash("Call"), None);
    assert_eq!(clash("Free"), None);
}

#[test]
fn names_that_differ_by_an_underscore_before_a_digit_are_refused() {
    broken(
        &request("\"x_1\": \"u8\", \"x1\": \"u8\""),
        "\"x1\"",
        "the fields x_1 and x1 become one identifier, x1",
    );
    broken(&request("\"tree1Id\": \"u8\", \"tree_1_id\": \"u8\""), "\"tree_1", "one identifier, tree1Id");
    broken(
        &types("\"enums\": { \"Mood\": [\"v_1\", \"v1\"] },"),
        "\"v1\"",
        "the words v_1 and v1 become one identifier, v1",
    );
    broken(&types("\"enums\": { \"Mood\": [\"v-1\", \"v1\"] },"), "\"v1\"", "rename one of them");
    let apart = valid(&request("\"x_1\": \"u8\", \"x_2\": \"u8\", \"x1y\": \"u8\", \"x1_y\": \"u8\""));
    assert_eq!(apart.commands[0].request.fields.len(), 4);
}

#[test]
fn a_type_may_not_contain_itself() {
    let text = types(
        "\"types\": { \"A\": { \"b\": \"B[]\" }, \"B\": { \"c\": \"map<C>\" }, \"C\": { \"a\": \"A?\" } },",
    );
    broken(&text, "\"A\"", "A contains B contains C contains A");
    let giant = types("\"types\": { \"A\": { \"b\": \"B[1024]\" }, \"B\": { \"c\": \"u8[65]\" } },");
    broken(&giant, "\"A\"", "more than 65536");
    valid(&giant.replace("65]", "64]"));
}

#[test]
fn what_stands_in_place_is_counted_in_bytes() {
    // 33 bytes each.
    let message = |count: usize| request(&format!("\"parts\": \"bin32?[{count}]\", \"n\": \"u8[{count}]\""));
    valid(&message(1024));
    let over = message(1024).replace("bin32?[1024]\"", "bin32?[1024][2]\"");
    broken(&over, "\"Say\"", "EchoSay takes 68608 bytes in place");
    for (of, holds) in [("u8[1024][64][]", true), ("u8[1024][65][]", false), ("map<u8[1024][64]?>", false)] {
        let text = request(&format!("\"a\": \"{of}\""));
        if holds {
            valid(&text);
        } else {
            broken(&text, "\"Say\"", "an item of a list or map in EchoSay takes");
        }
    }
    let aliased = "\"aliases\": { \"Digest\": \"bin32\", \"Text\": \"string\" },";
    for (of, most) in
        [("u8", 1024), ("Digest", 32), ("Text", 32), ("u64?", 64), ("u16[]", 42), ("map<u8>?", 18)]
    {
        let text = |count: usize| {
            types(&format!("{aliased} \"types\": {{ \"A\": {{ \"b\": \"{of}[{count}][64]\" }} }},"))
        };
        valid(&text(most.min(1023)));
        if most < 1024 {
            broken(&text(most + 1), "\"A\"", "use lists");
        }
    }
}

#[test]
fn types_that_share_types_are_counted_once() {
    // As many ways through them as 2 to the 60th.
    let shared = |field: &str| {
        let of =
            |n: u32| format!("\"T{n}\": {{ \"a\": \"T{}{field}\", \"b\": \"T{}{field}\" }},", n + 1, n + 1);
        let chain: String = (0..60).map(of).collect();
        types(&format!("\"types\": {{ {chain} \"T60\": {{ \"c\": \"u8\" }} }},"))
    };
    assert_eq!(valid(&shared("[]")).types.len(), 61);
    let problems = parse("t", &shared("?")).unwrap_err();
    // The last fourteen and the one behind them hold as much as they may.
    assert_eq!(problems.list.len(), 61 - 15);
}

#[test]
fn commands_are_checked() {
    broken(&schema("", "\"request\": {}"), "\"Say\"", "Say has no response");
    broken(
        &schema("", "\"request\": {}, \"response\": {}, \"steam\": {}"),
        "\"steam\"",
        "did you mean \"stream\"?",
    );
    broken(&types("").replace("Say", "say"), "\"say\"", "write Say");
    broken(&types("").replace("Say", "New"), "\"New\"", "a method cannot be called new");
    broken(&types("").replace("Say", "ErrorResponse"), "\"Error", "EchoErrorResponse");
    broken(&types("").replace("Say", "Client"), "\"Client\"", "the generated EchoClient");
    broken(&types("").replace("Say", "While"), "\"While\"", "cannot be called while");
    for of_zig in ["I7", "U65535", "Anyerror"] {
        broken(&types("").replace("Say", of_zig), &format!("\"{of_zig}\""), "reserved by Zig");
    }
    assert_eq!(valid(&types("").replace("Say", "Ix7")).commands[0].name, "Ix7");
    let reuse = |name: &str| {
        types("").replace(
            "\"Say\": {",
            &format!("\"Tell\": {{ \"request\": {{}}, \"response\": \"{name}\" }},\n\"Say\": {{"),
        )
    };
    broken(&reuse("SayRespons"), "\"SayRespons\"", "did you mean \"SayResponse\"?");
    broken(&reuse("TellResponse"), "\"TellResponse\"", "no command declares");
    for name in ["SayResponse", "EchoSayResponse"] {
        let service = valid(&reuse(name));
        assert_eq!(service.commands[0].response.tag, "EchoSayResponse");
        assert_eq!(service.messages().len(), 4);
    }
}

#[test]
fn schedules_are_checked() {
    let scheduled = |rest: &str| {
        schema(
            "",
            &format!("\"request\": {{ \"id\": \"u64\", \"f\": \"f64\" }}, \"response\": {{}},\n{rest}"),
        )
    };
    broken(&scheduled("\"schedule\": \"wirte\""), "\"wirte\"", "did you mean \"write\"?");
    broken(&scheduled("\"schedule\": \"write\""), "\"write\"", "no fork is named");
    broken(&scheduled("\"fork\": \"id\""), "\"fork\"", "orders nothing");
    broken(&scheduled("\"schedule\": \"read\", \"fork\": \"ids\""), "\"ids\"", "did you mean \"id\"?");
    broken(&scheduled("\"schedule\": \"read\", \"fork\": \"f\""), "\"f\"", "a fork is named by");
    valid(&scheduled("\"schedule\": \"read committed\""));
    valid(&scheduled("\"schedule\": \"read\", \"fork\": \"id\""));
}

#[test]
fn a_service_says_whether_it_is_ordered_by_which_field_and_whether_it_has_streams() {
    let of = |rest: &str| {
        valid(&schema("", &format!("\"request\": {{ \"id\": \"u64\" }}, \"response\": {{}}{rest}")))
    };
    let fork = |service: &Service| service.commands[0].fork().map(|field| field.name.clone());
    let plain = of("");
    assert_eq!((plain.is_ordered(), plain.has_streams(), fork(&plain)), (false, false, None));
    let ordered = of(", \"schedule\": \"write\", \"fork\": \"id\"");
    assert_eq!((ordered.is_ordered(), fork(&ordered)), (true, Some("id".to_owned())));
    let committed = of(", \"schedule\": \"read committed\"");
    assert_eq!((committed.is_ordered(), fork(&committed)), (true, None));
    assert!(of(", \"stream\": { \"n\": \"u8\" }").has_streams());
}

#[test]
fn all_problems_are_told_at_once_in_the_order_of_the_text() {
    let text =
        schema("\"typos\": {},", "\"request\": { \"a\": \"u9\" },\n\"response\": { \"class\": \"nothing\" }");
    let problems = parse("t", &text).unwrap_err();
    let lines: Vec<usize> = problems.list.iter().map(|p| p.line).collect();
    assert_eq!(lines, [3, 6, 7, 7]);
}

#[test]
fn the_hash_is_of_the_meaning() {
    let text =
        schema("\"types\": { \"A\": { \"n\": \"u8\" } },", "\"request\": { \"a\": \"A\" }, \"response\": {}");
    let hash = valid(&text).hash;
    let commented = format!("// words\n{}", text.replace("\n", "\n\n  // more\n  ").replace("} }", ",} }"));
    assert_eq!(valid(&commented.replace("{,}", "{}").replace("{},}", "{}}")).hash, hash);
    let scheduled = text.replace("\"response\": {}", "\"response\": {}, \"schedule\": \"read committed\"");
    assert_eq!(valid(&scheduled).hash, hash);
    for (from, to) in [
        ("\"u8\"", "\"u16\""),
        ("\"n\"", "\"m\""),
        ("Echo", "Ekho"),
        ("Say", "Tell"),
        ("\"A\" }", "\"A?\" }"),
    ] {
        assert_ne!(valid(&text.replace(from, to)).hash, hash, "{from} {to}");
    }
    // Pinned, so that a change of the canonical form is seen: it would part clients from servers.
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "52ef8c7d407f9675d187f845aa61a828530b765bfe527d7d0b12206ed71ee2dc");
}

#[test]
fn the_order_of_declaration_is_kept_and_dependencies_can_be_told() {
    let service = valid(&types("\"types\": { \"A\": { \"b\": \"map<B>[]\" }, \"B\": { \"c\": \"u8\" } },"));
    let names = |list: Vec<&crate::Struct>| list.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(service.types.iter().collect()), ["A", "B"]);
    assert_eq!(names(service.types_by_dependency()), ["B", "A"]);
    assert_eq!(service.encoded_bytes_min(&service.types[1].fields[0].of), 1);
    assert_eq!(service.encoded_bytes_min(&crate::Type::Struct("B".into())), 4);
}

#[test]
fn the_fewest_bytes_of_a_type_take_no_longer_the_deeper_it_is_made_of_others() {
    let count = 20_000;
    let each = |n: usize| match n {
        0 => "\"T0\": { \"a\": \"u8\" }".to_owned(),
        n => format!("\"T{n}\": {{ \"a\": \"T{}\" }}", n - 1),
    };
    let all: Vec<String> = (0..count).map(each).collect();
    let service = valid(&types(&format!("\"types\": {{ {} }},", all.join(", "))));
    let sizes: Vec<usize> = service
        .types
        .iter()
        .map(|of| service.encoded_bytes_min(&crate::Type::Struct(of.name.clone())))
        .collect();
    // A map, a name of one letter, and a byte; then a map and such a name before all that.
    assert_eq!(sizes[..3], [4, 7, 10]);
    assert_eq!(sizes[count - 1], 4 + 3 * (count - 1));
}

#[test]
fn the_documented_example_is_a_schema() {
    let document = include_str!("../../../../../docs/schema.md");
    let example = document.split("```jsonc").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let service = valid(example);
    assert_eq!(service.commands[1].item.as_ref().unwrap().tag, "StoreScanItem");
    assert!(service.doc.starts_with("Keeps values apart by fork."));
}

#[test]
fn a_long_chain_of_types_is_put_in_order_and_a_ring_at_its_end_is_told_alone() {
    let link = |n: usize| format!("\"T{n}\": {{ \"a\": \"T{}[]\", \"b\": \"map<T{}>\" }}", n + 1, n + 1);
    let links: Vec<String> = (0..200).map(link).collect();
    let chain = |last: &str| types(&format!("\"types\": {{ {}, \"T200\": {last} }},", links.join(",\n")));
    let closed = chain("{ \"a\": \"T199\" }");
    broken(&closed, "\"T199\"", "a type contains itself: T199 contains T200 contains T199");
    let service = valid(&chain("{}"));
    let ordered = service.types_by_dependency();
    assert_eq!((ordered[0].name.as_str(), ordered[200].name.as_str()), ("T200", "T0"));
}

#[test]
fn an_alias_with_a_suffix_is_told_where_that_goes() {
    let text = types("\"aliases\": { \"Id\": \"u8?\" },");
    broken(&text, "\"u8?\"", "declare \"u8\", and write Id? where it is used");
}

#[test]
fn a_name_is_quoted_as_it_is_written() {
    broken(&types("\"enums\": { \"Mood\": [\"in-a hurry\"] },"), "\"in-a hurry\"", "\"in-a hurry\"");
    broken(&types("\"aliases\": { \"Id\": \"u8 \" },"), "\"u8 \"", "did you mean \"u8\"?");
}

/// A schema with `count` of everything that has a name. Of each kind, `wrong` more refer to what is not
/// there.
fn large(count: usize, wrong: usize) -> String {
    let all = |one: &dyn Fn(usize) -> String| (0..count).map(one).collect::<Vec<_>>().join(",\n");
    let aliases = all(&|n| format!("\"A{n}\": \"u8\""));
    let enums = all(&|n| format!("\"E{n}\": [\"one\"]"));
    let words = all(&|n| format!("\"w{n}\""));
    let types =
        all(&|n| format!("\"Type{n}\": {{ \"a\": \"A{n}\", \"e\": \"E{n}?\", \"t\": \"Type{}[]\" }}", n + 1));
    let fields = all(&|n| format!("\"n{n}\": \"u8\""));
    let commands = all(&|n| {
        let scheduled = "\"schedule\": \"write\", \"fork\": \"a\"";
        format!(
            "\"C{n}\": {{ \"request\": {{ \"a\": \"A{n}\" }}, \"response\": {{}}, {scheduled} }},\n\
                 \"B{n}\": {{ \"request\": {{}}, \"response\": \"C{n}Response\" }}"
        )
    });
    let missing = (0..wrong).map(|n| format!("\"m{n}\": \"Typpe{n}\"")).collect::<Vec<_>>().join(", ");
    let borrowers = (0..wrong)
        .map(|n| format!(",\n\"D{n}\": {{ \"request\": {{}}, \"response\": \"Cc{n}Response\" }}"))
        .collect::<String>();
    format!(
        "{{ \"service\": \"S\", \"error\": {{ \"message\": \"string\" }}, \"aliases\": {{ {aliases} }},\n\
         \"enums\": {{ {enums}, \"All\": [{words}] }},\n\
         \"types\": {{ {types}, \"Type{count}\": {{ {fields} }}, \"Missing\": {{ {missing} }} }},\n\
         \"commands\": {{ {commands}{borrowers} }} }}"
    )
}

/// The work for each name is the same however many there are; and types that nest deep nest no calls.
#[test]
fn the_work_grows_with_the_schema_and_not_with_its_square() {
    let splits = |count: usize| {
        let before = crate::casing::SPLITS.get();
        assert_eq!(valid(&large(count, 0)).commands.len(), 2 * count);
        crate::casing::SPLITS.get() - before
    };
    let (few, many) = (splits(10), splits(20_000));
    assert!(many < few * 2_000, "{few} names split for 10 of each, {many} for 20,000");
}

#[test]
fn names_are_suggested_for_so_many_mistakes_as_can_be_looked_up() {
    let told = |count: usize, wrong: usize| {
        let problems = parse("t", &large(count, wrong)).unwrap_err();
        assert_eq!(problems.list.len(), 2 * wrong, "{problems}");
        problems.list.iter().filter(|problem| problem.hint.starts_with("did you mean")).count()
    };
    assert_eq!(told(10, 10), 20);
    // Each looks at more than 2,000 names.
    let most = crate::problem::COMPARISONS_MAX / 2_000 + 1;
    assert!((1..=most).contains(&told(2_000, 2_000)));
}

#[test]
fn a_name_is_declared_twice_in_whatever_order_the_sections_stand() {
    broken(
        &types("\"types\": { \"Id\": {} }, \"aliases\": { \"Id\": \"u8\" },"),
        "\"Id\": {}",
        "declared twice",
    );
}

#[test]
fn a_prefix_makes_a_name_that_another_in_another_casing_or_with_something_beside_it_has() {
    for (declared, prefix, made) in [
        ("\"types\": { \"MIRRORSay\": {} },", "MIRROR", "MIRRORSay"),
        ("\"types\": { \"ABSay\": {} },", "Ab", "AbSay"),
        ("\"enums\": { \"XSayResponse\": [\"one\"] },", "X", "XSayResponse"),
        ("\"types\": { \"YSayCodec\": {} },", "Y", "YSay"),
    ] {
        let service = valid(&types(declared));
        assert_eq!(crate::prefix_clash(&service, prefix).map(|(made, _)| made).as_deref(), Some(made));
    }
    let service = valid(&types("\"types\": { \"SayView\": {}, \"Z\": {} },"));
    let both = crate::prefix_clash(&service, "Basic");
    assert_eq!(both, Some(("BasicSay".to_owned(), "the type SayView".to_owned())));
}
