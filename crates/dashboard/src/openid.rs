//! The login by OpenID Connect: its section in the file of users, and its sessions.
//!
//! The data plane's relying party asks the provider ([`sluicegate_proxy::openid`]). A session is a cookie with the name and the groups
//! of the user, encrypted with a key that follows from the client secret. So every replica with the same file accepts the session,
//! and a new secret ends all sessions. Each request computes the rights from the groups, so a changed rule applies at once.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluicegate_model::feature::authentication::oidc::ClientAuthentication;
use sluicegate_model::value::secret::{CaCertificates, FromSecret, KeyBytes};
use sluicegate_model::value::{ClaimName, ClientId, Entries, Scope, Span, Url};
use sluicegate_proxy::openid::{
    Answer, Attempt, Grant, LoginFault, Metadata, Parameters, PublishedPlaces, Registration, RelyingParty,
    Seal,
};
use tokio::sync::Semaphore;

use crate::access::SiteKind;
use crate::users::{Fault, NAME_MAX, Name, Role, TOKEN_MIN, User};

/// The path to which the provider redirects browsers.
pub(crate) const CALLBACK: &str = "/oauth2/callback";

/// The path that begins a login.
pub(crate) const LOGIN: &str = "/oauth2/login";

/// The longest text of a session in a cookie, in bytes. Browsers accept cookies of 4,096 bytes with the name and the attributes (RFC
/// 6265, 6.1).
const SESSION_MAX: usize = 3800;

/// The most groups of a session.
const GROUPS_MAX: usize = 1000;

/// The logins that ask the provider at once.
const LOGINS_MAX: usize = 8;

/// The clock difference that `exp` and `iat` of ID tokens tolerate, and the timeout of one request to the provider, as the
/// defaults of policies.
const CLOCK_SKEW: Duration = Duration::from_secs(60);
const TIMEOUT: Span<100, 60_000> = Span::of_millis(5000);

/// The section `openIdConnect` of a file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Section {
    issuer: String,
    ca_certificates: Option<String>,
    client_id: String,
    client_secret: Option<String>,
    #[serde(default)]
    client_authentication: ClientAuthentication,
    session_secret: Option<String>,
    public_url: String,
    name: Option<String>,
    #[serde(default)]
    scopes: Vec<String>,
    #[serde(default = "sub")]
    user_claim: String,
    #[serde(default = "groups")]
    groups_claim: String,
    #[serde(default)]
    roles: Vec<WrittenRole>,
    #[serde(default)]
    consumers: Vec<WrittenConsumers>,
}

/// A rule that gives a role. A separate type for each rule, because a flattened type cannot reject unknown fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRole {
    group: Option<String>,
    user: Option<String>,
    role: Role,
}

/// A rule that gives Consumers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenConsumers {
    group: Option<String>,
    user: Option<String>,
    consumers: Vec<Name>,
}

fn sub() -> String {
    "sub".to_owned()
}

fn groups() -> String {
    "groups".to_owned()
}

/// The users that a rule is for.
#[derive(Debug)]
enum Who {
    Group(String),
    User(String),
}

/// The rules that give rights to users of the provider.
struct Rules {
    roles: Vec<(Who, Role)>,
    consumers: Vec<(Who, Vec<Name>)>,
}

/// The login by OpenID Connect at a site.
pub(crate) struct OpenId {
    party: RelyingParty,
    /// The name of the provider, for the button.
    name: String,
    /// The origin of the site, as in `https://dashboard.example.com`.
    origin: String,
    site: SiteKind,
    user_claim: ClaimName,
    groups_claim: ClaimName,
    rules: Rules,
    sessions: Seal,
    attempts: Seal,
    /// The places for logins that ask the provider at once.
    places: Semaphore,
}

/// The content of a session cookie.
#[derive(Serialize, Deserialize)]
struct Session {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "g")]
    groups: Vec<String>,
    /// The end, in seconds since 1970.
    #[serde(rename = "e")]
    end: u64,
}

/// A user who logged in.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(crate) user: Arc<User>,
    /// The sealed session.
    pub(crate) session: String,
    /// The groups that the cookie has no room for.
    pub(crate) dropped: usize,
}

/// The reason why a login gives no session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoLogin {
    Fault(LoginFault),
    /// The ID token has no usable name.
    Nameless,
    /// No rule gives this user a role.
    NoRole(String),
    /// Too many logins ask the provider at once.
    Busy,
}

/// The rights of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Rights {
    Of(Arc<User>),
    /// No rule gives this user a role.
    NoRole(String),
}

