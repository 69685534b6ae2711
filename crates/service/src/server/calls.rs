//! A call, from when its handler gets it until it is answered: the part of a server that other threads touch.
//!
//! | file | what it holds |
//! |---|---|
//! | `reply` | the right to answer one call, in the hands of its handler |
//! | `inline` | the shortest way of an answer: into the connection's output, while the handler is being called |
//! | `answers` | the other way: a queue from any thread to the reactor's |
//! | `call` | credit and cancellation, shared by the reply and the connection |
//! | `framing` | how a frame of an answer is written |
//!
//! *Ownership*: a reply belongs to whichever thread answers; everything else is taken under a short lock.
//! Nothing here knows a connection, so [`Local`](crate::Local) calls handlers by the same means.

pub(crate) mod answers;
pub(crate) mod call;
pub(crate) mod framing;
pub(crate) mod inline;
pub(crate) mod reply;
