//! The meaning of directives.

use std::collections::HashMap;
use std::time::Duration;

use sluicegate_model::feature::returns::{Condition, Test};
use sluicegate_model::feature::{ResponseHeader, ResponseHeaderMode, TargetRewrite, TemplateHeader};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{AnnotatedHeader, Network, Size, Template, Timeout, Variable};

use super::super::value::Value;
use super::syntax::{self, Directive, SyntaxError};
use super::{Response, Snippet};

/// Directives whose work the gateway does in another way, so that they need no setting.
const HARMLESS: &[&str] = &[
    "chunked_transfer_encoding",
    "client_body_buffer_size",
    "client_header_buffer_size",
    "keepalive_requests",
    "keepalive_timeout",
    "large_client_header_buffers",
    "proxy_buffer_size",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_busy_buffers_size",
    "proxy_http_version",
    "proxy_max_temp_file_size",
    "proxy_pass_header",
    "proxy_request_buffering",
    "proxy_temp_file_write_size",
    "send_timeout",
    "sendfile",
    "tcp_nodelay",
    "tcp_nopush",
];

/// Directives without an effect whose absence opens nothing, and what to write instead.
const IGNORED: &[(&str, &str)] = &[
    ("access_log", "use the annotation enable-access-log"),
    ("charset", "let the Service state the charset"),
    ("error_log", "use the log of the gateway"),
    ("etag", "let the Service set ETag"),
    ("gzip", "use the setting for compression"),
    ("gzip_comp_level", "use the setting for compression"),
    ("gzip_min_length", "use the setting for compression"),
    ("gzip_proxied", "use the setting for compression"),
    ("gzip_types", "use the setting for compression"),
    ("gzip_vary", "use the setting for compression"),
    ("log_not_found", "use the log of the gateway"),
    ("rewrite_log", "use the log of the gateway"),
];

/// Known directives whose absence opens nothing.
const OPEN: &[&str] = &[
    "add_header",
    "expires",
    "more_set_headers",
    "proxy_connect_timeout",
    "proxy_read_timeout",
    "proxy_send_timeout",
];

/// The maximum number of variables of a snippet.
const VALUES_MAX: usize = 64;

/// Reads a snippet. The error names each faulty directive that may restrict access, by its line.
pub(super) fn read(text: &str, is_server: bool) -> Result<Snippet, String> {
    let directives = syntax::parse(text)
        .map_err(|SyntaxError { line, message }| format!("has a syntax error in line {line}: {message}"))?;
    let mut reader = Reader { is_server, ..Reader::default() };
    let mut closing = Vec::new();
    for directive in &directives {
        let Directive { line, name, .. } = directive;
        if HARMLESS.contains(&&**name) {
            continue;
        }
        if let Some((_, instead)) = IGNORED.iter().find(|(ignored, _)| ignored == name) {
            reader.snippet.faults.push(format!("line {line}: {name} has no effect: {instead}"));
            continue;
        }
        if let Err(fault) = reader.read(directive) {
            let fault = format!("line {line}: {name} {fault}");
            match OPEN.contains(&&**name) {
                true => reader.snippet.faults.push(fault),
                false => closing.push(fault),
            }
        }
    }
    match reader.access.lists() {
        Ok((allow, deny)) => (reader.snippet.allow, reader.snippet.deny) = (allow, deny),
        Err(fault) => closing.push(fault),
    }
    if closing.is_empty() { Ok(reader.snippet) } else { Err(closing.join("; ")) }
}

#[derive(Default)]
struct Reader {
    is_server: bool,
    snippet: Snippet,
    /// The variables of `set`.
    values: HashMap<String, Template>,
    access: Access,
}

type Outcome = Result<(), String>;