impl OpenId {
    /// # Errors
    /// The fault of a field. It shows no secret.
    pub(crate) fn new(section: Section, site: SiteKind, places: &PublishedPlaces) -> Result<Self, Fault> {
        let issuer = Url::new(&section.issuer).map_err(|fault| at("issuer", fault))?;
        if issuer.starts_with("http:") {
            tracing::warn!(
                issuer = &*issuer,
                "openIdConnect.issuer uses http, so that an attacker in the network can log in to the {} as any user: write https",
                site.name()
            );
        }
        let origin = origin(&section.public_url).map_err(|fault| at("publicUrl", fault))?;
        let secret = section.secret()?;
        let scope = |scope: &String| Scope::new(scope).map_err(|fault| at("scopes", fault));
        let scopes = section.scopes.iter().map(scope).collect::<Result<Vec<_>, _>>()?;
        let claim = |field, name: &str| ClaimName::new(name).map_err(|fault| at(field, fault));
        let (user_claim, groups_claim) =
            (claim("userClaim", &section.user_claim)?, claim("groupsClaim", &section.groups_claim)?);
        let name = section.name.clone().unwrap_or_else(|| host(&issuer));
        if name.is_empty() || name.len() > NAME_MAX || name.contains(char::is_control) {
            return Err(at("name", format!("is no name: write 1 to {NAME_MAX} bytes in one line")));
        }
        let registration = Registration {
            endpoints: None,
            authorities: section.authorities()?.map(FromSecret::Value),
            client_id: ClientId::new(&section.client_id).map_err(|fault| at("clientId", fault))?,
            client_secret: section.client_secret.as_deref().and_then(|of| KeyBytes::new(of.as_bytes())),
            client_authentication: section.client_authentication,
            scopes: Entries::new(scopes)
                .ok_or_else(|| at("scopes", "has more than 32 entries".to_owned()))?,
            parameters: Entries::default(),
            clock_skew: CLOCK_SKEW,
            timeout: TIMEOUT,
            issuer,
        };
        let purpose = |of: &str| format!("{} {of}", site.name());
        let seal = |of: &str| {
            let unusable =
                || Fault::new("openIdConnect", "has a secret that cannot be used: write another secret");
            Seal::new([secret.as_bytes()], &purpose(of)).ok_or_else(unusable)
        };
        let (sessions, attempts) = (seal("session")?, seal("login")?);
        let rules = section.rules()?;
        if site == SiteKind::Dashboard && rules.roles.is_empty() {
            let fault = "is empty, so that no user of the provider has a role: write roles: [{group: GROUP, role: viewer}]";
            return Err(at("roles", fault.to_owned()));
        }
        let party = RelyingParty::new(registration, places).map_err(|fault| at("issuer", fault))?;
        let places = Semaphore::new(LOGINS_MAX);
        Ok(Self { party, name, origin, site, user_claim, groups_claim, rules, sessions, attempts, places })
    }

    /// The name of the provider.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The URL that begins a login. The cookie of the login must be of the host to which the provider redirects the browser.
    pub(crate) fn login_url(&self) -> String {
        format!("{}{LOGIN}", self.origin)
    }

    /// The origin of the site.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    /// Whether browsers use the site over HTTPS.
    pub(crate) fn is_https(&self) -> bool {
        self.origin.starts_with("https:")
    }

    /// Whether a request reached the site by its public URL.
    pub(crate) fn is_at(&self, authority: &str) -> bool {
        self.origin.split_once("://").is_some_and(|(_, own)| own.eq_ignore_ascii_case(authority))
    }

    /// The configuration of the provider.
    pub(crate) async fn provider(&self) -> Option<Arc<Metadata>> {
        self.party.metadata().await
    }

    /// Begins a login that returns to a path: the URL of the provider, and the text for the cookie of the login.
    pub(crate) fn begin(&self, metadata: &Metadata, target: &str) -> Option<(Vec<u8>, String)> {
        let attempt = Attempt::new(target.as_bytes().to_vec())?;
        let sealed = self.attempts.seal(&self.context(), &attempt.to_text())?;
        Some((self.party.login_url(metadata, &attempt, self.redirect_uri().as_bytes()), sealed))
    }

    /// Reads the answer of the provider to the login of this cookie.
    pub(crate) fn answer(&self, sealed: Option<&str>, query: &str) -> Result<Answer, LoginFault> {
        let opened = sealed.and_then(|sealed| self.attempts.open(&self.context(), sealed.as_bytes()));
        let attempt = opened.and_then(|text| Attempt::parse(&text)).ok_or(LoginFault::State)?;
        attempt.answered(Parameters::of(query.as_bytes()), self.redirect_uri().into_bytes())
    }

