//! What the options do, and which do not go together.
#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

use clap::Parser;
use std::path::Path;
use std::process::Command;
use thalweg_codegen::{Arguments, Error, File, Language, check, generate, run};

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn schema() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../schemas/echo.jsonc"))
}

fn arguments(lang: &str, more: &[&str]) -> Arguments {
    let schema = schema().display().to_string();
    let words = ["codegen", "--schema", &schema, "--lang", lang, "--out", "unused"];
    Line::try_parse_from(words.iter().chain(more)).unwrap().arguments
}

fn generated(lang: &str, more: &[&str]) -> Result<Vec<File>, Error> {
    let text = std::fs::read_to_string(schema()).unwrap();
    generate(&thalweg_schema::parse("echo.jsonc", &text).unwrap(), &arguments(lang, more))
}

fn refused(lang: &str, more: &[&str]) -> String {
    generated(lang, more).unwrap_err().to_string()
}

fn text<'f>(files: &'f [File], path: &str) -> &'f str {
    &files.iter().find(|file| file.path == path).unwrap_or_else(|| panic!("no {path} in {files:?}")).text
}

const LANGUAGES: [&str; 6] = ["cpp", "rust", "ts", "python", "zig", "erlang"];

#[test]
fn unknown_flags_and_missing_ones_are_refused() {
    for words in [
        &["codegen", "--schema", "s", "--lang", "rust", "--out", "o", "--sever"][..],
        &["codegen", "--schema", "s", "--lang", "cobol", "--out", "o"],
        &["codegen", "--schema", "s", "--lang", "rust"],
    ] {
        assert!(Line::try_parse_from(words).is_err(), "{words:?}");
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    assert!(refused("rust", &["--cpp-namespace", "a"]).contains("for --lang cpp"));
    assert!(refused("cpp", &["--cpp-namespace", "a::"]).contains("no namespace"));
    assert!(refused("rust", &["--prefix", "echo"]).contains("LikeThis"));
    assert!(refused("rust", &["--package", "Echo"]).contains("small letters"));
    // Zig's own build says so of the file it would get.
    let (fits, longer) = ("a".repeat(32), "a".repeat(33));
    assert!(refused("zig", &["--package", &longer]).contains("longer than 32 characters, and this has 33"));
    assert!(
        generated("zig", &["--package", &fits]).is_ok() && generated("rust", &["--package", &longer]).is_ok()
    );
    assert!(refused("zig", &["--runtime", "x"]).contains("--runtime is for"));
    for (lang, runtime) in
        [("rust", "own runtime"), ("rust", ""), ("python", "own/runtime"), ("ts", "a\"b"), ("cpp", "a\nb")]
    {
        assert!(refused(lang, &["--runtime", runtime]).contains("--runtime"), "{lang} {runtime:?}");
    }
    for (lang, runtime) in [
        ("rust", "crate::own"),
        ("python", "..own.runtime"),
        ("python", "."),
        ("ts", "@own/runtime"),
        ("cpp", "own/../runtime"),
    ] {
        assert!(generated(lang, &["--runtime", runtime]).is_ok(), "{lang} {runtime:?}");
    }
    for (lang, package) in [
        ("python", "class"),
        ("rust", "match"),
        ("rust", "proc-macro"),
        ("zig", "error"),
        ("erlang", "receive"),
        ("cpp", "test"),
    ] {
        assert!(refused(lang, &["--package", package]).contains("keeps this word"), "{lang} {package}");
    }
    assert!(
        generated("rust", &["--package", "class"]).is_ok()
            && generated("ts", &["--package", "match"]).is_ok()
    );
    assert!(refused("rust", &["--strip-method-prefix", "Peek"]).contains("add --client or --server"));
    assert!(refused("rust", &["--client", "--strip-method-prefix", "Poke"]).contains("no command begins"));
}

/// Zig's client has its runtime by that name.
#[test]
fn no_prefix_is_stripped_down_to_what_generated_code_uses() {
    let text = "{ \"service\": \"Odd\", \"error\": { \"message\": \"string\" }, \
        \"commands\": { \"OddService\": { \"request\": {}, \"response\": {} } } }";
    let service = thalweg_schema::parse("t.jsonc", text).unwrap();
    let stripped = arguments("zig", &["--client", "--strip-method-prefix", "Odd"]);
    let told = generate(&service, &stripped).unwrap_err().to_string();
    assert!(told.contains("service is reserved by the generated code"), "{told}");
    assert!(generate(&service, &arguments("zig", &["--client"])).is_ok());
    // In TypeScript's casing, too.
    let text = text.replace("OddService", "OddToString");
    let service = thalweg_schema::parse("t.jsonc", &text).unwrap();
    let told = generate(&service, &stripped).unwrap_err().to_string();
    assert!(told.contains("toString is reserved by TypeScript"), "{told}");
}

/// What is generated for a service of this name.
fn of_service(name: &str, lang: &str, more: &[&str]) -> Result<Vec<File>, Error> {
    let text = format!(
        "{{ \"service\": \"{name}\", \"error\": {{ \"message\": \"string\" }}, \
         \"commands\": {{ \"Put\": {{ \"request\": {{}}, \"response\": {{}} }} }} }}"
    );
    generate(&thalweg_schema::parse("t.jsonc", &text).unwrap(), &arguments(lang, more))
}

#[test]
fn a_namespace_that_c_has_a_name_for_is_refused_in_cpp_alone() {
    for name in ["Log", "Time", "Index", "Select", "Remove", "J0", "FileHandle"] {
        let told = of_service(name, "cpp", &[]).unwrap_err().to_string();
        assert!(told.contains("C's library") && told.contains("--cpp-namespace"), "{name}: {told}");
        for more in [["--cpp-namespace", "own"], ["--cpp-namespace", "own::log"]] {
            assert!(of_service(name, "cpp", &more).is_ok(), "{name}");
        }
        assert!(LANGUAGES[1..].iter().all(|lang| of_service(name, lang, &[]).is_ok()), "{name}");
    }
    let log = std::fs::read_to_string(schema().with_file_name("log.jsonc")).unwrap();
    let log = thalweg_schema::parse("log.jsonc", &log).unwrap();
    assert!(
        generate(&log, &arguments("cpp", &[]))
            .unwrap_err()
            .to_string()
            .contains("as in --cpp-namespace log_service")
    );
    let files = generate(&log, &arguments("cpp", &["--cpp-namespace", "log_service"])).unwrap();
    assert!(text(&files, "log_types.hpp").contains("namespace log_service::inline "));
    for (namespace, why) in [
        ("log", "C's library"),
        ("log::own", "C's library"),
        ("class", "reserved by C++"),
        ("own::namespace", "reserved by C++"),
        ("own::std", "reserved by the generated code"),
        ("own::thalweg", "reserved by the generated code"),
    ] {
        let told = refused("cpp", &["--cpp-namespace", namespace]);
        assert!(told.contains(why), "{namespace}: {told}");
    }
}

#[test]
fn a_service_whose_modules_otp_has_is_refused_in_erlang_alone() {
    for (name, more) in [
        ("File", "--server"),
        ("Gen", "--server"),
        ("DiskLog", "--server"),
        ("Beam", "--client"),
        ("CtTelnet", "--client"),
        ("ModSecurity", "--server"),
        ("SshFsmUserauth", "--client"),
        ("SshTcpipForward", "--client"),
    ] {
        let told = of_service(name, "erlang", &[more]).unwrap_err().to_string();
        assert!(told.contains(&format!("as in {name}Service")), "{name}: {told}");
        assert!(LANGUAGES[..5].iter().all(|lang| of_service(name, lang, &[more]).is_ok()), "{name}");
    }
    // Only what is written is in anybody's way.
    assert!(of_service("File", "erlang", &["--client"]).is_ok());
}

#[test]
fn a_stream_of_python_that_is_ordered_by_its_fork_lets_no_other_call_run() {
    let keeps_turn = |schedule: &str| {
        let schema = format!(
            "{{ \"service\": \"T\", \"error\": {{ \"message\": \"string\" }}, \"commands\": {{ \"Walk\": {{ \
             \"request\": {{ \"id\": \"u8\" }}, \"stream\": {{}}, \"response\": {{}}{schedule} }} }} }}"
        );
        let service = thalweg_schema::parse("t.jsonc", &schema).unwrap();
        let files = generate(&service, &arguments("python", &["--server"])).unwrap();
        text(&files, "t_server.py").matches("in_turn=True").count()
    };
    assert_eq!(keeps_turn(""), 0);
    assert_eq!(keeps_turn(", \"schedule\": \"read committed\""), 0);
    // On an event loop the fork orders it.
    assert_eq!(keeps_turn(", \"schedule\": \"read\", \"fork\": \"id\""), 1);
    assert_eq!(keeps_turn(", \"schedule\": \"write\", \"fork\": \"id\""), 1);
}

#[test]
fn types_that_share_types_are_generated_once() {
    let types = |count: u32| -> String {
        let of = |n: u32| {
            format!("\"T{n}\": {{ \"a\": \"T{0}[]\", \"b\": \"T{0}[]\", \"c\": \"T{0}?[]\" }}, ", n + 1)
        };
        (0..count).map(of).chain([format!("\"T{count}\": {{ \"d\": \"u8\" }}")]).collect()
    };
    let text = format!(
        "{{ \"service\": \"Store\", \"error\": {{ \"message\": \"string\" }}, \"types\": {{ {} }}, \
         \"commands\": {{ \"Put\": {{ \"request\": {{ \"t\": \"T0\" }}, \"response\": {{}} }} }} }}",
        types(60)
    );
    let service = thalweg_schema::parse("t.jsonc", &text).unwrap();
    for lang in LANGUAGES {
        let files = generate(&service, &arguments(lang, &[])).unwrap();
        let types = files.iter().find(|file| file.path.contains("types")).unwrap();
        assert!(types.text.len() < 300_000, "{lang}: {}", types.text.len());
    }
}

#[test]
fn rust_is_laid_out_alike_wherever_the_generator_is_called() {
    const BESIDE: &str = "THALWEG_GENERATES_BESIDE";
    if std::env::var_os(BESIDE).is_some() {
        match generated("rust", &["--client"]) {
            Ok(files) => println!("{}", text(&files, "types.rs")),
            Err(error) => println!("{error}"),
        }
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("rustfmt.toml"), "hard_tabs = true\n").unwrap();
    let wanted = generated("rust", &["--client"]).unwrap();
    assert!(text(&wanted, "types.rs").contains("\n    pub "));
    // This test again, in a process of its own: the others of this one are where they are.
    let mut there = Command::new(std::env::current_exe().unwrap());
    there.args(["--exact", "rust_is_laid_out_alike_wherever_the_generator_is_called", "--nocapture"]);
    there.env(BESIDE, "yes").current_dir(place.path());
    let output = there.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains(text(&wanted, "types.rs")), "{output:?}");
    // Without what lays it out nothing is written.
    let output = there.env("PATH", place.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(told.contains("rustup component add rustfmt") && !told.contains("pub struct"), "{told}");
}

#[test]
fn client_and_server_are_written_when_asked_for() {
    for lang in LANGUAGES {
        let named = |more: &[&str], part: &str| {
            generated(lang, more).unwrap().iter().any(|file| file.path.contains(part))
        };
        assert!(named(&[], "types") && !named(&[], "client") && !named(&[], "server"), "{lang}");
        assert!(named(&["--client"], "client") && !named(&["--client"], "server"), "{lang}");
        assert!(named(&["--server"], "server") && !named(&["--server"], "client"), "{lang}");
    }
}

#[test]
fn a_dispatch_that_keeps_no_order_says_so_in_every_language() {
    for (lang, path, unordered, plain) in [
        (
            "cpp",
            "echo_server.hpp",
            "void dispatch_unordered(",
            "void dispatch(EchoHandler& handler, thalweg::FrameView",
        ),
        ("rust", "server.rs", "pub fn dispatch_unordered<", "pub fn dispatch<"),
        ("ts", "echo_server.ts", "function dispatchUnordered(", "function dispatch("),
        ("python", "echo_server.py", "async def dispatch_unordered(", "def dispatch("),
        ("python", "echo_server.py", "\ndef dispatch_unordered_sync(", "def dispatch_sync("),
        ("zig", "echo_server.zig", "pub fn dispatchUnordered(", "pub fn dispatchInTurn("),
        ("erlang", "echo_server.erl", "-export([dispatch_unordered/3, ", "dispatch/3"),
    ] {
        let files = generated(lang, &["--server"]).unwrap();
        let server = text(&files, path);
        assert!(server.contains(unordered) && !server.contains(plain), "{lang}: {server}");
    }
}

/// What a value takes is each language's own; what a frame's values may take is one bound for all.
#[test]
fn what_a_frame_may_take_in_memory_is_the_same_in_every_language() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, per_byte, besides) in [
        ("runtime/cpp/reader.hpp", "held_per_byte = 64;", "held_besides = 16U << 20U;"),
        ("runtime/erlang/thalweg_messagepack.erl", "(HELD_PER_BYTE, 64).", "(HELD_BESIDES, (16 bsl 20))."),
        (
            "runtime/python/messagepack.py",
            "_HELD_PER_BYTE: Final = 64\n",
            "_HELD_BESIDES: Final = 16 << 20\n",
        ),
        ("runtime/ts/reader.ts", "HELD_PER_BYTE = 64;", "HELD_BESIDES = 16 << 20;"),
        ("runtime/zig/reader.zig", "held_per_byte = 64;", "held_besides = 16 << 20;"),
        ("../wire/src/messagepack/read.rs", "HELD_PER_BYTE: usize = 64;", "HELD_BESIDES: usize = 16 << 20;"),
    ] {
        let text = std::fs::read_to_string(folder.join(path)).unwrap();
        assert!(text.contains(per_byte) && text.contains(besides), "{path}");
    }
}

