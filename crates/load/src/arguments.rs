//! The command line of `thalweg bench`.

use clap::builder::{ArgPredicate, RangedU64ValueParser};
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// What names begin with where nothing else was asked for.
const PREFIX: &str = "load-";

/// What is asked of the server, and how much of it.
#[derive(Clone, Debug, Subcommand)]
pub enum BenchVerb {
    /// Append records, one after the other on each connection.
    Append {
        /// Which server, and what the records are.
        #[command(flatten)]
        common: Common,
        /// For how long.
        #[command(flatten)]
        span: Span,
        /// Connections, each with one append under way.
        #[arg(long, value_name = "N", default_value_t = 256)]
        connections: u32,
        /// Streams, which are created first and appended to in turn.
        #[arg(long, value_name = "N", default_value_t = 100)]
        streams: u64,
        /// The number of the first stream.
        #[arg(long, value_name = "N", default_value_t = 0)]
        first: u64,
        /// Appends per second that are offered, over all connections; without it each follows its predecessor
        /// at once.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        rate: Option<u32>,
        /// Stop after N appends.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        operations: Option<u64>,
        /// The streams exist already.
        #[arg(long)]
        created: bool,
    },
    /// Create streams, one after the other on each connection.
    Create {
        /// Which server, and how the streams are named.
        #[command(flatten)]
        common: Common,
        /// For how long.
        #[command(flatten)]
        span: Span,
        /// Connections, each with one create under way.
        #[arg(long, value_name = "N", default_value_t = 256)]
        connections: u32,
        /// The number of the first stream.
        #[arg(long, value_name = "N", default_value_t = 0)]
        first: u64,
        /// Stop after N creates.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        operations: Option<u64>,
        /// Make each stream a fork of this one.
        #[arg(long, value_name = "NAME")]
        fork_of: Option<String>,
    },
    /// Read whole streams again and again from their beginnings.
    CatchUp {
        /// Which server, and how the streams are named.
        #[command(flatten)]
        common: Common,
        /// For how long.
        #[command(flatten)]
        span: Span,
        /// Connections, each of which reads its stream to the end and starts over.
        #[arg(long, value_name = "N", default_value_t = 100)]
        connections: u32,
        /// Streams over which the connections are spread.
        #[arg(long, value_name = "N", default_value_t = 1)]
        streams: u64,
        /// Bytes of each stream, a multiple of 1048576; it is filled first, a mebibyte at a time.
        #[arg(long, value_name = "BYTES", default_value_t = 16 << 20)]
        stream_bytes: u64,
        /// Stop after N reads of a whole stream.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        operations: Option<u64>,
        /// The streams exist already, and are filled.
        #[arg(long)]
        created: bool,
        /// Fill the streams and exit.
        #[arg(long, conflicts_with = "created")]
        only_fill: bool,
    },
    /// Append at a rate, and deliver each record to every follower.
    FanOut {
        /// Which server, and what the records are.
        #[command(flatten)]
        common: Common,
        /// For how long.
        #[command(flatten)]
        span: Span,
        /// How they follow.
        #[arg(long, value_enum, default_value_t = Via::Sse)]
        via: Via,
        /// Followers.
        #[arg(long, value_name = "N", default_value_t = 1_000)]
        connections: u32,
        /// Streams over which the connections are spread.
        #[arg(long, value_name = "N", default_value_t = 1)]
        streams: u64,
        /// Records per second and stream.
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
        /// Stop after N records.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        operations: Option<u64>,
    },
    /// Hold idle connections, and report how the server's memory grows with them.
    Idle {
        /// Which server.
        #[command(flatten)]
        common: Common,
        /// How they idle.
        #[arg(long, value_enum, default_value_t = Idle::Sse)]
        kind: Idle,
        /// Numbers of connections at which the server's memory is measured.
        #[arg(long, value_name = "N", value_delimiter = ',', default_value = "0,1000,5000,10000")]
        sizes: Vec<u32>,
        /// A stream for each connection instead of one for all.
        #[arg(long)]
        apart: bool,
        /// The streams exist already.
        #[arg(long)]
        created: bool,
        /// Hold the last number of connections for this many seconds.
        #[arg(long, value_name = "N", default_value_t = 0)]
        seconds: u64,
    },
    /// Writers, followers of both kinds, clients that come and go, all at once.
    Mixed {
        /// Which server, and what the records are.
        #[command(flatten)]
        common: Common,
        /// For how long.
        #[command(flatten)]
        span: Span,
        /// Streams, each with a writer.
        #[arg(long, value_name = "N", default_value_t = 100)]
        streams: u64,
        /// Records per second over all streams.
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
        rate: u32,
        /// Followers by SSE.
        #[arg(long, value_name = "N", default_value_t = 5_000)]
        sse: u32,
        /// Followers by long-poll.
        #[arg(long, value_name = "N", default_value_t = 500)]
        long_poll: u32,
        /// Clients that connect, make a request and leave, some of them in the middle of it.
        #[arg(long, value_name = "N", default_value_t = 20)]
        churn: u32,
    },
    /// Serve a canned answer, to be loaded in a server's place: the floor of every measurement.
    Floor {
        /// Where to listen.
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4438")]
        listen: SocketAddr,
    },
}

/// Which server, how its streams are named, and what records are.
#[derive(Clone, Debug, Args)]
pub struct Common {
    /// The server: http://host:port or https://host:port.
    #[arg(long, env = "THALWEG_URL", default_value = "http://127.0.0.1:4437")]
    pub url: String,
    /// The token for the server.
    #[arg(long, env = "THALWEG_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The certificates to trust for https:// (a PEM file) in place of the system's.
    #[arg(long, env = "THALWEG_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// What the streams' names begin with; a number follows. By default `load-` for append and create, and
    /// for each other verb one of its own, such as `load-fan-out-`.
    #[arg(long, value_name = "PREFIX")]
    pub prefix: Option<String>,
    /// Least length of a name, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = bytes_up_to(1_024))]
    pub name_bytes: usize,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value_t = 256, value_parser = bytes_up_to(1 << 30))]
    pub bytes: usize,
    /// The server's process, on this machine: its processor time and memory are reported.
    #[arg(long, value_name = "PID")]
    pub process: Option<u32>,
}

fn bytes_up_to(max: u64) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=max)
}

impl Common {
    /// With names that tell the streams of a verb apart from those of others, unless some were asked for.
    pub(crate) fn of_verb(&self, verb: &str) -> Self {
        let prefix = self.prefix.clone().unwrap_or_else(|| format!("{PREFIX}{verb}-"));
        Self { prefix: Some(prefix), ..self.clone() }
    }

    /// What names begin with.
    pub(crate) fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(PREFIX)
    }
}

impl Default for Common {
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:4437".to_owned(),
            token: None,
            tls_ca: None,
            prefix: None,
            name_bytes: 0,
            bytes: 256,
            process: None,
        }
    }
}

/// For how long.
#[derive(Clone, Copy, Debug, Args)]
pub struct Span {
    /// Seconds to measure.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: u64,
    /// Time before the measurement that is not counted; 0 with `--operations` unless it is given.
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 1_000,
        default_value_if("operations", ArgPredicate::IsPresent, "0")
    )]
    pub warm_up_ms: u64,
}

/// How a stream is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// One response without end, an event for each record.
    Sse,
    /// A request for each record, or for several that came together.
    LongPoll,
}

/// How a connection idles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Idle {
    /// Answered once, and kept open.
    KeptAlive,
    /// Waiting for the next record.
    LongPoll,
    /// Following, past the first event.
    Sse,
}
