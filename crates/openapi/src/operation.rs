//! Operations.

use std::fmt;

use sluicegate_model::contract::OperationContract;

use crate::security::Security;

/// A method that an OpenAPI document can describe (OpenAPI 3.1, "Path Item Object").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `TRACE`.
    Trace,
}

impl Method {
    /// All methods, in the order of `Allow`.
    pub const ALL: [Self; 8] =
        [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options, Self::Trace];

    /// The name in requests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
        }
    }

    /// The method of a field of a path item.
    pub(crate) fn of_field(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| {
            method.as_str().eq_ignore_ascii_case(name) && name.bytes().all(|byte| byte.is_ascii_lowercase())
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation: a method and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `operationId`, or `METHOD path` without one.
    pub id: Box<str>,
    /// The method.
    pub method: Method,
    /// The path as written, below the path of the server.
    pub path: Box<str>,
    /// The tags.
    pub tags: Box<[Box<str>]>,
    /// The media types of the request body, in lower case, such as `application/json` or `image/*`; empty if the document
    /// describes no body.
    pub media_types: Box<[Box<str>]>,
    /// Whether a request must have a body.
    pub requires_body: bool,
    /// Whether the operation is deprecated.
    pub is_deprecated: bool,
    /// What it requires of its callers: its own `security`, or else that of the document.
    pub security: Security,
    /// Its parameters, bodies and responses, without its id.
    pub contract: OperationContract,
}

impl Operation {
    /// The path without the names of its variables: operations of one shape match the same paths.
    #[must_use]
    pub fn shape(&self) -> String {
        shape(&self.path)
    }
}

/// The path without the names of its variables.
pub(crate) fn shape(path: &str) -> String {
    let mut shape = String::with_capacity(path.len());
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once('{') {
        shape.extend([before, "{}"]);
        rest = behind.split_once('}').map_or("", |(_, rest)| rest);
    }
    shape + rest
}
