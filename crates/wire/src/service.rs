//! What stands between generated code and the transport that carries its frames: [`Call`] under a client,
//! [`Reply`] under a server. Generated code speaks these words, transports execute them, neither sees the
//! other.
//!
//! A frame is a request `[[tag, fields]]`, or a response, a stream's item or an error `[tag, fields]`. Its
//! length on a connection, its place among others and its credit are the transport's business.

use crate::fault::Fault;
use crate::messagepack::{DecodeError, DecodeErrorKind, Message, Reader, response_frame, write};
use std::future::Future;
use std::marker::PhantomData;
use std::task::Waker;
use thiserror::Error;

/// A command: what it takes and what it answers. The generator makes one empty type per command.
pub trait Command {
    /// What is asked.
    type Request<'a>: Message<'a>;
    /// What is answered; for a stream, what ends it.
    type Response<'a>: Message<'a>;
    /// The tag of the service's error.
    const ERROR: &'static str;
}

/// A command that answers with a stream.
pub trait Stream: Command {
    /// What the stream is made of.
    type Item<'a>: Message<'a>;
}

/// Carries one request at a time and waits.
pub trait Call {
    /// Why a frame was not carried.
    type Error;

    /// Sends a request.
    ///
    /// # Errors
    /// It could not be sent.
    fn send(&mut self, request: &[u8]) -> Result<(), Self::Error>;

    /// Sends a request that one frame answers. A transport that can tell a stream's item from an answer takes
    /// no item for one.
    ///
    /// # Errors
    /// It could not be sent.
    fn ask(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        self.send(request)
    }

    /// Waits for the next frame that answers what was sent: the only one of a call, or one of a stream.
    ///
    /// # Errors
    /// None came.
    fn receive(&mut self) -> Result<&[u8], Self::Error>;

    /// Leaves what was sent last, at once, if it has not ended: its caller reads no more of it.
    fn leave(&mut self) {}
}

/// Whatever carries them, chosen while the program runs.
impl<C: Call + ?Sized> Call for Box<C> {
    type Error = C::Error;

    fn send(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        (**self).send(request)
    }

    fn ask(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        (**self).ask(request)
    }

    fn receive(&mut self) -> Result<&[u8], Self::Error> {
        (**self).receive()
    }

    fn leave(&mut self) {
        (**self).leave();
    }
}

/// What is lent carries as well: for a client of one call among others.
impl<C: Call + ?Sized> Call for &mut C {
    type Error = C::Error;

    fn send(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        (**self).send(request)
    }

    fn ask(&mut self, request: &[u8]) -> Result<(), Self::Error> {
        (**self).ask(request)
    }

    fn receive(&mut self) -> Result<&[u8], Self::Error> {
        (**self).receive()
    }

    fn leave(&mut self) {
        (**self).leave();
    }
}

/// Carries requests and lets others run meanwhile.
pub trait AsyncCall {
    /// Why a request or its response was not carried.
    type Error;
    /// The frames of one stream.
    type Frames: AsyncFrames<Error = Self::Error>;

    /// Sends a request; resolves to the frame that answers it.
    fn call(&self, request: Vec<u8>) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;

    /// Sends a request that a stream answers.
    fn stream(&self, request: Vec<u8>) -> impl Future<Output = Result<Self::Frames, Self::Error>> + Send;
}

/// The frames that answer one request.
pub trait AsyncFrames {
    /// Why a frame did not come.
    type Error;

    /// The next frame.
    fn next(&mut self) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;
}

/// Why a call has no response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError<E> {
    /// The frame was not carried.
    #[error("{0}")]
    Transport(E),
    /// The server answered with its error.
    #[error("refused: {0}")]
    Refused(String),
    /// The answer is none the schema knows.
    #[error("{0}")]
    Decode(#[from] DecodeError),
}

/// What a stream brings next, or why it brings nothing.
pub type NextResult<'a, S, E> =
    Result<Next<<S as Stream>::Item<'a>, <S as Command>::Response<'a>>, CallError<E>>;

/// What a stream brings next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next<I, R> {
    /// One more.
    Item(I),
    /// The end.
    End(R),
}

/// A stream being read from a [`Call`]. Dropped before its end, it is left.
pub struct Items<'c, C: Call, S> {
    call: &'c mut C,
    /// Why the last frame could not be read: nothing comes after it.
    unreadable: Option<DecodeError>,
    command: PhantomData<fn() -> S>,
}

impl<'c, C: Call, S: Stream> Items<'c, C, S> {
    /// Reads the answers to a request that was just sent.
    pub fn new(call: &'c mut C) -> Self {
        Self { call, unreadable: None, command: PhantomData }
    }

