//! What the machine allows: messages over what the kernel and the processor offer, with nothing on top.

use crate::clients;
use crate::far::{Far, ready};
use crate::work::{Side, Work};
use std::hint::{black_box, spin_loop};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use thalweg_bench::Failure;
use thalweg_bench::measure::{Measured, Until};
use thalweg_sync::gate::Gate;
use thalweg_sync::words::Words;
use thalweg_sys::disk::{Allocation, Disk, File, Map};

const SOCKET: &str = "floor.sock";
/// Words of the shared page: what each end has said.
const ASKED: usize = 0;
const ANSWERED: usize = 8;
/// What is asked when there is nothing more to ask.
const OVER: u64 = u64::MAX;
const PAGE: usize = 4_096;

/// Measures a floor.
///
/// # Errors
/// Something did not start, or an answer differed.
pub(crate) fn measure(side: Side, work: &Work, until: Until) -> Result<Measured, Failure> {
    if side == Side::Memcpy {
        return copy(work, until);
    }
    let mut far = Far::start(side, work)?;
    let message = vec![7_u8; work.bytes];
    let measured = match side {
        Side::Socket => {
            let path = far.path(SOCKET);
            let connect = || Ok((UnixStream::connect(&path)?, vec![0; work.bytes * work.depth]));
            let batch = vec![7_u8; work.bytes * work.depth];
            clients(work, until, connect, |(socket, answer)| {
                socket.write_all(&batch)?;
                socket.read_exact(answer)?;
                same(&batch, answer).map(|()| work.depth as u64)
            })?
        }
        Side::Pipe => {
            let pipes = Mutex::new((far.pipes()?, vec![0; work.bytes]));
            clients(
                work,
                until,
                || Ok(()),
                |()| {
                    let mut pipes = pipes.lock().map_err(|_| "another client died")?;
                    let ((to, from), answer) = &mut *pipes;
                    to.write_all(&message)?;
                    to.flush()?;
                    from.read_exact(answer)?;
                    same(&message, answer).map(|()| 1)
                },
            )?
        }
        _ => {
            let page = Page::open(&far.path(""))?;
            let measured = clients(
                work,
                until,
                || Ok(page.said()),
                |said| {
                    *said += 1;
                    page.ask(side, *said);
                    page.answered(side, *said);
                    Ok(1)
                },
            )?;
            page.ask(side, OVER);
            measured
        }
    };
    Ok(measured.with_far(far.end()?))
}

/// The far end of a floor.
///
/// # Errors
/// It cannot be set up, or the near end broke off.
pub(crate) fn serve(side: Side, work: &Work, directory: &Path) -> Result<(), Failure> {
    match side {
        Side::Socket => serve_socket(work, directory),
        Side::Pipe => echo(&mut std::io::stdin().lock(), &mut std::io::stdout().lock(), work.bytes),
        _ => {
            let page = Page::create(directory)?;
            ready(|| {})?;
            for said in 1.. {
                let asked = page.asked(side, said);
                if asked == OVER {
                    return Ok(());
                }
                page.answer(side, asked);
            }
            Ok(())
        }
    }
}

fn serve_socket(work: &Work, directory: &Path) -> Result<(), Failure> {
    let listener = UnixListener::bind(directory.join(SOCKET))?;
    ready(|| {})?;
    let bytes = work.bytes * work.depth;
    let serving: Vec<_> = (0..work.clients)
        .map(|_| {
            let (socket, _) = listener.accept()?;
            Ok(std::thread::spawn(move || echo(&mut &socket, &mut &socket, bytes)))
        })
        .collect::<Result<_, Failure>>()?;
    serving.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread died".into())))
}

/// Says back what is said, until nothing is.
fn echo(from: &mut impl Read, to: &mut impl Write, bytes: usize) -> Result<(), Failure> {
    let mut message = vec![0; bytes];
    loop {
        match from.read_exact(&mut message) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        to.write_all(&message)?;
        to.flush()?;
    }
}

/// There and back, without anybody there.
fn copy(work: &Work, until: Until) -> Result<Measured, Failure> {
    let message = vec![7_u8; work.bytes];
    let buffers = || Ok((vec![0_u8; work.bytes], vec![0_u8; work.bytes]));
    clients(work, until, buffers, |(there, back)| {
        black_box(&mut *there).copy_from_slice(black_box(&message));
        black_box(&mut *back).copy_from_slice(black_box(there));
        same(&message, back).map(|()| 1)
    })
}

fn same(sent: &[u8], came: &[u8]) -> Result<(), Failure> {
    // One byte stands for the rest: comparing all of them would be a third copy.
    if sent.first() == came.first() && sent.last() == came.last() {
        Ok(())
    } else {
        Err("another answer".into())
    }
}

/// Two words that both ends see, and where each sleeps.
struct Page {
    words: Arc<Words>,
    asking: Gate,
    answering: Gate,
}

impl Page {
    fn create(directory: &Path) -> Result<Page, Failure> {
        let map = |name: &str| -> Result<Map, Failure> {
            let file = Disk::Real.create(&directory.join(name))?;
            file.allocate(PAGE as u64, Allocation::ZeroFilled)?;
            Ok(file.map(PAGE, true)?)
        };
        Ok(Page {
            words: Arc::new(Words::new(map("words")?)),
            asking: Gate::new(map("asking")?),
            answering: Gate::new(map("answering")?),
        })
    }

    fn open(directory: &Path) -> Result<Page, Failure> {
        let map = |name: &str| -> Result<Map, Failure> {
            let file: File = Disk::Real.open(&directory.join(name))?;
            Ok(file.map(PAGE, true)?)
        };
        Ok(Page {
            words: Arc::new(Words::new(map("words")?)),
            asking: Gate::new(map("asking")?),
            answering: Gate::new(map("answering")?),
        })
    }

    /// What was asked last.
    fn said(&self) -> u64 {
        self.words.load(ASKED)
    }

    fn ask(&self, side: Side, said: u64) {
        self.words.store(ASKED, said);
        if side == Side::Futex {
            self.asking.announce();
        }
    }

    fn answer(&self, side: Side, said: u64) {
        self.words.store(ANSWERED, said);
        if side == Side::Futex {
            self.answering.announce();
        }
    }

    fn asked(&self, side: Side, said: u64) -> u64 {
        await_word(&self.words, ASKED, &self.asking, side, said)
    }

    fn answered(&self, side: Side, said: u64) -> u64 {
        await_word(&self.words, ANSWERED, &self.answering, side, said)
    }
}

/// Waits until a word is at least `said`; what it is.
fn await_word(words: &Words, index: usize, gate: &Gate, side: Side, said: u64) -> u64 {
    if side == Side::Futex {
        gate.wait(None, || words.load(index) >= said);
    } else {
        while words.load(index) < said {
            spin_loop();
        }
    }
    words.load(index)
}
