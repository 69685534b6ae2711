//! The server's configuration: flags, environment, file, defaults, in that order.
//!
//! A key of the file is a flag of `serve` with underscores, and its value goes through the flag's own parser:
//! the file's values become the command line's defaults, as they stand: what separates values on a command
//! line is a character like any other there. So there is one definition of what a value may be, and one that
//! is wrong is refused with the file's name and line.

mod environment;

pub(crate) use environment::{unread_variables, warn_of_unread_variables};

use crate::bounds::Limits;
use crate::command_line::{Arguments, ServeOptions, Verb};
use crate::named_file;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};
use thalweg_sys::code;
use toml::de::{DeTable, DeValue};

/// What a value looks like in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Boolean,
    /// An array of strings, or one string.
    Texts,
}

/// A key of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// `SIGHUP` brings a change into force; else a restart does.
    pub(crate) reloads: bool,
}

/// Makes of one list both what the keys are and what taking them over does, so that neither says of a key
/// what the other does not.
macro_rules! keys {
    ($($change:ident $name:ident: $kind:ident,)*) => {
        /// Every key, in the order they are printed.
        pub(crate) const KEYS: [Key; [$(stringify!($name)),*].len()] = [
            $(Key { name: stringify!($name), kind: Kind::$kind, reloads: keys!(@is $change) }),*
        ];

        /// Takes over from other options what needs no restart.
        fn take_over(ours: &mut ServeOptions, theirs: &ServeOptions) {
            $(keys!(@take $change ours theirs $name);)*
        }
    };
    (@is reloads) => { true };
    (@is restarts) => { false };
    (@take reloads $ours:ident $theirs:ident $name:ident) => {
        $ours.$name.clone_from(&$theirs.$name)
    };
    (@take restarts $ours:ident $theirs:ident $name:ident) => {};
}

// Of each: whether `SIGHUP` brings a change into force or a restart does, its name, which is its option's as
// well, and what its value looks like.
keys! {
    restarts listen: Texts,
    restarts tokens: Text,
    restarts tls_certificate: Text,
    restarts tls_key: Text,
    restarts insecure_listen_anywhere: Boolean,
    restarts cors_origins: Texts,
    restarts hosts: Texts,
    restarts webhooks_loopback: Text,
    restarts data: Text,
    restarts durability: Text,
    reloads  long_poll_timeout_ms: Integer,
    reloads  sse_lifetime_ms: Integer,
    reloads  idle_timeout_ms: Integer,
    reloads  request_timeout_ms: Integer,
    reloads  stall_timeout_ms: Integer,
    reloads  body_max_bytes: Integer,
    reloads  bodies_max_bytes: Integer,
    reloads  unsent_max_bytes: Integer,
    reloads  writes_max: Integer,
    restarts streams_max: Integer,
    reloads  subscribers_max: Integer,
    restarts connections_max: Integer,
    restarts reactors: Integer,
    reloads  drain_grace_ms: Integer,
    restarts spin: Text,
    restarts io_uring: Text,
    restarts services: Text,
    restarts rpc: Texts,
    restarts rpc_listen: Texts,
    restarts rpc_delay_max_ms: Integer,
    restarts rpc_answers_max_bytes: Integer,
    restarts state_image_bytes: Integer,
    restarts state_sessions_max_bytes: Integer,
    restarts state_history: Text,
    restarts retain_seconds: Integer,
    restarts retain_bytes: Integer,
    restarts log_format: Text,
    reloads  log_level: Text,
    restarts config: Text,
}

/// The key that only a flag or the environment can give.
const NOT_IN_FILE: &str = "config";

/// What is nothing without each other.
const PAIRS: [[&str; 2]; 1] = [["tls_certificate", "tls_key"]];

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// The command line or the environment is wrong: clap says how.
    CommandLine(clap::Error),
    /// The file cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// The file says something wrong.
    File { path: PathBuf, line: usize, why: String },
    /// One of a pair is given, wherever, and the other nowhere.
    Half { given: Key, from: String, missing: Key },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine(error) => write!(out, "{error}"),
            Self::Unreadable(path, error) => write!(out, "cannot read {}: {error}", path.display()),
            Self::File { path, line, why } => write!(out, "{}:{line}: {why}", path.display()),
            Self::Half { given, from, missing } => write!(
                out,
                "`{}` is given ({from}) and `{}` is not, but each takes the other: add --{}, {}, or a line of the file",
                given.name,
                missing.name,
                missing.name.replace('_', "-"),
                variable(*missing)
            ),
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    Flag,
    Environment,
    File(usize),
    Default,
}

