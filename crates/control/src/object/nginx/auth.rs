//! Authentication by passwords and by external services.

use std::time::Duration;

use sluicegate_model::feature::StatusTime;
use sluicegate_model::feature::authentication::ext_auth::{CacheTime, ExtAuthMethod};
use sluicegate_model::value::{
    AnnotatedHeader, Entries, Number, Realm, Template, TemplatePart, Variable, syntax,
};

use super::Meaning::Sets;
use super::Row;
use super::value::Value;
use crate::object::{Kind, ObjectRef};

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `auth-type`.
    pub(crate) kind: Option<PasswordType>,
    /// `auth-secret`.
    pub(crate) secret: Option<ObjectRef>,
    /// `auth-secret-type: auth-map`.
    pub(crate) is_map: bool,
    /// `auth-realm`.
    pub(crate) realm: Option<Realm>,
    /// The service of annotations.
    pub(crate) service: Service,
    /// The service of the ConfigMap (`global-auth-*`).
    pub(crate) global: Service,
    /// `enable-global-auth`.
    pub(crate) without_global: bool,
    /// `no-auth-locations` of the ConfigMap.
    pub(crate) open_paths: Option<Box<[Box<str>]>>,
}

/// The type of Authorization headers with passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordType {
    Basic,
    Digest,
}

/// An external authorization service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    /// `auth-url`.
    pub(crate) url: Option<AuthUrl>,
    /// `auth-method`.
    pub(crate) method: Option<ExtAuthMethod>,
    /// `auth-signin`.
    pub(crate) sign_in: Option<Box<str>>,
    /// `auth-signin-redirect-param`.
    pub(crate) redirect_parameter: Option<Box<str>>,
    /// `auth-response-headers`.
    pub(crate) response_headers: Entries<AnnotatedHeader, 32, 0>,
    /// `auth-request-redirect`.
    pub(crate) request_redirect: Option<Template>,
    /// `auth-proxy-set-headers`.
    pub(crate) headers: Option<ObjectRef>,
    /// `auth-always-set-cookie`.
    pub(crate) always_sets_cookies: bool,
    /// `auth-cache-key`.
    pub(crate) cache_key: Option<Template>,
    /// `auth-cache-duration`.
    pub(crate) cache_times: Option<Entries<StatusTime, 64, 0>>,
}

/// The URL of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthUrl {
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The host and the port. The only variables are those of the requested host.
    pub(crate) authority: Template,
    /// The path and the query.
    pub(crate) target: Template,
}

impl AuthUrl {
    /// Parses a URL. Only the path and the query are texts with any variables: a host that a client could choose would make the
    /// gateway ask the server of an attacker.
    fn new(text: &str) -> Result<Self, String> {
        let fault =
            || format!("{text:?} is not a URL: write it as http://auth.default.svc.cluster.local/check");
        let (scheme, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => ("http", rest),
            (None, Some(rest)) => ("https", rest),
            (None, None) => return Err(fault()),
        };
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            return Err(fault());
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let target = match target {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        let parse = |text: &str| Template::new(text).map_err(|fault| fault.to_string());
        let url = Self { scheme, authority: parse(authority)?, target: parse(&target)? };
        url.at("host.test")?;
        Ok(url)
    }

    /// Whether the host of the URL depends on the host of the rule.
    pub(crate) fn needs_host(&self) -> bool {
        self.authority.as_text().is_none()
    }

    /// The URL without its target, for a rule of this host.
    pub(crate) fn at(&self, host: &str) -> Result<String, String> {
        let mut authority = String::new();
        for part in self.authority.parts() {
            authority.push_str(match part {
                TemplatePart::Text(text) => text,
                TemplatePart::Variable(
                    Variable::Host | Variable::HttpHost | Variable::BestHttpHost | Variable::ServerName,
                ) => host,
                TemplatePart::Variable(other) => {
                    return Err(format!("has ${other} in the host of the URL: write the host, or $host"));
                }
            });
        }
        let (name, port) = match authority.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
            _ => (&*authority, None),
        };
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        let is_host = name.starts_with('[') || syntax::dns_name_fault(&name.to_ascii_lowercase()).is_none();
        if !is_host || !port.is_none_or(is_port) {
            return Err(format!("{authority:?} is not a host with a port"));
        }
        Ok(format!("{}://{authority}", self.scheme))
    }
}

