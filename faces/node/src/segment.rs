//! One segment, as JavaScript holds it: the bytes that it lends and all that is asked about them are of one
//! file, whatever has taken its place in the store since.

use crate::error::{Result, damaged, failure};
use crate::lend::lend;
use crate::loan::lend_out;
use crate::shelf::Shelf;
use napi::bindgen_prelude::{Env, Uint32Array, Unknown};
use napi_derive::napi;
use std::sync::Arc;
use thalweg_log::{MappedSegment, Maps};

#[napi]
pub struct NativeSegment {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) segment: MappedSegment,
}

#[napi]
impl NativeSegment {
    /// Its bytes.
    #[napi]
    pub fn bytes<'e>(&self, env: &'e Env) -> Result<Unknown<'e>> {
        lend(env, self.segment.bytes.clone())
    }

    /// The same bytes in a private map, for callers that may write to them: nothing else sees what they
    /// write. Undefined for a segment that lies in memory alone.
    #[napi]
    pub fn apart<'e>(&self, env: &'e Env) -> Result<Option<Unknown<'e>>> {
        let apart = self.shelf.maps(|_| self.segment.apart().map_err(|error| failure("IO", error)))?;
        apart.map(|bytes| lend_out(env, bytes)).transpose()
    }

    /// Place, byte and bytes of each run of batches that is left of it; undefined where places are bytes.
    #[napi]
    pub fn runs(&self) -> Option<Uint32Array> {
        self.segment.runs().map(|runs| runs.concat().into())
    }

    /// Its time index, extended up to now.
    #[napi]
    pub fn index<'e>(&self, env: &'e Env) -> Result<Unknown<'e>> {
        lend(env, self.shelf.maps(|maps| maps.index(&self.segment).map_err(|error| failure("IO", error)))?)
    }

    /// Extends its time index up to now.
    #[napi]
    pub fn extend(&self) -> Result<()> {
        let extended = |maps: &Maps| maps.index(&self.segment).map(drop);
        self.shelf.maps(|maps| extended(maps).map_err(|error| failure("IO", error)))
    }

    /// How far it may be read from a byte on, towards another. Throws in front of damage.
    #[napi]
    pub fn readable(&self, from: u32, to: u32) -> Result<u32> {
        self.shelf.maps(|maps| maps.readable(&self.segment, from, to).map_err(|damage| damaged(&damage)))
    }
}
