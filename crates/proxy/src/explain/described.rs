//! Described requests.

use std::net::IpAddr;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// The longest described request, in bytes.
pub const DESCRIPTION_MAX: usize = 16 * 1024;

/// A described request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The method.
    pub method: String,
    /// Whether the client uses HTTPS.
    pub is_https: bool,
    /// The host, with its port if it has one.
    pub authority: String,
    /// The path with its query.
    pub target: String,
    /// The headers beside `Host`.
    pub headers: Vec<(String, String)>,
    /// The address from which the connection comes: of the client, or of a trusted proxy. `None`: unknown.
    pub from: Option<IpAddr>,
    /// The client's certificate, without intermediate certificates.
    pub certificate: Option<CertificateDer<'static>>,
}

/// The reason why a text describes no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The URL has no host.
    #[error("the URL {0:?} has no scheme and host: write http://HOST/PATH or https://HOST/PATH")]
    Url(Box<str>),
    /// A header has no colon.
    #[error("the header {0:?} has no colon: write NAME: VALUE")]
    Header(Box<str>),
    /// A part has a line break or another control character.
    #[error("{0} has a control character: remove it")]
    Control(&'static str),
    /// A text is no certificate.
    #[error(
        "the text is no certificate in PEM format: write -----BEGIN CERTIFICATE----- and the rest of the certificate"
    )]
    Certificate,
    /// The description is too long.
    #[error("the description of the request has more than {DESCRIPTION_MAX} bytes: shorten it")]
    TooLong,
}

impl Described {
    /// A request in the notation of the command line: a method, a URL, and headers as `NAME: VALUE`.
    ///
    /// # Errors
    ///
    /// If the parts describe no request.
    pub fn new<'h>(
        method: &str,
        url: &str,
        headers: impl IntoIterator<Item = &'h str>,
    ) -> Result<Self, DescriptionError> {
        let no_url = || DescriptionError::Url(url.chars().take(200).collect());
        let (scheme, rest) = url.split_once("://").ok_or_else(no_url)?;
        let is_https = match scheme {
            scheme if scheme.eq_ignore_ascii_case("https") => true,
            scheme if scheme.eq_ignore_ascii_case("http") => false,
            _ => return Err(no_url()),
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() || authority.contains('@') {
            return Err(no_url());
        }
        let slash = if target.starts_with('/') { "" } else { "/" };
        let mut described = Self {
            method: method.to_owned(),
            is_https,
            authority: authority.to_owned(),
            target: format!("{slash}{target}"),
            headers: Vec::new(),
            from: None,
            certificate: None,
        };
        for line in headers {
            let cut = || DescriptionError::Header(line.chars().take(200).collect());
            let (name, value) = line.split_once(':').ok_or_else(cut)?;
            described.headers.push((name.trim().to_owned(), value.trim().to_owned()));
        }
        described.check()?;
        Ok(described)
    }

    /// Adds the address from which the connection comes.
    #[must_use]
    pub fn coming_from(self, from: Option<IpAddr>) -> Self {
        Self { from: from.map(|address| address.to_canonical()), ..self }
    }

    /// Adds the client's certificate: the first certificate of a text in PEM format.
    ///
    /// # Errors
    ///
    /// If the text has no certificate.
    pub fn certificate(self, pem: &str) -> Result<Self, DescriptionError> {
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes());
        let certificate = certificate.map_err(|_| DescriptionError::Certificate)?;
        let described = Self { certificate: Some(certificate), ..self };
        described.check()?;
        Ok(described)
    }

    fn check(&self) -> Result<(), DescriptionError> {
        let has_control = |text: &str| text.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f);
        let has_space = |text: &str| text.bytes().any(|byte| byte <= b' ');
        if has_space(&self.method) {
            return Err(DescriptionError::Control("the method"));
        }
        if has_space(&self.authority) || has_space(&self.target) {
            return Err(DescriptionError::Control("the URL"));
        }
        if self.headers.iter().any(|(name, value)| has_control(name) || has_control(value)) {
            return Err(DescriptionError::Control("a header"));
        }
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + 4).sum::<usize>();
        let certificate = self.certificate.as_ref().map_or(0, |certificate| certificate.len());
        if certificate + headers + self.method.len() + self.authority.len() + self.target.len()
            > DESCRIPTION_MAX
        {
            return Err(DescriptionError::TooLong);
        }
        Ok(())
    }

    /// The head of the request, as a client sends it.
    pub(super) fn head(&self) -> Vec<u8> {
        let Self { method, authority, target, headers, .. } = self;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n");
        let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        others.for_each(|(name, value)| head.extend([name, ": ", value, "\r\n"]));
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// Whether the URL names a port.
    pub(super) fn names_port(&self) -> bool {
        self.authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    }

    /// The port of the URL.
    pub(super) fn port(&self) -> u16 {
        let port = self.authority.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        port.unwrap_or(if self.is_https { 443 } else { 80 })
    }
}
