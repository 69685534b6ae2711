//! How many streams there may be: each costs memory for as long as it is kept, used or not.
//!
//! A create beyond the bound is refused before anything is done for it, and before its body has come.
//! What exists goes on: a create that finds its stream is answered as ever, and so is everything that is no
//! create.

use crate::Streams;
use crate::problem::Problem;
use crate::store::Store;
use thalweg_wire::exchange::{Method, Now, Request, Response};
use thalweg_wire::path::{self, RESERVED, STREAMS};

impl<S: Store> Streams<S> {
    /// Whether there are as many streams as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.options.streams_max < u64::MAX && self.store.streams() >= self.options.streams_max
    }

    /// The answer that spares the body of a create its way.
    pub(crate) fn refuse_create(&self, head: &Request<'_>, now: Now) -> Option<Response> {
        if head.method != Method::Put || !self.is_full() {
            return None;
        }
        // A name that is none is for `call` to judge, and so are subscriptions.
        let name = path::stream_name(head.path.strip_prefix(STREAMS)?).ok()?;
        if name.split('/').next() == Some(RESERVED) || self.options.is_read_only(&name) {
            return None;
        }
        let missing = self.find_staged(&name, now).err()?;
        (!missing.retained).then(|| Problem::too_many().respond())
    }
}
