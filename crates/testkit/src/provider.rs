//! A small OpenID provider with an introspection endpoint, for tests of logins. Tests change its answers.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::backend::{Backend, Behaviour, Request};

/// The ID of the only client.
pub const CLIENT: &str = "shop:web";

/// The secret of the only client.
pub const SECRET: &str = "client secret & more";

/// The user who logs in.
pub const USER: &str = "alice";

/// A provider on a loopback port.
#[derive(Debug)]
pub struct Provider {
    backend: Backend,
    state: Arc<Mutex<State>>,
}

/// The state of a provider. Tests may change every field.
pub struct State {
    /// The URL of the provider, which is also its issuer.
    pub issuer: String,
    /// Changes the claims of the next ID tokens.
    pub claims: Value,
    /// The header of ID tokens.
    pub header: Value,
    /// `expires_in` of access tokens.
    pub expires_in: Value,
    /// Whether the token endpoint issues refresh tokens.
    pub refreshes: bool,
    /// The filler of access tokens, which makes them long.
    pub filler: usize,
    /// Fields that replace those of the answer of the token endpoint.
    pub tokens: Value,
    /// Fields that replace those of the configuration document.
    pub configuration: Value,
    /// The response of the token endpoint, in place of tokens.
    pub token_response: Option<Behaviour>,
    /// The response of the introspection endpoint, in place of an answer.
    pub introspection_response: Option<Behaviour>,
    /// The answers of the introspection endpoint, by token. Other tokens are not active.
    pub introspected: HashMap<String, Value>,
    /// The number of code exchanges, of refreshes, and of introspections.
    pub exchanges: u64,
    /// The number of refreshes.
    pub refreshed: u64,
    /// The number of introspections.
    pub introspections: u64,
    key: EcdsaKeyPair,
    key_id: u64,
    codes: HashMap<String, HashMap<String, String>>,
    refresh_tokens: HashMap<String, String>,
    issued: u64,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Provider {
    /// Starts a provider.
    ///
    /// # Errors
    /// If no port is free.
    pub async fn start() -> io::Result<Self> {
        let backend = Backend::start(Behaviour::silent()).await?;
        let state = State {
            issuer: format!("http://{}", backend.addr()),
            claims: json!({}),
            header: json!({"alg": "ES256"}),
            expires_in: json!(300),
            refreshes: true,
            filler: 0,
            tokens: json!({}),
            configuration: json!({}),
            token_response: None,
            introspection_response: None,
            introspected: HashMap::new(),
            exchanges: 0,
            refreshed: 0,
            introspections: 0,
            key: new_key()?,
            key_id: 1,
            codes: HashMap::new(),
            refresh_tokens: HashMap::new(),
            issued: 0,
        };
        let provider = Self { backend, state: Arc::new(Mutex::new(state)) };
        provider.backend.set(provider.behaviour());
        Ok(provider)
    }

    /// The state, to read or change.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server.
    pub fn backend(&mut self) -> &mut Backend {
        &mut self.backend
    }

    /// The behaviour of a provider that responds.
    pub fn behaviour(&self) -> Behaviour {
        let state = self.state.clone();
        Behaviour::choose_by_body(move |request| {
            state.lock().unwrap_or_else(PoisonError::into_inner).respond(request)
        })
    }

    /// Replaces the key of the signatures.
    ///
    /// # Errors
    /// If there is no randomness.
    pub fn rotate_key(&self) -> io::Result<()> {
        let mut state = self.state();
        state.key = new_key()?;
        state.key_id += 1;
        Ok(())
    }

    /// Logs the user in at the URL of an authorization request. Returns the URL to which the browser returns.
    ///
    /// # Errors
    /// If the request lacks a parameter.
    pub fn log_in(&self, url: &str) -> anyhow::Result<String> {
        let mut state = self.state();
        let query = url.strip_prefix(&format!("{}/authorize?", state.issuer));
        let parameters = parse(query.ok_or_else(|| anyhow::anyhow!("no authorization request: {url}"))?);
        let of = |name: &str| parameters.get(name).map(String::as_str).unwrap_or_default();
        anyhow::ensure!(of("response_type") == "code" && of("client_id") == CLIENT, "{parameters:?}");
        anyhow::ensure!(of("code_challenge_method") == "S256" && of("code_challenge").len() == 43);
        anyhow::ensure!(of("state").len() >= 32 && of("nonce").len() >= 32 && of("scope").contains("openid"));
        let code = state.text("code");
        let back = format!("{}?code={code}&state={}", of("redirect_uri"), of("state"));
        state.codes.insert(code, parameters);
        Ok(back)
    }
}

impl State {
    fn respond(&mut self, request: &Request) -> Behaviour {
        match request.target.split('?').next().unwrap_or_default() {
            "/.well-known/openid-configuration" => ok(&self.document()),
            "/keys" => ok(&json!({"keys": [self.jwk()]})),
            "/token" => match self.token_response.clone() {
                Some(response) => response,
                None => self.tokens(request),
            },
            "/introspect" => match self.introspection_response.clone() {
                Some(response) => response,
                None => self.introspect(request),
            },
            _ => response(404, &json!({})),
        }
    }

