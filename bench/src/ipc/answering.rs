//! The echo example's service, as far as it is measured: `Fields` says back what it was asked.

use crate::echo::server::EchoHandler;
use crate::echo::types::*;
use thalweg_wire::service::Responder;

/// Answers at once.
pub(crate) struct Answering;

/// What is said to every other command.
const UNMEASURED: &str = "not measured";

impl EchoHandler for Answering {
    fn bytes(&self, _: EchoBytes<'_>, responder: Responder<commands::Bytes>) {
        responder.error(UNMEASURED);
    }

    fn fields(&self, request: EchoFields<'_>, responder: Responder<commands::Fields>) {
        let EchoFields { count, total, name } = request;
        responder.ok(&EchoFieldsResponse { count, total, name });
    }

    fn nested(&self, _: EchoNested<'_>, responder: Responder<commands::Nested>) {
        responder.error(UNMEASURED);
    }

    fn aliases(&self, _: EchoAliases, responder: Responder<commands::Aliases>) {
        responder.error(UNMEASURED);
    }

    fn blobs(&self, _: EchoBlobs<'_>, responder: Responder<commands::Blobs>) {
        responder.error(UNMEASURED);
    }

    fn fail(&self, _: EchoFail<'_>, responder: Responder<commands::Fail>) {
        responder.error(UNMEASURED);
    }

    fn numbers(&self, _: EchoNumbers, responder: Responder<commands::Numbers>) {
        responder.error(UNMEASURED);
    }

    fn places(&self, _: EchoPlaces<'_>, responder: Responder<commands::Places>) {
        responder.error(UNMEASURED);
    }

    fn count(&self, _: EchoCount, responder: Responder<commands::Count>) {
        responder.error(UNMEASURED);
    }

    fn put(&self, _: EchoPut<'_>, responder: Responder<commands::Put>) {
        responder.error(UNMEASURED);
    }

    fn peek(&self, _: EchoPeek<'_>, responder: Responder<commands::Peek>) {
        responder.error(UNMEASURED);
    }

    fn peek_committed(&self, _: EchoPeekCommitted<'_>, responder: Responder<commands::PeekCommitted>) {
        responder.error(UNMEASURED);
    }
}
