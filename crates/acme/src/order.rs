//! The life of an order: new order, challenges, validation, certificate, Secret.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use instant_acme::{
    AuthorizationStatus, ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair, PublicKeyData as _};
use tokio::sync::Mutex;
use tokio::time::{Duration, timeout};

use crate::account::Registered;
use crate::client::{Failure, in_words};
use crate::issued::{Issued, check};
use crate::schedule::due;
use crate::secrets::Values;
use crate::{
    ChallengeKind, Link, NewSecret, ORDER_MAX, Options, SERVED_MAX, SecretName, Secrets, State,
    VALIDATION_MAX, Wish,
};

/// The type of a Secret with a certificate.
const TLS_TYPE: &str = "kubernetes.io/tls";

/// The questions for the state of an order: the first after half a second, then with growing pauses.
const POLL: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(VALIDATION_MAX);

/// The parts that all orders share.
pub(crate) struct Orders<S> {
    pub(crate) options: Options,
    pub(crate) secrets: Arc<S>,
    pub(crate) link: Link,
    /// The certificates of challenges in progress, by host, each with its key: both in PEM.
    challenges: Mutex<BTreeMap<Box<str>, (String, String)>>,
}

/// The result of an order.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A new certificate is stored.
    New(Issued),
    /// The stored certificate is not due.
    Fresh(Issued),
}

impl<S: Secrets> Orders<S> {
    pub(crate) fn new(options: Options, secrets: Arc<S>, link: Link) -> Self {
        Self { options, secrets, link, challenges: Mutex::default() }
    }

    /// Orders a certificate, and stores it. `replaces` tells that the ACME server knows the current certificate.
    pub(crate) async fn order(
        &self,
        registered: &Registered,
        wish: &Wish,
        replaces: bool,
    ) -> Result<Outcome, Failure> {
        let ordered = timeout(ORDER_MAX, self.order_within(registered, wish, replaces)).await;
        let result = ordered.unwrap_or_else(|_| {
            Err(Failure::of_order(format!("the order took more than {} s", ORDER_MAX.as_secs())))
        });
        if self.options.challenge == ChallengeKind::TlsAlpn01
            && let Err(failure) = self.remove_challenges(&wish.hosts).await
        {
            tracing::warn!(
                "{}; the certificates of ended challenges stay until the next order",
                failure.message
            );
        }
        result
    }

    async fn order_within(
        &self,
        registered: &Registered,
        wish: &Wish,
        replaces: bool,
    ) -> Result<Outcome, Failure> {
        if let Some(current) = self.current(wish).await? {
            let stored = Wish { current: Some(current.clone()), ..wish.clone() };
            if wish.current.as_ref() != Some(&current) && due(&stored, None) > SystemTime::now() {
                return Ok(Outcome::Fresh(current));
            }
        }
        let identifiers: Vec<_> = wish.hosts.iter().map(|host| Identifier::Dns(host.to_string())).collect();
        let mut order = self.new_order(registered, wish, &identifiers, replaces).await?;
        if order.state().authorizations.len() > identifiers.len() {
            return Err(Failure::of_order("the ACME server asks for more proofs than the order has hosts"));
        }
        self.prove(registered, &mut order, wish).await?;
        let key = KeyPair::generate().map_err(|error| Failure::of_order(error.to_string()))?;
        let request = request(&wish.hosts, &key).map_err(|error| Failure::of_order(error.to_string()))?;
        order.finalize_csr(&request).await?;
        let chain = order.poll_certificate(&POLL).await?;
        let issued =
            check(&chain, key.der_bytes(), &wish.hosts, SystemTime::now()).map_err(Failure::of_order)?;
        let values: Values = [
            ("tls.crt".to_owned(), chain.into_bytes()),
            ("tls.key".to_owned(), key.serialize_pem().into_bytes()),
        ]
        .into();
        self.write(wish.secret.clone(), TLS_TYPE, values).await?;
        Ok(Outcome::New(issued))
    }

