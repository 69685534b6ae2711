use super::*;
use crate::command_line::{Durability, LogLevel, flag_ranges};
use crate::layers::rpc::ServiceSpec;
use crate::start::{ListenAddress, ListenSpec};

fn line(flags: &[&str]) -> Vec<OsString> {
    ["thalweg", "serve"].iter().chain(flags).map(OsString::from).collect()
}

fn load(text: &str, flags: &[&str]) -> Result<Configuration, ConfigError> {
    let given = parse(Path::new("t.toml"), text)?;
    Configuration::with(&line(flags), &given, Some("t.toml".into()))
}

fn complaint(text: &str) -> String {
    load(text, &[]).map(|loaded| printed(&loaded)).unwrap_err().to_string()
}

fn printed(loaded: &Configuration) -> String {
    loaded.print(&Limits::of(&thalweg_http::Config::default(), 1, 1, false))
}

#[test]
fn every_flag_is_a_key_and_every_key_a_flag_with_its_variable() {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve").unwrap();
    let flags: Vec<&clap::Arg> = serve
        .get_arguments()
        .filter(|arg| !["help", "version", "output", "print_config"].contains(&arg.get_id().as_str()))
        .collect();
    for arg in &flags {
        let key = KEYS.iter().find(|key| key.name == arg.get_id().as_str()).unwrap();
        assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(variable(*key).as_str()));
    }
    assert_eq!(flags.len(), KEYS.len());
    let reference = include_str!("../../../../docs/configuration.md");
    for key in KEYS {
        assert!(reference.contains(&format!("| `{}` |", key.name)), "{} is not documented", key.name);
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{}` |", key.name))).unwrap();
        assert_eq!(row.contains("| SIGHUP |"), key.reloads, "{row}");
    }
}

#[test]
fn the_reference_has_the_range_and_the_default_of_each_number_and_the_words_of_each_choice() {
    let command = flag_ranges::command();
    let serve = command.find_subcommand("serve").unwrap();
    let reference = include_str!("../../../../docs/configuration.md");
    for key in KEYS {
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{}` |", key.name))).unwrap();
        let [value, default] = [2, 3].map(|column| row.split('|').nth(column).unwrap().trim());
        let arg = serve.get_arguments().find(|arg| arg.get_id() == key.name).unwrap();
        let defaults: Vec<_> = arg.get_default_values().iter().filter_map(|value| value.to_str()).collect();
        if key.kind == Kind::Integer {
            let help = arg.get_help().unwrap().to_string();
            if let Some((_, range)) = help.strip_suffix(']').and_then(|help| help.rsplit_once('[')) {
                assert_eq!(plain(value), range, "{}", key.name);
            }
            if let [number] = defaults[..] {
                assert_eq!(default, number, "{}", key.name);
            }
        } else if let [one] = defaults[..] {
            let written = match key.kind {
                Kind::Boolean => format!("`{one}`"),
                _ if default.starts_with("`[") => format!("`[\"{one}\"]`"),
                _ => format!("`\"{one}\"`"),
            };
            assert_eq!(default, written, "{}", key.name);
        }
        let words = arg.get_possible_values().into_iter().map(|word| format!("`\"{}\"`", word.get_name()));
        let words: Vec<String> = words.collect();
        if key.kind == Kind::Text && !words.is_empty() {
            assert_eq!(value, words.join(", "), "{}", key.name);
        }
    }
}

