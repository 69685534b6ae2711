//! iceoryx2: request and response in shared memory, both ends looking for messages without sleeping.

use crate::{Failure, Measured, Work, ready, same};
use iceoryx2::prelude::*;
use std::path::Path;
use std::sync::mpsc::channel;

type Bytes = [u8];

fn name(directory: &Path) -> Result<ServiceName, Failure> {
    let last = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(ServiceName::new(&last)?)
}

pub(crate) fn measure(work: Work, directory: &Path) -> Result<Measured, Failure> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = node.service_builder(&name(directory)?).request_response::<Bytes, Bytes>().open()?;
    let client = service.client_builder().initial_max_slice_len(work.bytes).create()?;
    let message = vec![7_u8; work.bytes];
    let mut under_way = Vec::with_capacity(work.depth);
    work.repeat(|| {
        for _ in 0..work.depth {
            let request = client.loan_slice_uninit(work.bytes)?;
            under_way.push(request.write_from_slice(&message).send()?);
        }
        for pending in under_way.drain(..) {
            loop {
                if let Some(response) = pending.receive()? {
                    same(&message, &response)?;
                    break;
                }
                std::hint::spin_loop();
            }
        }
        Ok(work.depth as u64)
    })
}

pub(crate) fn serve(work: Work, directory: &Path) -> Result<(), Failure> {
    let node = NodeBuilder::new().create::<ipc::Service>()?;
    let service = node
        .service_builder(&name(directory)?)
        .request_response::<Bytes, Bytes>()
        .max_active_requests_per_client(work.depth)
        .create()?;
    let server = service.server_builder().initial_max_slice_len(work.bytes).create()?;
    let (ended, over) = channel();
    ready(move || {
        // Nobody waits for it any more when the server ended by itself.
        let _ = ended.send(());
    })?;
    while over.try_recv().is_err() {
        while let Some(request) = server.receive()? {
            let response = request.loan_slice_uninit(request.len())?;
            response.write_from_slice(&request).send()?;
        }
        std::hint::spin_loop();
    }
    Ok(())
}
