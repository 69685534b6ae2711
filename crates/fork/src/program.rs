//! The program's side: orders come over standard input, and a fork is a copy of the process.

use crate::line::{Line, LineEvent};
use crate::server_set::ServerSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use thalweg_rpc::{Mount, Server, ServerOptions};
use thalweg_sys::epoll::{Epoll, Events, Timeout};
use thalweg_sys::signal::Signals;
use thalweg_sys::{fork, socket};

/// The exit code of a copy that panicked.
const PANICKED: i32 = 101;

/// A program that a supervisor looks after.
#[derive(Debug)]
pub struct Program {
    line: Line,
    is_emancipated: bool,
    /// Its supervisor is gone, and it goes on.
    is_alone: bool,
    is_copy: bool,
}

/// An order of the supervisor.
#[derive(Debug)]
pub enum Order {
    /// Serve at this listening socket, and no longer at the one before. To be confirmed ([`Program::done`]).
    Listen(OwnedFd),
    /// Fork ([`Program::fork`]).
    Fork(Branch),
    /// Answer the calls that were begun, and end. To be confirmed. Also the end of the line to the
    /// supervisor.
    End,
}

/// What an order to fork brings: the line of the copy.
#[derive(Debug)]
pub struct Branch {
    line: OwnedFd,
}

impl Program {
    /// The program whose standard input is the line to its supervisor.
    ///
    /// # Errors
    /// Standard input is no socket, so there is no supervisor.
    pub fn inherited() -> io::Result<Self> {
        let input = socket::standard_input().map_err(|error| {
            io::Error::new(
                error.kind(),
                "standard input is no supervisor's: start this with thalweg fork-server",
            )
        })?;
        Ok(Self::told_by(input))
    }

    fn told_by(input: OwnedFd) -> Self {
        Self { line: Line::new(input), is_emancipated: false, is_alone: false, is_copy: false }
    }

    /// Whether its supervisor is gone and it goes on, because it was emancipated. No order comes any more,
    /// and its descriptor stays readable: it need not be watched from then on.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// The next order, if one has come. Never waits.
    ///
    /// # Errors
    /// The order is none of those in `docs/forks.md`.
    pub fn order(&mut self) -> io::Result<Option<Order>> {
        while !self.is_alone {
            let (words, beside) = match self.line.hear()? {
                LineEvent::Line(words, beside) => (words, beside),
                LineEvent::Nothing => return Ok(None),
                LineEvent::End if self.is_emancipated => {
                    self.is_alone = true;
                    break;
                }
                LineEvent::End => return Ok(Some(Order::End)),
            };
            match (words.as_str(), beside) {
                ("listen", Some(listener)) => return Ok(Some(Order::Listen(listener))),
                ("fork", Some(line)) => return Ok(Some(Order::Fork(Branch { line }))),
                ("shutdown", None) => return Ok(Some(Order::End)),
                ("emancipate", None) => {
                    self.is_emancipated = true;
                    self.done()?;
                }
                // The kernel drops an attached descriptor for which this process has no room, and delivers
                // the text alone.
                ("listen" | "fork", None) => self.failed("out of descriptors")?,
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("an order {words:?}"))),
            }
        }
        Ok(None)
    }

    /// Confirms the order. It is no error if the supervisor is gone.
    ///
    /// # Errors
    /// The supervisor does not read.
    pub fn done(&self) -> io::Result<()> {
        self.answer("ok")
    }

    /// Refuses the order: nothing was changed.
    ///
    /// # Errors
    /// As [`Program::done`].
    pub fn failed(&self, why: &str) -> io::Result<()> {
        self.answer(&format!("error {why}"))
    }

    fn answer(&self, words: &str) -> io::Result<()> {
        match self.line.say(words, None) {
            // The next order is then the end of the line.
            Err(error)
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Forks the process. Returns `true` in the copy, whose first order is where to listen; `false` in the
    /// parent, where the order is confirmed, or refused with the reason. The copy shares no state with the
    /// parent, and leads a session of its own. Its values that stand for descriptors lead nowhere, and can
    /// only be dropped.
    ///
    /// # Errors
    /// The supervisor does not read.
    pub fn fork(&mut self, branch: Branch) -> io::Result<bool> {
        match fork::branch(branch.line.as_fd()) {
            Ok(true) => {
                // So that no terminal stops it; the program that was started stays in its session. Never
                // fails for one that was just forked.
                let _ = fork::lead_session();
                *self = Self { is_copy: true, ..Self::told_by(branch.line) };
                self.answer(&format!("ok {}", std::process::id()))?;
                Ok(true)
            }
            Ok(false) => self.done().map(|()| false),
            Err(error) => self.failed(&error.to_string()).map(|()| false),
        }
    }
}

impl AsFd for Program {
    /// Readable when there may be an order; for good once it is alone ([`Program::is_alone`]).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.line.as_fd()
    }
}

