//! tonic: gRPC over a Unix socket, one thread at each end.

use crate::{Failure, Measured, Work, ready, same};
use hyper_util::rt::TokioIo;
use std::path::{Path, PathBuf};
use std::time::Instant;
use thalweg_sys::clock;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server, Uri};
use tower::service_fn;

/// What is sent, and what comes back.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Echo {
    #[prost(bytes = "vec", tag = "1")]
    data: Vec<u8>,
}

include!(concat!(env!("OUT_DIR"), "/thalweg.bench.Echoes.rs"));

struct Echoing;

#[tonic::async_trait]
impl echoes_server::Echoes for Echoing {
    async fn echo(&self, request: tonic::Request<Echo>) -> Result<tonic::Response<Echo>, tonic::Status> {
        Ok(tonic::Response::new(request.into_inner()))
    }
}

fn path(directory: &Path) -> PathBuf {
    directory.join("grpc.sock")
}

fn block_on<F: Future>(future: F) -> Result<F::Output, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}

pub(crate) fn measure(work: Work, directory: &Path) -> Result<Measured, Failure> {
    block_on(call(work, path(directory)))?
}

async fn call(work: Work, path: PathBuf) -> Result<Measured, Failure> {
    let connect = service_fn(move |_: Uri| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    let channel: Channel = Endpoint::try_from("http://localhost")?.connect_with_connector(connect).await?;
    let message = vec![7_u8; work.bytes];
    for _ in 0..work.warm_turns() {
        turn(&channel, &message, work.depth).await?;
    }
    let (since, before_ns) = (Instant::now(), clock::process_processor_ns());
    let (mut operations, mut turns) = (0, 0);
    loop {
        operations += turn(&channel, &message, work.depth).await?;
        turns += 1;
        if work.is_over(turns, since) {
            return Ok(work.measured(operations, since, before_ns));
        }
    }
}

async fn turn(channel: &Channel, message: &[u8], depth: usize) -> Result<u64, Failure> {
    let calls: Vec<_> = (0..depth)
        .map(|_| {
            let mut client = echoes_client::EchoesClient::new(channel.clone());
            let data = message.to_vec();
            tokio::spawn(async move { client.echo(Echo { data }).await })
        })
        .collect();
    for call in calls {
        same(message, &call.await??.into_inner().data)?;
    }
    Ok(depth as u64)
}

pub(crate) fn serve(directory: &Path) -> Result<(), Failure> {
    block_on(async {
        let incoming = UnixListenerStream::new(UnixListener::bind(path(directory))?);
        let (ended, over) = tokio::sync::oneshot::channel();
        ready(move || {
            // Nobody waits for it any more when the server ended by itself.
            let _ = ended.send(());
        })?;
        let service = echoes_server::EchoesServer::new(Echoing);
        let over = async move { drop(over.await) };
        Server::builder().add_service(service).serve_with_incoming_shutdown(incoming, over).await?;
        Ok(())
    })?
}
