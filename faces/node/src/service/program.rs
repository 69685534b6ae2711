//! A program that this process started, as the event loop sees it: its end is a descriptor that is readable.
//! The kernel ends it with the thread that started it.

use super::options::endpoint;
use super::watch::Watch;
use crate::error::{Result, failure};
use napi::bindgen_prelude::{Env, Function};
use napi_derive::napi;
use std::cell::RefCell;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;
use thalweg_service::is_taken;
use thalweg_sys::child::{Child, Exit, Program, log_bytes, log_tail};

/// How much of a log an error quotes.
const LOG_TAIL_BYTES: u64 = 4096;

#[napi(object)]
pub struct StartOptions {
    pub arguments: Vec<String>,
    /// Names and values by turns.
    pub environment: Vec<String>,
    pub directory: Option<String>,
    pub log: Option<String>,
}

/// How a program ended: one of the two, or neither where nobody knows.
#[napi(object)]
pub struct ExitStatus {
    pub code: Option<i32>,
    pub signal: Option<i32>,
}

#[napi]
pub struct ProgramHandle {
    child: RefCell<Child>,
    /// Its log, and how long that was when it was started.
    log: Option<(PathBuf, u64)>,
    watch: RefCell<Option<Watch>>,
}

/// Whether a server answers at an endpoint already, as one that is started would.
#[napi]
pub fn is_endpoint_taken(path: String) -> Result<bool> {
    Ok(is_taken(&endpoint(&path)?))
}

/// Starts a program.
#[napi]
pub fn start_program(name: String, options: StartOptions) -> Result<ProgramHandle> {
    let environment = options.environment.chunks_exact(2);
    let log = options.log.map(PathBuf::from);
    let log_from = log.as_deref().map_or(0, log_bytes);
    let program = Program {
        name: name.into(),
        arguments: options.arguments.into_iter().map(Into::into).collect(),
        environment: environment.map(|pair| (pair[0].clone().into(), pair[1].clone().into())).collect(),
        directory: options.directory.map(Into::into),
        log: log.clone(),
        standard: None,
    };
    let child = Child::start(program).map_err(|error| failure("SYSTEM", error))?;
    let log = log.map(|log| (log, log_from));
    Ok(ProgramHandle { child: RefCell::new(child), log, watch: RefCell::default() })
}

#[napi]
impl ProgramHandle {
    /// Its process.
    #[napi]
    pub fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    /// Calls `ended` when it ended; keeps this process alive until then.
    #[napi]
    pub fn watch(&self, env: Env, ended: Function<'_, (), ()>) -> Result<()> {
        let watch = Watch::start(&env, self.child.borrow().as_fd(), ended)?;
        watch.hold(true);
        *self.watch.borrow_mut() = Some(watch);
        Ok(())
    }

    /// How it ended, if it did.
    #[napi]
    pub fn ended(&self) -> Result<Option<ExitStatus>> {
        let exit = self.child.borrow_mut().wait(Some(Duration::ZERO));
        let exit = exit.map_err(|error| failure("SYSTEM", error))?;
        if exit.is_some() {
            self.watch.borrow_mut().take();
        }
        Ok(exit.map(|exit| match exit {
            Exit::Code(code) => ExitStatus { code: Some(code), signal: None },
            Exit::Signal(signal) => ExitStatus { code: None, signal: Some(signal) },
            Exit::Unknown => ExitStatus { code: None, signal: None },
        }))
    }

    /// The end of what it wrote to its log; nothing where it has none, or that cannot be read.
    #[napi]
    pub fn log_tail(&self) -> String {
        let tail = self.log.as_ref().map(|(log, from)| log_tail(log, *from, LOG_TAIL_BYTES));
        tail.and_then(std::result::Result::ok).unwrap_or_default()
    }

    /// Asks it to end.
    #[napi]
    pub fn terminate(&self) -> Result<()> {
        self.child.borrow_mut().terminate().map_err(|error| failure("SYSTEM", error))
    }

    /// Ends it.
    #[napi]
    pub fn kill(&self) -> Result<()> {
        self.child.borrow_mut().kill().map_err(|error| failure("SYSTEM", error))
    }
}