/// A text with variables.
fn template(value: &Value<'_>) -> Result<Template, String> {
    Template::new(value.text).map_err(|fault| fault.to_string())
}

fn method(value: &Value<'_>) -> Result<ExtAuthMethod, String> {
    value.word(&[
        ("GET", ExtAuthMethod::Get),
        ("HEAD", ExtAuthMethod::Head),
        ("POST", ExtAuthMethod::Post),
        ("PUT", ExtAuthMethod::Put),
        ("PATCH", ExtAuthMethod::Patch),
        ("DELETE", ExtAuthMethod::Delete),
        ("OPTIONS", ExtAuthMethod::Options),
    ])
}

/// The URL of a sign-in page: a URL or a path, as a text with variables.
fn sign_in(value: &Value<'_>) -> Result<Box<str>, String> {
    let is_url = ["http://", "https://", "/", "$"].iter().any(|start| value.text.starts_with(start));
    let is_graphic = value.text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_url || !is_graphic || value.text.starts_with("//") {
        return Err(format!("{:?} is not a URL: write it as https://login.example.com/start", value.text));
    }
    Template::new(value.text).map_err(|fault| fault.to_string())?;
    Ok(value.text.into())
}

fn redirect_parameter(value: &Value<'_>) -> Result<Box<str>, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    match !value.text.is_empty() && value.text.bytes().all(is_name) {
        true => Ok(value.text.into()),
        false => Err(format!("{:?} is not the name of a parameter", value.text)),
    }
}

/// Headers of the service's response. `Set-Cookie` goes to the client in any case.
fn response_headers(value: &Value<'_>) -> Result<Entries<AnnotatedHeader, 32, 0>, String> {
    let names = value.list().filter(|name| !name.eq_ignore_ascii_case("set-cookie"));
    let names = names.map(|name| match &*name.to_ascii_lowercase() {
        "x-forwarded-for" | "x-forwarded-host" | "x-forwarded-port" | "x-forwarded-proto"
        | "x-forwarded-scheme" | "x-real-ip" | "x-request-id" => {
            Err(format!("{name:?} is set by the gateway itself"))
        }
        _ => AnnotatedHeader::new(name),
    });
    let names = names.collect::<Result<Vec<_>, String>>()?;
    Entries::new(names).ok_or_else(|| "has more than 32 headers".to_owned())
}

/// Statuses and times such as `200 202 401 5m`, with commas between several.
fn cache_times(value: &Value<'_>) -> Result<Entries<StatusTime, 64, 0>, String> {
    let mut times = Vec::new();
    for entry in value.list() {
        let fault = || format!("{entry:?} has no statuses and a time: write 200 202 401 5m");
        let mut words: Vec<&str> = entry.split_whitespace().collect();
        let time = words.pop().and_then(duration).ok_or_else(fault)?;
        let longest = Duration::from_secs(24 * 3600);
        let time = CacheTime::new(time.min(longest)).ok_or_else(fault)?;
        let statuses = match words.is_empty() {
            true => vec![200],
            false if words == ["any"] => (200..=206).chain([401, 403]).collect(),
            false => {
                let status = |word: &&str| word.parse::<i64>().ok().filter(|_| word.len() == 3);
                words.iter().map(status).collect::<Option<Vec<i64>>>().ok_or_else(fault)?
            }
        };
        for status in statuses {
            times.push(StatusTime { status: Number::new(status).map_err(|fault| fault.to_string())?, time });
        }
    }
    Entries::new(times).ok_or_else(|| "has more than 64 statuses".to_owned())
}

