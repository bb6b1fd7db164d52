//! The Secrets that options name: the default certificate, and the secrets of session tickets.

use std::sync::Arc;

use sluicegate_model::Certificate;
use sluicegate_model::tls::TicketSecret;

use crate::frontend::certificate;
use crate::problem::Problem;
use crate::store::Store;
use crate::translate::{ObjectName, TranslateOptions};

pub(super) fn default_certificate(
    store: &Store,
    options: &TranslateOptions,
    problems: &mut Vec<Problem>,
) -> Option<Arc<Certificate>> {
    let name = options.default_certificate.as_ref()?;
    let given = certificate::of_secret(store, &name.secret()).map_err(|fault| {
        let fault = format!("{fault}; a self-signed certificate is used");
        problems.push(Problem::of_option("--default-tls-certificate", fault));
    });
    given.ok()
}

pub(super) fn ticket_secrets(
    store: &Store,
    options: &TranslateOptions,
    problems: &mut Vec<Problem>,
) -> Vec<TicketSecret> {
    let Some(object) = options.ticket_secret.as_ref().map(ObjectName::secret) else { return Vec::new() };
    let mut problem = |fault: String| problems.push(Problem::of_option("--tls-ticket-secret", fault));
    let Some(data) = store.data(&object) else {
        problem(format!("{object} does not exist; only this process resumes its TLS sessions"));
        return Vec::new();
    };
    let mut secrets = Vec::new();
    for (key, value) in data.values() {
        if value.len() < TicketSecret::MIN {
            let least = TicketSecret::MIN;
            problem(format!(
                "{object}: data[{key}] has {} bytes, but needs {least}; the key is ignored",
                value.len()
            ));
        } else {
            secrets.push(TicketSecret(value.into()));
        }
    }
    if secrets.is_empty() {
        problem(format!("{object} has no valid key; only this process resumes its TLS sessions"));
    }
    secrets
}
