//! The developers' entry point: `cargo xtask <task>`. Owns the checks that no compiler makes and the judges
//! that treat the server as a black box; never knows the server's insides (it is started as a program, spoken
//! to over HTTP, measured through /proc, and killed).
#![forbid(unsafe_code)]

mod asyncio;
mod bench;
mod ci;
mod client;
mod codegen;
mod conformance;
mod cpp;
mod crash;
mod damage;
mod debian;
mod drain;
mod empty;
mod erlang;
mod faults;
mod forks;
mod full;
mod fuzz;
mod golden;
mod guide;
mod header;
mod hold;
mod judges;
mod load;
mod matrix;
mod memory;
mod million;
mod node;
mod options;
mod programs;
mod python;
mod refusals;
mod server;
mod serving;
mod simulate;
mod slopes;
mod soak;
mod state_crash;
mod tidy;
mod zig;

use options::Options;
use std::process::ExitCode;

/// What a task ends with: how many checks passed and failed, or why it could not run.
pub(crate) type Outcome = Result<Tally, String>;

/// Checks that passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Checks that held.
    pub(crate) passed: u64,
    /// Checks that did not.
    pub(crate) failed: u64,
}

impl Tally {
    /// Counts one check and says so when it failed.
    pub(crate) fn check(&mut self, holds: bool, says: impl FnOnce() -> String) {
        if holds {
            self.passed += 1;
        } else {
            self.failed += 1;
            eprintln!("  FAILED: {}", says());
        }
    }
}

const USAGE: &str = "\
cargo xtask <task> [options]

  tidy                     the rules of the house: arrows, ratchets, SAFETY comments, licences
  ci                       everything `make test` runs, once its tools are there
                             --only NAME,NAME  just these steps   --list  name them
  conformance              the official suite against a server it starts
                             --durability sync|memory   --restart  twice, with a restart in between
  debian                   Debian's package index through a stream and back
  refusals                 bad input: the right status, the rule named, nothing written
  judges                   other people's clients: curl, Python, a browser, npm
                             --only curl,python,browser,client
  crash                    kill -9 under load     --rounds 20  --seed N
  state-crash              kill -9 in the middle of what a state does   --rounds 5  --seed N
  slopes                   memory per idle connection
                             --sizes 0,1000,5000,10000  --durability memory
  drain                    TERM with subscribers attached   --subscribers 10000
  empty                    memory of an empty server
  forks                    forks of one large stream: bytes on disk, memory, rate beside appends
                             --streams 100000  --bytes 1073741824  --durability sync  --check  judges the rate
  full                     a disk that fills and empties again (root)
  node                     the npm package: packed, installed in an empty folder, its tests and types
  faces-format             writes anew what the faces generate from the log's format
  python                   the wheel: built, installed in an empty environment, its tests and types
                             --only TEST,TEST
  asyncio                  CPython's own tests of asyncio on our event loop
                             --only MODULE,MODULE
  codegen                  writes what is generated from schemas/   --check  says how it differs
  faults                   writes the table of faults as every face has it   --check  says how it differs
  cpp                      the C++ face: installed, found by CMake, its tests with every access watched
  zig                      the Zig face with the oldest and the newest Zig that it is for
  erlang                   the Erlang application: Common Test, with workers from the built wheel   --only call,pool
  header                   writes the C header, from crates/abi   --check  says whether it differs
  golden                   generated code of six languages against the golden frames
                             --only rust,ts,python,cpp,zig,erlang
  guide                    the first service of docs/services.md, built and run as it says there
  matrix                   every language's echo client against every language's echo server
                             --only rust,cpp,zig,node,python,erlang
  fuzz                     every parser and on-disk format against inputs that grow out of what they cover
                             --target NAME,…  --seconds 5  --at-once N  --record
  simulate                 the crash simulations of the log, the state and subscriptions
                             --seeds 20000  --only log  --record
  damage                   flipped bits, held and newer stores
  streams-million          streams created, appended to, opened again: memory of each, descriptors, time to open
                             --streams 1000000  --durability sync  --record  --check  judges the time
  soak                     mixed load: memory that does not grow, no error that a client did not cause
                             --minutes 30  --subscribers 5000  --retain-bytes 67108864  (0 keeps all)  --record
                             --record puts what was found into bench/results/endurance.md
  bench streams            ours beside the peers of crates.io and npm and the floor, in turn
                             --pairs 5  --seconds 5  --only WORK,WORK  --without-peer  --tiny  --check
                             --readme  writes README.md's table of the results, and measures nothing
  bench log                the embedded log beside LMDB, in turn
                             --face native|node|python  --pairs 5  --milliseconds 250  --records 1000000  --tiny  --check
  bench state              the state between processes beside the state in one
                             --pairs 5  --tiny  --check
  bench loop               our event loop beside uvloop and rloop, in turn
                             --pairs 5  --seconds 1  --only WORK  --tiny  --check
  bench erlang             calls from Erlang to Python workers, beside what is asked and the virtual machine's floors
                             --pairs 5  --milliseconds 1000  --only WORK  --tiny  --check

Judges that start a server take --peer to start the Rust peer in its place, which checks the judge.";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let Some(task) = words.next() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let outcome = Options::parse(words).and_then(|options| run(&task, &options));
    match outcome {
        Ok(tally) => {
            println!("{task}: {} passed, {} failed", tally.passed, tally.failed);
            if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("{task}: {problem}");
            ExitCode::from(2)
        }
    }
}

fn run(task: &str, options: &Options) -> Outcome {
    match task {
        "tidy" => tidy::run(),
        "ci" => ci::run(options),
        "conformance" => conformance::run(options),
        "debian" => debian::run(options),
        "crash" => crash::run(options),
        "state-crash" => state_crash::run(options),
        "refusals" => refusals::run(options),
        "judges" => judges::run(options),
        "slopes" => slopes::run(options),
        "simulate" => simulate::run(options),
        "soak" => soak::run(options),
        "streams-million" => million::run(options),
        "drain" => drain::run(options),
        "empty" => empty::run(options),
        "forks" => forks::run(options),
        "full" => full::run(options),
        "node" => node::run(options),
        "faces-format" => node::write_format(),
        "damage" => damage::run(options),
        "python" => python::run(options),
        "asyncio" => asyncio::run(options),
        "bench" => bench::run(options),
        "codegen" => codegen::run(options),
        "golden" => golden::run(options),
        "header" => header::run(options),
        "cpp" => cpp::run(options),
        "zig" => zig::run(options),
        "erlang" => erlang::run(options),
        "fuzz" => fuzz::run(options),
        "faults" => faults::run(options),
        "guide" => guide::run(options),
        "matrix" => matrix::run(options),
        _ => Err(format!("no such task\n\n{USAGE}")),
    }
}
