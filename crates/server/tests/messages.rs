//! What the program says to people who asked for what cannot be: in words they can act on.

#![allow(clippy::unwrap_used, reason = "this is a test's code, though not all of it in test functions")]

mod common;

use common::{PROGRAM, Server, ask, fails, run, says};
use std::path::Path;
use std::process::Command;

const NOWHERE: &str = "http://127.0.0.1:9";

/// The exit code and the complaint of a program that must fail with some variables set.
fn fails_with(variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String) {
    let output = Command::new(PROGRAM).args(arguments).envs(variables.iter().copied()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_beginning_that_no_server_gave_out_is_answered_with_what_the_flag_takes() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let data = directory.path().to_str().unwrap();
    says(&server.url, &["create", "a"]);
    for from in ["yesterday", "2026-11-27", "5"] {
        for verb in [&["read", "a"][..], &["tail", "a"], &["tail", "a", "--via", "sock", "--data", data]] {
            let (code, said) = fails(&server.url, &[verb, &["--from", from]].concat());
            assert!(code == 1 && said.contains(&format!("--from {from}: expected an offset")), "{said}");
            assert!(said.contains("`beginning`") && said.contains("2030-01-01T00:00:00Z"), "{said}");
        }
    }
}

#[test]
fn a_place_without_a_store_is_told_alike_by_every_verb() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (nothing, empty, file, broken) = (at("nothing"), at("empty"), at("passwd"), at("broken"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "root:x:0:0\n").unwrap();
    Server::start(&broken, "127.0.0.1:0", &[]).end();
    std::fs::remove_file(broken.join("control")).unwrap();
    let to = text(&at("to"));
    for (place, wanted, code) in [
        (&nothing, "does not exist", 1),
        (&empty, "holds no store", 1),
        (
            &broken,
            "is a damaged store: there are segments, and no control file; put `control` back, or restore a backup",
            5,
        ),
    ] {
        let place = text(place);
        let wanted = format!("thalweg: {place} {wanted}\n");
        for verb in [&["verify", "--data", &place][..], &["backup", &place, &to], &["restore", &place, &to]] {
            assert_eq!(fails("", verb), (code, wanted.clone()), "{verb:?}");
        }
        // What is left of a damaged store is shown.
        if place != text(&broken) {
            assert_eq!(fails("", &["parse", &place]), (code, wanted));
        }
    }
    assert_eq!(run("", &["parse", &text(&broken)], "").status.code(), Some(0));
    let wanted = format!("thalweg: {} is no segment of a store\n", file.display());
    assert_eq!(fails("", &["parse", &text(&file)]), (1, wanted));
}

#[test]
fn a_refusal_names_the_header_or_parameter_at_fault() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let (code, said) = fails(&server.url, &["create", "a", "--content-type", "nonsense"]);
    assert!(code == 1 && said.contains("(400): Content-Type: it has to be a media type"), "{said}");
    let (_, said) = fails(&server.url, &["read", "a", "--from", "nonsense"]);
    assert!(said.contains("(400): --from nonsense: expected an offset"), "{said}");
    let (_, said) = fails(&server.url, &["read", "none"]);
    assert!(said.contains("(404): no stream of that name exists"), "{said}");
}

#[test]
fn what_a_service_is_not_is_answered_with_those_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &["--rpc", "on"]);
    for (path, wanted) in [
        ("/rpc/nothing", "there is no service `nothing` here; there are: log, state"),
        ("/rpc", "a service is called at /rpc/<service>; there are: log, state"),
        ("/rpc/", "a service is called at /rpc/<service>; there are: log, state"),
    ] {
        for method in ["POST", "GET"] {
            let said = ask(&server, &format!("{method} {path} HTTP/1.1"));
            assert!(said.starts_with("HTTP/1.1 404") && said.contains(wanted), "{said}");
        }
    }
}

#[test]
fn a_value_of_the_environment_is_said_to_come_from_there() {
    let wanted = "invalid value 'loud' for `log_level` (environment, THALWEG_LOG_LEVEL)";
    for flags in [&["serve", "--print-config"][..], &["doctor"], &["serve", "--output", "json"]] {
        let (code, said) = fails_with(&[("THALWEG_LOG_LEVEL", "loud")], flags);
        assert!(code == 2 && said.contains(wanted) && said.contains("debug"), "{flags:?}: {said}");
    }
    // A flag whose value may be left out is written differently.
    let wanted = "`insecure_listen_anywhere` (environment, THALWEG_INSECURE_LISTEN_ANYWHERE)";
    let (code, said) = fails_with(&[("THALWEG_INSECURE_LISTEN_ANYWHERE", "yes")], &["serve"]);
    assert!(code == 2 && said.contains(wanted) && said.contains("true, false"), "{said}");
    let line = ["serve", "--print-config", "--log-level", "louder"];
    let (_, said) = fails_with(&[("THALWEG_LOG_LEVEL", "loud")], &line);
    assert!(said.contains("'louder' for '--log-level <"), "{said}");
}

