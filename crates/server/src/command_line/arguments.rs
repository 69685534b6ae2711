//! The command line.

use crate::client::{ClientVerb, Output};
use crate::layers::access::Scope;
use crate::layers::cors::Origin;
use crate::layers::rpc::ServiceSpec;
use crate::start::ListenSpec;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use thalweg_load::BenchVerb;
use thalweg_service::Endpoint;
use thalweg_sys::code;
use thalweg_wire::host::is_name;

/// Durable streams: append over HTTP, read from any offset, follow live.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// How results and errors are printed.
    #[arg(long, value_enum, default_value_t = Output::Text, global = true)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

impl Arguments {
    /// What a line and the environment say. A variable that is empty is not set.
    ///
    /// # Errors
    /// Clap says what is wrong, or what was asked for instead.
    pub(crate) fn read(line: &[OsString]) -> Result<Self, clap::Error> {
        let matches = Self::in_environment().try_get_matches_from(line)?;
        // What matched them is not needed by what takes them over; see `start::step`.
        code::release();
        Self::from_arg_matches(&matches)
    }

    /// The command line, with the variables that are not empty.
    pub(crate) fn in_environment() -> Command {
        let command = without_empty(Self::command());
        // What built it is not needed by what matches a line against it; see `start::step`.
        code::release();
        command
    }
}

fn without_empty(mut command: Command) -> Command {
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    for verb in verbs {
        command = command.mut_subcommand(verb, without_empty);
    }
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    command.mut_args(|arg| if arg.get_env().is_some_and(is_empty) { arg.env(None::<&str>) } else { arg })
}

/// A value of a list, without the blanks around it.
fn of_list<T: FromStr>(text: &str) -> Result<T, T::Err> {
    text.trim().parse()
}

pub(super) const EXIT_CODES: &str = "Exit codes: 0 done; 1 refused or failed; 2 wrong command line or \
    configuration; 3 no server reached; 4 no such stream; 5 damage was found; 6 in conflict with what is there \
    (it exists with other properties, is closed, was written by another client, or is not empty).";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the server.
    Serve(Box<ServeOptions>),
    #[command(flatten)]
    Client(ClientVerb),
    /// Check every batch of a store or a backup, at rest or in use, and say what is damaged.
    Verify {
        /// Directory of the store.
        #[arg(long, value_name = "DIR", env = "THALWEG_DATA", default_value = "./data")]
        data: PathBuf,
    },
    /// Check whether this machine suits a server, and say what to do if it does not.
    ///
    /// Checks descriptors and memory against the limits, processors, clocks, what the kernel allows, and the
    /// disk under the store, with the configuration that a server would have here. Exits with 0 if nothing is
    /// bad, with 1 if something would keep a server from starting or from continuing to run, or could lose
    /// data, and with 2 if the configuration is wrong.
    Doctor {
        /// Directory of the store, which need not exist yet; by default the configuration's.
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// The server's configuration file; by default the one that THALWEG_CONFIG names. The other variables
        /// that serve reads count, too.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print every batch and frame of a segment file or a store, and what is damaged, without opening it.
    Parse {
        /// The file, or the directory of the store.
        #[arg(value_name = "PATH")]
        path: PathBuf,
        /// Print only the contents of one stream.
        #[arg(long, value_name = "NAME")]
        log: Option<String>,
    },
    /// Back up a store, whether a server has it open or not.
    ///
    /// It holds everything that was acknowledged before it began, as of one moment. Files that no longer
    /// change are hard-linked where the file system can: they take no space, and are not read. To read all of
    /// a backup, use `thalweg verify --data TO`.
    Backup {
        /// Directory of the store.
        #[arg(value_name = "FROM")]
        from: PathBuf,
        /// Directory to write to, which must be empty or not exist yet.
        #[arg(value_name = "TO")]
        to: PathBuf,
    },
    /// Restore a backup, after verifying all of it. The backup itself is not changed.
    Restore {
        /// The backup.
        #[arg(value_name = "FROM")]
        from: PathBuf,
        /// Directory to write to, which must be empty or not exist yet.
        #[arg(value_name = "TO")]
        to: PathBuf,
    },
    /// Run another server program, and fork it while it serves.
    ///
    /// A client that may use the control endpoint can fork, move and end it. Exits when the last of its
    /// servers has ended.
    ForkServer {
        #[command(flatten)]
        options: ForkServerOptions,
    },
    /// Generate types, codecs, clients and servers for the service that a schema describes.
    Codegen {
        #[command(flatten)]
        arguments: Box<thalweg_codegen::Arguments>,
        /// Write nothing; say how the directory differs from what would be written, and exit with 6 if it
        /// does
        #[arg(long)]
        check: bool,
    },
    /// Make a token for the server's token file. The table to add to that file goes to standard output, and
    /// the token itself, which is not shown again, to standard error.
    Token {
        /// Its name in the file.
        #[arg(value_name = "LABEL")]
        label: String,
        /// What it may do.
        #[arg(long = "scope", value_enum, value_delimiter = ',', default_value = "read")]
        scopes: Vec<Scope>,
        /// Only streams whose names begin with this.
        #[arg(long, value_name = "PREFIX", default_value = "")]
        prefix: String,
    },
    /// Load a server and measure it: appends, creates, catching up, fan-out, idle connections.
    #[command(subcommand)]
    Bench(BenchVerb),
    /// Print a script that makes a shell complete this command line.
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page of the program, or of a verb.
    Man {
        /// The verb: one word, or two as in `bench append`.
        verb: Vec<String>,
    },
}