    /// Exchanges the code of an answer for a session that ends at this time, in seconds since 1970. The session keeps groups that
    /// `is_named` finds before other groups.
    pub(crate) async fn complete(
        &self,
        answer: &Answer,
        end: u64,
        is_named: impl Fn(&str) -> bool,
    ) -> Result<LoggedIn, NoLogin> {
        let _place = self.places.try_acquire().map_err(|_| NoLogin::Busy)?;
        let grant = self.party.redeem(answer).await.map_err(NoLogin::Fault)?;
        let (name, groups) = self.identity(&grant).ok_or(NoLogin::Nameless)?;
        let (session, dropped) = self.sealed(name, groups, end, is_named).ok_or(NoLogin::Nameless)?;
        match self.rights(&session, 0) {
            Some(Rights::Of(user)) => Ok(LoggedIn { user, session, dropped }),
            Some(Rights::NoRole(name)) => Err(NoLogin::NoRole(name)),
            None => Err(NoLogin::Nameless),
        }
    }

    /// The name and the groups in an ID token. Groups are a list of texts, or one text.
    fn identity(&self, grant: &Grant) -> Option<(String, Vec<String>)> {
        let name = grant.claim(&self.user_claim)?.as_str()?.to_owned();
        if name.is_empty() || name.len() > NAME_MAX || name.contains(char::is_control) {
            return None;
        }
        let groups = match grant.claim(&self.groups_claim) {
            Some(Value::Array(groups)) => {
                groups.iter().filter_map(Value::as_str).map(str::to_owned).collect()
            }
            Some(Value::String(group)) => vec![group.clone()],
            _ => Vec::new(),
        };
        Some((name, groups))
    }

    /// A sealed session with as many groups as fit, and the number of groups that do not fit.
    pub(crate) fn sealed(
        &self,
        name: String,
        mut groups: Vec<String>,
        end: u64,
        is_named: impl Fn(&str) -> bool,
    ) -> Option<(String, usize)> {
        let all = groups.len();
        groups.sort_by_cached_key(|group| !(self.rules.names(group) || is_named(group)));
        groups.truncate(GROUPS_MAX);
        let mut session = Session { name, groups, end };
        loop {
            let text = serde_json::to_vec(&session).ok()?;
            let sealed = self.sessions.seal(&self.context(), &text)?;
            if sealed.len() <= SESSION_MAX {
                let dropped = all - session.groups.len();
                return Some((sealed, dropped));
            }
            // Half of the surplus in each step: the lengths of groups differ.
            let left = session.groups.len();
            let surplus = left - left * SESSION_MAX / sealed.len();
            session.groups.truncate(left.checked_sub(surplus.max(1))?);
        }
    }

    /// The rights of a session cookie at this time, in seconds since 1970. `None`: the cookie is invalid, or has ended.
    pub(crate) fn rights(&self, sealed: &str, now: u64) -> Option<Rights> {
        let opened = self.sessions.open(&self.context(), sealed.as_bytes())?;
        let session: Session = serde_json::from_slice(&opened).ok()?;
        if now >= session.end {
            return None;
        }
        let Session { name, groups, .. } = session;
        // Every user may use the portal.
        let least = (self.site == SiteKind::Portal).then_some(Role::Viewer);
        Some(match self.rules.role(&name, &groups).or(least) {
            Some(role) => {
                let consumers = self.rules.consumers(&name, &groups);
                Rights::Of(User { name, role, groups, consumers, is_of_provider: true }.into())
            }
            None => Rights::NoRole(name),
        })
    }

    /// The URL that ends the session at the provider. `None` if the provider is unavailable, or has no such endpoint. The gateway
    /// sends no ID token, because a URL is in logs and in the history of browsers.
    pub(crate) async fn logout_url(&self) -> Option<String> {
        let metadata = self.provider().await?;
        let back = format!("{}/", self.origin);
        String::from_utf8(self.party.logout_url(&metadata, None, back.as_bytes())?).ok()
    }

    fn redirect_uri(&self) -> String {
        format!("{}{CALLBACK}", self.origin)
    }

    /// The authenticated context of cookies.
    fn context(&self) -> Vec<u8> {
        let Registration { issuer, client_id, .. } = self.party.registration();
        let (site, user, groups) = (self.site.name(), &self.user_claim, &self.groups_claim);
        format!("{site}\n{issuer}\n{client_id}\n{user}\n{groups}").into_bytes()
    }
}

