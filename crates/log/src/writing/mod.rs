//! The way in: how a commit gets from a caller into the newest segment, and durable.
//!
//! ```text
//! append             entries of one log, each a transaction of its own
//! transaction        entries of several logs that are written together
//! parts              a batch of entries, staged and revealed in each of its logs
//! commit             one change of one log, which is one batch; published, staged and revealed here
//! batch              the frames of one commit, checksummed before they have a place
//! writer             the one writer: chains batches and publishes them, behind one lock
//! packing            which entries of many are one batch together
//! segment_tail       where a batch is put down: through the map or by a call
//! ahead              the pages behind it, brought in before they are needed
//! sizes, spare       the next segment: how large it is, and its file, made ahead of time
//! reserve            room held back, so that a full disk can let go
//! committer, groups  group commit: one sync for all that was written since the last one, and what groups come to
//! spin_lock          a lock that is held for a tenth of a microsecond
//! ```
//!
//! Never reads what was written: that is [`reading`](crate::reading)'s.

pub(crate) mod ahead;
pub(crate) mod append;
pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod committer;
pub(crate) mod groups;
pub(crate) mod packing;
pub(crate) mod parts;
pub(crate) mod reserve;
pub(crate) mod segment_tail;
pub(crate) mod sizes;
pub(crate) mod spare;
pub(crate) mod spin_lock;
pub(crate) mod transaction;
pub(crate) mod writer;
