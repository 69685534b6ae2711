//! The verbs that use a server, as the command line names them.

use super::failure::Failure;
use super::neighbour::Via;
use super::place;
use super::url::Url;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;
use thalweg_wire::decimal::SAFE_INTEGER_MAX;
use thalweg_wire::rfc3339;

/// Which server a verb talks to.
#[derive(Clone, Debug, Args)]
pub(crate) struct Server {
    /// The server: http://host:port, https://host:port or unix:/path.
    #[arg(long, env = "THALWEG_URL", default_value = "http://127.0.0.1:4437")]
    pub(crate) url: String,
    /// The token for the server. It is sent to that server and to no other; better set in the environment,
    /// where no other user sees it.
    #[arg(long, env = "THALWEG_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// The certificates to trust for https:// (a PEM file) in place of the system's.
    #[arg(long, env = "THALWEG_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
}

impl Server {
    /// Where it is, and what opens it.
    ///
    /// # Errors
    /// [`Failure::Url`].
    pub(crate) fn parse(&self) -> Result<Url, Failure> {
        if self.token.as_ref().is_some_and(|token| token.bytes().any(|byte| byte.is_ascii_control())) {
            return Err(Failure::Asked(
                "the token (--token, THALWEG_TOKEN) holds a line end or another control character, which no token does",
            ));
        }
        Ok(Url::parse(&self.url)?.with_token(self.token.clone()).trusting(self.tls_ca.clone()))
    }
}

/// Which stream a verb is about.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The stream's name, which may hold slashes (`orders/2024`), or its whole URL.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) server: Server,
}

