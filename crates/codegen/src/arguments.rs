//! What can be asked of the generator, and which wishes do not go together.

use crate::cpp::globals;
use crate::erlang;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use thalweg_schema::{Service, casing};

/// The longest name that Zig's own build takes for a package.
const ZIG_PACKAGE_MAX: usize = 32;

/// A target language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Language {
    /// C++20, headers only.
    Cpp,
    /// Rust, on the crate `thalweg-wire`.
    Rust,
    /// TypeScript, as ECMAScript modules.
    Ts,
    /// Python 3.11 or newer.
    Python,
    /// Zig 0.15 or newer.
    Zig,
    /// Erlang/OTP 25 or newer.
    Erlang,
}

/// What no crate can be called beside Rust's own words: the crates that every program has.
const RUST_CRATES: [&str; 5] = ["alloc", "core", "proc_macro", "std", "test"];
/// What CMake has targets for already.
const CMAKE_TARGETS: [&str; 7] = ["all", "clean", "edit_cache", "help", "install", "package", "test"];

impl Language {
    /// The language, as it is named in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpp => "C++",
            Self::Rust => "Rust",
            Self::Ts => "TypeScript",
            Self::Python => "Python",
            Self::Zig => "Zig",
            Self::Erlang => "Erlang",
        }
    }

    /// The tool or language that keeps this word, so that no package can have it as its name.
    fn keeps(self, word: &str) -> Option<&'static str> {
        let (owner, is_kept) = match self {
            Self::Cpp => ("CMake", CMAKE_TARGETS.contains(&word)),
            // A package of npm is imported by a path, which may be any word.
            Self::Ts => return None,
            _ => (self.name(), thalweg_schema::is_word_of(self.name(), word)),
        };
        let is_crate = self == Self::Rust && RUST_CRATES.contains(&word);
        (is_kept || is_crate).then_some(owner)
    }
}

/// The generator's options.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// The schema to read
    #[arg(long, value_name = "FILE")]
    pub schema: PathBuf,
    /// The language to generate
    #[arg(long, value_enum)]
    pub lang: Language,
    /// The directory to write into; files of an earlier run that are no longer generated are removed
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Generate a client
    #[arg(long)]
    pub client: bool,
    /// Generate a server's dispatcher
    #[arg(long)]
    pub server: bool,
    /// Write the files that make the output a package of this name
    #[arg(long, value_name = "NAME")]
    pub package: Option<String>,
    /// Begin the names of message types with this instead of the service's name; names on the wire do not
    /// change
    #[arg(long, value_name = "NAME")]
    pub prefix: Option<String>,
    /// Remove this from the beginning of a command's name where it becomes a method
    #[arg(long, value_name = "NAME")]
    pub strip_method_prefix: Option<String>,
    /// The namespace of generated C++, as in a::b
    #[arg(long, value_name = "NAMESPACE")]
    pub cpp_namespace: Option<String>,
    /// Import the runtime from this module instead of writing it beside the output
    #[arg(long, value_name = "MODULE")]
    pub runtime: Option<String>,
}

impl Arguments {
    /// Only types and codecs, into the current directory.
    pub fn new(schema: impl Into<PathBuf>, lang: Language, out: impl Into<PathBuf>) -> Self {
        Self {
            schema: schema.into(),
            lang,
            out: out.into(),
            client: false,
            server: false,
            package: None,
            prefix: None,
            strip_method_prefix: None,
            cpp_namespace: None,
            runtime: None,
        }
    }

    /// Refuses options that do not go together, or do not fit the service.
    pub(crate) fn check(&self, service: &Service) -> Result<(), String> {
        match self.lang {
            Language::Cpp => self.check_namespace(service)?,
            _ if self.cpp_namespace.is_some() => return Err("--cpp-namespace is for --lang cpp".to_owned()),
            Language::Erlang => self.check_modules(service)?,
            _ => {}
        }
        if let Some(prefix) = &self.prefix
            && !(prefix.starts_with(|c: char| c.is_ascii_uppercase()) && is_identifier(prefix))
        {
            return Err(format!("--prefix {prefix}: a prefix is written LikeThis"));
        }
        if let Some(prefix) = &self.prefix
            && let Some((made, owner)) = thalweg_schema::prefix_clash(service, prefix)
        {
            return Err(format!("--prefix {prefix}: {made} is taken by {owner}"));
        }
        self.check_package()?;
        self.check_runtime()?;
        self.check_methods(service)
    }