impl Reader {
    fn read(&mut self, directive: &Directive) -> Outcome {
        let Directive { name, words, block, .. } = directive;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(block) = block {
            return match &**name {
                "if" => self.conditional(condition(self, &words)?, block),
                "limit_except" => self.limit_except(&words, block),
                "location" if self.is_server => self.location(&words, block),
                _ => Err(unsupported(name)),
            };
        }
        match (&**name, &words[..]) {
            ("set", [variable, value]) => self.set(variable, value),
            ("return", _) => self.response(&words, Vec::new()),
            ("rewrite", [pattern, target, flags @ ..]) => self.rewrite(pattern, target, flags, Vec::new()),
            ("break", []) => Ok(()),
            ("add_header", [name, value]) => self.add(name, value, ResponseHeaderMode::Add),
            ("add_header", [name, value, "always"]) => self.add(name, value, ResponseHeaderMode::AddAlways),
            ("more_set_headers" | "more_clear_headers", [_, ..]) => words.iter().try_for_each(|line| {
                let (name, value) = header_line(line)?;
                self.add(name, value, ResponseHeaderMode::Set)
            }),
            ("proxy_hide_header", [name]) => self.add(name, "", ResponseHeaderMode::Set),
            ("expires", [time]) => self.expires(time),
            ("proxy_set_header" | "grpc_set_header", [name, value]) => self.request_header(name, value),
            ("more_set_input_headers" | "more_clear_input_headers", [_, ..]) => {
                words.iter().try_for_each(|line| {
                    let (name, value) = header_line(line)?;
                    self.request_header(name, value)
                })
            }
            ("client_max_body_size", [size]) => {
                let namespace = "".into();
                let size = Value::within(size, &namespace).size()?;
                self.snippet.body_size = Some(Size::of(size));
                Ok(())
            }
            ("proxy_connect_timeout", [time]) => set_timeout(&mut self.snippet.connect_timeout, time),
            ("proxy_read_timeout", [time]) => set_timeout(&mut self.snippet.read_timeout, time),
            ("proxy_send_timeout", [time]) => set_timeout(&mut self.snippet.send_timeout, time),
            ("allow", [network]) => self.access.add(network, true),
            ("deny", [network]) => self.access.add(network, false),
            (
                "set"
                | "rewrite"
                | "break"
                | "add_header"
                | "more_set_headers"
                | "more_clear_headers"
                | "proxy_hide_header"
                | "expires"
                | "proxy_set_header"
                | "grpc_set_header"
                | "more_set_input_headers"
                | "more_clear_input_headers"
                | "client_max_body_size"
                | "proxy_connect_timeout"
                | "proxy_read_timeout"
                | "proxy_send_timeout"
                | "allow"
                | "deny",
                _,
            ) => Err("has another number of words than in nginx".to_owned()),
            _ => Err(unsupported(name)),
        }
    }

    fn template(&self, text: &str) -> Result<Template, String> {
        Template::with(text, |name| self.values.get(name)).map_err(|fault| format!("{text:?} {fault}"))
    }

