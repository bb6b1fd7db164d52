//! The login of a browser, as steps of a request. `feature/authentication/oidc` decides; the exchange waits for the provider,
//! and responds.

use std::rc::Rc;
use std::sync::Arc;

use super::exchange::Exchange;
use super::refuse::Refusal;
use crate::counters::SessionEvent;
use crate::failure::{Denial, Failure};
use crate::feature::SecurityPolicy;
use crate::feature::authentication::jwt::Verified;
use crate::feature::authentication::oidc::{Login, Renewal, Session, Step};

impl Exchange<'_> {
    /// Responds to a request that is a step of a login, or that ends a session.
    pub(super) async fn take_step(
        &mut self,
        policy: &SecurityPolicy,
        login: &Arc<Login>,
        step: Step,
    ) -> Result<Refusal, Refusal> {
        match step {
            Step::Callback => self.complete_login(policy, login).await,
            Step::Logout => self.end_session(policy, login).await,
        }
    }

    /// Redirects a browser to the provider. Returns the reason of the denial.
    pub(super) async fn begin_login(
        &mut self,
        policy: &SecurityPolicy,
        login: &Arc<Login>,
    ) -> Result<Denial, Refusal> {
        let provider = self.awaited(login.provider(), self.head_deadline).await?;
        let metadata = match provider.ok_or(Failure::ResponseTimeout)? {
            Ok(metadata) => metadata,
            Err(denial) => return Ok(denial),
        };
        let begun =
            self.edit(|exchange, edits| login.begin(&exchange.view(), &metadata, &mut edits.response_lines));
        // Without a host there is no URL to return to.
        if begun.is_none() {
            return Ok(Denial::NoSession);
        }
        self.count_session(policy, SessionEvent::LoginStarted);
        Ok(Denial::Login)
    }

    /// Exchanges the code that the provider sent for a session, and returns to the page of the login.
    async fn complete_login(
        &mut self,
        policy: &SecurityPolicy,
        login: &Arc<Login>,
    ) -> Result<Refusal, Refusal> {
        let failed = |exchange: &mut Self, denial| {
            exchange.count_session(policy, SessionEvent::LoginFailed);
            exchange.scratch.response_lines.extend_from_slice(b"Cache-Control: no-store\r\n");
            exchange.deny_by(policy, denial)
        };
        let answer = self.edit(|exchange, edits| login.answer(&exchange.view(), &mut edits.response_lines));
        let (answer, realm) = answer.map_err(|denial| failed(self, denial))?;
        let session = self.awaited(login.exchange(&answer, realm), self.head_deadline).await?;
        let session = session.ok_or(Failure::ResponseTimeout)?.map_err(|denial| failed(self, denial))?;
        self.store_session(login, &session).map_err(|denial| failed(self, denial))?;
        let mut url = Vec::new();
        self.view().write_origin(&mut url);
        url.extend_from_slice(answer.target().as_bytes());
        self.count_session(policy, SessionEvent::LoginCompleted);
        Ok(self.redirect_from_login(url))
    }

    async fn end_session(&mut self, policy: &SecurityPolicy, login: &Arc<Login>) -> Result<Refusal, Refusal> {
        let provider = self.awaited(login.provider(), self.head_deadline).await?;
        let metadata = provider.and_then(Result::ok);
        let tokens = &self.worker.tokens;
        let url = self.edit(|exchange, edits| {
            let (view, memory) = (exchange.view(), &mut *tokens.borrow_mut());
            login.end(&view, metadata.as_deref(), memory, &mut edits.response_lines)
        });
        let Some(url) = url else { return Err(self.deny_by(policy, Denial::NoSession)) };
        self.count_session(policy, SessionEvent::LoggedOut);
        Ok(self.redirect_from_login(url))
    }

    /// Refreshes a session. `None`: the session is over.
    pub(super) async fn refresh_session(
        &mut self,
        policy: &SecurityPolicy,
        login: &Arc<Login>,
        session: &Arc<Session>,
        verified: Rc<Verified>,
    ) -> Result<Result<Option<Rc<Verified>>, Denial>, Refusal> {
        let renewal = self.awaited(login.refresh(session), self.head_deadline).await?;
        match renewal.ok_or(Failure::ResponseTimeout)? {
            Renewal::Unchanged => Ok(Ok(Some(verified))),
            Renewal::Ended => {
                self.count_session(policy, SessionEvent::RefreshFailed);
                Ok(Ok(None))
            }
            Renewal::Unavailable => {
                self.count_session(policy, SessionEvent::RefreshFailed);
                Ok(Err(Denial::ProviderUnavailable))
            }
            Renewal::Renewed(renewed) => match self.store_session(login, &renewed) {
                Ok(()) => {
                    self.count_session(policy, SessionEvent::Refreshed);
                    Ok(Ok(login.verified(renewed)))
                }
                Err(denial) => Ok(Err(denial)),
            },
        }
    }

    fn store_session(&mut self, login: &Login, session: &Session) -> Result<(), Denial> {
        self.edit(|exchange, edits| login.store(&exchange.view(), session, &mut edits.response_lines))
    }

    fn redirect_from_login(&mut self, url: Vec<u8>) -> Refusal {
        self.scratch.response_lines.extend_from_slice(b"Cache-Control: no-store\r\n");
        self.scratch.request = url;
        Refusal::Redirect(302)
    }

    fn count_session(&self, policy: &SecurityPolicy, event: SessionEvent) {
        policy.stats.of(self.worker.id).sessions[event as usize].add(1);
    }
}
