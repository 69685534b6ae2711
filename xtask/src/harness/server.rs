//! A server under judgement: started as a program on a free loopback port with a directory of its own, ready
//! when it answers, and gone when the value is dropped. Knows ours, the Rust peer
//! that benchmarks compare with (and that shows whether a judge judges fairly), and the benchmarks' floor.

use crate::harness::client::Connection;
use crate::harness::options::Options;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime};

/// Which program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// `thalweg serve`.
    Ours,
    /// `durable-streams-server` of the crate `durable-streams`.
    Peer,
    /// The npm package `@durable-streams/server`.
    Node,
    /// A server that answers 204 to everything: the floor of benchmarks.
    Floor,
}

impl Program {
    /// Ours unless `--peer` was given.
    pub(crate) fn of(options: &Options) -> Self {
        if options.flag("peer") { Self::Peer } else { Self::Ours }
    }
}

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// A fresh directory below the system's temporary one.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub(crate) fn new(purpose: &str) -> Result<Self, String> {
        let path = std::env::temp_dir().join(format!("thalweg-{purpose}-{:x}", nanoseconds()));
        fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Left behind at worst: a temporary directory that the system cleans.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Nanoseconds since the epoch, for names and seeds.
pub(crate) fn nanoseconds() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos())
}

/// The workspace's root: where cargo runs this from, which with a target directory that two checkouts share
/// need not be where it was built.
pub(crate) fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().unwrap_or(Path::new(".")).to_owned()
}

/// Where cargo builds to.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Where things that may be reused between checkouts are kept.
pub(crate) fn cache() -> PathBuf {
    let home = || std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("thalweg")
}

/// Builds a release binary of the workspace, and says where it is.
///
/// # Errors
/// It does not build.
pub(crate) fn build(package: &str, binary: &str) -> Result<PathBuf, String> {
    build_one(package, ["--bin", binary])?;
    Ok(target().join("release").join(binary))
}

/// Builds a release example of the workspace, and says where it is.
///
/// # Errors
/// It does not build.
pub(crate) fn build_example(package: &str, example: &str) -> Result<PathBuf, String> {
    build_one(package, ["--example", example])?;
    Ok(target().join("release/examples").join(example))
}

fn build_one(package: &str, what: [&str; 2]) -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--release", "--package", package])
        .args(what)
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{package}: no build")) }
}

/// The peer's program, built once into the cache.
///
/// # Errors
/// It cannot be built.
pub(crate) fn build_peer() -> Result<PathBuf, String> {
    const VERSION: &str = "0.1.5";
    let home = cache().join("peers");
    let binary = home.join("bin/durable-streams-server");
    if binary.exists() {
        return Ok(binary);
    }
    println!("building the peer, durable-streams {VERSION}, into {}", home.display());
    let status = Command::new("cargo")
        .args(["install", "--quiet", "--locked", "durable-streams", "--version", VERSION, "--root"])
        .arg(&home)
        .env("CARGO_TARGET_DIR", home.join("target"))
        .current_dir(std::env::temp_dir())
        .status()
        .map_err(|e| format!("cargo install: {e}"))?;
    if status.success() { Ok(binary) } else { Err("cargo install durable-streams failed".to_owned()) }
}