    fn set(&mut self, variable: &str, value: &str) -> Outcome {
        let name = variable.strip_prefix('$').unwrap_or_default().to_ascii_lowercase();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!("{variable:?} is not a variable: write $name"));
        }
        if Variable::named(&name).is_some() {
            return Err(format!("${name} is a variable of nginx, which the gateway does not change"));
        }
        if self.values.len() == VALUES_MAX {
            return Err(format!("more than {VALUES_MAX} variables are set"));
        }
        let value = self.template(value)?;
        self.values.insert(name, value);
        Ok(())
    }

    /// Adds the response of `return`.
    fn response(&mut self, words: &[&str], conditions: Vec<Condition>) -> Outcome {
        if !self.snippet.rewrites.is_empty() {
            return Err("is behind a rewrite: write it before the rewrite".to_owned());
        }
        let (status, text) = match words {
            [url] if !url.bytes().all(|byte| byte.is_ascii_digit()) => (302, Some(*url)),
            [status] => (status_of(status)?, None),
            [status, text] => (status_of(status)?, Some(*text)),
            _ => return Err("needs a status, a URL, or both".to_owned()),
        };
        let text = text.map(|text| self.template(text)).transpose()?;
        self.snippet.responses.push(Response { conditions, status, text });
        Ok(())
    }

    fn rewrite(
        &mut self,
        pattern: &str,
        target: &str,
        flags: &[&str],
        conditions: Vec<Condition>,
    ) -> Outcome {
        let expression = regex(pattern, false)?;
        let is_url = ["http://", "https://", "$scheme"].iter().any(|start| target.starts_with(start));
        let target = self.template(target)?;
        let status = match flags {
            ["permanent"] => 301,
            ["redirect"] => 302,
            _ if is_url => 302,
            ["break"] if self.is_server => {
                return Err(
                    "changes the path for all Ingresses of the host: write it in configuration-snippet"
                        .to_owned(),
                );
            }
            ["break"] if !conditions.is_empty() => {
                return Err("is in an if: write the condition into the expression".to_owned());
            }
            ["break"] => {
                let rewrite = TargetRewrite { pattern: expression, target, continues: false };
                self.snippet.rewrites.push(rewrite);
                return Ok(());
            }
            _ => return Err("selects another location: write break behind the new path".to_owned()),
        };
        if !self.snippet.rewrites.is_empty() {
            return Err("is behind a rewrite: write it before the rewrite".to_owned());
        }
        let matched =
            Condition { subject: self.template("$uri")?, test: Test::Matches(expression), is_negated: false };
        // The query of the request follows the query of the target, unless the target ends with a question mark.
        let mut urls = Vec::new();
        match (target.strip_end('?'), target.split_at('?').1) {
            (Some(url), _) => urls.push((url, None)),
            (None, None) => urls.push((append(&target, "$is_args$args")?, None)),
            (None, Some(_)) => {
                urls.push((append(&target, "&$args")?, Some(Test::Matches(regex(".", false)?))));
                urls.push((target, None));
            }
        }
        for (url, query) in urls {
            let mut conditions = conditions.clone();
            if let Some(test) = query {
                conditions.push(Condition { subject: self.template("$args")?, test, is_negated: false });
            }
            // Last, so that the captures are those of the path.
            conditions.push(matched.clone());
            self.snippet.responses.push(Response { conditions, status, text: Some(url) });
        }
        Ok(())
    }

    /// The directives in an `if`.
    fn conditional(&mut self, condition: Condition, block: &[Directive]) -> Outcome {
        for Directive { line, name, words, block } in block {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let conditions = vec![condition.clone()];
            match (&**name, &words[..]) {
                _ if block.is_some() => {
                    return Err(format!("has {name} in line {line}, which is not supported there"));
                }
                ("return", _) => self.response(&words, conditions)?,
                ("rewrite", [pattern, target, flags @ ..]) => {
                    self.rewrite(pattern, target, flags, conditions)?;
                }
                ("break", []) => {}
                _ => {
                    return Err(format!(
                        "has {name} in line {line}: only return and rewrite are supported there"
                    ));
                }
            }
        }
        Ok(())
    }

    fn limit_except(&mut self, methods: &[&str], block: &[Directive]) -> Outcome {
        if !denies_all(block) {
            return Err("is only supported with deny all".to_owned());
        }
        if methods.is_empty()
            || !methods.iter().all(|method| method.bytes().all(|byte| byte.is_ascii_uppercase()))
        {
            return Err("needs names of methods".to_owned());
        }
        // GET includes HEAD.
        let head = if methods.contains(&"GET") { "|HEAD" } else { "" };
        let test = Test::Matches(regex(&format!("^({}{head})$", methods.join("|")), false)?);
        let condition = Condition { subject: self.template("$request_method")?, test, is_negated: true };
        self.snippet.responses.push(Response { conditions: vec![condition], status: 403, text: None });
        Ok(())
    }

    /// A location that only responds.
    fn location(&mut self, words: &[&str], block: &[Directive]) -> Outcome {
        let test = match words {
            ["=", path] => Test::Equals((*path).into()),
            ["^~", path] | [path] if path.starts_with('/') => {
                Test::Matches(regex(&format!("^{}", quoted(path)), false)?)
            }
            ["~", pattern] => Test::Matches(regex(pattern, false)?),
            ["~*", pattern] => Test::Matches(regex(pattern, true)?),
            _ => return Err(unsupported("location")),
        };
        let condition = Condition { subject: self.template("$uri")?, test, is_negated: false };
        let returns = block.iter().find(|directive| directive.name == "return" && directive.block.is_none());
        let others = block.iter().filter(|directive| directive.name != "return");
        let is_denied = others.clone().count() > 0;
        if others.clone().any(|directive| directive.name != "deny" || directive.words != ["all"]) {
            return Err(
                "is only supported with return and deny all: write an Ingress with the path".to_owned()
            );
        }
        match returns {
            Some(Directive { words, .. }) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.response(&words, vec![condition])
            }
            None if is_denied => self.response(&["403"], vec![condition]),
            None => {
                Err("is only supported with return and deny all: write an Ingress with the path".to_owned())
            }
        }
    }

    fn add(&mut self, name: &str, value: &str, mode: ResponseHeaderMode) -> Outcome {
        let header = self.header(name, value)?;
        match self.snippet.headers.response.push(ResponseHeader { header, mode }) {
            true => Ok(()),
            false => Err("is one header too many".to_owned()),
        }
    }

    fn header(&self, name: &str, value: &str) -> Result<TemplateHeader, String> {
        if value.contains(['\r', '\n']) {
            return Err("has a line break in its value: remove it".to_owned());
        }
        Ok(TemplateHeader { name: AnnotatedHeader::new(name)?, value: self.template(value)? })
    }

    fn request_header(&mut self, name: &str, value: &str) -> Outcome {
        match &*name.to_ascii_lowercase() {
            "host" => {
                self.snippet.host = Some(self.template(value)?);
                return Ok(());
            }
            // The gateway forwards upgrades.
            "upgrade" if ["$http_upgrade", ""].contains(&value) => return Ok(()),
            "connection" if CONNECTION.contains(&&*value.to_ascii_lowercase()) => return Ok(()),
            _ => {}
        }
        let header = self.header(name, value)?;
        match self.snippet.headers.request.push(header) {
            true => Ok(()),
            false => Err("is one header too many".to_owned()),
        }
    }

    /// `expires`: the lifetime of responses in caches. `Cache-Control` has precedence over `Expires` (RFC 9111, 5.3).
    fn expires(&mut self, time: &str) -> Outcome {
        let (expires, control) = match time {
            "off" => return Ok(()),
            "epoch" => ("Thu, 01 Jan 1970 00:00:01 GMT", "no-cache".to_owned()),
            "max" => ("Thu, 31 Dec 2037 23:55:55 GMT", "max-age=315360000".to_owned()),
            time => match (time.strip_prefix('-'), millis(time)) {
                (Some(before), _) if millis(before).is_some() => ("", "no-cache".to_owned()),
                (None, Some(millis)) => ("", format!("max-age={}", millis / 1000)),
                _ => return Err(format!("{time:?} is not supported: write a time such as 30d")),
            },
        };
        self.add("Expires", expires, ResponseHeaderMode::SetIfSuccess)?;
        self.add("Cache-Control", &control, ResponseHeaderMode::SetIfSuccess)
    }
}