    fn document(&self) -> Value {
        let issuer = &self.issuer;
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/keys"),
            "end_session_endpoint": format!("{issuer}/logout"),
        });
        merge(&mut document, &self.configuration);
        document
    }

    fn jwk(&self) -> Value {
        let (point, kid) = (self.key.public_key().as_ref(), self.key_id.to_string());
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": b64(&point[1..33]), "y": b64(&point[33..])})
    }

    fn is_authentic(request: &Request) -> bool {
        let expected = "shop%3Aweb:client%20secret%20%26%20more".replace("%20", "+");
        let expected = format!("Basic {}", STANDARD.encode(expected));
        request.header("authorization") == Some(&*expected)
    }

    fn tokens(&mut self, request: &Request) -> Behaviour {
        if !Self::is_authentic(request) {
            return response(401, &json!({"error": "invalid_client"}));
        }
        let form = parse(&String::from_utf8_lossy(&request.body));
        let of = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let nonce = match of("grant_type") {
            "authorization_code" => {
                self.exchanges += 1;
                let Some(asked) = self.codes.remove(of("code")) else {
                    return response(400, &json!({"error": "invalid_grant"}));
                };
                let hash = digest::digest(&digest::SHA256, of("code_verifier").as_bytes());
                let is_right = asked.get("code_challenge") == Some(&URL_SAFE_NO_PAD.encode(hash))
                    && asked.get("redirect_uri").map(String::as_str) == Some(of("redirect_uri"));
                if !is_right {
                    return response(400, &json!({"error": "invalid_grant"}));
                }
                asked.get("nonce").cloned()
            }
            "refresh_token" => {
                self.refreshed += 1;
                // Each refresh token is valid once.
                if self.refresh_tokens.remove(of("refresh_token")).is_none() {
                    return response(400, &json!({"error": "invalid_grant"}));
                }
                None
            }
            _ => return response(400, &json!({"error": "unsupported_grant_type"})),
        };
        let access_token = format!("{}{}", self.text("access"), "x".repeat(self.filler));
        let mut tokens = json!({
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": self.expires_in,
            "id_token": self.id_token(nonce),
        });
        if self.refreshes {
            let token = self.text("refresh");
            self.refresh_tokens.insert(token.clone(), USER.to_owned());
            tokens["refresh_token"] = token.into();
        }
        merge(&mut tokens, &self.tokens);
        ok(&tokens)
    }

    fn id_token(&self, nonce: Option<String>) -> String {
        let mut claims = json!({
            "iss": self.issuer, "aud": CLIENT, "sub": USER, "iat": now(), "exp": now() + 300,
            "groups": ["staff", "admin"], "serial": self.issued,
        });
        if let Some(nonce) = nonce {
            claims["nonce"] = nonce.into();
        }
        merge(&mut claims, &self.claims);
        let mut header = json!({"kid": self.key_id.to_string()});
        merge(&mut header, &self.header);
        let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", b64(&header), b64(&claims));
        let signature = self.key.sign(&SystemRandom::new(), message.as_bytes());
        let signature = signature.map(|signature| URL_SAFE_NO_PAD.encode(signature)).unwrap_or_default();
        format!("{message}.{signature}")
    }

    fn introspect(&mut self, request: &Request) -> Behaviour {
        if !Self::is_authentic(request) {
            return response(401, &json!({"error": "invalid_client"}));
        }
        self.introspections += 1;
        let form = parse(&String::from_utf8_lossy(&request.body));
        let token = form.get("token").map(String::as_str).unwrap_or_default();
        ok(self.introspected.get(token).unwrap_or(&json!({"active": false})))
    }

    /// A text that no other part of the provider has.
    fn text(&mut self, kind: &str) -> String {
        self.issued += 1;
        format!("{kind}-{}", self.issued)
    }
}

fn new_key() -> io::Result<EcdsaKeyPair> {
    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(io::Error::other)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Replaces fields of an object; null removes a field.
fn merge(object: &mut Value, changes: &Value) {
    let (Some(object), Some(changes)) = (object.as_object_mut(), changes.as_object()) else { return };
    for (name, value) in changes {
        match value {
            Value::Null => drop(object.remove(name)),
            value => drop(object.insert(name.clone(), value.clone())),
        }
    }
}

fn ok(body: &Value) -> Behaviour {
    response(200, body)
}

/// A response with this JSON.
pub fn response(status: u16, body: &Value) -> Behaviour {
    let body = body.to_string();
    let length = body.len();
    Behaviour::raw(format!(
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// The parameters of a query or a form.
pub fn parse(query: &str) -> HashMap<String, String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decode(name), decode(value))).collect()
}

fn decode(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                let digits = String::from_utf8_lossy(&digits).into_owned();
                out.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
            }
            byte => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