/// How long a stream lives.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Lifetime {
    /// Delete it after this many seconds without a read or a write.
    #[arg(
        long = "ttl",
        alias = "ttl-s",
        value_name = "SECONDS",
        conflicts_with = "expires_at",
        allow_negative_numbers = true,
        value_parser = whole
    )]
    pub(crate) ttl_s: Option<u64>,
    /// Delete it at this time (RFC 3339, such as 2030-01-01T00:00:00Z).
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub(crate) expires_at: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct AppendOptions {
    #[command(flatten)]
    pub(crate) target: Target,
    /// What to append, each argument separately. `-` alone, or no argument, appends standard input.
    pub(crate) data: Vec<String>,
    /// Append the contents of a file; `-` is standard input.
    #[arg(long, value_name = "PATH", conflicts_with = "data")]
    pub(crate) file: Option<PathBuf>,
    /// Each line (or argument) is one JSON message. Lines are sent in batches, in order.
    #[arg(long)]
    pub(crate) json: bool,
    /// The content type of the bytes; by default the stream's.
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Close the stream after them: nothing more can be appended.
    #[arg(long)]
    pub(crate) close: bool,
    /// Bytes sent in one request at most: a larger input is sent in pieces, each appended whole or not at
    /// all.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) batch_bytes: u32,
    /// Send without a producer's identity. A lost connection then ends the append, because what was sent may
    /// have been applied. With an identity, the default, it is sent again and applied once.
    #[arg(long)]
    pub(crate) no_producer: bool,
    /// How long an append is retried while the server cannot be reached or says to try again later.
    #[arg(long = "retry", value_name = "SECONDS", default_value_t = 60)]
    pub(crate) retry_s: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CopyOptions {
    /// The stream to copy: a name, or a whole URL.
    pub(crate) source: String,
    /// The stream to copy to: a name, or a whole URL. Created when missing.
    pub(crate) destination: String,
    #[command(flatten)]
    pub(crate) server: Server,
    /// The server of the destination, if it is a different one.
    #[arg(long, value_name = "URL")]
    pub(crate) to_url: Option<String>,
    /// The token for the destination's server. That is the one at `--to-url` or, without it, in the
    /// destination's URL, or else the source's.
    #[arg(long, env = "THALWEG_TO_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) to_token: Option<String>,
    /// Leave the destination open even if the source is closed.
    #[arg(long)]
    pub(crate) keep_open: bool,
    /// How long a piece is retried while a server cannot be reached or says to try again later.
    #[arg(long = "retry", value_name = "SECONDS", default_value_t = 60)]
    pub(crate) retry_s: u64,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct StatsOptions {
    #[command(flatten)]
    pub(crate) server: Server,
    /// Keep printing a line per interval: appends, bytes in and out and deliveries a second, connections and
    /// subscribers, commits per sync, how long a sync and an append took, streams, memory, refusals. Exits
    /// with 0 when interrupted. Waits for a server that goes away.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Seconds between two lines: 0.1 to 3600.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = line_interval, requires = "watch")]
    pub(crate) every: Duration,
    /// Print this many lines, then exit.
    #[arg(long, value_name = "N", requires = "watch")]
    pub(crate) rounds: Option<u64>,
}

/// A moment, as it is written.
fn moment(text: &str) -> Result<String, String> {
    match rfc3339::parse(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a time (RFC 3339), such as 2030-01-01T00:00:00Z".to_owned()),
    }
}

/// A number that a server takes.
fn whole(text: &str) -> Result<u64, String> {
    let value = text.parse().ok().filter(|value| *value <= SAFE_INTEGER_MAX);
    value.ok_or_else(|| format!("expected a whole number, from 0 to {SAFE_INTEGER_MAX}"))
}

/// The time between two lines of `stats --watch`.
fn line_interval(text: &str) -> Result<Duration, String> {
    seconds_from(0.1, text)
}

/// The time between two checks of `watch`.
fn look_interval(text: &str) -> Result<Duration, String> {
    seconds_from(0.01, text)
}

/// A number of seconds between a lower bound and an hour.
fn seconds_from(lower: f64, text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (lower..=3_600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("expected a number of seconds from {lower} to 3600"))
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientVerb {
    /// Create a stream.
    Create {
        #[command(flatten)]
        target: Target,
        /// Its content type. `application/json` makes it a stream of messages.
        #[arg(long, value_name = "TYPE", default_value = "text/plain")]
        content_type: String,
        #[command(flatten)]
        lifetime: Lifetime,
        /// Create it closed: it stays empty.
        #[arg(long)]
        closed: bool,
    },
    /// Append arguments, a file or standard input, and print the offset after them.
    Append(AppendOptions),
    /// Print what a stream holds now: bytes unchanged, JSON messages one per line.
    Read {
        #[command(flatten)]
        target: Target,
        /// Where to begin: an offset, `beginning`, `now`, or a time (RFC 3339).
        #[arg(long, value_name = "OFFSET", default_value = "beginning", allow_hyphen_values = true, value_parser = place::from)]
        from: String,
        /// Where to end: an offset, a time (RFC 3339), or `tail` for the stream's end as it is now.
        #[arg(long, value_name = "OFFSET", default_value = "tail", allow_negative_numbers = true, value_parser = place::until)]
        until: String,
    },
    /// Print what a stream holds and what is appended to it, until it is closed. Reconnects by itself.
    Tail {
        #[command(flatten)]
        target: Target,
        /// Where to begin: an offset, `beginning`, `now` for what comes, or, over HTTP, a time (RFC 3339).
        #[arg(long, value_name = "OFFSET", default_value = "beginning", allow_hyphen_values = true, value_parser = place::from)]
        from: String,
        /// How to reach the server: over HTTP, or, on the same machine, through the socket or the shared
        /// memory that it offers in its store's directory.
        #[arg(long, value_enum, default_value_t = Via::Http)]
        via: Via,
        /// The store's directory, for --via sock and shm.
        #[arg(long, value_name = "DIR", env = "THALWEG_DATA", default_value = "./data")]
        data: PathBuf,
        /// Follow what is appended. This verb always does; the flag exists because other programs' `tail` has
        /// it.
        #[arg(long, short)]
        follow: bool,
    },
    /// Print what is known about a stream.
    Head {
        #[command(flatten)]
        target: Target,
    },
    /// List streams, sorted by name.
    Ls {
        /// Only names that match: `*` stands for anything but a slash, `**` for anything, `?` for one
        /// character but a slash.
        glob: Option<String>,
        #[command(flatten)]
        server: Server,
        /// Show the bytes that can be read and those ever appended, whether the stream is open, closed, or
        /// known to be damaged, its content type and its lifetime.
        #[arg(long, short)]
        long: bool,
    },
    /// Create a stream that begins with the contents of another, without copying them.
    Fork {
        /// The stream to begin with.
        source: String,
        /// The stream to create.
        name: String,
        #[command(flatten)]
        server: Server,
        /// Where in the source the fork branches off: an offset, or `beginning`; by default its end.
        #[arg(long, value_name = "OFFSET", allow_hyphen_values = true, value_parser = place::at)]
        at: Option<String>,
        /// Branch off this many bytes (JSON: messages) beyond `--at`.
        #[arg(long, value_name = "N", requires = "at", allow_negative_numbers = true, value_parser = whole)]
        sub: Option<u64>,
        #[command(flatten)]
        lifetime: Lifetime,
    },
    /// Close a stream: nothing more can be appended, and its followers are notified.
    Close {
        #[command(flatten)]
        target: Target,
    },
    /// Delete streams. If one cannot be deleted, the others still are.
    Rm {
        /// Their names or URLs.
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        server: Server,
    },
    /// Copy a stream, between servers too. Run again after an interruption, it continues where it stopped.
    Cp(CopyOptions),
    /// Print a server's counters; with --watch their change, a line a second.
    Stats(StatsOptions),
    /// Print a line whenever a stream changes.
    Watch {
        /// Only names that match, as for `ls`.
        glob: Option<String>,
        #[command(flatten)]
        server: Server,
        /// Print the server's totals instead of each stream.
        #[arg(long, conflicts_with = "glob")]
        totals: bool,
        /// Seconds between two checks: 0.01 to 3600.
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = look_interval)]
        every: Duration,
        /// The same in milliseconds, as it was once called.
        #[arg(long, value_name = "MS", hide = true, conflicts_with = "every", value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
        interval_ms: Option<u64>,
        /// Check this many times, then exit.
        #[arg(long, value_name = "N")]
        rounds: Option<u64>,
    },
}