/// Values of `Connection` for upgrades and for connections that stay open.
const CONNECTION: &[&str] =
    &["", "upgrade", "keep-alive", "close", "$connection_upgrade", "$http_connection"];

fn unsupported(name: &str) -> String {
    let instead = match name {
        "auth_basic" | "auth_basic_user_file" => "write the annotations auth-type and auth-secret",
        "auth_request" | "auth_request_set" => "write the annotation auth-url",
        "limit_req" | "limit_conn" => "write the annotations limit-rps and limit-connections",
        "limit_rate" | "limit_rate_after" => "write the annotation limit-rate",
        "satisfy" => "write the annotation satisfy",
        "proxy_pass" => "write another Service in the Ingress",
        "proxy_redirect" => "write the annotations proxy-redirect-from and proxy-redirect-to",
        "proxy_cookie_path" | "proxy_cookie_domain" => "write the annotation of the same name",
        "proxy_next_upstream" | "proxy_next_upstream_tries" | "proxy_next_upstream_timeout" => {
            "write the annotation of the same name"
        }
        "proxy_intercept_errors" | "error_page" => "write the annotation custom-http-errors",
        "proxy_cache" | "proxy_cache_valid" | "proxy_cache_key" => "write cache in a TrafficPolicy",
        "location" | "root" | "alias" | "index" | "try_files" => "write an Ingress with the path",
        "sub_filter" | "sub_filter_once" | "sub_filter_types" => "change the body in the Service",
        name if name.contains("lua") => {
            "the gateway runs no code of an Ingress; use an authorization service"
        }
        name if name.contains("modsecurity") => "run a web application firewall in front of the Service",
        _ => "remove it, or use a TrafficPolicy or a SecurityPolicy",
    };
    format!("is not supported: {instead}")
}

fn status_of(text: &str) -> Result<u16, String> {
    let status = text.parse().ok().filter(|status| (200..600).contains(status));
    status.ok_or_else(|| format!("{text:?} is not a status from 200 to 599"))
}

fn regex(text: &str, ignores_case: bool) -> Result<Pattern, String> {
    Pattern::new(text, ignores_case)
        .map_err(|fault| format!("has an unsupported expression {text:?}: {fault}"))
}

/// A text as a regular expression that matches only the text.
fn quoted(text: &str) -> String {
    let quote = |char: char| [char.is_ascii_punctuation().then_some('\\'), Some(char)];
    text.chars().flat_map(quote).flatten().collect()
}