/// What a fork-server runs.
#[derive(Clone, Debug, Args)]
pub(crate) struct ForkServerOptions {
    /// Where it takes the calls of `schemas/forks.jsonc`: a path that ends in .sock or .shm.
    #[arg(long, value_name = "ENDPOINT", value_parser = crate::layers::rpc::path_endpoint)]
    pub(crate) control: Endpoint,
    /// Where the program's first process listens; port 0 for any. By default the socket passed by systemd, or
    /// else 127.0.0.1:0.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Option<SocketAddr>,
    /// Concurrent processes.
    #[arg(long, value_name = "N", default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) servers_max: u32,
    /// How long a process may take to carry out an order before it is given up.
    #[arg(long, value_name = "MS", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) patience_ms: u32,
    /// The program, and its arguments.
    #[arg(value_name = "PROGRAM", last = true, required = true)]
    pub(crate) program: Vec<OsString>,
}

/// The server's options. Each option but the first two is also a key of the configuration file and an
/// environment variable; `config::KEYS` lists them all, and a test holds both to each other.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeOptions {
    /// Configuration file (TOML). Flags and the environment take precedence over it.
    #[arg(long, value_name = "FILE", env = "THALWEG_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Print the configuration in force and where each value comes from, and exit.
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Where to listen: an address and port, or unix:/path. May be given several times. If it is not given
    /// and systemd passes listeners, those are used instead of the default.
    #[arg(
        long,
        env = "THALWEG_LISTEN",
        value_name = "ADDRESS",
        value_delimiter = ',',
        value_parser = of_list::<ListenSpec>,
        default_value = "127.0.0.1:4437"
    )]
    pub(crate) listen: Vec<ListenSpec>,
    /// The token file (TOML): with it every request needs a token from it, and each token has scopes. Make
    /// tokens with `thalweg token`; the file is read again on SIGHUP.
    #[arg(long, env = "THALWEG_TOKENS", value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// The certificate chain (PEM) for TLS at every TCP address. Requires `--tls-key`. Both are read again on
    /// SIGHUP.
    #[arg(long, env = "THALWEG_TLS_CERTIFICATE", value_name = "FILE")]
    pub(crate) tls_certificate: Option<PathBuf>,
    /// The certificate's private key (PEM).
    #[arg(long, env = "THALWEG_TLS_KEY", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Allow addresses that other machines can reach without a token file: any client that reaches them may
    /// do everything.
    #[arg(long, env = "THALWEG_INSECURE_LISTEN_ANYWHERE", value_name = "BOOLEAN", action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub(crate) insecure_listen_anywhere: bool,
    /// Origins whose pages may use the streams from a browser: *, none, or one or several such as
    /// `https://app.example`. Changes by pages of other origins are refused.
    #[arg(
        long,
        env = "THALWEG_CORS_ORIGINS",
        value_name = "ORIGIN",
        value_delimiter = ',',
        value_parser = of_list::<Origin>,
        default_value = "*"
    )]
    pub(crate) cors_origins: Vec<Origin>,
    /// Names of this server, besides addresses and localhost. JSON-RPC under any other `Host` is refused.
    /// Without a token file, so is every request at a loopback address without TLS: a web page's name can be
    /// made to resolve to it (DNS rebinding).
    #[arg(long, env = "THALWEG_HOSTS", value_name = "NAME", value_delimiter = ',', value_parser = host)]
    pub(crate) hosts: Vec<String>,
    /// Whether webhooks of subscriptions may go to this machine itself, as `http://localhost` or
    /// `http://127.0.0.x`.
    #[arg(long, env = "THALWEG_WEBHOOKS_LOOPBACK", value_enum, default_value_t = WebhooksLoopback::Auto)]
    pub(crate) webhooks_loopback: WebhooksLoopback,
    /// Directory of the store; created when missing.
    #[arg(long, env = "THALWEG_DATA", value_name = "DIR", default_value = "./data")]
    pub(crate) data: PathBuf,
    /// What an acknowledged append survives.
    #[arg(long, env = "THALWEG_DURABILITY", value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
    /// After how long a long-poll with nothing new is answered.
    #[arg(long, env = "THALWEG_LONG_POLL_TIMEOUT_MS", value_name = "MS", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) long_poll_timeout_ms: u32,
    /// About how long an SSE response lasts before it ends and its client reconnects, give or take an eighth.
    #[arg(long, env = "THALWEG_SSE_LIFETIME_MS", value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) sse_lifetime_ms: u32,
    /// After how long a connection is closed between two requests.
    #[arg(long, env = "THALWEG_IDLE_TIMEOUT_MS", value_name = "MS", default_value_t = 75_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) idle_timeout_ms: u32,
    /// How long a client may take from the first byte of a request to the end of its head, and then for each
    /// 16 KiB of its body (of a body beyond 1 MiB, each 64th part). After that, 408.
    #[arg(long, env = "THALWEG_REQUEST_TIMEOUT_MS", value_name = "MS", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) request_timeout_ms: u32,
    /// How long a reader may take for each 16 KiB of what it is sent (of an answer beyond 1 MiB, each 64th
    /// part). A reader that takes longer is cut off.
    #[arg(long, env = "THALWEG_STALL_TIMEOUT_MS", value_name = "MS", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) stall_timeout_ms: u32,
    /// Largest request body; a larger one is refused with 413.
    #[arg(long, env = "THALWEG_BODY_MAX_BYTES", value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) body_max_bytes: u64,
    /// Bytes of all request bodies that are still arriving, each with its next 16 KiB or 64th part. At the
    /// bound, bodies that took longer than a 16th of request_timeout_ms over such a part are answered 408.
    /// Where none did, a body that needs more is refused with 503.
    #[arg(long, env = "THALWEG_BODIES_MAX_BYTES", value_name = "BYTES", default_value_t = 512 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) bodies_max_bytes: u64,
    /// Bytes of answers and events that readers have not received, over all connections. At the bound,
    /// readers that took longer than a 16th of stall_timeout_ms over a part are cut, the slowest first. Where
    /// none did, reads are refused with 503. At a quarter above the bound, the slowest readers are cut,
    /// however slow they are.
    #[arg(long, env = "THALWEG_UNSENT_MAX_BYTES", value_name = "BYTES", default_value_t = 512 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) unsent_max_bytes: u64,
    /// Writes that may wait for the disk at the same time; one more is refused with 503 before anything is
    /// done.
    #[arg(long, env = "THALWEG_WRITES_MAX", value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) writes_max: u32,
    /// Number of streams; one more is refused with 429 before anything is done, and everything else goes on.
    /// By default as many as fit into a quarter of the memory that the program may use, at 400 bytes each,
    /// and at most 10000000.
    #[arg(long, env = "THALWEG_STREAMS_MAX", value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) streams_max: Option<u64>,
    /// Concurrent live reads; one more is answered 503. By default as many as there may be connections.
    #[arg(long, env = "THALWEG_SUBSCRIBERS_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) subscribers_max: Option<u32>,
    /// Concurrent connections. One more is answered 503; only /healthz, /metrics, /v1/stats, HEAD, OPTIONS
    /// and the like are still answered. By default as many as the descriptor limit allows, at most 65536.
    #[arg(long, env = "THALWEG_CONNECTIONS_MAX", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) connections_max: Option<u32>,
    /// Reactors, each a thread; by default one per processor that this process may use.
    #[arg(long, env = "THALWEG_REACTORS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=29))]
    pub(crate) reactors: Option<u32>,
    /// How long a server that was asked to stop waits for requests in flight.
    #[arg(long, env = "THALWEG_DRAIN_GRACE_MS", value_name = "MS", default_value_t = 10_000)]
    pub(crate) drain_grace_ms: u32,
    /// Spin for a moment before sleeping while work comes fast: lower latency, at the price of some CPU.
    #[arg(long, env = "THALWEG_SPIN", value_enum, default_value_t = Switch::On)]
    pub(crate) spin: Switch,
    /// Send to many connections with one system call (io_uring). Where the kernel does not allow that, each
    /// connection takes a call of its own.
    #[arg(long, env = "THALWEG_IO_URING", value_enum, default_value_t = Switch::On)]
    pub(crate) io_uring: Switch,
    /// Serve log and state to programs on this machine, through thalweg.sock and thalweg.shm, state.sock and
    /// state.shm in the store's directory. A store in memory has no directory, and so no such services.
    #[arg(long, env = "THALWEG_SERVICES", value_enum, default_value_t = Switch::On)]
    pub(crate) services: Switch,
    /// Services to be called by JSON-RPC at /rpc/NAME: "on" stands for those of this program, log and state;
    /// NAME=SCHEMA,ENDPOINT is one that another program serves. May be given several times.
    #[arg(long, env = "THALWEG_RPC", value_name = "SERVICE", value_delimiter = ';', value_parser = of_list::<ServiceSpec>, default_value = "off")]
    pub(crate) rpc: Vec<ServiceSpec>,
    /// A listener for JSON-RPC alone. Without it, services are called at the same addresses as streams.
    #[arg(long, env = "THALWEG_RPC_LISTEN", value_name = "ADDRESS", value_delimiter = ',', value_parser = of_list::<ListenSpec>)]
    pub(crate) rpc_listen: Vec<ListenSpec>,
    /// How long rpc.delay may delay the next body, for tests of clients. At 0 there is no such method.
    #[arg(long, env = "THALWEG_RPC_DELAY_MAX_MS", value_name = "MS", default_value_t = 0)]
    pub(crate) rpc_delay_max_ms: u32,
    /// Bytes of JSON-RPC answers that wait for others before them, and of everything else kept for calls
    /// under way. A call beyond that is answered "overloaded", and not made.
    #[arg(long, env = "THALWEG_RPC_ANSWERS_MAX_BYTES", value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1 << 20..=1 << 40))]
    pub(crate) rpc_answers_max_bytes: u64,
    /// How many bytes of a fork's changes the next start may have to replay before an image of the state is
    /// written.
    #[arg(long, env = "THALWEG_STATE_IMAGE_BYTES", value_name = "BYTES", default_value_t = 33_554_432)]
    pub(crate) state_image_bytes: u64,
    /// Bytes of changes that all sessions of the state together may hold beside their snapshots, as the log
    /// would store them. A write beyond that is refused.
    #[arg(long, env = "THALWEG_STATE_SESSIONS_MAX_BYTES", value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) state_sessions_max_bytes: u64,
    /// What becomes of a state's changes once an image replaces them. If they are kept, every earlier state
    /// can still be read; if they are trimmed, the store does not grow with them.
    #[arg(long, env = "THALWEG_STATE_HISTORY", value_enum, default_value_t = StateHistory::Kept)]
    pub(crate) state_history: StateHistory,
    /// Remove records older than this many seconds, in whole segments. Records of the state and of
    /// subscriptions are kept.
    #[arg(long, env = "THALWEG_RETAIN_SECONDS", value_name = "S", value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    pub(crate) retain_seconds: Option<u64>,
    /// Remove the oldest records, in whole segments, while the store takes more bytes than this.
    #[arg(long, env = "THALWEG_RETAIN_BYTES", value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..=1 << 60))]
    pub(crate) retain_bytes: Option<u64>,
    /// The format of log lines.
    #[arg(long, env = "THALWEG_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// The least severe level that is logged.
    #[arg(long, env = "THALWEG_LOG_LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
}

