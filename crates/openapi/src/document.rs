//! Documents.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::{Map, Value};
use sluicegate_model::PathTemplate;
use sluicegate_model::contract::{OperationContract, StatusRange};

use crate::contract::Reader;
use crate::finding::{Findings, Pointer};
use crate::operation::{Method, Operation, shape};
use crate::reference::resolve;
use crate::schema::Schema;
use crate::security::{self, Security, SecurityScheme};

/// The fields of a path item that are no methods (OpenAPI 3.1, "Path Item Object").
const OF_PATH_ITEM: [&str; 5] = ["$ref", "summary", "description", "servers", "parameters"];

/// An OpenAPI document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Document {
    /// `info.title`; empty if it is missing.
    pub title: Box<str>,
    /// `info.version`; empty if it is missing.
    pub version: Box<str>,
    /// The servers.
    pub servers: Vec<Server>,
    /// The operations, in the order of their paths and methods.
    pub operations: Vec<Operation>,
    /// The security schemes, by their names.
    pub security_schemes: BTreeMap<Box<str>, SecurityScheme>,
    /// The faults.
    pub findings: Findings,
    /// The schemas of all operations, by their numbers.
    pub(crate) schemas: Vec<Schema>,
    /// Whether no schema has a fault.
    pub(crate) is_compilable: bool,
}

/// A server: where clients reach the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The host without its port; `None` for a relative URL, or with variables in the host.
    pub host: Option<Box<str>>,
    /// The path, without a final slash: empty for `/`.
    pub path: Box<str>,
}

impl Document {
    /// The maximum number of operations. Further operations are not served, which is an error.
    pub const OPERATIONS_MAX: usize = 2000;

    /// Reads a parsed document.
    #[must_use]
    pub fn read(root: &Value) -> Self {
        let mut document = Self::default();
        let at = Pointer::Root;
        let Some(fields) = root.as_object() else {
            document.findings.error(&at, "is no mapping: write an OpenAPI document");
            return document;
        };
        if !document.check_version(fields) {
            return document;
        }
        let (title, version) = document.info(fields);
        (document.title, document.version) = (title, version);
        document.servers = document.servers(root, fields);
        document.security_schemes = security::schemes(root, fields, &mut document.findings);
        let default = document.security(fields, &at).unwrap_or_default();
        let mut reader = Reader::new(root);
        match fields.get("paths") {
            Some(Value::Object(paths)) => document.paths(root, paths, &default, &mut reader),
            Some(_) => {
                document.findings.error(&at.field("paths"), "is no mapping: write paths and their methods");
            }
            None => document.findings.warning(&at, "has no paths: the API has no operations"),
        }
        document.schemas = reader.converter.finish(&mut document.findings);
        document.is_compilable = document.schemas.iter().all(|schema| schema.fault.is_none());
        document
    }

    /// Whether this is a version that can be read.
    fn check_version(&mut self, fields: &Map<String, Value>) -> bool {
        let at = Pointer::Root;
        if fields.contains_key("swagger") {
            let fault = "is a document of Swagger 2.0: convert it to OpenAPI 3.0 or 3.1";
            self.findings.error(&at.field("swagger"), fault);
            return false;
        }
        let version = fields.get("openapi").and_then(Value::as_str).unwrap_or_default();
        let is_known = ["3.0", "3.1"].iter().any(|known| {
            version.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        });
        if !is_known {
            let fault = match version {
                "" => "is missing: write the version as text, such as \"3.1.0\"".to_owned(),
                other => format!("{other:?} is not supported: write a document of OpenAPI 3.0 or 3.1"),
            };
            self.findings.error(&at.field("openapi"), fault);
        }
        is_known
    }

    /// The title and the version.
    fn info(&mut self, fields: &Map<String, Value>) -> (Box<str>, Box<str>) {
        let root = Pointer::Root;
        let at = root.field("info");
        let mut text = |name: &str| {
            let found = fields.get("info").and_then(|info| info.get(name));
            match found {
                Some(Value::String(_)) => {}
                Some(_) => self.findings.warning(&at.field(name), "must be text: put the value in quotes"),
                None => self.findings.warning(&at.field(name), "is missing: write text"),
            }
            found.and_then(Value::as_str).unwrap_or_default().into()
        };
        (text("title"), text("version"))
    }

