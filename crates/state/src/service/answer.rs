//! Answers, kept as values until they are written, directly into the connection's output where it has room.

use super::refusal::Refusal;
use super::sessions::LiveSession;
use crate::generated::types::{
    Entry, StateBatchResponse, StateCommitResponse, StateCountResponse, StateGetResponse,
    StateHistoryResponse, StatePutResponse, StateRemoveResponse, StateRollbackResponse, StateScanResponse,
    StateSnapshotResponse,
};
use crate::map::{Key, Value};
use crate::state::ForkId;
use thalweg_log::Offset;
use thalweg_service::Reply;
use thalweg_wire::messagepack::{Message, response_frame};
use thalweg_wire::service::error_frame;

/// The tag of the service's error.
pub const ERROR_TAG: &str = "StateErrorResponse";

/// The call that an answer with an offset is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Put,
    Remove,
    Batch,
    Snapshot,
    Commit,
}

/// An answer.
#[derive(Debug)]
pub(super) enum Answer {
    Value(Option<Value>),
    /// Where the fork ends with it.
    Offset {
        kind: WriteKind,
        offset: Offset,
        /// The session of the call, if it is of one: the lease does not end before this is answered.
        _live: Option<LiveSession>,
    },
    Entries {
        history: bool,
        entries: Vec<(Key, Value)>,
        next: Option<Key>,
    },
    Count(u64),
    RolledBack,
    /// Any other answer, encoded already.
    Frame(Vec<u8>),
}

impl Answer {
    /// An answer that is encoded at once.
    pub(super) fn of<'m, M: Message<'m>>(message: &M) -> Self {
        let mut frame = Vec::new();
        response_frame(message, &mut frame);
        Self::Frame(frame)
    }

    /// Whether it is a page, and not the last.
    pub(super) fn goes_on(&self) -> bool {
        matches!(self, Self::Entries { next: Some(_), .. })
    }

    /// Answers.
    pub(super) fn give(&self, reply: Reply) {
        match self {
            Self::Frame(frame) => reply.end(frame),
            other => reply.end_with(|out| other.write(out)),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Value(value) => {
                response_frame(&StateGetResponse { value: value.as_deref().map(Into::into) }, out);
            }
            Self::Offset { kind, offset, .. } => kind.write(*offset, out),
            Self::Entries { history, entries, next } => {
                let entries = entries
                    .iter()
                    .map(|(key, value)| Entry { key: key.as_str().into(), value: (&**value).into() })
                    .collect();
                let next = next.as_deref().map(Into::into);
                if *history {
                    response_frame(&StateHistoryResponse { entries, next }, out);
                } else {
                    response_frame(&StateScanResponse { entries, next }, out);
                }
            }
            Self::Count(count) => response_frame(&StateCountResponse { count: *count }, out),
            Self::RolledBack => response_frame(&StateRollbackResponse {}, out),
            Self::Frame(frame) => out.extend_from_slice(frame),
        }
    }
}

impl WriteKind {
    fn write(self, offset: Offset, out: &mut Vec<u8>) {
        match self {
            Self::Put => response_frame(&StatePutResponse { offset }, out),
            Self::Remove => response_frame(&StateRemoveResponse { offset }, out),
            Self::Batch => response_frame(&StateBatchResponse { offset }, out),
            Self::Snapshot => response_frame(&StateSnapshotResponse { offset }, out),
            Self::Commit => response_frame(&StateCommitResponse { offset }, out),
        }
    }
}

/// Refuses a call; `main` is the main line, if it is known.
pub(super) fn refuse(refusal: &Refusal, main: Option<ForkId>, reply: Reply) {
    reply.end(&error_frame(ERROR_TAG, &format!("{}: {}", refusal.code(), refusal.reason(main))));
}