    /// The certificate in the store, which may be newer than the configuration. A Secret of another origin is an error, before the
    /// ACME server is asked.
    async fn current(&self, wish: &Wish) -> Result<Option<Issued>, Failure> {
        let stored =
            self.secrets.read(&wish.secret).await.map_err(|error| Failure::of_order(error.to_string()))?;
        match stored {
            Some(stored) if !stored.is_ours => {
                Err(Failure::of_order(crate::SecretsError::Foreign(wish.secret.clone()).to_string()))
            }
            Some(stored) => Ok(stored.values.get("tls.crt").and_then(|chain| Issued::of_pem(chain))),
            None => Ok(None),
        }
    }

    async fn new_order(
        &self,
        registered: &Registered,
        wish: &Wish,
        identifiers: &[Identifier],
        replaces: bool,
    ) -> Result<Order, Failure> {
        let replaced = wish.current.as_ref().filter(|_| replaces).and_then(Issued::identifier);
        if let Some(replaced) = replaced {
            // The server may reject the field, such as after another order for the same certificate (RFC 9773, 5).
            match registered.account.new_order(&NewOrder::new(identifiers).replaces(replaced)).await {
                Ok(order) => return Ok(order),
                Err(instant_acme::Error::Api(problem)) if !matches!(problem.status, Some(429 | 500..)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(registered.account.new_order(&NewOrder::new(identifiers)).await?)
    }

    /// Proves control of the hosts.
    async fn prove(&self, registered: &Registered, order: &mut Order, wish: &Wish) -> Result<(), Failure> {
        let kind = match self.options.challenge {
            ChallengeKind::Http01 => ChallengeType::Http01,
            ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let mut challenges: BTreeMap<Box<str>, Vec<u8>> = BTreeMap::new();
        let mut certificates = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            let host = host(&authorization.identifier().to_string(), wish)?;
            match authorization.status {
                AuthorizationStatus::Pending => {}
                AuthorizationStatus::Valid => continue,
                status => return Err(Failure::of_order(format!("{host}: the authorization is {status:?}"))),
            }
            let Some(challenge) = authorization.challenge(kind.clone()) else {
                let message =
                    format!("{host}: the ACME server does not offer {kind:?}: set another --acme-challenge");
                return Err(Failure::of_order(message));
            };
            let mut der = Vec::new();
            if self.options.challenge == ChallengeKind::TlsAlpn01 {
                let made = challenge_certificate(&host, challenge.key_authorization().digest().as_ref());
                let (certificate, key) = made.map_err(|error| Failure::of_order(error.to_string()))?;
                der = certificate.der().to_vec();
                certificates.push((host.clone(), (certificate.pem(), key.serialize_pem())));
            }
            challenges.insert(host, der);
        }
        if !challenges.is_empty() {
            if !certificates.is_empty() {
                self.add_challenges(certificates).await?;
            }
            self.wait_until_served(&registered.thumbprint, &challenges).await;
            let mut authorizations = order.authorizations();
            while let Some(authorization) = authorizations.next().await {
                let mut authorization = authorization?;
                if authorization.status == AuthorizationStatus::Pending
                    && let Some(mut challenge) = authorization.challenge(kind.clone())
                {
                    challenge.set_ready().await?;
                }
            }
        }
        match order.poll_ready(&POLL).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(Failure::of_order(self.reasons(order).await)),
            Err(instant_acme::Error::Api(problem)) => {
                let reasons = self.reasons(order).await;
                let failure = Failure::from(instant_acme::Error::Api(problem));
                Err(Failure {
                    message: if reasons.is_empty() { failure.message } else { reasons },
                    ..failure
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until all data planes serve the hosts and the challenges.
    async fn wait_until_served(&self, thumbprint: &str, challenges: &BTreeMap<Box<str>, Vec<u8>>) {
        let is_served = |state: &Arc<State>| {
            let mut all = challenges.iter();
            state.thumbprint.as_deref() == Some(thumbprint)
                && match self.options.challenge {
                    ChallengeKind::Http01 => all.all(|(host, _)| state.has_host(host)),
                    ChallengeKind::TlsAlpn01 => {
                        all.all(|(host, der)| state.challenges.get(host) == Some(der))
                    }
                }
        };
        if timeout(SERVED_MAX, self.link.served().wait_for(is_served)).await.is_err() {
            let hosts: Vec<_> = challenges.keys().map(|host| &**host).collect();
            tracing::warn!(
                hosts = hosts.join(", "),
                "some data planes do not serve the ACME challenge after {} s; the order continues",
                SERVED_MAX.as_secs()
            );
        }
    }

    /// Why hosts were not validated.
    async fn reasons(&self, order: &mut Order) -> String {
        let mut reasons = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(state) = authorization.refresh().await else { break };
            let host = state.identifier().to_string();
            let errors = state.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
            reasons.extend(errors.map(|error| format!("{host}: {}", in_words(error))));
        }
        let advice = match self.options.challenge {
            ChallengeKind::Http01 => "the ACME server must reach this gateway at port 80 of the host",
            ChallengeKind::TlsAlpn01 => {
                "the ACME server must reach this gateway at port 443 of the host, without another TLS proxy"
            }
        };
        // A certificate may have a hundred names.
        reasons.truncate(3);
        reasons.push(advice.to_owned());
        reasons.join("; ")
    }

    async fn add_challenges(&self, new: Vec<(Box<str>, (String, String))>) -> Result<(), Failure> {
        let mut challenges = self.challenges.lock().await;
        challenges.extend(new);
        self.write_challenges(&challenges).await
    }

    async fn remove_challenges(&self, hosts: &[Box<str>]) -> Result<(), Failure> {
        let mut challenges = self.challenges.lock().await;
        let before = challenges.len();
        challenges.retain(|host, _| !hosts.contains(host));
        if challenges.len() == before { Ok(()) } else { self.write_challenges(&challenges).await }
    }

    /// Removes the challenges of an earlier process.
    pub(crate) async fn reset_challenges(&self) -> Result<(), Failure> {
        let name = &self.options.challenges;
        let stored = self.secrets.read(name).await.map_err(|error| Failure::of_order(error.to_string()))?;
        match stored {
            Some(stored) if stored.is_ours && !stored.values.is_empty() => {
                self.write_challenges(&BTreeMap::new()).await
            }
            _ => Ok(()),
        }
    }

    async fn write_challenges(
        &self,
        challenges: &BTreeMap<Box<str>, (String, String)>,
    ) -> Result<(), Failure> {
        let parts = challenges.iter().flat_map(|(host, (certificate, key))| {
            [(format!("{host}.crt"), certificate.clone().into()), (format!("{host}.key"), key.clone().into())]
        });
        self.write(self.options.challenges.clone(), "Opaque", parts.collect()).await
    }

    async fn write(&self, name: SecretName, kind: &'static str, values: Values) -> Result<(), Failure> {
        let secret = NewSecret { name, kind, values };
        self.secrets.write(secret).await.map_err(|error| Failure::of_order(error.to_string()))
    }
}

/// The host of an authorization: a server must not ask for a proof of another host.
fn host(name: &str, wish: &Wish) -> Result<Box<str>, Failure> {
    let known = wish.hosts.iter().find(|host| ***host == *name);
    known
        .cloned()
        .ok_or_else(|| Failure::of_order("the ACME server asks for a proof of a host that was not ordered"))
}

/// The certificate signing request.
fn request(hosts: &[Box<str>], key: &KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut params = CertificateParams::new(hosts.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

/// The certificate for a challenge of the type `tls-alpn-01` (RFC 8737, 3).
fn challenge_certificate(host: &str, digest: &[u8]) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![host.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    // Clocks of machines differ.
    params.not_before = (SystemTime::now() - Duration::from_secs(3600)).into();
    params.not_after = (SystemTime::now() + Duration::from_secs(7 * 24 * 3600)).into();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    Ok((params.self_signed(&key)?, key))
}