    fn servers(&mut self, root: &Value, fields: &Map<String, Value>) -> Vec<Server> {
        let of_root = Pointer::Root;
        let at = of_root.field("servers");
        let mut servers = Vec::new();
        for (index, server) in list(fields.get("servers")).iter().enumerate() {
            let at = at.item(index);
            let Some(server) = resolve(root, server, &at, &mut self.findings) else { continue };
            let Some(url) = server.get("url").and_then(Value::as_str) else {
                self.findings.warning(&at.field("url"), "is missing: write the URL of the server");
                continue;
            };
            servers.push(Server::of(&with_defaults(url, server.get("variables"))));
        }
        servers
    }

    /// What `security` of the document or of an operation requires.
    fn security(&mut self, fields: &Map<String, Value>, at: &Pointer<'_>) -> Option<Security> {
        let (written, at) = (fields.get("security")?, at.field("security"));
        Some(security::security(written, &self.security_schemes, &at, &mut self.findings))
    }

    fn paths<'v>(
        &mut self,
        root: &'v Value,
        paths: &'v Map<String, Value>,
        default: &Security,
        reader: &mut Reader<'v>,
    ) {
        let of_root = Pointer::Root;
        let of_paths = of_root.field("paths");
        let mut ids: HashMap<Box<str>, String> = HashMap::new();
        let mut shapes: HashMap<String, &str> = HashMap::new();
        let mut served: HashSet<(String, Method)> = HashSet::new();
        for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
            let at = of_paths.field(path);
            let template = match PathTemplate::new(path) {
                Ok(template) => template,
                Err(fault) => {
                    self.findings.error(&at, fault.to_string());
                    continue;
                }
            };
            if let Some(mark) = path.chars().find(|mark| matches!(mark, '?' | '#')) {
                let fault = format!(
                    "has a {mark:?}, so no request can have this path: describe parameters in parameters"
                );
                self.findings.error(&at, fault);
                continue;
            }
            // The specification forbids this, and well-known documents do it, with different methods.
            let shape = shape(path);
            let other = *shapes.entry(shape.clone()).or_insert(path);
            if other != path {
                self.findings.warning(
                    &at,
                    format!("matches the same paths as {other:?}: use the same names of variables"),
                );
            }
            let Some(item) = resolve(root, item, &at, &mut self.findings) else { continue };
            let Some(fields) = item.as_object() else {
                self.findings.error(&at, "is no mapping: write the methods of the path");
                continue;
            };
            let shared = self.parameters(root, fields.get("parameters"), &at);
            for method in Method::ALL {
                let name = method.as_str().to_ascii_lowercase();
                let Some(operation) = fields.get(&name) else { continue };
                let at = at.field(&name);
                if self.operations.len() >= Self::OPERATIONS_MAX {
                    let fault =
                        format!("is not served: a document may have {} operations", Self::OPERATIONS_MAX);
                    self.findings.error(&at, fault);
                    return;
                }
                let Some(operation) = operation.as_object() else {
                    self.findings.error(&at, "is no mapping: write an operation");
                    continue;
                };
                if !served.insert((shape.clone(), method)) {
                    self.findings
                        .error(&at, format!("is not served: {other:?} has this method for the same paths"));
                    continue;
                }
                let mut named = self.parameters(root, operation.get("parameters"), &at);
                named.extend(shared.iter().copied());
                for name in template.names().filter(|name| !named.contains(name)) {
                    let fault =
                        format!("does not describe {{{name}}} of its path: add a parameter with in: path");
                    self.findings.warning(&at, fault);
                }
                self.operation(root, operation, (method, path), &mut ids, &at);
                let security = self.security(operation, &at).unwrap_or_else(|| default.clone());
                let contract = reader.operation(operation, fields.get("parameters"), &at);
                if let Some(last) = self.operations.last_mut() {
                    (last.contract, last.security) = (contract, security);
                }
            }
            for name in fields.keys() {
                let is_known = OF_PATH_ITEM.contains(&&**name) || name.starts_with("x-");
                if !is_known && Method::of_field(name).is_none() {
                    self.findings
                        .warning(&at.field(name), "is no method and no field of a path: it has no effect");
                }
            }
        }
    }

    /// The names of the parameters in the path.
    fn parameters<'v>(
        &mut self,
        root: &'v Value,
        written: Option<&'v Value>,
        at: &Pointer<'_>,
    ) -> HashSet<&'v str> {
        let at = at.field("parameters");
        let mut names = HashSet::new();
        for (index, parameter) in list(written).iter().enumerate() {
            let at = at.item(index);
            let Some(parameter) = resolve(root, parameter, &at, &mut self.findings) else { continue };
            let text = |field: &str| parameter.get(field).and_then(Value::as_str);
            match (text("name"), text("in")) {
                (Some(name), Some("path")) => {
                    names.insert(name);
                }
                (Some(_), Some("query" | "header" | "cookie")) => {}
                (Some(_), Some(other)) => {
                    self.findings.warning(
                        &at.field("in"),
                        format!("{other:?} is unknown: write path, query, header or cookie"),
                    );
                }
                _ => self.findings.warning(&at, "has no name or no in: it has no effect"),
            }
        }
        names
    }

    fn operation(
        &mut self,
        root: &Value,
        fields: &Map<String, Value>,
        (method, path): (Method, &str),
        ids: &mut HashMap<Box<str>, String>,
        at: &Pointer<'_>,
    ) {
        let by_place: Box<str> = format!("{method} {path}").into();
        let id = match fields.get("operationId") {
            None => by_place,
            Some(Value::String(id)) if !id.is_empty() => match ids.get(&**id) {
                None => id.as_str().into(),
                Some(other) => {
                    let fault = format!(
                        "{id:?} is the id of {other} too: rename one; this operation has the id {by_place:?}"
                    );
                    self.findings.error(&at.field("operationId"), fault);
                    by_place
                }
            },
            Some(_) => {
                self.findings.error(&at.field("operationId"), "is no text: write a name");
                by_place
            }
        };
        ids.insert(id.clone(), format!("{method} {path}"));
        let texts = |value: Option<&Value>| -> Box<[Box<str>]> {
            list(value).iter().filter_map(Value::as_str).map(Into::into).collect()
        };
        let of_body = at.field("requestBody");
        let body =
            fields.get("requestBody").and_then(|body| resolve(root, body, &of_body, &mut self.findings));
        let content = body.and_then(|body| body.get("content")).and_then(Value::as_object);
        let media_types = content.into_iter().flatten().map(|(name, _)| media_type(name)).collect();
        let is_true = |value: Option<&Value>| value.and_then(Value::as_bool).unwrap_or_default();
        let of_responses = at.field("responses");
        for (status, _) in fields.get("responses").and_then(Value::as_object).into_iter().flatten() {
            if StatusRange::parse(status).is_none() && !status.starts_with("x-") {
                let fault = format!(
                    "{status:?} is no status, so the response has no effect: write 100 to 599, 1XX to 5XX, or default"
                );
                self.findings.warning(&of_responses.field(status), fault);
            }
        }
        self.operations.push(Operation {
            id,
            method,
            path: path.into(),
            tags: texts(fields.get("tags")),
            media_types,
            requires_body: is_true(body.and_then(|body| body.get("required"))),
            is_deprecated: is_true(fields.get("deprecated")),
            security: Security::default(),
            contract: OperationContract::default(),
        });
    }
}

