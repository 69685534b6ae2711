//! hyper: takes a request whole and answers with what was put together before.

use crate::Failure;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::net::TcpListener;

const ANSWER: &[u8] = br#"{"jsonrpc":"2.0","result":{"sum":42},"id":1}"#;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    request.into_body().collect().await?;
    let mut response = Response::new(Full::new(Bytes::from_static(ANSWER)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

pub(crate) async fn serve(ready: impl FnOnce(SocketAddr) -> Result<(), Failure>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    ready(listener.local_addr()?)?;
    loop {
        let (connection, _) = listener.accept().await?;
        connection.set_nodelay(true)?;
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service_fn(answer)));
    }
}
