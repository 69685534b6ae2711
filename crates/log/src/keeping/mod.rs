//! What is done about what is there: let go, write anew, note down, find again.
//!
//! ```text
//! write_checkpoint   when a checkpoint is due, and how it is written while commits go on
//! recover            from whatever a crash left to a store: the last checkpoint, and what was committed since
//! known_damage       the damage that is known, and the logs that lost something by it
//! expiry, retention  which logs are over, which entries are too many or too old, of one log or of all together
//! purge, reclaim     letting go, and when its room is worth a checkpoint
//! replacing          the lock of all that removes or replaces files
//! live, removal      how many bytes of each segment are needed, and the end of one of which nothing is
//! compact, settle    a segment written anew: without what no log needs, or each log's bytes together
//! backup, destroy    a copy as of one position, and back, and the end of all files
//! ```
//!
//! What a crash cuts short here costs time, or room until the next opening, and never data. *Checked by* the
//! crash simulation.

pub(crate) mod backup;
pub(crate) mod compact;
mod destroy;
pub(crate) mod expiry;
pub(crate) mod known_damage;
mod live;
pub(crate) mod purge;
pub(crate) mod reclaim;
pub(crate) mod recover;
mod removal;
pub(crate) mod replacing;
pub(crate) mod retention;
pub(crate) mod settle;
mod write_checkpoint;
