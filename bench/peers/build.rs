//! Writes the client and the server of the gRPC service, without a compiler of its own language.

use tonic_prost_build::manual::{Builder, Method, Service};

fn main() {
    let echo = Method::builder()
        .name("echo")
        .route_name("Echo")
        .input_type("crate::grpc::Echo")
        .output_type("crate::grpc::Echo")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let service = Service::builder().name("Echoes").package("thalweg.bench").method(echo).build();
    Builder::new().compile(&[service]);
}
