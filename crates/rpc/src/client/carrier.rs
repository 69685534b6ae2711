//! Generated code over JSON-RPC: what carries its frames turns each into JSON, and the answer back into a
//! frame.

use super::Client;
use super::answer::Answers;
use super::error::Error;
use super::options::Ask;
use crate::translator::Translator;
use thalweg_service::Error as Failure;
use thalweg_wire::fault::Fault;
use thalweg_wire::service::Call;

/// Calls one service by JSON-RPC, for a generated client, which cannot tell it from a connection. Waits for
/// each answer, and asks before the first whether the server has the schema: [`Fault::SchemaMismatch`] where
/// it has not.
#[derive(Debug)]
pub struct Carrier {
    client: Client,
    translator: Translator,
    params: Vec<u8>,
    frame: Vec<u8>,
    asked: Option<String>,
    /// The server has the schema.
    fits: bool,
}

impl Carrier {
    /// Over a client, by the schema of its service.
    pub fn new(client: Client, translator: Translator) -> Self {
        Self { client, translator, params: Vec::new(), frame: Vec::new(), asked: None, fits: false }
    }

    /// The client beneath.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }
}

impl Call for Carrier {
    type Error = Failure;

    fn send(&mut self, request: &[u8]) -> Result<(), Failure> {
        self.params.clear();
        let method = self.translator.params(request, &mut self.params)?;
        if self.translator.is_stream(method) {
            return Err(Failure::new(Fault::BadArgument, "a stream is followed over a socket"));
        }
        self.asked = Some(method.to_owned());
        Ok(())
    }

    fn receive(&mut self) -> Result<&[u8], Failure> {
        let Some(method) = self.asked.take() else {
            return Err(Failure::new(Fault::BadArgument, "nothing was asked"));
        };
        if !self.fits {
            self.client.expect_schema(&self.translator.hash())?;
            self.fits = true;
        }
        // The translator wrote it as text.
        let params = std::str::from_utf8(&self.params).unwrap_or_default();
        self.frame.clear();
        match self.client.ask(&Ask::one(&method, params)).and_then(Answers::one) {
            Ok(result) => self.translator.response(&method, result, &mut self.frame)?,
            // In the service's own words, which generated code reads.
            Err(Error::Remote(said)) if said.fault() == Some(Fault::Refused) => {
                self.frame = self.translator.refusal(&said.message);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(&self.frame)
    }
}
