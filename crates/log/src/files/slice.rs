//! Bytes of a map that are lent out, and keep the map for as long as they live.

use std::ops::Range;
use std::sync::Arc;
use thalweg_sync::region::Region;

/// Published bytes that keep their map.
pub(crate) struct Slice {
    pub(crate) region: Arc<Region>,
    pub(crate) range: Range<u32>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        self.region.bytes(self.range.clone())
    }
}