fn append(template: &Template, text: &str) -> Result<Template, String> {
    Template::new(&format!("{template}{text}")).map_err(|fault| fault.to_string())
}

fn denies_all(block: &[Directive]) -> bool {
    let is_denying = |directive: &Directive| {
        directive.name == "deny" && directive.words == ["all"] && directive.block.is_none()
    };
    !block.is_empty() && block.iter().all(is_denying)
}

/// The name and the value of `Name: value`.
fn header_line(line: &str) -> Result<(&str, &str), String> {
    if line.starts_with('-') {
        return Err(format!("has the option {line}, which is not supported"));
    }
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    Ok((name.trim(), value.trim()))
}

/// The condition of an `if`.
fn condition(reader: &Reader, words: &[&str]) -> Result<Condition, String> {
    let text =
        "is not supported with this condition: write if ($variable = text), or with !=, ~, ~*, !~ or !~*";
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return Err(text.to_owned()) };
    if !first.starts_with('(') || !last.ends_with(')') {
        return Err(text.to_owned());
    }
    let mut inner: Vec<&str> = words.to_vec();
    inner[0] = &inner[0][1..];
    if let Some(last) = inner.last_mut() {
        *last = &last[..last.len() - 1];
    }
    if inner.first() == Some(&"") {
        inner.remove(0);
    }
    // A quoted word comes before its parenthesis; an empty text is a word.
    if inner.last() == Some(&"") && inner.len() != 3 {
        inner.pop();
    }
    let (subject, test, is_negated) = match &inner[..] {
        [subject] => (subject, Test::IsSet, false),
        [subject, operator @ ("=" | "!="), value] => {
            let value = reader.template(value)?;
            let value = value.as_text().ok_or("is not supported with a variable behind its operator")?;
            (subject, Test::Equals(value.into()), *operator == "!=")
        }
        [subject, operator @ ("~" | "!~" | "~*" | "!~*"), pattern] => {
            let test = Test::Matches(regex(pattern, operator.ends_with('*'))?);
            (subject, test, operator.starts_with('!'))
        }
        _ => return Err(text.to_owned()),
    };
    if !subject.starts_with('$') {
        return Err(text.to_owned());
    }
    Ok(Condition { subject: reader.template(subject)?, test, is_negated })
}

/// A time of nginx in milliseconds, such as `1h30m`. A number without a unit is in seconds.
fn millis(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 8] = [
        ("ms", 1),
        ("y", 365 * 86_400_000),
        ("M", 30 * 86_400_000),
        ("w", 7 * 86_400_000),
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
    ];
    let (mut rest, mut sum) = (text, 0_u64);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = UNITS.iter().find_map(|(unit, factor)| Some((rest.strip_prefix(unit)?, *factor)));
        let (behind, factor) = match unit {
            Some(found) => found,
            None if rest.is_empty() => ("", 1000),
            None => return None,
        };
        sum = sum.checked_add(number.checked_mul(factor)?)?;
        rest = behind.trim_start();
    }
    (!text.is_empty()).then_some(sum)
}

fn set_timeout(timeout: &mut Option<Timeout>, text: &str) -> Outcome {
    let time = millis(text).and_then(|millis| Timeout::new(Duration::from_millis(millis)));
    *timeout = Some(time.ok_or_else(|| format!("{text:?} is not a time from 1ms to 24h"))?);
    Ok(())
}

/// `allow` and `deny`, the first of which that matches an address decides.
#[derive(Default)]
struct Access {
    denied: Vec<Network>,
    allowed: Vec<Network>,
    /// Whether `allow all` or `deny all` came.
    ended: Option<bool>,
    is_mixed: bool,
}

impl Access {
    fn add(&mut self, text: &str, allows: bool) -> Outcome {
        if self.ended.is_some() {
            return Ok(());
        }
        if text == "all" {
            self.ended = Some(allows);
            return Ok(());
        }
        let network =
            text.parse::<Network>().map_err(|_| format!("{text:?} is not an address or a network"))?;
        match allows {
            true => self.allowed.push(network),
            false => {
                self.is_mixed |= !self.allowed.is_empty();
                self.denied.push(network);
            }
        }
        Ok(())
    }

