//! A client that breaks the rules, and one that tries the order per fork: written out by hand over a socket,
//! against a server of each language. It shares no line with our clients.

use super::frames;
use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use thalweg_wire::fault::Fault;
use thalweg_wire::frame::{
    FrameKind, HEADER_BYTES, HELLO_BYTES, Header, Hello, LENGTH_MAX, VERSION, Welcome,
};

/// A server that does not answer fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than a server takes unless it is told otherwise.
const TOO_LONG_BYTES: usize = (16 << 20) + 1;

type Outcome = Result<(), String>;

/// Breaks a rule at a server, and finds out what becomes of it.
type Attempt = fn(&Path) -> Outcome;

/// What is tried, each on connections of its own, while the server serves on.
pub(super) const TRIED: &[(&str, Attempt)] = &[
    ("calls of one fork in their turn", in_turn),
    ("an id in use", id_in_use),
    ("a request too long", too_long),
    ("half a request", half),
    ("bytes that are no frame", no_frame),
    ("another schema", another_schema),
    ("another version", another_version),
    ("another protocol", another_protocol),
];

/// A connection.
struct Caller {
    socket: UnixStream,
}

/// A frame that came: of a call's end, its fault.
type Came = (Header, Vec<u8>);

fn failed(error: std::io::Error) -> String {
    error.to_string()
}

const ANY: Hello = Hello { version: VERSION, shared: false, ring_bytes: 0, schema: [0; 32] };

impl Caller {
    fn plain(path: &Path) -> Result<Self, String> {
        let socket = UnixStream::connect(path).map_err(failed)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self { socket })
    }

    fn greet(path: &Path, hello: Hello) -> Result<(Self, Welcome), String> {
        let mut caller = Self::plain(path)?;
        caller.raw(&hello.encode())?;
        let welcome = caller.welcome()?;
        Ok((caller, welcome))
    }

    fn connect(path: &Path) -> Result<Self, String> {
        let (caller, welcome) = Self::greet(path, ANY)?;
        if welcome.fault == 0 { Ok(caller) } else { Err(format!("not welcome: {}", welcome.fault)) }
    }

    fn welcome(&mut self) -> Result<Welcome, String> {
        let mut bytes = [0; HELLO_BYTES];
        self.socket.read_exact(&mut bytes).map_err(failed)?;
        Welcome::decode(&bytes).ok().flatten().ok_or_else(|| format!("no welcome: {bytes:?}"))
    }

    fn raw(&mut self, bytes: &[u8]) -> Outcome {
        self.socket.write_all(bytes).map_err(failed)
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Outcome {
        let header = Header { length: payload.len() as u32, ..header };
        self.raw(&[&header.encode()[..], payload].concat())
    }

    fn call(&mut self, id: u64, payload: &[u8]) -> Outcome {
        self.send(Header::new(FrameKind::Request, id, 0), payload)
    }

    fn next(&mut self) -> Result<Came, String> {
        let mut head = [0; HEADER_BYTES];
        self.socket.read_exact(&mut head).map_err(failed)?;
        let header = Header::decode(&head, LENGTH_MAX).ok().flatten().ok_or("a frame that is none")?;
        let mut payload = vec![0; header.length as usize];
        self.socket.read_exact(&mut payload).map_err(failed)?;
        Ok((header, payload))
    }

    /// The end of a call, items passed over.
    fn end(&mut self) -> Result<Came, String> {
        loop {
            let came = self.next()?;
            if came.0.kind == FrameKind::End {
                return Ok(came);
            }
        }
    }

    fn ends(&mut self, id: u64, fault: Fault) -> Outcome {
        let (header, _) = self.end()?;
        if (header.id, header.fault) == (id, fault as u16) {
            return Ok(());
        }
        Err(format!("{} was expected of call {id}: {header:?}", fault.word()))
    }

    /// One good call.
    fn serves(&mut self) -> Outcome {
        self.call(u64::MAX, &frames::about_fork("PeekCommitted", "nobody's", None))?;
        let (header, payload) = self.end()?;
        if (header.id, header.fault) == (u64::MAX, 0) {
            return Ok(());
        }
        Err(format!("the connection does not serve on: {header:?} {payload:?}"))
    }

    /// The server hangs up, whatever it says before.
    fn left(mut self) -> Outcome {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(()),
            Err(error) => Err(format!("the server did not hang up: {error}")),
        }
    }
}

