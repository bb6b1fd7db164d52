//! Authentication by passwords and by external services.

use std::sync::Arc;

use sluicegate_model::HostPattern;
use sluicegate_model::feature::authentication::Require;
use sluicegate_model::feature::authentication::ext_auth::{CacheTime, ExtAuth};
use sluicegate_model::feature::headers::TemplateHeader;
use sluicegate_model::feature::{AuthRequest, AuthRequestCache, Authentication, Basic, Digest, StatusTime};
use sluicegate_model::policy::Security;
use sluicegate_model::value::secret::FromSecret;
use sluicegate_model::value::{AnnotatedHeader, Entries, Number, Realm, Span, Template, Url};

use super::{Context, Parts};
use crate::intent::Own;
use crate::merge::policy::service_upstream;
use crate::object::ObjectRef;
use crate::object::ingress::RulePath;
use crate::object::nginx::auth::{PasswordType, Service};
use crate::object::policy::htpasswd;

/// The annotation with the Secret of users.
const SECRET: &str = "auth-secret";

/// The annotation with the ConfigMap of headers for the service.
const HEADERS: &str = "auth-proxy-set-headers";

/// The paths of rules without authentication, without `no-auth-locations`.
const OPEN_PATH: &str = "/.well-known/acme-challenge";

/// The text that ingress-nginx adds to the URL of a sign-in page.
const RETURN_TO: &str = "$pass_access_scheme://$http_host$escaped_request_uri";

/// The timeout of the service: `proxy_read_timeout` of nginx.
const TIMEOUT_MILLIS: u64 = 60_000;

/// An annotation, and the rest of a sentence about its fault.
type Fault = (&'static str, String);

pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    match passwords(context) {
        Ok(None) => {}
        Ok(Some(authentication)) => parts.security.authentication = Some(authentication),
        Err((short, fault)) => {
            let cause = context.settings.auth.secret.clone().filter(|_| short == SECRET);
            context.close(parts, short, &fault, cause.as_ref());
        }
    }
    // A service whose host is the host of a rule follows with the rule.
    if service(context).is_some_and(|(service, _)| service.url.as_ref().is_some_and(|url| !url.needs_host()))
    {
        add_service(context, &mut parts.security, None);
    }
}

/// The parts of the rules of a host.
pub(super) fn of_host(context: &mut Context<'_, '_>, own: &Arc<Own>, host: &HostPattern) -> Arc<Own> {
    let needs_host =
        |(service, _): (&Service, bool)| service.url.as_ref().is_some_and(|url| url.needs_host());
    if !service(context).is_some_and(needs_host) {
        return own.clone();
    }
    let security = own.security.as_deref().cloned();
    let mut security = security.unwrap_or_else(|| Security::open(context.at.id()));
    add_service(context, &mut security, Some(host));
    Arc::new(Own { security: Some(Arc::new(security)), ..Own::clone(own) })
}

/// The parts of a path: ACME challenges need no authentication.
pub(super) fn of_path(context: &Context<'_, '_>, own: &Arc<Own>, path: &RulePath) -> Arc<Own> {
    let is_open = match &context.settings.auth.open_paths {
        Some(paths) => paths.iter().any(|open| path.written.starts_with(&**open)),
        None => path.written.starts_with(OPEN_PATH),
    };
    match &own.security {
        Some(security) if is_open && security.authentication.is_some() => {
            let security =
                Security { authentication: None, satisfies_any: false, ..Security::clone(security) };
            Arc::new(Own { security: Some(Arc::new(security)), ..Own::clone(own) })
        }
        _ => own.clone(),
    }
}

/// The service that decides about the requests, and whether the ConfigMap names it.
fn service<'c>(context: &'c Context<'_, '_>) -> Option<(&'c Service, bool)> {
    let settings = &context.settings.auth;
    if settings.service.url.is_some() {
        return Some((&settings.service, false));
    }
    let global = Some(&settings.global).filter(|global| global.url.is_some() && !settings.without_global);
    global.map(|global| (global, true))
}

