//! Where tests look into the middle of an operation, or have it go wrong.
//!
//! Purpose: the crash simulation is worth something only if it finds mistakes, and a test of two threads only
//! if they meet where it says. Shipped code calls a probe by its name; outside the crate's own tests each
//! does nothing and takes no room.

#[cfg(not(test))]
pub(crate) use shipped::Probes;
#[cfg(test)]
pub(crate) use testing::{Fault, Interleave, Probes};

#[cfg(not(test))]
mod shipped {
    use crate::options::Options;
    use crate::segment::Segment;
    use std::io;
    use thalweg_sync::region::RegionWriter;

    pub(crate) struct Probes;

    impl Probes {
        pub(crate) fn of(_: &Options) -> Probes {
            Probes
        }

        pub(crate) fn before_sync(&self) {}

        pub(crate) fn before_words(&self) {}

        pub(crate) fn before_verdict(&self) {}

        pub(crate) fn between_shards(&self) {}

        pub(crate) fn forgets_sync(&self) -> bool {
            false
        }

        pub(crate) fn forgets_sync_of_checkpoint(&self) -> bool {
            false
        }

        #[inline]
        pub(crate) fn behind_header(&self, _: &mut RegionWriter, _: usize, _: &Segment) {}

        pub(crate) fn written(&self, written: io::Result<()>) -> io::Result<()> {
            written
        }
    }
}

#[cfg(test)]
mod testing {
    use crate::options::Options;
    use crate::scan::Scan;
    use crate::segment::Segment;
    use parking_lot::Mutex;
    use std::io;
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, SendError, Sender};
    use thalweg_sync::region::RegionWriter;

    /// Mistakes that the crash simulation must catch.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) enum Fault {
        #[default]
        None,
        AcknowledgeBeforeSync,
        PublishBeforeCopy,
        CheckpointBeforeSync,
        PassFailedCall,
    }

    /// Lets a test go on with its own between two steps of a walk, in lockstep: it is asked, and answers.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Interleave(Arc<Mutex<Option<Lockstep>>>);

    type Lockstep = (Sender<()>, Receiver<()>);

    impl Interleave {
        pub(crate) fn set(&self, lockstep: Option<Lockstep>) {
            *self.0.lock() = lockstep;
        }

        fn step(&self) {
            if let Some((ask, answered)) = &*self.0.lock() {
                let _ = ask.send(()).and_then(|()| answered.recv().map_err(|_| SendError(())));
            }
        }
    }

    /// What a test does in the middle of something, once.
    type Step = Mutex<Option<Box<dyn FnOnce() + Send>>>;

    fn take(step: &Step) {
        if let Some(step) = step.lock().take() {
            step();
        }
    }

    #[derive(Default)]
    pub(crate) struct Probes {
        fault: Fault,
        interleave: Interleave,
        pub(crate) before_sync: Step,
        pub(crate) before_words: Step,
        pub(crate) before_verdict: Step,
    }

    impl Probes {
        pub(crate) fn of(options: &Options) -> Probes {
            let (fault, interleave) = (options.fault, options.interleave.clone());
            Probes { fault, interleave, ..Probes::default() }
        }

        /// Between taking the group and syncing it.
        pub(crate) fn before_sync(&self) {
            take(&self.before_sync);
        }

        /// Between showing what a group did to logs and saying how far the store is.
        pub(crate) fn before_words(&self) {
            take(&self.before_words);
        }

        /// Between looking at a log that may be due and judging it.
        pub(crate) fn before_verdict(&self) {
            take(&self.before_verdict);
        }

        /// Between two shards that a checkpoint visits.
        pub(crate) fn between_shards(&self) {
            self.interleave.step();
        }

        /// A group is acknowledged without its sync.
        pub(crate) fn forgets_sync(&self) -> bool {
            self.fault == Fault::AcknowledgeBeforeSync
        }

        /// A checkpoint can be found before what it speaks of is durable.
        pub(crate) fn forgets_sync_of_checkpoint(&self) -> bool {
            self.fault == Fault::CheckpointBeforeSync
        }

        /// Whatever is published reads as whole batches, between the header of one and its body too.
        pub(crate) fn behind_header(
            &self,
            writer: &mut RegionWriter,
            header_bytes: usize,
            segment: &Segment,
        ) {
            let start = writer.filled() - header_bytes as u32;
            if self.fault == Fault::PublishBeforeCopy {
                writer.publish();
            }
            let region = writer.region();
            let bytes = region.bytes(0..region.published());
            let stop = Scan::new(&segment.header, bytes, start, None).each(|_| {});
            assert_eq!(stop.at, region.published(), "a torn batch is published");
        }

        /// What a call answered that wrote what was staged.
        pub(crate) fn written(&self, written: io::Result<()>) -> io::Result<()> {
            if self.fault == Fault::PassFailedCall { Ok(()) } else { written }
        }
    }
}
