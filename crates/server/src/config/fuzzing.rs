//! Arbitrary configuration files.

use super::{ConfigError, Configuration, Setting, parse};
use crate::bounds::Limits;
use std::ffi::OsString;
use std::path::Path;

/// A file that is taken says the same once it was printed.
pub fn configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // Names would be asked of a resolver.
    if text.contains("listen") && !text.contains("127.0.0.1:") {
        return;
    }
    let Some(first) = loaded(text) else { return };
    let limits = Limits::of(&thalweg_http::Config::default(), 1, 1, false);
    let again = loaded(&first.print(&limits)).expect("what was printed is taken");
    let values = |setting: &Setting| (setting.key, setting.values.clone());
    assert!(first.settings.iter().map(values).eq(again.settings.iter().map(values)));
    assert!(again.changed_from(&first).is_empty());
}

fn loaded(text: &str) -> Option<Configuration> {
    let path = Path::new("thalweg.toml");
    let given = match parse(path, text) {
        Ok(given) => given,
        Err(ConfigError::File { line, why, .. }) => {
            assert!(line <= text.matches('\n').count() + 1 && !why.is_empty());
            return None;
        }
        Err(failure) => panic!("{failure}"),
    };
    let line = ["thalweg", "serve"].map(OsString::from);
    // Flags may exclude each other.
    Configuration::with(&line, &given, Some(path.to_owned())).ok()
}