/// Serves by JSON-RPC, under a supervisor, until it is to end. `mount` makes a service and says its name,
/// anew for each place to listen at and in each copy: what it captures is the state that a fork copies, so it
/// must have no descriptor and no thread.
///
/// `SIGTERM`, `SIGINT` and `SIGHUP`, which it takes, are also orders to end in good order: a service manager
/// may signal every process of a service.
///
/// It returns in the process that was started. A copy exits when it has served: it never returns to the
/// caller.
///
/// # Errors
/// There is no supervisor, or the system failed.
pub fn serve(options: &ServerOptions, mount: &dyn Fn() -> (&'static str, Mount)) -> io::Result<()> {
    let mut program = Program::inherited()?;
    // A copy starts over here, so that a copy of a copy does not keep the stack of its ancestors.
    let lives = || {
        while live(&mut program, options, mount)? {}
        io::Result::Ok(())
    };
    let served = catch_unwind(AssertUnwindSafe(lives));
    if !program.is_copy {
        return served.unwrap_or_else(|panic| resume_unwind(panic));
    }
    std::process::exit(match served {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            eprintln!("{error}");
            1
        }
        Err(_) => PANICKED,
    })
}

/// Serves in one process until it ends. Returns `true` in a copy, which has to start over.
fn live(
    program: &mut Program,
    options: &ServerOptions,
    mount: &dyn Fn() -> (&'static str, Mount),
) -> io::Result<bool> {
    // Opened anew in each copy: there, the parent's descriptor of signals leads nowhere.
    let signals = Signals::take()?;
    let mut serving = ServerSet::default();
    let mut epoll = watching(program, &signals, &serving)?;
    let mut events = Events::with_capacity(2);
    loop {
        epoll.wait(&mut events, 2, Timeout::Never)?;
        serving.turn()?;
        if signals.next()?.is_some() {
            return serving.end().map(|()| false);
        }
        let was_alone = program.is_alone;
        match program.order()? {
            None if program.is_alone != was_alone => epoll = watching(program, &signals, &serving)?,
            None => {}
            Some(Order::Listen(listener)) => match listening(listener, options, mount) {
                Ok(begun) => {
                    serving.go_on_with(Some(begun))?;
                    epoll = watching(program, &signals, &serving)?;
                    program.done()?;
                }
                Err(error) => program.failed(&error.to_string())?,
            },
            Some(Order::Fork(branch)) => {
                let is_copy = program.fork(branch)?;
                if is_copy {
                    return Ok(true);
                }
            }
            Some(Order::End) => {
                program.done()?;
                return serving.end().map(|()| false);
            }
        }
    }
}

fn listening(
    listener: OwnedFd,
    options: &ServerOptions,
    mount: &dyn Fn() -> (&'static str, Mount),
) -> io::Result<Server> {
    let mut server = Server::on(listener, options.clone())?;
    let (name, mount) = mount();
    server.mount(name, mount).map_err(io::Error::other)?;
    Ok(server)
}

/// Readable when there is an order, a signal, or work for a server. The line is left out once its other end
/// is closed: it would stay readable.
fn watching(program: &Program, signals: &Signals, serving: &ServerSet) -> io::Result<Epoll> {
    let line = (!program.is_alone).then(|| program.as_fd());
    serving.watched(line.into_iter().chain([signals.as_fd()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emancipated_program_without_a_supervisor_says_so_and_has_no_order() {
        let (ours, theirs) = socket::pair().unwrap();
        let mut program = Program { is_emancipated: true, ..Program::told_by(ours) };
        assert!(program.order().unwrap().is_none() && !program.is_alone());
        drop(theirs);
        assert!(program.order().unwrap().is_none() && program.is_alone());
        assert!(program.order().unwrap().is_none());
    }
}