/// A key with its values, as text, and where they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    key: Key,
    /// Empty: not set, and decided at the start.
    values: Vec<String>,
    source: Source,
}

/// A configuration in force.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    pub(crate) options: ServeOptions,
    settings: Vec<Setting>,
    path: Option<PathBuf>,
}

/// A value of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSetting {
    key: Key,
    values: Vec<String>,
    line: usize,
}

impl Configuration {
    /// Puts the configuration together from a command line that says `serve`.
    ///
    /// # Errors
    /// [`ConfigError`] says what is wrong and where.
    pub(crate) fn load(line: &[OsString]) -> Result<Self, ConfigError> {
        let asked = asked(line)?;
        let path = serve_matches(&asked).and_then(|serve| serve.get_one::<PathBuf>(NOT_IN_FILE)).cloned();
        drop(asked);
        let given = match &path {
            None => Vec::new(),
            Some(path) => {
                let text = named_file::read_text(path);
                parse(path, &text.map_err(|error| ConfigError::Unreadable(path.clone(), error))?)?
            }
        };
        Self::with(line, &given, path)
    }

    /// Puts it together again, from a file that can be read again if it has one.
    ///
    /// # Errors
    /// As [`Configuration::load`].
    pub(crate) fn load_again(&self, line: &[OsString]) -> Result<Self, ConfigError> {
        if let Some(path) = &self.path {
            named_file::check_lasts(path).map_err(|error| ConfigError::Unreadable(path.clone(), error))?;
        }
        Self::load(line)
    }