    /// What comes next. Nothing comes after [`Next::End`] or an error: a frame that cannot be read ends the
    /// stream, of which each further call says the same again, and which is left with the first of them, or
    /// when this is dropped.
    ///
    /// # Errors
    /// The server refused, or the frame was lost or wrong.
    #[allow(clippy::should_implement_trait, reason = "an item borrows from the transport")]
    pub fn next(&mut self) -> NextResult<'_, S, C::Error> {
        if let Some(why) = &self.unreadable {
            self.call.leave();
            return Err((*why).into());
        }
        let next = next::<S, _>(self.call.receive().map_err(CallError::Transport)?);
        self.unreadable = why_unreadable(&next);
        next
    }
}

impl<C: Call, S> Drop for Items<'_, C, S> {
    fn drop(&mut self) {
        self.call.leave();
    }
}

/// A stream being read from an [`AsyncCall`].
pub struct AsyncItems<F, S> {
    /// Or why the last of them could not be read: nothing comes after it.
    frames: Result<F, DecodeError>,
    frame: Vec<u8>,
    command: PhantomData<fn() -> S>,
}

impl<F: AsyncFrames, S: Stream> AsyncItems<F, S> {
    /// Reads the frames that answer a request.
    pub fn new(frames: F) -> Self {
        Self { frames: Ok(frames), frame: Vec::new(), command: PhantomData }
    }

    /// What comes next. Nothing comes after [`Next::End`] or an error: a frame that cannot be read ends the
    /// stream, which is left at once, and of which each further call says the same again.
    ///
    /// # Errors
    /// The server refused, or the frame was lost or wrong.
    pub async fn next(&mut self) -> NextResult<'_, S, F::Error> {
        let frames = self.frames.as_mut().map_err(|why| *why)?;
        self.frame = frames.next().await.map_err(CallError::Transport)?;
        let next = next::<S, _>(&self.frame);
        if let Some(why) = why_unreadable(&next) {
            self.frames = Err(why);
        }
        next
    }
}

fn why_unreadable<T, E>(next: &Result<T, CallError<E>>) -> Option<DecodeError> {
    match next {
        Err(CallError::Decode(why)) => Some(*why),
        _ => None,
    }
}

/// Reads the frame that answers a command.
///
/// # Errors
/// It is the service's error, or no response of this command.
pub fn answer<'a, C: Command, E>(frame: &'a [u8]) -> Result<C::Response<'a>, CallError<E>> {
    let mut reader = Reader::new(frame);
    let tag = reader.response()?;
    if tag == <C::Response<'a> as Message>::TAG.as_bytes() {
        return Ok(whole(&mut reader)?);
    }
    Err(no_response(tag, C::ERROR, reader))
}

/// Reads one frame of a stream.
///
/// # Errors
/// It is the service's error, or neither item nor response of this command.
pub fn next<'a, C: Stream, E>(frame: &'a [u8]) -> NextResult<'a, C, E> {
    let mut reader = Reader::new(frame);
    let tag = reader.response()?;
    if tag == <C::Item<'a> as Message>::TAG.as_bytes() {
        return Ok(Next::Item(whole(&mut reader)?));
    }
    if tag == <C::Response<'a> as Message>::TAG.as_bytes() {
        return Ok(Next::End(whole(&mut reader)?));
    }
    Err(no_response(tag, C::ERROR, reader))
}

fn whole<'a, M: Message<'a>>(reader: &mut Reader<'a>) -> Result<M, DecodeError> {
    let message = M::read(reader)?;
    reader.finish()?;
    Ok(message)
}

#[cold]
fn no_response<E>(tag: &[u8], error: &'static str, mut reader: Reader<'_>) -> CallError<E> {
    if tag != error.as_bytes() {
        return reader.refuse(DecodeErrorKind::UnknownMessage, "frame").into();
    }
    match message_of(&mut reader, error) {
        Ok(message) => CallError::Refused(message),
        Err(error) => error.into(),
    }
}

/// The error's only field.
fn message_of(reader: &mut Reader<'_>, place: &'static str) -> Result<String, DecodeError> {
    let mut message = None;
    for _ in 0..reader.fields(place)? {
        match reader.key()? {
            b"message" => reader.field(&mut message, place, Reader::string)?,
            _ => return Err(reader.refuse(DecodeErrorKind::UnknownField, place)),
        }
    }
    reader.finish()?;
    Ok(reader.required(message, place)?.into_owned())
}

/// An error's frame, `[tag, {message}]`.
pub fn error_frame(tag: &str, message: &str) -> Vec<u8> {
    let mut frame = vec![0x92];
    write::string(&mut frame, tag);
    frame.push(0x81);
    write::string(&mut frame, "message");
    write::string(&mut frame, message);
    frame
}