#[test]
fn a_prefix_changes_types_and_never_the_wire() {
    for lang in LANGUAGES {
        let files = generated(lang, &["--prefix", "Mirror"]).unwrap();
        let types = files.iter().find(|file| file.path.contains("types")).unwrap();
        assert!(types.text.contains("MirrorBytesResponse"), "{lang}");
        assert!(types.text.contains("EchoBytesResponse"), "{lang}");
    }
}

#[test]
fn methods_lose_a_prefix() {
    let more = ["--client", "--server", "--strip-method-prefix", "Peek"];
    for (lang, wanted, gone) in [
        ("rust", "fn committed(", "fn peek_committed("),
        ("ts", "committed(request", "peekCommitted(request"),
        ("python", "def committed(", "def peek_committed("),
    ] {
        let files = generated(lang, &more).unwrap();
        let client = files.iter().find(|file| file.path.contains("client")).unwrap();
        assert!(client.text.contains(wanted) && !client.text.contains(gone), "{lang}");
        // What is the prefix and nothing more keeps its name.
        assert!(client.text.contains("peek("), "{lang}");
    }
}

#[test]
fn the_namespace_and_the_runtime_are_the_callers() {
    let files = generated("cpp", &["--cpp-namespace", "a::b"]).unwrap();
    assert!(text(&files, "echo_types.hpp").contains("namespace a::b::inline "));
    // Whole, because the runtime's namespace may have an `a` in it.
    assert!(text(&files, "echo_types.hpp").contains("template <> struct Codec<::a::b::Mood>"));
    assert!(!text(&files, "echo_types.hpp").contains("Codec<a::b"));
    for (lang, types, import) in [
        ("rust", "types.rs", "use own::runtime::messagepack"),
        ("ts", "echo_types.ts", "from \"own::runtime\""),
    ] {
        let files = generated(lang, &["--runtime", "own::runtime"]).unwrap();
        assert!(text(&files, types).contains(import), "{lang}");
        assert!(files.iter().all(|file| !file.path.starts_with("messagepack")), "{lang}");
    }
}