    /// The allowed networks, if only these are allowed, and the denied networks.
    fn lists(self) -> Result<(Vec<Network>, Vec<Network>), String> {
        let Self { mut denied, allowed, ended, is_mixed } = self;
        if is_mixed {
            return Err(
                "deny of a network is behind allow: write deny first, then allow, then deny all".to_owned()
            );
        }
        match ended {
            Some(false) if allowed.is_empty() => {
                denied = ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse().ok()).collect();
                Ok((Vec::new(), denied))
            }
            Some(false) => Ok((allowed, denied)),
            _ => Ok((Vec::new(), denied)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn responses(text: &str) -> Vec<String> {
        let snippet = read(text, true).unwrap();
        let condition = |Condition { subject, test, is_negated }: &Condition| {
            let sign = if *is_negated { "!" } else { "" };
            match test {
                Test::Equals(text) => format!("{subject} {sign}= {text:?}"),
                Test::Matches(pattern) => format!("{subject} {sign}~ {}", pattern.as_str()),
                Test::IsSet => subject.to_string(),
                Test::Since(at) => format!("since {at}"),
            }
        };
        let shown = snippet.responses.iter().map(|response| {
            let conditions: Vec<_> = response.conditions.iter().map(condition).collect();
            let text = response.text.as_ref().map_or(String::new(), |text| format!(" {text}"));
            format!("[{}] {}{text}", conditions.join(", "), response.status)
        });
        shown.collect()
    }

    #[test]
    fn return_if_and_rewrite_become_responses_with_conditions() {
        for (text, expected) in [
            ("return 403;", vec!["[] 403"]),
            ("return https://new.example$request_uri;", vec!["[] 302 https://new.example$request_uri"]),
            ("return 200 'ok $host\\n';", vec!["[] 200 ok $host\n"]),
            (
                "if ($http_user_agent ~* (bot|spider)) { return 403; }",
                vec!["[$http_user_agent ~ (bot|spider)] 403"],
            ),
            ("if ( $request_method = POST ) { return 405; }", vec!["[$request_method = \"POST\"] 405"]),
            ("if ($http_x != \"a b\") { return 403 no; }", vec!["[$http_x != \"a b\"] 403 no"]),
            ("if ($http_x = \"\") { return 403; }", vec!["[$http_x = \"\"] 403"]),
            ("if ($arg_debug) { return 404; }", vec!["[$arg_debug] 404"]),
            ("if ($host !~ \"^a\\.b$\") { return 404; }", vec!["[$host !~ ^a\\.b$] 404"]),
            ("set $to https://n; return 301 $to/x;", vec!["[] 301 https://n/x"]),
            ("rewrite ^/a/(.*)$ /b/$1 permanent;", vec!["[$uri ~ ^/a/(.*)$] 301 /b/$1$is_args$args"]),
            ("rewrite ^/a$ https://n/? redirect;", vec!["[$uri ~ ^/a$] 302 https://n/"]),
            (
                "rewrite ^/a$ https://n/?b=c;",
                vec!["[$args ~ ., $uri ~ ^/a$] 302 https://n/?b=c&$args", "[$uri ~ ^/a$] 302 https://n/?b=c"],
            ),
            ("limit_except GET PUT { deny all; }", vec!["[$request_method !~ ^(GET|PUT|HEAD)$] 403"]),
            ("location /metrics { deny all; return 404; }", vec!["[$uri ~ ^\\/metrics] 404"]),
            ("location = /.env { deny all; }", vec!["[$uri = \"/.env\"] 403"]),
            ("location ~* \\.php$ { return 403; }", vec!["[$uri ~ \\.php$] 403"]),
        ] {
            assert_eq!(responses(text), expected, "{text}");
        }
    }

    #[test]
    fn headers_rewrites_limits_and_addresses_of_a_snippet_are_read() {
        let snippet = read(
            "more_set_headers 'X-Frame-Options: DENY' \"X-Id: $request_id\";\nadd_header X-A $arg_a always;\nadd_header X-B b;\n\
             more_clear_headers Server;\nproxy_hide_header X-Powered-By;\nexpires 1h30m;\n\
             proxy_set_header X-Real $remote_addr;\nproxy_set_header Accept-Encoding \"\";\nproxy_set_header Host $http_x_host;\n\
             proxy_set_header Upgrade $http_upgrade;\nproxy_set_header Connection \"upgrade\";\n\
             rewrite ^/a(.*) /b$1 break;\nclient_max_body_size 8m;\nproxy_read_timeout 2m;\n\
             deny 10.0.0.1;\nallow 10.0.0.0/8;\ndeny all;\nproxy_buffering off;",
            false,
        )
        .unwrap();
        assert_eq!(snippet.faults, [""; 0]);
        let response: Vec<_> = snippet
            .headers
            .response
            .iter()
            .map(|ResponseHeader { header, mode }| format!("{}: {} {mode:?}", header.name, header.value))
            .collect();
        let expected = [
            "X-Frame-Options: DENY Set",
            "X-Id: $request_id Set",
            "X-A: $arg_a AddAlways",
            "X-B: b Add",
            "Server:  Set",
            "X-Powered-By:  Set",
            "Expires:  SetIfSuccess",
            "Cache-Control: max-age=5400 SetIfSuccess",
        ];
        assert_eq!(response, expected);
        let request: Vec<_> = snippet
            .headers
            .request
            .iter()
            .map(|header| format!("{}: {}", header.name, header.value))
            .collect();
        assert_eq!(request, ["X-Real: $remote_addr", "Accept-Encoding: "]);
        assert_eq!(snippet.host.unwrap().to_string(), "$http_x_host");
        assert_eq!((snippet.rewrites.len(), snippet.rewrites[0].continues), (1, false));
        assert_eq!(snippet.body_size, Some(Size::of(8 << 20)));
        assert_eq!(snippet.read_timeout, Some(Timeout::of_millis(120_000)));
        assert_eq!((snippet.allow.len(), snippet.deny.len()), (1, 1));
    }

    #[test]
    fn unsupported_directives_are_named_by_line_with_what_to_write_instead() {
        for (text, expected) in [
            (
                "add_header X 1;\naccess_by_lua_block { ngx.exit(403) };",
                "has a syntax error in line 2: a ';' is missing before '}'",
            ),
            (
                "auth_basic x;",
                "line 1: auth_basic is not supported: write the annotations auth-type and auth-secret",
            ),
            (
                "proxy_pass http://x;\n\ndummy on;",
                "line 1: proxy_pass is not supported: write another Service in the Ingress; line 3: dummy is not supported: \
                 remove it, or use a TrafficPolicy or a SecurityPolicy",
            ),
            (
                "rewrite ^/a /b last;",
                "line 1: rewrite selects another location: write break behind the new path",
            ),
            (
                "rewrite ^/a /b break; return 200;",
                "line 1: return is behind a rewrite: write it before the rewrite",
            ),
            (
                "if ($a) { return 403; }",
                "line 1: if \"$a\" has the variable $a, which the gateway does not know: remove it",
            ),
            (
                "if ($host = a) { add_header A b; }",
                "line 1: if has add_header in line 1: only return and rewrite are supported there",
            ),
            ("set $host a;", "line 1: set $host is a variable of nginx, which the gateway does not change"),
            (
                "proxy_set_header Transfer-Encoding a;",
                "line 1: proxy_set_header \"Transfer-Encoding\" is a hop-by-hop header, which the gateway sets itself",
            ),
            (
                "allow 10.0.0.0/8; deny 10.0.0.1;",
                "deny of a network is behind allow: write deny first, then allow, then deny all",
            ),
            (
                "location / { proxy_pass http://x; }",
                "line 1: location is not supported: write an Ingress with the path",
            ),
            ("return 700;", "line 1: return \"700\" is not a status from 200 to 599"),
            (
                "if ($uri ~ (?!a)) { return 403; }",
                "line 1: if has an unsupported expression \"(?!a)\": look-around, including look-ahead and look-behind, is not supported",
            ),
        ] {
            assert_eq!(read(text, false).unwrap_err(), expected, "{text}");
        }
        let ignored = read("gzip on;\nadd_header Connection x;\nadd_header A 'b\nc';", false).unwrap();
        assert_eq!(
            ignored.faults,
            [
                "line 1: gzip has no effect: use the setting for compression",
                "line 2: add_header \"Connection\" is a hop-by-hop header, which the gateway sets itself",
                "line 3: add_header has a line break in its value: remove it",
            ]
        );
    }

    proptest! {
        #[test]
        fn reader_of_snippets_never_panics(
            text in r#"(if|return|rewrite|set|location|add_header|expires|deny|limit_except|[ ;{}()$~=!*'"\\/a0-]){0,30}"#,
        ) {
            let _ = read(&text, true);
        }
    }
}