/// Whether a stream's producer may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There is room for the next item.
    Go,
    /// The item was taken, but the client is not ready for another yet: see [`Reply::changed`]. A handler
    /// that goes on regardless has its call ended before long.
    Wait,
    /// The answer is not wanted any more: end the call.
    Gone,
}

/// Where a server's frames for one request go.
pub trait Reply: Send {
    /// Sends one item of a stream, and says whether to make another.
    fn item(&mut self, frame: &[u8]) -> Flow;

    /// Sends the frame that ends the call. Called once.
    fn end(&mut self, frame: &[u8]);

    /// Ends the call with a fault and the service's error, whose tag is `error`. Called instead of
    /// [`Reply::end`].
    fn fail(&mut self, _fault: Fault, error: &str, message: &str) {
        self.end(&error_frame(error, message));
    }

    /// Whether the answer is not wanted any more: cancelled, overdue, or its client is gone. The call is to
    /// be ended all the same.
    fn is_cancelled(&self) -> bool;

    /// Wakes `waker` once, when a [`Flow`] or [`Reply::is_cancelled`] may have changed; at once if it has
    /// already.
    fn changed(&mut self, waker: &Waker);
}

/// Says why a frame is no request of the service whose error has the tag `error`.
pub fn refuse(reply: &mut dyn Reply, error: &str, refusal: &DecodeError) {
    let is_unknown = refusal.kind == DecodeErrorKind::UnknownMessage;
    let fault = if is_unknown { Fault::UnknownCommand } else { Fault::BadRequest };
    reply.fail(fault, error, &refusal.to_string());
}

/// Answers one request, once, now or later, from any thread. Dropped unanswered it ends the call as
/// [`Fault::Abandoned`], never in silence.
pub struct Responder<C: Command> {
    reply: Option<Box<dyn Reply>>,
    command: PhantomData<fn() -> C>,
}

impl<C: Command> Responder<C> {
    /// Answers through `reply`.
    pub fn new(reply: Box<dyn Reply>) -> Self {
        Self { reply: Some(reply), command: PhantomData }
    }

    /// Answers; a stream ends with it.
    pub fn ok(mut self, response: &C::Response<'_>) {
        let mut frame = Vec::new();
        response_frame(response, &mut frame);
        self.end(&frame);
    }

    /// Answers with the service's error.
    pub fn error(mut self, message: &str) {
        self.end(&error_frame(C::ERROR, message));
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_cancelled(&self) -> bool {
        self.reply.as_ref().is_none_or(|reply| reply.is_cancelled())
    }

    /// Wakes `waker` once, when a [`Flow`] or [`Responder::is_cancelled`] may have changed.
    pub fn changed(&mut self, waker: &Waker) {
        if let Some(reply) = &mut self.reply {
            reply.changed(waker);
        }
    }

    fn end(&mut self, frame: &[u8]) {
        if let Some(mut reply) = self.reply.take() {
            reply.end(frame);
        }
    }
}

impl<C: Stream> Responder<C> {
    /// Sends one item, and says whether to make another.
    pub fn item(&mut self, item: &C::Item<'_>) -> Flow {
        let mut frame = Vec::new();
        response_frame(item, &mut frame);
        self.reply.as_mut().map_or(Flow::Gone, |reply| reply.item(&frame))
    }
}

impl<C: Command> Drop for Responder<C> {
    fn drop(&mut self) {
        if let Some(mut reply) = self.reply.take() {
            reply.fail(Fault::Abandoned, C::ERROR, "the handler gave no answer");
        }
    }
}

/// What a call does to its fork, for servers that order calls per fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads what is committed: never waits.
    ReadCommitted,
    /// Reads what may be uncommitted: waits behind a write in flight.
    Read,
    /// Writes: alone on its fork.
    Write,
}

/// Which fork.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fork<'a> {
    /// The schema names none.
    None,
    /// By number; a negative one as its 64-bit two's complement.
    Number(u64),
    /// By text or bytes.
    Bytes(std::borrow::Cow<'a, [u8]>),
}

/// A service as its generated code knows it, for servers that look at a request before a handler gets it. The
/// generator makes one empty type per service.
pub trait Service<H: ?Sized> {
    /// Any request of the service, borrowed from its frame.
    type Request<'a>;
    /// The tag of the service's error.
    const ERROR: &'static str;

    /// Reads a request.
    ///
    /// # Errors
    /// The frame is none.
    fn decode(frame: &[u8]) -> Result<Self::Request<'_>, DecodeError>;

    /// What the call does to which fork; `None` where the schema does not say.
    fn access<'r>(request: &'r Self::Request<'_>) -> Option<(Access, Fork<'r>)>;

    /// Hands a request to its method.
    fn handle(handler: &H, request: Self::Request<'_>, reply: Box<dyn Reply>);
}