/// Adds the service to the authentication of the rules of a host; `None` for the rules of every host.
fn add_service(context: &mut Context<'_, '_>, security: &mut Security, host: Option<&HostPattern>) {
    let Some((asked, is_global)) = service(context) else { return };
    match ext_auth(context, asked, host) {
        Ok(ext_auth) => {
            let authentication = security.authentication.get_or_insert_default();
            authentication.require = match security.satisfies_any {
                true => Require::Any,
                false => Require::All,
            };
            authentication.ext_auth = Some(Arc::new(ext_auth));
        }
        Err((short, fault)) => {
            let of_headers = asked.headers.clone().filter(|_| short == HEADERS);
            let cause = of_headers.or_else(|| context.options.configmap.clone().filter(|_| is_global));
            let short = if is_global { "auth-url" } else { short };
            let message = format!("{fault}; the routes respond with 503");
            match cause {
                Some(object) => context.fault_of(&object, short, message),
                None => context.fault(short, message),
            }
            security.refuses.get_or_insert_with(|| format!("{short}: {fault}").into());
        }
    }
}

fn ext_auth(
    context: &Context<'_, '_>,
    asked: &Service,
    host: Option<&HostPattern>,
) -> Result<ExtAuth, Fault> {
    let of_url = |fault| ("auth-url", fault);
    let Some(named) = &asked.url else { return Err(of_url("is missing".to_owned())) };
    let host = match host {
        None => "",
        Some(HostPattern::Exact(host)) => host,
        Some(pattern) => {
            let fault = format!(
                "needs a rule with a host, but a rule has {:?}: write the host of the URL",
                pattern.to_string()
            );
            return Err(of_url(fault));
        }
    };
    let origin = named.at(host).map_err(of_url)?;
    let fixed = named.target.as_text();
    let url = Url::new(&format!("{origin}{}", fixed.unwrap_or("/"))).map_err(of_url)?;
    let upstream = service_upstream(context.store, &url);
    let request = AuthRequest {
        target: fixed.is_none().then(|| named.target.clone()),
        sign_in: asked
            .sign_in
            .as_deref()
            .map(|page| sign_in(page, asked.redirect_parameter.as_deref()))
            .transpose()?,
        request_redirect: asked.request_redirect.clone(),
        headers: headers(context, asked.headers.as_ref())?,
        always_sets_cookies: asked.always_sets_cookies,
        tells_uri: asked.method.is_some(),
        cache: asked.cache_key.clone().map(|key| AuthRequestCache {
            key,
            times: asked.cache_times.clone().unwrap_or_else(default_times),
        }),
        response_headers: asked.response_headers.clone(),
    };
    Ok(ExtAuth {
        url,
        ca_certificate_ref: None,
        method: asked.method.unwrap_or_default(),
        timeout: Span::of_millis(TIMEOUT_MILLIS),
        request_headers: Entries::default(),
        response_headers: Entries::default(),
        sign_in: None,
        cache: None,
        upstream,
        auth_request: Some(request),
    })
}

/// The URL of a sign-in page, with the parameter that has the URL of the request. A URL with the parameter stays as it is.
fn sign_in(page: &str, parameter: Option<&str>) -> Result<Template, Fault> {
    let parameter = parameter.unwrap_or("rd");
    let text = match page.split_once('?') {
        None => format!("{page}?{parameter}={RETURN_TO}"),
        Some((_, "")) => format!("{page}{parameter}={RETURN_TO}"),
        Some((_, query)) => {
            let value = |pair: &str| pair.strip_prefix(parameter)?.strip_prefix('=').map(str::len);
            match query.split('&').filter_map(value).next() {
                Some(1..) => page.to_owned(),
                _ => format!("{page}&{parameter}={RETURN_TO}"),
            }
        }
    };
    Template::new(&text).map_err(|fault| ("auth-signin", fault.to_string()))
}

/// `200 202 401 5m`.
fn default_times() -> Entries<StatusTime, 64, 0> {
    let time = |status| StatusTime { status: Number::of(status), time: CacheTime::of_millis(300_000) };
    Entries::new([200, 202, 401].map(time).into()).unwrap_or_default()
}