/// A range with its powers of two as numbers.
fn plain(range: &str) -> String {
    let number = |word: &str| match word.strip_prefix("2^").map(str::parse::<u32>) {
        Some(Ok(power)) => (1_u64 << power).to_string(),
        _ => word.to_owned(),
    };
    range.split(' ').map(number).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_flag_comes_before_the_file_and_the_file_before_the_default() {
    let text =
        "durability = \"os\"\nlog_level = 'warn'\nreactors = 3\nlisten = [\"127.0.0.1:1\", \"unix:/s\"]\n";
    let loaded = load(text, &["--log-level", "debug"]).unwrap();
    let options = &loaded.options;
    assert_eq!((options.durability, options.log_level), (Durability::Os, LogLevel::Debug));
    assert_eq!((options.reactors, options.listen.len(), options.sse_lifetime_ms), (Some(3), 2, 60_000));
    assert!(loaded.listens_as_asked());
    let printed = printed(&loaded);
    for wanted in [
        "durability = \"os\" # t.toml:1\n",
        "log_level = \"debug\" # flag\n",
        "reactors = 3 # t.toml:3\n",
        "listen = [\"127.0.0.1:1\", \"unix:/s\"] # t.toml:4\n",
        "sse_lifetime_ms = 60000 # default\n",
        "# connections_max is not set: ",
        "# tokens is not set\n",
        "insecure_listen_anywhere = false # default\n",
    ] {
        assert!(printed.contains(wanted), "{wanted} {printed}");
    }
}

#[test]
fn certificate_and_key_are_a_pair_wherever_each_comes_from() {
    let flag = ["--tls-key", "k.pem"];
    assert!(load("tls_certificate = 'c.pem'", &flag).is_ok() && load("", &[]).is_ok());
    assert!(load("tls_certificate = 'c.pem'\ntls_key = 'k.pem'", &[]).is_ok());
    let said = complaint("log_level = 'info'\ntls_certificate = 'c.pem'");
    assert!(said.starts_with("`tls_certificate` is given (t.toml:2) and `tls_key` is not"), "{said}");
    assert!(said.contains("--tls-key, THALWEG_TLS_KEY,"), "{said}");
    let said = load("", &flag).unwrap_err().to_string();
    assert!(said.starts_with("`tls_key` is given (flag) and `tls_certificate` is not"), "{said}");
}

#[test]
fn what_is_printed_is_read_back_the_same() {
    let text = "data = 'a \"b\" \\c'\ninsecure_listen_anywhere = true\nconnections_max = 5";
    let loaded = load(text, &["--spin", "off"]).unwrap();
    assert!(loaded.options.insecure_listen_anywhere && !loaded.listens_as_asked());
    let again = load(&printed(&loaded), &[]).unwrap();
    assert_eq!(again.changed_from(&loaded), []);
    assert_eq!(again.options.data, PathBuf::from("a \"b\" \\c"));
    let other = load("spin = \"on\"\nlog_level = \"error\"", &[]).unwrap();
    let changed: Vec<&str> = other.changed_from(&loaded).iter().map(|key| key.name).collect();
    assert_eq!(changed, ["insecure_listen_anywhere", "data", "connections_max", "spin", "log_level"]);
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    for (text, wanted) in [
        ("\nlistne = 'x'", "t.toml:2: there is no key `listne`; the nearest one is `listen`"),
        ("log-level = 'info'", "t.toml:1: there is no key `log-level`; the nearest one is `log_level`"),
        (
            "config = 'x'",
            "t.toml:1: `config` names this file, and is no key in it: it is a flag, or THALWEG_CONFIG",
        ),
        (
            "[server]\nlisten = '[::1]:1'",
            "t.toml:1: the file has no tables: write `listen = ...` without `[server]`",
        ),
        ("#\n\nreactors = \"two\"", "t.toml:3: `reactors` is of type string; it takes a decimal integer"),
        ("reactors = 0x2", "t.toml:1: `reactors` is of type integer; it takes a decimal integer"),
        ("durability = 1", "t.toml:1: `durability` is of type integer; it takes a string"),
        ("listen = [1]", "t.toml:1: `listen` is an array of values that are not strings"),
        ("insecure_listen_anywhere = 'yes'", "it takes true or false"),
        ("x", "t.toml:1: "),
        ("data = 'a'\ndata = 'b'", "t.toml:2: "),
    ] {
        let said = complaint(text);
        assert!(said.contains(wanted), "{said}");
    }
    let said = complaint("\ndurability = 'fast'");
    assert!(
        said.starts_with("t.toml:2: invalid value 'fast' for `durability` [possible values: sync"),
        "{said}"
    );
    let said = complaint("reactors = 99");
    assert!(said.starts_with("t.toml:1: invalid value '99' for `reactors`: 99 is not in 1..=29"), "{said}");
    let said = complaint("listen = ['nowhere']");
    assert!(said.contains("for `listen`: expected an address with a port"), "{said}");
}

#[test]
fn what_stands_in_the_file_is_not_split_and_what_a_flag_says_is() {
    let unix = |path: &str| ListenSpec::At(ListenAddress::Unix(path.into()));
    for text in
        ["listen = ['unix:/a,b', 'unix:/c']", "listen = ['unix:/a,b', 'unix:/c'] # and rpc\nrpc = 'off'"]
    {
        let loaded = load(text, &[]).unwrap();
        assert_eq!(loaded.options.listen, [unix("/a,b"), unix("/c")]);
        let again = load(&printed(&loaded), &[]).unwrap();
        assert_eq!(again.changed_from(&loaded), []);
        assert_eq!(again.options.listen, loaded.options.listen);
        let loaded = load(text, &["--listen", "unix:/d,unix:/e"]).unwrap();
        assert_eq!(loaded.options.listen, [unix("/d"), unix("/e")]);
    }
    assert_eq!(load("listen = 'unix:/a,b'", &[]).unwrap().options.listen, [unix("/a,b")]);
    let rpc = load("rpc = ['a=x;y/a.jsonc,a.sock']", &[]).unwrap().options.rpc;
    assert!(
        matches!(&rpc[..], [ServiceSpec::Elsewhere { schema, .. }] if schema == "x;y/a.jsonc"),
        "{rpc:?}"
    );
    let said = complaint("\nhosts = ['a.example,b.example']");
    assert!(said.starts_with("t.toml:2: invalid value 'a.example,b.example' for `hosts`"), "{said}");
}

#[test]
fn a_configuration_is_read_without_a_resolver() {
    let loaded = load("listen = 'nosuch.invalid:4437'", &[]).unwrap();
    let named = ListenSpec::Named { host: "nosuch.invalid".into(), port: 4437 };
    assert_eq!(loaded.options.listen, [named]);
}

#[test]
fn the_packaged_unit_runs_as_a_user_that_files_can_be_given_to() {
    let unit = include_str!("../../../../packaging/thalweg.service");
    let says = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let user = says("User").unwrap();
    let made = include_str!("../../../../packaging/thalweg.sysusers");
    assert!(made.lines().any(|line| line.starts_with(&format!("u {user} "))), "{user}");
    assert_eq!((says("Group"), says("DynamicUser")), (Some(user), None));
    // A store that takes long to replay is not to begin anew again and again.
    assert_eq!(says("TimeoutStartSec"), Some("infinity"));
    assert!(says("After").unwrap().contains("time-sync.target"));
    // It is in no group of systemd's, and tells whether bytes are in memory.
    assert!(says("SystemCallFilter").unwrap().split(' ').any(|call| call == "mincore"));
}

#[test]
fn the_packaged_file_can_be_read() {
    let loaded = load(include_str!("../../../../packaging/thalweg.toml"), &[]).unwrap();
    assert_eq!(loaded.options.durability, Durability::Sync);
    assert!(!loaded.listens_as_asked(), "or the socket unit would not be used");
}
