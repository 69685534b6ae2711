//! Addresses as Python has them, and as the kernel does.
//!
//! The last one in each direction is kept: an endpoint with one peer makes its address once.

use super::gil_cells::GilRefCell;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use thalweg_sys::datagram::Sender;

/// What was translated last.
#[derive(Default)]
pub(crate) struct Addresses {
    from: GilRefCell<Option<(SocketAddr, Py<PyAny>)>>,
    to: GilRefCell<Option<(Py<PyAny>, SocketAddr)>>,
}

impl Addresses {
    /// Shows the garbage collector what is kept.
    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.from.traverse(|from| visit.call(from.as_ref().map(|(_, known)| known)))?;
        self.to.traverse(|to| visit.call(to.as_ref().map(|(known, _)| known)))
    }

    /// A sender as `recvfrom` would name it.
    pub(crate) fn of_sender<'py>(&self, py: Python<'py>, sender: Sender) -> PyResult<Bound<'py, PyAny>> {
        let address = match sender {
            Sender::Ip(address) => address,
            Sender::Path(path) => return Ok(OsStr::from_bytes(&path).into_pyobject(py)?.into_any()),
            Sender::Abstract(name) => return Ok(PyBytes::new(py, &[b"\0", &name[..]].concat()).into_any()),
            Sender::Unnamed => return Ok(py.None().into_bound(py)),
        };
        let known = self.from.with(py, |from| {
            from.as_ref().filter(|(last, _)| *last == address).map(|(_, known)| known.clone_ref(py))
        })?;
        if let Some(known) = known {
            return Ok(known.into_bound(py));
        }
        let made = tuple(py, address)?;
        let kept = (address, made.clone().unbind());
        drop(self.from.with(py, |from| from.replace(kept))?);
        Ok(made)
    }

    /// The peer that connected, as `accept` would name it.
    pub(crate) fn of_peer<'py>(&self, py: Python<'py>, peer: Sender) -> PyResult<Bound<'py, PyAny>> {
        match peer {
            Sender::Unnamed => Ok(PyString::new(py, "").into_any()),
            named => self.of_sender(py, named),
        }
    }

    /// An address that stands there in numbers; `None`: it is a name, or of no family of IP.
    pub(crate) fn in_numbers(&self, to: &Bound<'_, PyAny>) -> PyResult<Option<SocketAddr>> {
        let py = to.py();
        let known = self.to.with(py, |last| {
            last.as_ref().filter(|(object, _)| object.is(to)).map(|(_, address)| *address)
        })?;
        if known.is_some() {
            return Ok(known);
        }
        let Some(address) = to.cast::<PyTuple>().ok().and_then(|to| numbers(to)) else { return Ok(None) };
        let kept = (to.clone().unbind(), address);
        drop(self.to.with(py, |last| last.replace(kept))?);
        Ok(Some(address))
    }
}

fn tuple(py: Python<'_>, address: SocketAddr) -> PyResult<Bound<'_, PyAny>> {
    let (host, port) = (address.ip().to_string(), address.port());
    Ok(match address {
        SocketAddr::V4(_) => (host, port).into_pyobject(py)?.into_any(),
        SocketAddr::V6(six) => {
            let (flow, scope) = (six.flowinfo(), six.scope_id());
            let mut host = host.into_pyobject(py)?.into_any();
            if scope != 0 {
                // Python names the interface behind the address.
                let socket = py.import("socket")?;
                let numeric = socket.getattr("NI_NUMERICHOST")?;
                let asked = ((host, port, flow, scope), numeric);
                host = socket.call_method1("getnameinfo", asked)?.get_item(0)?;
            }
            (host, port, flow, scope).into_pyobject(py)?.into_any()
        }
    })
}

fn numbers(to: &Bound<'_, PyTuple>) -> Option<SocketAddr> {
    let host: IpAddr = to.get_item(0).ok()?.extract::<String>().ok()?.parse().ok()?;
    let port: u16 = to.get_item(1).ok()?.extract().ok()?;
    let rest: Vec<u32> = (2..to.len()).map_while(|n| to.get_item(n).ok()?.extract().ok()).collect();
    match (host, &rest[..]) {
        (IpAddr::V4(_), []) if to.len() == 2 => Some(SocketAddr::new(host, port)),
        (IpAddr::V6(six), rest) if rest.len() + 2 == to.len() && rest.len() <= 2 => {
            let (flow, scope) = (rest.first().copied().unwrap_or(0), rest.get(1).copied().unwrap_or(0));
            Some(SocketAddr::V6(SocketAddrV6::new(six, port, flow, scope)))
        }
        _ => None,
    }
}
