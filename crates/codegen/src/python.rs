use crate::File;
use crate::names::Names;
use thalweg_schema::Service;
pub(crate) fn emit(_: &Service, _: &Names) -> Vec<File> {
    Vec::new()
}