/// A time of nginx: a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        "M" => 30 * 86_400_000,
        "y" => 365 * 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.saturating_mul(millis)))
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "auth-type",
        restricts: true,
        meaning: Sets(|settings, value| {
            let types = [("basic", PasswordType::Basic), ("digest", PasswordType::Digest)];
            settings.auth.kind = Some(value.word(&types)?);
            Ok(())
        }),
        sets: "Authentication by user name and password: `basic` or `digest`.",
        default: "",
    },
    Row {
        name: "auth-secret",
        restricts: true,
        meaning: Sets(|settings, value| {
            let secret = value.object(Kind::Secret)?;
            settings.references.push(secret.clone());
            settings.auth.secret = Some(secret);
            Ok(())
        }),
        sets: "The Secret with the users of `auth-type`.",
        default: "",
    },
    Row {
        name: "auth-secret-type",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.is_map = value.word(&[("auth-file", false), ("auth-map", true)])?;
            Ok(())
        }),
        sets: "`auth-file`: lines in `auth`. `auth-map`: each key is a user, with the hash as its value.",
        default: "`auth-file`",
    },
    Row {
        name: "auth-realm",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.realm = Some(Realm::new(value.text)?);
            Ok(())
        }),
        sets: "The realm that browsers show.",
        default: "`restricted`",
    },
    Row {
        name: "auth-url",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.url = Some(AuthUrl::new(value.text)?);
            Ok(())
        }),
        sets: "The service that allows (2xx) or denies (401, 403) requests. Its host may be `$host`, its path may have variables.",
        default: "",
    },
    Row {
        name: "auth-method",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.method = Some(method(value)?);
            Ok(())
        }),
        sets: "The method of requests to the service.",
        default: "`GET`",
    },
    Row {
        name: "auth-signin",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.sign_in = Some(sign_in(value)?);
            Ok(())
        }),
        sets: "The URL, with variables, that clients are redirected to instead of a 401.",
        default: "",
    },
    Row {
        name: "auth-signin-redirect-param",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.redirect_parameter = Some(redirect_parameter(value)?);
            Ok(())
        }),
        sets: "The parameter of that URL with the URL of the request.",
        default: "`rd`",
    },
    Row {
        name: "auth-response-headers",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.response_headers = response_headers(value)?;
            Ok(())
        }),
        sets: "Headers of the service's response, with commas, that endpoints receive.",
        default: "",
    },
    Row {
        name: "auth-request-redirect",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.request_redirect = Some(template(value)?);
            Ok(())
        }),
        sets: "`X-Auth-Request-Redirect` of requests to the service.",
        default: "`$request_uri`",
    },
    Row {
        name: "auth-proxy-set-headers",
        restricts: true,
        meaning: Sets(|settings, value| {
            let headers = value.object(Kind::ConfigMap)?;
            settings.references.push(headers.clone());
            settings.auth.service.headers = Some(headers);
            Ok(())
        }),
        sets: "The ConfigMap with headers of requests to the service. Values may have variables.",
        default: "",
    },
    Row {
        name: "auth-always-set-cookie",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.always_sets_cookies = value.switch()?;
            Ok(())
        }),
        sets: "Cookies of the service go to the client with each status, not only with 2xx and 3xx.",
        default: "`false`",
    },
    Row {
        name: "auth-cache-key",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.cache_key = Some(template(value)?);
            Ok(())
        }),
        sets: "Caches responses of the service by this text with variables.",
        default: "",
    },
    Row {
        name: "auth-cache-duration",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.service.cache_times = Some(cache_times(value)?);
            Ok(())
        }),
        sets: "The times of cached responses by status, such as `200 202 401 5m`.",
        default: "`200 202 401 5m`",
    },
    Row {
        name: "enable-global-auth",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.without_global = !value.switch()?;
            Ok(())
        }),
        sets: "`false`: the service of the ConfigMap (`global-auth-url`) does not apply.",
        default: "`true`",
    },
];

