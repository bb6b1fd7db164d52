//! The account at the ACME server, and its key.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use instant_acme::{Account, Key};
use rcgen::{KeyPair, PublicKeyData as _};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::client::{Client, Exchange, Failure};
use crate::secrets::Values;
use crate::{NewSecret, Options, Secrets, THUMBPRINT_KEY};

/// The key of the account Secret with the account's private key, in PEM.
const KEY: &str = "account.key";

/// An account with its thumbprint.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) account: Account,
    /// The thumbprint of the account's key (RFC 7638).
    pub(crate) thumbprint: String,
}

/// The account's key.
struct AccountKey {
    pair: KeyPair,
    thumbprint: String,
}

impl AccountKey {
    fn new(pair: KeyPair) -> Result<Self, String> {
        let thumbprint = thumbprint(pair.der_bytes()).ok_or("is no ECDSA key over P-256")?;
        Ok(Self { pair, thumbprint })
    }

    fn read(values: &Values) -> Result<Self, String> {
        let text = values.get(KEY).and_then(|value| std::str::from_utf8(value).ok()).ok_or("is missing")?;
        Self::new(KeyPair::from_pem(text).map_err(|_| "is no private key in PEM")?)
    }

    fn values(&self) -> Values {
        [
            (KEY.to_owned(), self.pair.serialize_pem().into_bytes()),
            (THUMBPRINT_KEY.to_owned(), self.thumbprint.clone().into_bytes()),
        ]
        .into()
    }
}

/// Reads the account's key, or makes one, and registers the account. A server that knows the key returns its account.
///
/// The key is stored first: data planes know the thumbprint before the first order.
pub(crate) async fn register(
    options: &Options,
    secrets: &impl Secrets,
    exchange: &Arc<Exchange>,
) -> Result<Registered, Failure> {
    let name = &options.account;
    let of_secrets = |error: crate::SecretsError| Failure::of_order(format!("the account's key: {error}"));
    let key = match secrets.read(name).await.map_err(of_secrets)? {
        Some(stored) => {
            let key = AccountKey::read(&stored.values).map_err(|fault| {
                Failure::of_order(format!(
                    "{name}: data[{KEY}] {fault}: delete the Secret to make a new account"
                ))
            })?;
            if stored.values.get(THUMBPRINT_KEY).map(Vec::as_slice) != Some(key.thumbprint.as_bytes()) {
                if !stored.is_ours {
                    let thumbprint = &key.thumbprint;
                    return Err(Failure::of_order(format!(
                        "{name}: data[{THUMBPRINT_KEY}] is not the thumbprint of the key: write {thumbprint}, or delete the Secret to \
                         make a new account"
                    )));
                }
                write(options, secrets, &key).await?;
            }
            key
        }
        None => {
            let pair = KeyPair::generate().map_err(|error| Failure::of_order(error.to_string()))?;
            let key = AccountKey::new(pair).map_err(Failure::of_order)?;
            write(options, secrets, &key).await?;
            tracing::info!(secret = %name, "made a key for the ACME account");
            key
        }
    };
    let der = key.pair.serialize_der();
    let acme_key = Key::from_pkcs8_der(PrivatePkcs8KeyDer::from(&*der))?;
    let pair = (acme_key, PrivateKeyDer::Pkcs8(der.clone().into()));
    let builder = Account::builder_with_http(Box::new(Client(exchange.clone())));
    let (account, _) = builder.create_from_key(pair, options.directory.clone()).await?;
    if let Some(email) = &options.email
        && let Err(error) = account.update_contacts(&[&format!("mailto:{email}")]).await
    {
        // Orders need no contact.
        tracing::warn!(
            "the ACME server does not accept the contact (--acme-email): {}",
            Failure::from(error).message
        );
    }
    tracing::info!(account = account.id(), "registered at the ACME server");
    Ok(Registered { account, thumbprint: key.thumbprint })
}

async fn write(options: &Options, secrets: &impl Secrets, key: &AccountKey) -> Result<(), Failure> {
    let secret = NewSecret { name: options.account.clone(), kind: "Opaque", values: key.values() };
    secrets.write(secret).await.map_err(|error| Failure::of_order(format!("the account's key: {error}")))
}

/// The thumbprint of a public key over P-256, as an uncompressed point (RFC 7638, 3; RFC 7518, 6.2).
fn thumbprint(point: &[u8]) -> Option<String> {
    let [4, coordinates @ ..] = point else { return None };
    let (x, y) = coordinates.split_at_checked(32).filter(|(_, y)| y.len() == 32)?;
    let text = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
    let jwk = format!(r#"{{"crv":"P-256","kty":"EC","x":"{}","y":"{}"}}"#, text(x), text(y));
    Some(text(digest(&SHA256, jwk.as_bytes()).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_key_is_read_back_with_the_same_thumbprint() {
        let key = AccountKey::new(KeyPair::generate().expect("a key")).expect("P-256");
        let read = AccountKey::read(&key.values()).expect("a key");
        assert_eq!((read.thumbprint.len(), &read.thumbprint), (43, &key.thumbprint));
        for wrong in ["", "garbage"] {
            assert!(AccountKey::read(&[(KEY.to_owned(), wrong.into())].into()).is_err());
        }
        assert!(AccountKey::read(&Values::new()).is_err());
    }
}
