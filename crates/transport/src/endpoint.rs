//! Where a service is found.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a service is found, and by which means one speaks to it.
///
/// ```
/// use thalweg_transport::Endpoint;
/// assert_eq!("run/echo.shm".parse(), Ok(Endpoint::Shared("run/echo.shm".into())));
/// assert_eq!("-".parse::<Endpoint>().unwrap().to_string(), "-");
/// assert!("run/echo".parse::<Endpoint>().is_err());
///
/// let directory = std::env::temp_dir();
/// let endpoint = Endpoint::try_from(directory.join("echo.sock"))?;
/// assert_eq!(endpoint.path(), Some(&*directory.join("echo.sock")));
/// # Ok::<(), thalweg_transport::UnknownEndpoint>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `*.sock`: a Unix socket. Plain frames or multiplexed, and a client that asks goes on over shared
    /// memory.
    Socket(PathBuf),
    /// `*.shm`: a Unix socket over which nothing goes but the way to shared memory.
    Shared(PathBuf),
    /// `-`: standard input and output.
    Stdio,
}

impl Endpoint {
    /// Where the socket lies, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Endpoint::Socket(path) | Endpoint::Shared(path) => Some(path),
            Endpoint::Stdio => None,
        }
    }
}

/// A text that names no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEndpoint(pub String);

impl fmt::Display for UnknownEndpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is no endpoint: give a path ending in .sock or .shm, or -", self.0)
    }
}

impl std::error::Error for UnknownEndpoint {}

impl FromStr for Endpoint {
    type Err = UnknownEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::try_from(Path::new(text))
    }
}

/// As of its text, also of a path that is none: one whose bytes are not UTF-8.
impl TryFrom<&Path> for Endpoint {
    type Error = UnknownEndpoint;

    fn try_from(path: &Path) -> Result<Self, Self::Error> {
        Self::try_from(path.to_path_buf())
    }
}

/// As of a borrowed path.
impl TryFrom<PathBuf> for Endpoint {
    type Error = UnknownEndpoint;

    fn try_from(path: PathBuf) -> Result<Self, Self::Error> {
        let is_directory = path.as_os_str().as_encoded_bytes().ends_with(b"/");
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("sock") if !is_directory => Ok(Endpoint::Socket(path)),
            Some("shm") if !is_directory => Ok(Endpoint::Shared(path)),
            _ if path.as_os_str() == "-" => Ok(Endpoint::Stdio),
            _ => Err(UnknownEndpoint(path.display().to_string())),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path() {
            Some(path) => path.display().fmt(formatter),
            None => formatter.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn an_endpoint_is_told_by_its_ending_and_says_itself_again() {
        for (text, endpoint) in [
            ("/run/a.sock", Endpoint::Socket("/run/a.sock".into())),
            ("a.b.shm", Endpoint::Shared("a.b.shm".into())),
            ("-", Endpoint::Stdio),
        ] {
            assert_eq!(text.parse(), Ok(endpoint.clone()));
            assert_eq!(Endpoint::try_from(Path::new(text)), Ok(endpoint.clone()));
            assert_eq!(Endpoint::try_from(PathBuf::from(text)), Ok(endpoint.clone()));
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.path().is_none(), text == "-");
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in ["", "--", "a", ".sock", "a/.shm", "a.sock/", "a.SOCK", "a.sock ", "tcp://x", "shm"] {
            let refused = text.parse::<Endpoint>().unwrap_err();
            assert_eq!(refused, UnknownEndpoint(text.to_owned()));
            assert!(refused.to_string().contains(text));
            assert_eq!(Endpoint::try_from(Path::new(text)), Err(refused));
        }
    }

    #[test]
    fn a_path_need_not_be_text() {
        let path = Path::new(OsStr::from_bytes(b"run/\xff.sock"));
        assert_eq!(Endpoint::try_from(path), Ok(Endpoint::Socket(path.to_path_buf())));
        assert!(Endpoint::try_from(Path::new(OsStr::from_bytes(b"run/a.soc\xff"))).is_err());
    }
}