/// The keys of the ConfigMap that no annotation has.
pub(super) const KEYS: &[Row] = &[
    Row {
        name: "global-auth-url",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.url = Some(AuthUrl::new(value.text)?);
            Ok(())
        }),
        sets: "`auth-url` of Ingresses without the annotation.",
        default: "",
    },
    Row {
        name: "global-auth-method",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.method = Some(method(value)?);
            Ok(())
        }),
        sets: "The method of requests to `global-auth-url`.",
        default: "`GET`",
    },
    Row {
        name: "global-auth-signin",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.sign_in = Some(sign_in(value)?);
            Ok(())
        }),
        sets: "`auth-signin` of `global-auth-url`.",
        default: "",
    },
    Row {
        name: "global-auth-signin-redirect-param",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.redirect_parameter = Some(redirect_parameter(value)?);
            Ok(())
        }),
        sets: "`auth-signin-redirect-param` of `global-auth-url`.",
        default: "`rd`",
    },
    Row {
        name: "global-auth-response-headers",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.response_headers = response_headers(value)?;
            Ok(())
        }),
        sets: "`auth-response-headers` of `global-auth-url`.",
        default: "",
    },
    Row {
        name: "global-auth-request-redirect",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.request_redirect = Some(template(value)?);
            Ok(())
        }),
        sets: "`auth-request-redirect` of `global-auth-url`.",
        default: "",
    },
    Row {
        name: "global-auth-always-set-cookie",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.always_sets_cookies = value.switch()?;
            Ok(())
        }),
        sets: "`auth-always-set-cookie` of `global-auth-url`.",
        default: "`false`",
    },
    Row {
        name: "global-auth-cache-key",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.cache_key = Some(template(value)?);
            Ok(())
        }),
        sets: "`auth-cache-key` of `global-auth-url`.",
        default: "",
    },
    Row {
        name: "global-auth-cache-duration",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.global.cache_times = Some(cache_times(value)?);
            Ok(())
        }),
        sets: "`auth-cache-duration` of `global-auth-url`.",
        default: "`200 202 401 5m`",
    },
    Row {
        name: "no-auth-locations",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.auth.open_paths = Some(value.list().map(Into::into).collect());
            Ok(())
        }),
        sets: "The paths, with commas, of rules without authentication. A rule belongs to a path that its own path begins with.",
        default: "`/.well-known/acme-challenge`",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_of_an_auth_url_has_no_variables_that_a_client_chooses() {
        for (text, at) in [
            ("http://auth.default.svc:8080/check?a=$arg_a", Some("http://auth.default.svc:8080")),
            ("https://$host/oauth2/auth", Some("https://shop.test")),
            ("https://${host}:8443?x", Some("https://shop.test:8443")),
            ("https://auth.$host/", Some("https://auth.shop.test")),
            ("http://192.0.2.1/", Some("http://192.0.2.1")),
            ("http://[2001:db8::1]:80/", Some("http://[2001:db8::1]:80")),
            ("http://$arg_host/", None),
            ("http://$http_x_host/", None),
            ("http://$hostile/", None),
            ("http://user@auth/", None),
            ("http:///check", None),
            ("http://auth:0/", None),
            ("http://auth/;proxy_pass http://evil", None),
            ("http://auth/\n}", None),
            ("auth.default.svc/check", None),
            ("file:///etc/passwd", None),
            ("http://auth/$nosuch", None),
        ] {
            let found = AuthUrl::new(text).and_then(|url| url.at("shop.test")).ok();
            assert_eq!(found.as_deref(), at, "{text}");
        }
    }

    #[test]
    fn cache_durations_have_statuses_and_a_time_of_nginx() {
        let namespace = "shop".into();
        let read = |text| {
            let times = cache_times(&Value::within(text, &namespace)).ok()?;
            let entry = |time: &StatusTime| (time.status.get(), time.time.get().as_secs());
            Some(times.iter().map(entry).collect::<Vec<_>>())
        };
        assert_eq!(read("200 202 401 5m"), Some(vec![(200, 300), (202, 300), (401, 300)]));
        assert_eq!(read("200 1h, 401 30s"), Some(vec![(200, 3600), (401, 30)]));
        assert_eq!(read("10m"), Some(vec![(200, 600)]));
        assert_eq!(read("200 1y"), Some(vec![(200, 86_400)]));
        for text in ["200", "5m 200", "2000 5m", "200 5x", "999 5m"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