/// A write that takes until the test lets it: a read of its fork waits for it, one of what is committed does
/// not, and neither does another fork.
fn in_turn(path: &Path) -> Outcome {
    let mut caller = Caller::connect(path)?;
    let [fork, other] = ["fork", "other"].map(|name| format!("{name} {}", std::process::id()));
    caller.call(1, &frames::about_fork("Put", &fork, Some(b"hold")))?;
    caller.call(2, &frames::about_fork("Peek", &fork, None))?;
    caller.call(3, &frames::about_fork("Put", &other, Some(b"x")))?;
    let mut ends: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut asked = 3;
    while !(1..=3).all(|id| ends.contains_key(&id)) {
        if ends.contains_key(&3) && !ends.contains_key(&1) {
            // Lets the write go on, if it has begun by now.
            asked += 1;
            caller.call(asked, &frames::about_fork("PeekCommitted", &fork, None))?;
        }
        let (header, payload) = caller.end()?;
        if header.fault != 0 {
            return Err(format!("{header:?}"));
        }
        if header.id == 2 && !ends.contains_key(&1) {
            return Err("a read overtook the write before it".to_owned());
        }
        ends.insert(header.id, payload);
    }
    let expected = [(1, frames::version(1)), (2, frames::value(b"hold")), (3, frames::version(1))];
    for (id, payload) in expected {
        if ends.get(&id) != Some(&payload) {
            return Err(format!("call {id} ended with {:?}", ends.get(&id)));
        }
    }
    Ok(())
}

fn id_in_use(path: &Path) -> Outcome {
    let mut caller = Caller::connect(path)?;
    caller.send(Header { credit: 1, ..Header::new(FrameKind::Request, 5, 0) }, &frames::endless())?;
    let (first, _) = caller.next()?;
    if (first.kind, first.id) != (FrameKind::Item, 5) {
        return Err(format!("an item was expected: {first:?}"));
    }
    caller.call(5, &frames::endless())?;
    caller.ends(5, Fault::DuplicateId)?;
    // The first call goes on, and once it has ended its id is free.
    caller.send(Header::new(FrameKind::Cancel, 5, 0), b"")?;
    caller.end()?;
    caller.call(5, &frames::unknown_command())?;
    caller.ends(5, Fault::UnknownCommand)?;
    caller.serves()
}

fn too_long(path: &Path) -> Outcome {
    let mut caller = Caller::connect(path)?;
    caller.call(1, &vec![0; TOO_LONG_BYTES])?;
    caller.ends(1, Fault::FrameTooLarge)?;
    caller.serves()
}

fn half(path: &Path) -> Outcome {
    let mut caller = Caller::connect(path)?;
    let frame = frames::unknown_command();
    let header = Header::new(FrameKind::Request, 1, frame.len() as u32).encode();
    caller.raw(&[&header[..], &frame[..frame.len() / 2]].concat())?;
    caller.socket.shutdown(std::net::Shutdown::Write).map_err(failed)?;
    caller.left()?;
    Caller::connect(path)?.serves()
}

fn no_frame(path: &Path) -> Outcome {
    let mut caller = Caller::connect(path)?;
    caller.raw(&[0xff; HEADER_BYTES])?;
    let (header, _) = caller.end()?;
    if header.fault != Fault::BadFrame as u16 {
        return Err(format!("{header:?}"));
    }
    caller.left()?;
    Caller::connect(path)?.serves()
}

fn turned_away(caller: Caller, welcome: Welcome, fault: Fault) -> Outcome {
    if welcome.fault != fault as u16 {
        return Err(format!("{} was expected: {}", fault.word(), welcome.fault));
    }
    caller.left()
}

fn another_schema(path: &Path) -> Outcome {
    let (caller, welcome) = Caller::greet(path, Hello { schema: [1; 32], ..ANY })?;
    turned_away(caller, welcome, Fault::SchemaMismatch)
}

fn another_version(path: &Path) -> Outcome {
    let (caller, welcome) = Caller::greet(path, Hello { version: VERSION + 1, ..ANY })?;
    turned_away(caller, welcome, Fault::VersionMismatch)
}

fn another_protocol(path: &Path) -> Outcome {
    let mut caller = Caller::plain(path)?;
    caller.raw(b"\x16\x03\x01\xf0 something else")?;
    let welcome = caller.welcome()?;
    turned_away(caller, welcome, Fault::BadFrame)
}