/// A name of the server.
fn host(text: &str) -> Result<String, String> {
    let text = text.trim();
    if is_name(text) {
        return Ok(text.to_owned());
    }
    Err("expected a name alone, such as engine.example: no scheme, port, path or blank; addresses need not be named".to_owned())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Durability {
    /// A power cut: it is on the disk.
    Sync,
    /// The end of the process: the operating system has it.
    Os,
    /// Nothing: the store lives in memory.
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WebhooksLoopback {
    /// While no other machine can reach the server, and it has no tokens.
    Auto,
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateHistory {
    Kept,
    Trimmed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &[&str]) -> Result<Verb, clap::Error> {
        Arguments::try_parse_from(std::iter::once(&"thalweg").chain(line)).map(|arguments| arguments.verb)
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn offsets_may_look_like_options_and_listeners_may_repeat() {
        let parsed = parse(&["tail", "-f", "a/b", "--from", "-1"]).unwrap();
        assert!(matches!(parsed, Verb::Client(ClientVerb::Tail { from, .. }) if from == "-1"));
        let line = ["serve", "--listen", "[::1]:1", "--listen", "unix:/tmp/s", "--durability", "os"];
        let Verb::Serve(options) = parse(&line).unwrap() else { panic!("not serve") };
        assert_eq!((options.listen.len(), options.durability), (2, Durability::Os));
        assert!(!options.insecure_listen_anywhere);
        for bad in [
            &["serve", "--listen", "nonsense"][..],
            &["serve", "--reactors", "0"],
            &["append"],
            &["append", "a", "x", "--file", "y"],
            &["create", "a", "--ttl", "1", "--expires-at", "2030-01-01T00:00:00Z"],
            &["fork", "a"],
            &["rm"],
            &["read", "a", "--nope"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_switch_needs_no_value_and_takes_one() {
        for (flag, wanted) in [
            ("--insecure-listen-anywhere", true),
            ("--insecure-listen-anywhere=true", true),
            ("--insecure-listen-anywhere=false", false),
        ] {
            let Verb::Serve(options) = parse(&["serve", flag, "--data", "x"]).unwrap() else { panic!() };
            assert_eq!(options.insecure_listen_anywhere, wanted);
        }
    }
}