/// The headers of a ConfigMap.
fn headers(
    context: &Context<'_, '_>,
    named: Option<&ObjectRef>,
) -> Result<Entries<TemplateHeader, 64, 0>, Fault> {
    let Some(named) = named else { return Ok(Entries::default()) };
    let Some((configmap, _)) = context.store.configmap(named) else {
        return Err((HEADERS, format!("{named} does not exist")));
    };
    let header = |(name, value): (&str, &[u8])| {
        let fault = |fault: String| (HEADERS, format!("{named}: data[{name}] {fault}"));
        let text = std::str::from_utf8(value).map_err(|_| fault("is not UTF-8".to_owned()))?;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !is_plain {
            return Err(fault("is not the name of a header".to_owned()));
        }
        let value =
            Template::new(text.trim_end_matches(['\r', '\n'])).map_err(|error| fault(error.to_string()))?;
        Ok(TemplateHeader { name: AnnotatedHeader::new(name).map_err(fault)?, value })
    };
    let headers = configmap.data.values().map(header).collect::<Result<Vec<_>, Fault>>()?;
    Entries::new(headers).ok_or_else(|| (HEADERS, format!("{named} has more than 64 headers")))
}

/// Authentication by user name and password.
fn passwords(context: &mut Context<'_, '_>) -> Result<Option<Authentication>, Fault> {
    let settings = &context.settings.auth;
    let Some(kind) = settings.kind else { return Ok(None) };
    let Some(secret) = settings.secret.clone() else {
        return Err(("auth-type", "needs auth-secret: name the Secret with the users".to_owned()));
    };
    let (is_map, realm) = (settings.is_map, settings.realm.clone().unwrap_or_default());
    let lines = lines(context, &secret, is_map)?;
    let mut authentication = Authentication { require: Require::All, ..Authentication::default() };
    if context.settings.access.satisfies_any {
        authentication.require = Require::Any;
    }
    match kind {
        PasswordType::Basic => {
            let passwords = htpasswd::parse(&lines);
            for (line, fault) in &passwords.faults {
                context.warn(SECRET, format!("{secret}: line {line} {fault}; the user cannot sign in"));
            }
            if passwords.users.is_empty() {
                return Err((SECRET, format!("{secret} has no user with a supported hash")));
            }
            let secret_ref = FromSecret::Value(passwords.users);
            authentication.basic = Some(Basic { secret_ref, realm, forward: false, without_charset: true });
        }
        PasswordType::Digest => {
            let users = digest_users(&lines, &realm);
            if users.is_empty() {
                let fault = format!("{secret} has no line user:realm:hash for the realm {:?}", &*realm);
                return Err((SECRET, fault));
            }
            authentication.digest = Some(Digest { users: FromSecret::Value(users), realm, forward: false });
        }
    }
    Ok(Some(authentication))
}

/// The lines of a Secret with users.
fn lines(context: &Context<'_, '_>, secret: &ObjectRef, is_map: bool) -> Result<Vec<u8>, Fault> {
    let fault = |fault: String| (SECRET, fault);
    let Some(data) = context.store.data(secret) else {
        return Err(fault(match context.store.knows(secret) {
            true => format!("{secret} cannot be read"),
            false => format!("{secret} does not exist"),
        }));
    };
    if is_map {
        let users =
            data.values().map(|(user, hash)| [user.as_bytes(), b":", hash.trim_ascii(), b"\n"].concat());
        return Ok(users.collect::<Vec<_>>().concat());
    }
    let lines = data.get("auth").ok_or_else(|| fault(format!("{secret} has no data[auth]")))?;
    Ok(lines.to_vec())
}

/// The users of a realm, from lines `user:realm:hash`. The first line of a user with a hash of one algorithm counts.
fn digest_users(lines: &[u8], realm: &Realm) -> Vec<(Box<str>, Box<str>)> {
    let mut users: Vec<(Box<str>, Box<str>)> = Vec::new();
    for line in String::from_utf8_lossy(lines).lines() {
        let mut parts = line.trim().splitn(3, ':');
        let (Some(user), Some(of), Some(hash)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let hash = hash.to_ascii_lowercase();
        let is_hash = matches!(hash.len(), 32 | 64) && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_known = |(known, other): &(Box<str>, Box<str>)| **known == *user && other.len() == hash.len();
        if of == &**realm
            && is_hash
            && !user.is_empty()
            && !user.starts_with('#')
            && !users.iter().any(is_known)
        {
            users.push((user.into(), hash.into()));
        }
    }
    users
}
