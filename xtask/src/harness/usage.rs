//! What the tasks are and what they take: all of them where none is named, and a task's own words with
//! `--help`.

pub(crate) const ALL: &str = "\
cargo xtask <task> [options]

  tidy                     the rules of CONTRIBUTING.md that no compiler checks: arrows, ratchets, SAFETY comments, licences
  ci                       everything `make test` runs, once its tools are there
                             --only NAME,NAME  just these steps   --list  name them
  conformance              the official suite against a server it starts
                             --durability sync|os|memory   --restart  twice, with a restart in between
  debian                   Debian's package index through a stream and back
  refusals                 bad input: the right status, the rule named, nothing written
  judges                   other people's clients: curl, Python, a browser, npm
                             --only curl,python,browser,client
  crash                    kill -9 under load     --rounds 20  --seed N
  state-crash              kill -9 in the middle of what a state does   --rounds 5  --seed N  --record
  slopes                   memory per idle connection
                             --sizes 0,1000,5000,10000  --durability memory
  drain                    TERM with subscribers attached   --subscribers 10000
  empty                    memory of an empty server
  forks                    forks of one large stream: bytes on disk, memory, rate beside appends
                             --streams 100000  --bytes 1073741824  --durability sync  --check  judges the rate
  full                     a disk that fills and empties again (root, or namespaces of users)
  node                     the npm package: packed, installed in an empty folder, its tests and types
                             --newest  its tests, in the newest Node.js
  faces-format             regenerates the faces' files that follow from the log's format
  python                   the wheel: built, installed in an empty environment, its tests and types
                             --only TEST,TEST  --newest  in the newest CPython  --interpreter PYTHON  in any
  asyncio                  CPython's own tests of asyncio on our event loop
                             --only MODULE,MODULE  --newest  --interpreter PYTHON  --libraries  other people's, unchanged
  codegen                  regenerates the code from schemas/   --check  shows the differences
  faults                   writes the table of faults into every face   --check  shows the differences
  cpp                      the C++ face: installed, found by CMake, its tests with every access watched
  zig                      the Zig face with the oldest and the newest Zig that it is for
  erlang                   the Erlang application: Common Test, with workers from the built wheel   --only call,pool
  header                   writes the C header, from crates/abi   --check  compares
  golden                   generated code of six languages against the golden frames
                             --only rust,ts,python,cpp,zig,erlang
  guide                    the first service of docs/services.md, built and run step by step
  matrix                   every language's echo client against every language's echo server
                             --only rust,cpp,zig,node,python,erlang
  fuzz                     every parser and on-disk format, coverage-guided
                             --target NAME,…  --seconds 5  --at-once N  --record
  simulate                 the crash simulations of the log, the state and subscriptions, and clients beside a model
                             --seeds 20000  --first N|now  --operations 1000000  --only log  --profile release  --record
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
  bench ipc                calls between processes beside other people's and the floors, in turn
                             --pairs 5  --without-peer  --tiny  --check
  bench rpc                JSON-RPC over kept connections beside jsonrpsee and a raw floor, in turn
                             --pairs 5  --without-peer  --tiny  --check
  bench state              the state between processes beside the state in one
                             --pairs 5  --tiny  --check
  bench loop               our event loop beside uvloop and rloop, in turn
                             --pairs 5  --seconds 1  --only WORK  --tiny  --check
  bench erlang             calls from Erlang to Python workers, beside their targets and the virtual machine's floors
                             --pairs 5  --milliseconds 1000  --only WORK  --tiny  --check

Judges that start a server take --peer to start the Rust peer in its place, which checks the judge.";

/// Whether help on a task is asked for, instead of running it.
pub(crate) fn is_asked(task: &str, words: &[String]) -> bool {
    let asks = |word: &str| word == "--help" || word == "-h";
    asks(task) || task == "help" || words.iter().any(|word| asks(word))
}

/// The entries of a task, of `bench` all; everything where there is no such task.
pub(crate) fn of(task: &str) -> String {
    let mut lines = Vec::new();
    let mut own = false;
    for line in ALL.lines() {
        match line.strip_prefix("  ") {
            Some(entry) if entry.starts_with(' ') => {}
            Some(entry) => own = entry.split_whitespace().next() == Some(task),
            None => own = false,
        }
        if own {
            lines.push(line);
        }
    }
    if lines.is_empty() { ALL.to_owned() } else { lines.join("\n") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_its_own_words_and_what_is_none_has_all() {
        let drain = of("drain");
        assert!(drain.contains("TERM with subscribers") && drain.contains("--subscribers"), "{drain}");
        assert!(!drain.contains("memory of an empty server"), "{drain}");
        let bench = of("bench");
        for name in ["streams", "log", "ipc", "rpc", "state", "loop", "erlang"] {
            assert!(bench.contains(&format!("bench {name} ")), "{name}: {bench}");
        }
        assert_eq!(of("help"), ALL);
        assert!(is_asked("drain", &["--help".to_owned()]) && is_asked("-h", &[]) && is_asked("help", &[]));
        assert!(!is_asked("drain", &["--check".to_owned()]));
    }
}