impl Section {
    /// The secret from which the keys of the cookies follow.
    fn secret(&self) -> Result<&str, Fault> {
        let (field, secret) = match (&self.client_secret, &self.session_secret) {
            (Some(secret), None) => ("clientSecret", secret),
            (None, Some(secret)) => ("sessionSecret", secret),
            (Some(_), Some(_)) => {
                return Err(at("sessionSecret", "is only for a client without clientSecret: remove it"));
            }
            (None, None) => {
                let said = "needs clientSecret, or sessionSecret for a client without a secret";
                return Err(Fault::new("openIdConnect", said));
            }
        };
        match secret.len() {
            length if length < TOKEN_MIN => Err(at(
                field,
                format!(
                    "has {length} bytes: use at least {TOKEN_MIN} bytes, because the keys of the sessions follow from it"
                ),
            )),
            _ => Ok(secret),
        }
    }

    fn authorities(&self) -> Result<Option<CaCertificates>, Fault> {
        let Some(text) = &self.ca_certificates else { return Ok(None) };
        let certificates = CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>();
        let certificates = certificates.ok().and_then(CaCertificates::new);
        certificates.map(Some).ok_or_else(|| {
            at("caCertificates", "has no certificates in PEM: write the text of a file of certificates")
        })
    }

    fn rules(self) -> Result<Rules, Fault> {
        let roles = self.roles.into_iter().enumerate().map(|(index, WrittenRole { group, user, role })| {
            Ok((Who::of(group, user, "roles", index)?, role))
        });
        let consumers = self.consumers.into_iter().enumerate();
        let consumers = consumers.map(|(index, WrittenConsumers { group, user, consumers })| {
            Ok((Who::of(group, user, "consumers", index)?, consumers))
        });
        Ok(Rules {
            roles: roles.collect::<Result<_, Fault>>()?,
            consumers: consumers.collect::<Result<_, Fault>>()?,
        })
    }
}

impl Rules {
    /// The Consumers of a user, each once.
    fn consumers(&self, name: &str, groups: &[String]) -> Vec<Name> {
        let rules = self.consumers.iter().filter(|(who, _)| who.is(name, groups));
        let mut seen = HashSet::new();
        rules.flat_map(|(_, consumers)| consumers).filter(|of| seen.insert(*of)).cloned().collect()
    }

    /// The highest role of a user.
    fn role(&self, name: &str, groups: &[String]) -> Option<Role> {
        self.roles.iter().filter(|(who, _)| who.is(name, groups)).map(|(_, role)| *role).max()
    }

    /// Whether a rule names a group.
    fn names(&self, group: &str) -> bool {
        let is_it = |who: &Who| matches!(who, Who::Group(named) if named == group);
        self.roles.iter().any(|(who, _)| is_it(who)) || self.consumers.iter().any(|(who, _)| is_it(who))
    }
}

impl Who {
    fn of(group: Option<String>, user: Option<String>, field: &str, index: usize) -> Result<Self, Fault> {
        match (group, user) {
            (Some(group), None) if !group.is_empty() => Ok(Self::Group(group)),
            (None, Some(user)) if !user.is_empty() => Ok(Self::User(user)),
            _ => {
                Err(at(&format!("{field}[{index}]"), "has no group and no user, or both: write one of them"))
            }
        }
    }

    fn is(&self, name: &str, groups: &[String]) -> bool {
        match self {
            Self::Group(group) => groups.contains(group),
            Self::User(user) => user == name,
        }
    }
}

fn at(field: &str, said: impl Into<String>) -> Fault {
    Fault::new(format!("openIdConnect.{field}"), said)
}

/// The origin of a public URL.
fn origin(url: &str) -> Result<String, String> {
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    let parsed = url.parse::<Uri>().ok().filter(|_| is_plain);
    let parts = parsed.as_ref().and_then(|url| url.scheme_str().zip(url.authority()));
    let (scheme, authority) = parts.ok_or_else(|| "is no URL: write https://HOST".to_owned())?;
    let target = parsed.as_ref().and_then(Uri::path_and_query).map_or("/", |target| target.as_str());
    if target != "/" || authority.as_str().contains('@') {
        return Err("has a path, a query or a user: write only https://HOST, because the site needs a host of its own".to_owned());
    }
    let host = authority.host();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    let is_local =
        host == "localhost" || host.ends_with(".localhost") || address.is_ok_and(|of| of.is_loopback());
    match scheme {
        "https" => {}
        "http" if is_local => {}
        "http" => {
            return Err("uses http, so that others can read the sessions: write https://HOST".to_owned());
        }
        _ => return Err("is no URL: write https://HOST".to_owned()),
    }
    Ok(format!("{scheme}://{}", authority.as_str().to_ascii_lowercase()))
}

/// The host of an issuer, for the button.
fn host(issuer: &Url) -> String {
    let url = issuer.parse::<Uri>().ok();
    url.and_then(|url| url.host().map(str::to_owned)).unwrap_or_else(|| "OpenID Connect".to_owned())
}

/// Secrets are not shown.
impl fmt::Debug for OpenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenId")
            .field("party", &self.party)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
