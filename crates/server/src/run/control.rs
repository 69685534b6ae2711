//! What can change while the server runs: SIGHUP reads the configuration again, and the files that it names.

use super::Threads;
use crate::bounds::PerReactor;
use crate::config::Configuration;
use crate::layers::access::Certificate;
use crate::layers::front::Front;
use crate::logging::Logging;
use std::ffi::OsString;
use std::sync::Arc;
use thalweg_http::Message;

/// What can change while the server runs.
pub(crate) struct Control<'a> {
    pub(crate) configuration: Configuration,
    /// The command line, to read the configuration again.
    pub(crate) line: &'a [OsString],
    pub(crate) logging: Logging,
    pub(crate) front: Front,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) per_reactor: PerReactor,
}

impl Control<'_> {
    /// Reads certificate and key again. Ones that are wrong change nothing.
    fn reload_certificate(&self) {
        match self.certificate.as_ref().map(Certificate::reload) {
            None => {}
            Some(Ok(())) => tracing::info!("certificate and key read again"),
            Some(Err(error)) => {
                tracing::error!(%error, "the certificate is not reloaded; the one in force stays")
            }
        }
    }

    /// Reads again what the configuration in force names, and then the configuration, and brings into force
    /// what can be. One that is wrong changes nothing.
    pub(super) fn reload(&mut self, threads: &Threads) {
        // Neither waits for the other to be right: a token is withdrawn whatever else is being edited.
        self.front.reload(&self.configuration.options);
        self.reload_certificate();
        threads.webhooks.reload();
        let read = match self.configuration.load_again(self.line) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(
                    %error,
                    "the configuration is not reloaded; the one in force stays. Its tokens and its certificate, if it has any, were read again"
                );
                return;
            }
        };
        let changed = read.changed_from(&self.configuration);
        for key in &changed {
            if key.reloads {
                tracing::info!(key = key.name, "reloaded");
            } else {
                tracing::warn!(key = key.name, "changed in the configuration, and waits for a restart");
            }
        }
        self.configuration.take_over(read);
        let options = &self.configuration.options;
        self.logging.set_level(options.log_level);
        let config = Arc::new(self.per_reactor.config(options));
        for reactor in &threads.reactors {
            if reactor.handle.post(Message::Configure(config.clone())).is_err() {
                tracing::error!("a reactor is too far behind to be told its new limits: send SIGHUP again");
            }
        }
        tracing::info!(changed = changed.len(), "configuration read again");
    }
}
