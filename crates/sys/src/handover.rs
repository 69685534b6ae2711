//! A descriptor handed over to another process, beside bytes on a Unix socket.
//!
//! Descriptors that come in are closed on exec, and those that nobody expected are closed at once: whoever can
//! connect could otherwise fill our table.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// Writes bytes with a descriptor beside them; how many bytes were taken, `None` when none can be now. The
/// descriptor goes with the first byte, and so not at all with none.
///
/// # Errors
/// `BrokenPipe`, `ConnectionReset`, never a signal; `InvalidInput` without a byte.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<Option<usize>> {
    if bytes.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor goes with a byte"));
    }
    let descriptors = [descriptor];
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    loop {
        let mut control = SendAncillaryBuffer::new(&mut room);
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
        match sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        {
            Ok(count) => return Ok(Some(count)),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads what is there into the vector's spare room, and the first descriptor that came beside it. `None` when
/// nothing is there yet, `Some(0)` at the end of the stream. What follows bytes with a descriptor is left for
/// the next call.
///
/// # Errors
/// `ConnectionReset` and the like; `InvalidInput` if there is no spare room.
pub fn receive(socket: BorrowedFd<'_>, into: &mut Vec<u8>) -> io::Result<(Option<usize>, Option<OwnedFd>)> {
    let length = into.len();
    if into.capacity() == length {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room to receive into"));
    }
    into.resize(into.capacity(), 0);
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let outcome = loop {
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        match recvmsg(socket, &mut [IoSliceMut::new(&mut into[length..])], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => break outcome,
        }
    };
    into.truncate(length + outcome.as_ref().map_or(0, |message| message.bytes));
    let count = match outcome {
        Ok(message) => Some(message.bytes),
        Err(rustix::io::Errno::AGAIN) => None,
        Err(error) => return Err(error.into()),
    };
    // The kernel has closed those for which there was no room, and dropping closes the rest.
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            for one in descriptors {
                descriptor.get_or_insert(one);
            }
        }
    }
    Ok((count, descriptor))
}