/// What `serve --print-config` prints with some variables set.
fn configured(variables: &[(&str, &str)], flags: &[&str]) -> String {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--print-config"]).args(flags).envs(variables.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn blanks_around_commas_are_none_of_a_value_and_an_empty_variable_is_none() {
    let printed = configured(
        &[
            ("THALWEG_LISTEN", "127.0.0.1:1, unix:/s"),
            ("THALWEG_CORS_ORIGINS", "https://a.example , https://b.example"),
            ("THALWEG_HOSTS", " a.example, b.example "),
            ("THALWEG_RPC", ""),
            ("THALWEG_LOG_LEVEL", ""),
            ("THALWEG_STREAMS_MAX", ""),
        ],
        &[],
    );
    for wanted in [
        "listen = [\"127.0.0.1:1\", \"unix:/s\"] #",
        "cors_origins = [\"https://a.example\", \"https://b.example\"] #",
        "hosts = [\"a.example\", \"b.example\"] #",
        "rpc = [\"off\"] # default\n",
        "log_level = \"info\" # default\n",
        "# streams_max is not set: ",
    ] {
        assert!(printed.contains(wanted), "{wanted}: {printed}");
    }
    let (code, said) = fails_with(&[("THALWEG_TOKEN", "")], &["head", "a", "--url", NOWHERE]);
    assert!(code == 3, "{said}");
}

#[test]
fn what_is_not_set_is_printed_with_what_it_comes_to() {
    let printed = configured(&[], &["--connections-max", "40", "--reactors", "2"]);
    assert!(printed.contains("# subscribers_max is not set: 40, as many as connections\n"), "{printed}");
    assert!(printed.contains(", by a quarter of the memory\n"), "{printed}");
    let printed = configured(&[], &["--reactors", "2"]);
    assert!(printed.contains("# connections_max is not set: "), "{printed}");
    assert!(printed.contains(", by the limit on descriptors, and at most 65536\n"), "{printed}");
    let printed = configured(&[], &[]);
    assert!(
        printed.contains("# reactors is not set: ") && printed.contains(", one per processor"),
        "{printed}"
    );
    let json: serde_json::Value =
        serde_json::from_str(&configured(&[("THALWEG_SPIN", "off")], &["--output", "json"])).unwrap();
    assert_eq!(json["spin"]["value"], "off");
    assert_eq!(json["spin"]["from"], "environment THALWEG_SPIN");
    assert_eq!(json["listen"]["value"][0], "127.0.0.1:4437");
    assert_eq!(json["idle_timeout_ms"]["value"], 75_000);
    assert_eq!(json["insecure_listen_anywhere"]["value"], false);
    assert_eq!(json["tokens"]["value"], serde_json::Value::Null);
    assert!(json["streams_max"]["comesTo"].as_u64().unwrap() > 0, "{json}");
}

#[test]
fn a_server_says_where_programs_on_this_machine_find_it_and_who_has_a_store_open() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), "127.0.0.1:0", &[]);
    let socket = directory.path().join("thalweg.sock");
    let wanted = format!("and, for programs on this machine, at {}\n", socket.display());
    assert!(server.greeting.contains(&wanted), "{}", server.greeting);
    let (code, said) = fails(&format!("unix:{}", socket.display()), &["ls"]);
    assert!(code == 1 && said.contains("thalweg.sock is for `tail --via sock`"), "{said}");
    let data = directory.path().to_str().unwrap();
    let (code, said) = fails("", &["serve", "--listen", "127.0.0.1:0", "--data", data]);
    let wanted = format!("{data} is open in process {}: stop it, or give another --data", server.child.id());
    assert!(code == 1 && said.contains(&wanted), "{said}");
}

#[test]
fn a_token_with_a_prefix_is_told_what_it_lacks_for_what_it_asked() {
    let directory = tempfile::tempdir().unwrap();
    let made = run("", &["token", "me", "--prefix", "pub/"], "");
    let tokens = directory.path().join("tokens.toml");
    std::fs::write(&tokens, &made.stdout).unwrap();
    let said = String::from_utf8(made.stderr).unwrap();
    let token = said.split_whitespace().find(|word| word.starts_with("thalweg_")).unwrap();
    let more = ["--tokens", tokens.to_str().unwrap()];
    let server = Server::start(&directory.path().join("data"), "127.0.0.1:0", &more);
    for (verb, wanted) in [
        (&["stats"][..], "This takes a token with the scope read and without a prefix."),
        (&["read", "other"], "does not allow to read this stream (of a fork: its source)"),
        (&["ls"], "lists only names that begin with its prefix: thalweg ls 'pub/**' for pub/"),
    ] {
        let (code, said) = fails(&server.url, &[verb, &["--token", token]].concat());
        assert!(code == 1 && said.contains(wanted), "{verb:?}: {said}");
    }
}
