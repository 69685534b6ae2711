//! The command line.

use crate::listen::Listen;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Durable streams: append over HTTP, read from any offset, follow live.
#[derive(Debug, Parser)]
#[command(name = "thalweg", version, about, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 refused or failed; 2 wrong command line; 3 no server reached; \
                          4 no such stream; 5 `verify` found damage.";

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run the server.
    Serve(Box<ServeOptions>),
    /// Check every batch of a store that no server has open, and say what is damaged.
    Verify {
        /// Directory of the store.
        #[arg(long, value_name = "DIR", default_value = "./data")]
        data: PathBuf,
    },
    #[command(flatten)]
    Client(ClientVerb),
}

#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Where to listen: an address and port, or unix:/path. May be given several times.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4437")]
    pub(crate) listen: Vec<Listen>,
    /// Allow addresses that other machines can reach. There is no authentication and no encryption: put
    /// something in front that has both.
    #[arg(long)]
    pub(crate) insecure_listen_anywhere: bool,
    /// Directory of the store; created when missing.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub(crate) data: PathBuf,
    /// What an acknowledged append survives.
    #[arg(long, value_enum, default_value_t = Durability::Sync)]
    pub(crate) durability: Durability,
    /// After which a long-poll with nothing new is answered.
    #[arg(long, value_name = "MS", default_value_t = 30_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) long_poll_timeout_ms: u32,
    /// Around which an SSE response ends and its client reconnects; spread by an eighth either way.
    #[arg(long, value_name = "MS", default_value_t = 60_000, value_parser = clap::value_parser!(u32).range(1..=86_400_000))]
    pub(crate) sse_lifetime_ms: u32,
    /// Largest request body; a larger one is refused with 413.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) body_max_bytes: u64,
    /// Connections at once; one more is answered 503. By default as many as the descriptor limit allows, at
    /// most 65536.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) connections_max: Option<u32>,
    /// Reactors, each a thread; by default one per processor this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=31))]
    pub(crate) reactors: Option<u32>,
    /// How long a server that was asked to end waits for requests in flight.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    pub(crate) drain_grace_ms: u32,
    /// Look again for a moment before sleeping while work comes fast: lower latency for some CPU.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(crate) spin: Switch,
    /// How log lines look.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) log_format: LogFormat,
    /// Which log lines there are.
    #[arg(long, value_enum, default_value_t = LogLevel::Info)]
    pub(crate) log_level: LogLevel,
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

/// Which server a client verb speaks to, and about which stream.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The stream's name, may hold slashes: `orders/2024`.
    pub(crate) name: String,
    /// The server: http://host:port or unix:/path.
    #[arg(long, env = "THALWEG_URL", default_value = "http://127.0.0.1:4437")]
    pub(crate) url: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// Create a stream.
    Create {
        #[command(flatten)]
        target: Target,
        /// What its bytes are. `application/json` makes it a stream of messages.
        #[arg(long, value_name = "TYPE", default_value = "text/plain")]
        content_type: String,
        /// Delete it after so many seconds without a read or a write.
        #[arg(long, value_name = "SECONDS", conflicts_with = "expires_at")]
        ttl_s: Option<u64>,
        /// Delete it at that moment (RFC 3339).
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
    },
    /// Append bytes in one piece, and print the offset behind them.
    Append {
        #[command(flatten)]
        target: Target,
        /// The bytes; `-` or nothing reads them from standard input.
        data: Option<String>,
        /// What the bytes are; by default what the stream says it holds.
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
        /// Close the stream behind them: nothing can be appended any more.
        #[arg(long)]
        close: bool,
    },
    /// Print what a stream holds now.
    Read {
        #[command(flatten)]
        target: Target,
        /// Where to begin; by default at the beginning.
        #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
        from: String,
    },
    /// Print what a stream holds and what is appended, until it is closed. Reconnects by itself.
    Tail {
        #[command(flatten)]
        target: Target,
        /// Where to begin: an offset, `-1` for the beginning, `now` for what comes.
        #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
        from: String,
    },
    /// Print what is known about a stream.
    Head {
        #[command(flatten)]
        target: Target,
    },
    /// Delete a stream.
    Rm {
        #[command(flatten)]
        target: Target,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn offsets_may_look_like_options_and_listeners_may_repeat() {
        let parsed = Arguments::try_parse_from(["thalweg", "tail", "a/b", "--from", "-1"]).unwrap();
        assert!(matches!(parsed.verb, Verb::Client(ClientVerb::Tail { from, .. }) if from == "-1"));
        let line =
            ["thalweg", "serve", "--listen", "[::1]:1", "--listen", "unix:/tmp/s", "--durability", "os"];
        let Verb::Serve(options) = Arguments::try_parse_from(line).unwrap().verb else { panic!("not serve") };
        assert_eq!((options.listen.len(), options.durability), (2, Durability::Os));
        for bad in [
            &["serve", "--listen", "nonsense"][..],
            &["serve", "--reactors", "0"],
            &["append"],
            &["read", "a", "--nope"],
        ] {
            assert!(Arguments::try_parse_from(std::iter::once(&"thalweg").chain(bad)).is_err(), "{bad:?}");
        }
    }
}
