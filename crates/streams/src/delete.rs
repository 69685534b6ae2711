//! `DELETE`: the stream goes (PROTOCOL 5.4), and its data with it unless forks inherit it (PROTOCOL 4.2).

use crate::condition::Conditions;
use crate::headers::Headers;
use crate::problem::Problem;
use crate::store::{Store, StoreError};
use crate::{ATTEMPTS_MAX, Streams};
use thalweg_wire::exchange::{Answer, Now, Request};

impl<S: Store> Streams<S> {
    /// 204 once the delete is durable, 404 when there is nothing to delete, 410 when it was deleted and has
    /// forks.
    pub(crate) fn delete(&self, name: &str, request: &Request<'_>, now: Now) -> Answer<S::Stream> {
        for _ in 0..ATTEMPTS_MAX {
            let found = match self.find_staged(name, now) {
                Ok(found) => found,
                Err(missing) => return Self::answer_missing(missing),
            };
            if let Some(problem) = Conditions::of(request).refuse_write(&found) {
                return self.answer_settled(&found.stream, problem.respond());
            }
            match self.store.delete(&found.stream, found.state.version, now.time_us) {
                Ok(receipt) => {
                    let settled = self.store.ticket(&found.stream).map(|ticket| ticket.max(receipt.ticket));
                    return Self::answer_once(settled, Headers::new().respond_empty(204));
                }
                Err(StoreError::Conflict | StoreError::Gone) => {}
                Err(error) => return Answer::Respond(Problem::from(&error).respond()),
            }
        }
        Answer::Respond(Problem::contended().respond())
    }
}