impl Server {
    fn of(url: &str) -> Self {
        let (host, path) = match url.split_once("://") {
            None => (None, url),
            Some((_, rest)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = match authority.rsplit_once(':') {
                    Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
                    _ => authority,
                };
                (Some(host).filter(|host| !host.is_empty() && !host.contains('{')), path)
            }
        };
        let path = path.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
        // A relative URL without a slash is relative to the place of the document, which is unknown.
        let path = if path.starts_with('/') { path } else { "" };
        Self { host: host.map(|host| host.to_ascii_lowercase().into()), path: path.into() }
    }
}

/// The URL with the default values of its variables.
fn with_defaults(url: &str, variables: Option<&Value>) -> String {
    let mut url = url.to_owned();
    for (name, variable) in variables.and_then(Value::as_object).into_iter().flatten() {
        if let Some(default) = variable.get("default").and_then(Value::as_str) {
            url = url.replace(&format!("{{{name}}}"), default);
        }
    }
    url
}

/// The media type without parameters, in lower case.
pub(crate) fn media_type(text: &str) -> Box<str> {
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().into()
}

pub(crate) fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_paths(paths: Value) -> Document {
        Document::read(
            &json!({"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": paths}),
        )
    }

    fn faults(document: &Document) -> Vec<String> {
        document.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn operations_have_ids_tags_and_media_types() {
        let id = json!([{"name": "id", "in": "path", "required": true}]);
        let document = with_paths(json!({
            "/pets": {
                "get": {"operationId": "list", "tags": ["pets"]},
                "post": {"requestBody": {"required": true, "content": {"application/json; charset=utf-8": {}, "IMAGE/*": {}}}},
            },
            "/pets/{id}": {"parameters": id, "delete": {"deprecated": true}},
        }));
        assert_eq!(faults(&document), [""; 0]);
        let [list, create, delete] = &document.operations[..] else { panic!("{document:?}") };
        assert_eq!((&*list.id, list.method, &*list.tags[0]), ("list", Method::Get, "pets"));
        assert_eq!((&*create.id, create.requires_body), ("POST /pets", true));
        assert_eq!(*create.media_types, ["image/*".into(), "application/json".into()][..]);
        assert_eq!((&*delete.id, delete.is_deprecated), ("DELETE /pets/{id}", true));
    }

    #[test]
    fn response_without_a_valid_status_is_a_warning() {
        let of = json!({"200": {}, "4XX": {}, "default": {}, "x-note": {}, "2000": {}, "600": {}, "6XX": {}, "20": {}, "+20": {}});
        let document = with_paths(json!({"/a": {"get": {"responses": of}}}));
        let expected = ["+20", "2000", "20", "600", "6XX"].map(|status| {
            format!(
                "#/paths/~1a/get/responses/{status}: {status:?} is no status, so the response has no effect: write 100 to 599, \
                 1XX to 5XX, or default"
            )
        });
        let mut found = faults(&document);
        found.sort_unstable();
        assert_eq!(found, expected);
        assert!(!document.findings.has_errors());
    }

    #[test]
    fn fault_of_one_operation_leaves_the_others() {
        let document = with_paths(json!({
            "/a": {"get": {"operationId": "one"}, "put": {"operationId": "one"}, "fetch": {}},
            "/{x}": {"get": {}},
            "/{y}": {"get": {}, "put": {}},
            "/{": {"get": {}},
            "/e?x=1": {"get": {}},
            "/b": {"$ref": "#/components/pathItems/none"},
            "/c": {"get": 7},
        }));
        let expected = [
            "#/paths/~1a/put/operationId: \"one\" is the id of GET /a too",
            "#/paths/~1a/fetch: is no method",
            "#/paths/~1b/$ref: \"#/components/pathItems/none\" does not exist",
            "#/paths/~1c/get: is no mapping",
            "#/paths/~1e?x=1: has a '?', so no request",
            "#/paths/~1{: has a '{' without its partner",
            "#/paths/~1{x}/get: does not describe {x}",
            "#/paths/~1{y}: matches the same paths as \"/{x}\"",
            "#/paths/~1{y}/get: is not served: \"/{x}\" has this method",
            "#/paths/~1{y}/put: does not describe {y}",
        ];
        let found = faults(&document);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for expected in expected {
            assert!(found.iter().any(|fault| fault.starts_with(expected)), "{expected}: {found:#?}");
        }
        let ids: Vec<&str> = document.operations.iter().map(|operation| &*operation.id).collect();
        assert_eq!(ids, ["one", "PUT /a", "GET /{x}", "PUT /{y}"]);
    }

    #[test]
    fn document_of_another_version_has_no_operations() {
        for (document, fault) in [
            (json!({"swagger": "2.0"}), "#/swagger: is a document of Swagger 2.0"),
            (json!({"openapi": "4.0.0"}), "#/openapi: \"4.0.0\" is not supported"),
            (json!({"openapi": 3.1}), "#/openapi: is missing"),
            (json!([]), "#: is no mapping"),
        ] {
            let read = Document::read(&document);
            assert!(read.findings.has_errors() && faults(&read)[0].starts_with(fault), "{:?}", faults(&read));
        }
    }

    #[test]
    fn servers_have_a_host_and_a_path() {
        let server = |url: &str| Server::of(url);
        for (url, host, path) in [
            ("https://API.example.com:8443/v1/", Some("api.example.com"), "/v1"),
            ("https://api.example.com", Some("api.example.com"), ""),
            ("/v2", None, "/v2"),
            ("v2", None, ""),
            ("https://{region}.example.com/v1?x", None, "/v1"),
        ] {
            assert_eq!((server(url).host.as_deref(), &*server(url).path), (host, path), "{url}");
        }
        let variables = json!({"region": {"default": "eu"}, "base": {"default": "v3"}});
        assert_eq!(with_defaults("https://{region}.test/{base}", Some(&variables)), "https://eu.test/v3");
    }

    proptest::proptest! {
        #[test]
        fn any_text_in_the_place_of_a_path_is_read_without_a_panic(path in ".{0,40}", reference in ".{0,20}") {
            let document = with_paths(json!({path: {"get": {"requestBody": {"$ref": reference}}}}));
            proptest::prop_assert!(document.operations.len() <= 1);
        }
    }
}