#[test]
fn packages_have_their_manifests() {
    for (lang, manifest, name) in [
        ("cpp", "CMakeLists.txt", "project(echo-client"),
        ("rust", "Cargo.toml", "name = \"echo-client\""),
        ("ts", "package.json", "\"name\": \"echo-client\""),
        ("python", "pyproject.toml", "name = \"echo-client\""),
        ("zig", "build.zig.zon", ".name = .echo_client"),
        ("erlang", "src/echo_client.app.src", "{application, echo_client,"),
    ] {
        let files = generated(lang, &["--client", "--package", "echo-client"]).unwrap();
        assert!(text(&files, manifest).contains(name), "{lang}");
    }
}

#[test]
fn a_package_of_rust_depends_on_what_is_ours_and_not_on_a_name_that_anybody_may_register() {
    let files = generated("rust", &["--client", "--package", "echo-client"]).unwrap();
    let manifest = text(&files, "Cargo.toml");
    let dependency = manifest.split_once("[dependencies]\n").unwrap().1;
    assert_eq!(dependency, "thalweg-wire = { git = \"https://github.com/thalweg/thalweg\" }\n");
}

#[test]
fn a_run_is_repeatable_and_checks_itself() {
    let directory = tempfile::tempdir().unwrap();
    for lang in
        [Language::Cpp, Language::Rust, Language::Ts, Language::Python, Language::Zig, Language::Erlang]
    {
        let arguments = Arguments::new(schema(), lang, directory.path().join(format!("{lang:?}")));
        assert!(!run(&arguments).unwrap().written.is_empty());
        assert!(run(&arguments).unwrap().written.is_empty());
        assert!(check(&arguments).unwrap().is_empty());
    }
    let missing = Arguments::new("nowhere.jsonc", Language::Rust, directory.path());
    assert!(run(&missing).unwrap_err().to_string().starts_with("nowhere.jsonc: "));
}
