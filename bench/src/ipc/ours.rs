//! Our services.

use crate::Failure;
use crate::run::{Measured, Until};
use crate::work::{Side, Work};
use std::path::Path;

pub(crate) fn measure(_side: Side, _work: &Work, _until: Until) -> Result<Measured, Failure> {
    Err("not yet".into())
}

pub(crate) fn serve(_side: Side, _work: &Work, _directory: &Path) -> Result<(), Failure> {
    Err("not yet".into())
}