/// What runs the peer of npm, whose packages are installed as the lock file pins them.
///
/// # Errors
/// They cannot be installed.
fn install_node_peer() -> Result<PathBuf, String> {
    let home = root().join("bench/streams");
    let (lock, seen) = (home.join("package-lock.json"), home.join("node_modules/.lock-seen"));
    let wanted = fs::read(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    if fs::read(&seen).ok().as_ref() != Some(&wanted) {
        println!("installing the peer of npm into {}", home.display());
        run_in(Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(&home))?;
        fs::write(&seen, wanted).map_err(|e| format!("{}: {e}", seen.display()))?;
    }
    Ok(PathBuf::from("node"))
}

/// A program that measures other people's calls between processes, built into the cache.
///
/// # Errors
/// It cannot be built.
pub(crate) fn build_peers(program: &str) -> Result<PathBuf, String> {
    let home = cache().join("peers");
    let python = home.join("python");
    if !python.exists() {
        // The one that generates bindings for iceoryx2 when it is built; a wheel brings it to every machine
        // alike.
        println!("installing libclang into {}", python.display());
        run_in(Command::new("python3").args(["-m", "venv"]).arg(&python))?;
        run_in(Command::new(python.join("bin/pip")).args(["install", "--quiet", "libclang==18.1.1"]))?;
    }
    let library = format!("lib/{}/site-packages/clang/native", python_version()?);
    let target = home.join("target");
    let mut command = Command::new("cargo");
    command
        .args(["build", "--quiet", "--release", "--locked", "--bin", program])
        .env("CARGO_TARGET_DIR", &target)
        .env("LIBCLANG_PATH", python.join(library))
        .current_dir(root().join("bench/peers"));
    if let Some(headers) = compiler_headers() {
        command.env("BINDGEN_EXTRA_CLANG_ARGS", format!("-I{headers}"));
    }
    run_in(&mut command)?;
    Ok(target.join("release").join(program))
}

/// `python3.11`, or whichever the system has.
fn python_version() -> Result<String, String> {
    let text = "import sys; print('python%d.%d' % sys.version_info[:2])";
    let output = Command::new("python3").args(["-c", text]).output().map_err(|e| format!("python3: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Where the system's compiler keeps the headers that come with it, which libclang alone does not have.
fn compiler_headers() -> Option<String> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&path).is_absolute().then_some(path)
}

fn run_in(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// How to start a server.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    program: Program,
    binary: PathBuf,
    durability: String,
    long_poll_ms: u64,
    sse_lifetime_ms: u64,
    more: Vec<String>,
}

impl Launch {
    /// Builds the program; `durability` is ours: `sync`, `os` or `memory`.
    ///
    /// # Errors
    /// It does not build.
    pub(crate) fn new(program: Program, durability: &str) -> Result<Self, String> {
        let binary = match program {
            Program::Ours | Program::Floor => build("thalweg-server", "thalweg")?,
            Program::Peer => build_peer()?,
            Program::Node => install_node_peer()?,
        };
        let durability = durability.to_owned();
        Ok(Self { program, binary, durability, long_poll_ms: 500, sse_lifetime_ms: 60_000, more: Vec::new() })
    }

    /// Sets the long-poll timeout.
    pub(crate) fn long_poll_ms(mut self, milliseconds: u64) -> Self {
        self.long_poll_ms = milliseconds;
        self
    }

    /// Sets how long an SSE response lasts.
    pub(crate) fn sse_lifetime_ms(mut self, milliseconds: u64) -> Self {
        self.sse_lifetime_ms = milliseconds;
        self
    }

    /// Another option, for our program only.
    pub(crate) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.more.push(name.to_owned());
        self.more.push(value.to_string());
        self
    }

    /// The program's name, for reports.
    pub(crate) fn name(&self) -> &'static str {
        match self.program {
            Program::Ours => "thalweg",
            Program::Peer => "durable-streams 0.1.5",
            Program::Node => "@durable-streams/server 0.3.7",
            Program::Floor => "floor",
        }
    }

    fn command(&self, port: u16, data: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        match self.program {
            Program::Ours => {
                command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--data"]).arg(data);
                command.args(["--durability", &self.durability]);
                command.args(["--long-poll-timeout-ms", &self.long_poll_ms.to_string()]);
                command.args(["--sse-lifetime-ms", &self.sse_lifetime_ms.to_string()]);
                command.args(&self.more);
            }
            Program::Peer => {
                let durability = if self.durability == "memory" { "memory" } else { "wal" };
                command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--data-dir"]).arg(data);
                command.args(["--durability", durability]);
                command.args(["--long-poll-timeout-ms", &self.long_poll_ms.to_string()]);
            }
            Program::Node => {
                command.arg(root().join("bench/streams/peer.mjs"));
                command.args([&port.to_string(), &self.long_poll_ms.to_string()]);
                if self.durability != "memory" {
                    command.arg(data);
                }
            }
            Program::Floor => {
                command.args(["bench", "floor", "--listen", &format!("127.0.0.1:{port}")]);
            }
        }
        command
    }

    /// Starts the server over `data` and waits until it answers.
    ///
    /// # Errors
    /// It exits, or does not answer within 60 s; what it last said is part of the error.
    pub(crate) fn start(&self, data: &Path) -> Result<Server, String> {
        let port = free_port()?;
        let said = data.with_extension("log");
        let log = fs::File::options().create(true).append(true).open(&said).map_err(|e| e.to_string())?;
        let more = log.try_clone().map_err(|e| e.to_string())?;
        let child = self
            .command(port, data)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(more)
            .spawn()
            .map_err(|e| format!("{}: {e}", self.binary.display()))?;
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut server = Server { child, address, said };
        server.await_answer()?;
        Ok(server)
    }
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    said: PathBuf,
}

impl Server {
    /// Its base URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// A connection to it.
    ///
    /// # Errors
    /// It refuses.
    pub(crate) fn connect(&self) -> Result<Connection, String> {
        Connection::open(self.address)
    }

    fn await_answer(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended ({status}): {}", self.last_words()));
            }
            // Any answer will do: the peer has no /healthz and says 404.
            if self.connect().and_then(|mut c| c.request("GET", "/healthz", &[], b"")).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("the server did not answer within 60 s: {}", self.last_words()))
    }

    /// The end of what the server printed.
    pub(crate) fn last_words(&self) -> String {
        let text = fs::read(&self.said).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(4096)..];
        String::from_utf8_lossy(tail).into_owned()
    }

    /// Ends it as a power cut would, without a word.
    ///
    /// # Errors
    /// It is not ours to kill.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        self.child.kill().map_err(|e| e.to_string())?;
        self.child.wait().map_err(|e| e.to_string())?;
        Ok(())
    }

    /// Asks it to end (TERM).
    ///
    /// # Errors
    /// There is no shell to send the signal with.
    pub(crate) fn ask_to_end(&self) -> Result<(), String> {
        let command = format!("kill -TERM {}", self.child.id());
        let status = Command::new("sh").args(["-c", &command]).status().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err("TERM could not be sent".to_owned()) }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It still runs after `limit`.
    pub(crate) fn await_end(&mut self, limit: Duration) -> Result<ExitStatus, String> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                return Err(format!("it still runs after {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// TERM, then its end within `limit`.
    ///
    /// # Errors
    /// It does not end, or ends with a failure.
    pub(crate) fn end(mut self, limit: Duration) -> Result<(), String> {
        self.ask_to_end()?;
        let status = self.await_end(limit)?;
        if status.success() { Ok(()) } else { Err(format!("it ended with {status}: {}", self.last_words())) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| format!("no free port: {e}"))?;
    listener.local_addr().map(|a| a.port()).map_err(|e| e.to_string())
}