    fn with(line: &[OsString], given: &[FileSetting], path: Option<PathBuf>) -> Result<Self, ConfigError> {
        let mut command = Arguments::in_environment();
        if !given.is_empty() {
            let asked = asked(line)?;
            let from = |key: Key| serve_matches(&asked).and_then(|serve| serve.value_source(key.name));
            let counts = |given: &&FileSetting| {
                !matches!(from(given.key), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
            };
            command = command.mut_subcommand("serve", |serve| {
                given.iter().filter(counts).fold(serve, |serve, given| {
                    serve
                        .mut_arg(given.key.name, |arg| as_it_stands(arg).default_values(given.values.clone()))
                })
            });
        }
        let matches = command.try_get_matches_from(line).map_err(ConfigError::CommandLine)?;
        code::release();
        let arguments = Arguments::from_arg_matches(&matches).map_err(ConfigError::CommandLine)?;
        let (Verb::Serve(options), Some(serve)) = (arguments.verb, serve_matches(&matches)) else {
            let error = Arguments::command().error(clap::error::ErrorKind::InvalidSubcommand, "not `serve`");
            return Err(ConfigError::CommandLine(error));
        };
        let settings = KEYS.iter().map(|key| setting(*key, serve, given)).collect();
        let loaded = Self { options: *options, settings, path };
        loaded.check_pairs()?;
        Ok(loaded)
    }

    /// Each of a pair may come from another place, so this is seen only once all of them are put together.
    fn check_pairs(&self) -> Result<(), ConfigError> {
        let find = |name: &str| self.settings.iter().find(|setting| setting.key.name == name);
        for [one, other] in PAIRS {
            let (Some(one), Some(other)) = (find(one), find(other)) else { continue };
            let (given, missing) = match (one.values.is_empty(), other.values.is_empty()) {
                (false, true) => (one, other.key),
                (true, false) => (other, one.key),
                _ => continue,
            };
            return Err(ConfigError::Half { given: given.key, from: self.place(given), missing });
        }
        Ok(())
    }

    /// Where a value comes from, for people.
    fn place(&self, setting: &Setting) -> String {
        match &setting.source {
            Source::Flag => "flag".to_owned(),
            Source::Environment => format!("environment {}", variable(setting.key)),
            Source::File(line) => {
                let path = self.path.as_deref().unwrap_or(Path::new("file"));
                format!("{}:{line}", path.display())
            }
            Source::Default => "default".to_owned(),
        }
    }

    /// Whether the places to listen at were asked for.
    pub(crate) fn listens_as_asked(&self) -> bool {
        self.settings.iter().any(|setting| setting.key.name == "listen" && setting.source != Source::Default)
    }

    /// The keys whose values differ from those of another configuration.
    pub(crate) fn changed_from(&self, other: &Self) -> Vec<Key> {
        let pairs = self.settings.iter().zip(&other.settings);
        pairs.filter(|(ours, theirs)| ours.values != theirs.values).map(|(ours, _)| ours.key).collect()
    }

    /// Takes over from another configuration what needs no restart.
    pub(crate) fn take_over(&mut self, other: Self) {
        take_over(&mut self.options, &other.options);
        for (ours, theirs) in self.settings.iter_mut().zip(other.settings) {
            if ours.key.reloads {
                *ours = theirs;
            }
        }
    }

    /// The configuration as a file, each value with where it comes from. A bound that is not set is printed
    /// with what it comes to.
    pub(crate) fn print(&self, limits: &Limits) -> String {
        let mut text = String::new();
        for setting in &self.settings {
            let source = self.place(setting);
            // Writing to a string cannot fail.
            let _ = match &setting.values[..] {
                [] if setting.key.kind != Kind::Texts => {
                    let name = setting.key.name;
                    match unset(name, limits) {
                        Some((value, why)) => writeln!(text, "# {name} is not set: {value}, {why}"),
                        None => writeln!(text, "# {name} is not set"),
                    }
                }
                // A file does not name itself.
                values if setting.key.name == NOT_IN_FILE => {
                    writeln!(
                        text,
                        "# {} = {} # {source}",
                        setting.key.name,
                        written(setting.key.kind, values)
                    )
                }
                values => {
                    writeln!(text, "{} = {} # {source}", setting.key.name, written(setting.key.kind, values))
                }
            };
        }
        text
    }

    /// The same for programs: of each key its value, where that comes from, and what it comes to if it is not
    /// set.
    pub(crate) fn object(&self, limits: &Limits) -> Value {
        let of = |setting: &Setting| {
            let Setting { key, values, .. } = setting;
            let mut told = json!({ "value": as_json(key.kind, values), "from": self.place(setting) });
            if let Some((value, _)) = unset(key.name, limits).filter(|_| values.is_empty()) {
                told["comesTo"] = value.into();
            }
            (key.name.to_owned(), told)
        };
        Value::Object(self.settings.iter().map(of).collect())
    }
}

/// What a bound comes to that is not set, and by what.
fn unset(name: &str, limits: &Limits) -> Option<(u64, &'static str)> {
    match name {
        "streams_max" => Some((limits.streams, "by a quarter of the memory")),
        "subscribers_max" => Some((limits.connections, "as many as connections")),
        "connections_max" => Some((limits.connections, "by the limit on descriptors, and at most 65536")),
        "reactors" => Some((limits.streaming, "one per processor")),
        _ => None,
    }
}

/// Values as JSON, `null` where there is none.
fn as_json(kind: Kind, values: &[String]) -> Value {
    match kind {
        Kind::Texts => values.into(),
        Kind::Text => values.first().cloned().into(),
        // Their parsers took them.
        Kind::Integer | Kind::Boolean => {
            values.first().and_then(|value| serde_json::from_str(value).ok()).unwrap_or_default()
        }
    }
}

fn serve_matches(matches: &ArgMatches) -> Option<&ArgMatches> {
    matches.subcommand().filter(|(name, _)| *name == "serve").map(|(_, serve)| serve)
}

/// The environment variable of a key.
fn variable(key: Key) -> String {
    format!("THALWEG_{}", key.name.to_ascii_uppercase())
}

fn setting(key: Key, serve: &ArgMatches, given: &[FileSetting]) -> Setting {
    let raw = serve.get_raw(key.name).into_iter().flatten();
    let is_list = key.kind == Kind::Texts;
    let plain = |text: &str| if is_list { text.trim().to_owned() } else { text.to_owned() };
    let values = raw.map(|value| plain(&value.to_string_lossy())).collect();
    let in_file = given.iter().find(|given| given.key == key);
    let source = match (serve.value_source(key.name), in_file) {
        (Some(ValueSource::CommandLine), _) => Source::Flag,
        (Some(ValueSource::EnvVariable), _) => Source::Environment,
        (_, Some(given)) => Source::File(given.line),
        (_, None) => Source::Default,
    };
    Setting { key, values, source }
}

/// Values as TOML.
fn written(kind: Kind, values: &[String]) -> String {
    let text = |value: &String| toml::Value::String(value.clone()).to_string();
    match kind {
        Kind::Texts => format!("[{}]", values.iter().map(text).collect::<Vec<_>>().join(", ")),
        Kind::Text => values.first().map(text).unwrap_or_default(),
        Kind::Integer | Kind::Boolean => values.first().cloned().unwrap_or_default(),
    }
}

/// The values of a file, each checked by its flag's parser.
fn parse(path: &Path, text: &str) -> Result<Vec<FileSetting>, ConfigError> {
    let fail = |at: usize, why: String| {
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        ConfigError::File { path: path.to_owned(), line, why }
    };
    let table = DeTable::parse(text)
        .map_err(|error| fail(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
    let mut all = Vec::new();
    for (name, value) in table.get_ref() {
        let at = name.span().start;
        let name: &str = name.get_ref();
        let key = KEYS.iter().find(|key| key.name == name && name != NOT_IN_FILE);
        if let DeValue::Table(inner) = value.get_ref() {
            let key = inner.keys().next().map_or("KEY", |key| key.get_ref());
            return Err(fail(at, format!("the file has no tables: write `{key} = ...` without `[{name}]`")));
        }
        let key = *key.ok_or_else(|| fail(at, unknown(name)))?;
        let values = texts(key, value.get_ref()).map_err(|why| fail(value.span().start, why))?;
        let line = text[..at].matches('\n').count() + 1;
        check(key, &values).map_err(|why| fail(value.span().start, why))?;
        all.push(FileSetting { key, values, line });
    }
    Ok(all)
}

fn unknown(name: &str) -> String {
    if name == NOT_IN_FILE {
        return format!("`{name}` names this file, and is no key in it: it is a flag, or THALWEG_CONFIG");
    }
    let known = KEYS.iter().map(|key| key.name).filter(|known| *known != NOT_IN_FILE);
    let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(known, name)).unwrap_or_default();
    format!("there is no key `{name}`; the nearest one is `{nearest}`")
}

/// A value as the texts that its flag would be given.
fn texts(key: Key, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let one = match (key.kind, value) {
        (Kind::Text | Kind::Texts, DeValue::String(text)) => text.to_string(),
        (Kind::Integer, DeValue::Integer(integer)) if integer.radix() == 10 => integer.as_str().to_owned(),
        (Kind::Boolean, DeValue::Boolean(boolean)) => boolean.to_string(),
        (Kind::Texts, DeValue::Array(array)) => {
            let text = |value: &toml::Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
            let all: Option<Vec<String>> = array.iter().map(text).collect();
            return all.ok_or_else(|| format!("`{}` is an array of values that are not strings", key.name));
        }
        (kind, value) => {
            let wanted = match kind {
                Kind::Text => "a string",
                Kind::Integer => "a decimal integer",
                Kind::Boolean => "true or false",
                Kind::Texts => "an array of strings",
            };
            let found = value.type_str();
            return Err(format!("`{}` is of type {found}; it takes {wanted}", key.name));
        }
    };
    Ok(vec![one])
}

/// What the command line and the environment say.
fn asked(line: &[OsString]) -> Result<ArgMatches, ConfigError> {
    let asked = Arguments::in_environment().try_get_matches_from(line).map_err(ConfigError::CommandLine);
    // See `start::step`.
    code::release();
    asked
}

/// A flag that splits nothing: the file has arrays for that.
fn as_it_stands(flag: Arg) -> Arg {
    flag.value_delimiter(None)
}

/// Has the flag's own parser look at values.
fn check(key: Key, values: &[String]) -> Result<(), String> {
    let command = Arguments::command();
    let serve = command.find_subcommand("serve");
    let Some(arg) = serve.and_then(|serve| serve.get_arguments().find(|arg| arg.get_id() == key.name)) else {
        return Err(format!("`{}` is no flag", key.name));
    };
    let flag = format!("--{}", key.name.replace('_', "-"));
    let line = values.iter().map(|value| format!("{flag}={value}"));
    let probe = Command::new("probe").no_binary_name(true).arg(as_it_stands(arg.clone()).env(None));
    let Err(error) = probe.try_get_matches_from(line) else { return Ok(()) };
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let words: Vec<&str> = text.split_whitespace().collect();
    // `for '--flag <VALUE>'` names a flag that was not given.
    let text = words.join(" ");
    let Some((before, rest)) = text.split_once(&format!(" for '{flag}")) else { return Err(text) };
    let after = rest.split_once('\'').map_or("", |(_, after)| after);
    Err(format!("{before} for `{}`{after}", key.name))
}

#[cfg(fuzzing)]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