    /// Refuses a package that its language's tools, or those who import it, could not name.
    fn check_package(&self) -> Result<(), String> {
        if let Some(package) = &self.package {
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
            if !package.starts_with(|c: char| c.is_ascii_lowercase()) || !package.chars().all(fits) {
                return Err(format!("--package {package}: small letters, digits, - and _, a letter first"));
            }
            if self.lang == Language::Zig && package.len() > ZIG_PACKAGE_MAX {
                return Err(format!(
                    "--package {package}: Zig takes no package whose name is longer than {ZIG_PACKAGE_MAX} characters, and this \
                     has {}: choose a shorter one",
                    package.len()
                ));
            }
        }
        if let Some(package) = &self.package
            && let Some(owner) = self.lang.keeps(&package.replace('-', "_"))
        {
            return Err(format!(
                "--package {package}: {owner} keeps this word for itself: choose another name"
            ));
        }
        Ok(())
    }

    /// Refuses a runtime that could not be imported.
    fn check_runtime(&self) -> Result<(), String> {
        let Some(runtime) = &self.runtime else { return Ok(()) };
        // A module may begin with an underscore.
        let is_module = |part: &str| is_identifier(part.trim_start_matches('_'));
        let (fits, like) = match self.lang {
            Language::Rust => (runtime.split("::").all(is_module), "a path of modules, as in crate::runtime"),
            Language::Python => {
                let path = runtime.trim_start_matches('.');
                let relative = path.is_empty() && !runtime.is_empty();
                (relative || path.split('.').all(is_module), "a module, as in own.runtime or ..runtime")
            }
            Language::Ts | Language::Cpp => {
                let plain = |c: char| !c.is_control() && !"\"\\<>".contains(c);
                (!runtime.is_empty() && runtime.chars().all(plain), "a path, as in own/runtime")
            }
            Language::Zig | Language::Erlang => {
                return Err(
                    "--runtime is for cpp, rust, ts and python: the others import by file or module name"
                        .into(),
                );
            }
        };
        if fits { Ok(()) } else { Err(format!("--runtime {runtime:?}: write {like}")) }
    }

    /// Refuses a namespace that would not compile, be it the service's name or one that was asked for.
    fn check_namespace(&self, service: &Service) -> Result<(), String> {
        let of_service = casing::snake(&service.name);
        let namespace = self.cpp_namespace.as_ref().unwrap_or(&of_service);
        let parts: Vec<&str> = namespace.split("::").collect();
        if !parts.iter().all(|part| is_identifier(part)) {
            return Err(format!("--cpp-namespace {namespace}: no namespace; write it like a::b"));
        }
        for part in &parts {
            if let Some(owner) = thalweg_schema::reserves_service(part) {
                return Err(format!("--cpp-namespace {namespace}: {part} is reserved by {owner}"));
            }
        }
        if globals::declares(parts[0]) {
            return Err(format!(
                "no namespace can be called {0}, as C's library has something of that name: \
                 choose another one, as in --cpp-namespace {0}_service",
                parts[0]
            ));
        }
        Ok(())
    }

    /// Refuses to write a module that Erlang/OTP has: loaded in place of its own, the machine would not
    /// start.
    fn check_modules(&self, service: &Service) -> Result<(), String> {
        let service = casing::snake(&service.name);
        let parts = [("types", true), ("client", self.client), ("server", self.server)];
        let made = parts.iter().filter(|(_, is_made)| *is_made).map(|(part, _)| format!("{service}_{part}"));
        match made.into_iter().find(|module| erlang::has_module(module)) {
            Some(module) => Err(format!(
                "Erlang/OTP has a module {module} of its own: give the service another name, as in {}",
                casing::pascal(&format!("{service}_service"))
            )),
            None => Ok(()),
        }
    }

    fn check_methods(&self, service: &Service) -> Result<(), String> {
        let Some(prefix) = &self.strip_method_prefix else { return Ok(()) };
        if !self.client && !self.server {
            return Err("--strip-method-prefix changes methods: add --client or --server".to_owned());
        }
        if !service.commands.iter().any(|command| command.name.starts_with(prefix.as_str())) {
            return Err(format!("--strip-method-prefix {prefix}: no command begins with it"));
        }
        let mut methods = Vec::new();
        for command in &service.commands {
            let method = stripped(&command.name, prefix);
            let snake = casing::snake(method);
            if let Some((word, owner)) = thalweg_schema::reserves_command(method) {
                return Err(format!("--strip-method-prefix {prefix}: {word} is reserved by {owner}"));
            }
            if methods.contains(&snake) {
                return Err(format!("--strip-method-prefix {prefix}: two commands become {snake}"));
            }
            methods.push(snake);
        }
        Ok(())
    }
}

/// A command without the prefix, if it has it and something is left.
pub(crate) fn stripped<'c>(command: &'c str, prefix: &str) -> &'c str {
    let rest = command.strip_prefix(prefix).filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
    rest.unwrap_or(command)
}

fn is_identifier(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
