//! A browser without scripts, which stores cookies and navigates, for tests of logins.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};

use crate::client::{Client, Response};
use crate::provider::Provider;
use crate::stream::Transport;

/// A browser with the cookies of one host.
#[derive(Clone, Debug)]
pub struct Browser {
    /// The cookies, by name.
    pub cookies: BTreeMap<String, String>,
    host: &'static str,
    transport: Transport,
}

impl Browser {
    /// A browser on a host, without cookies.
    #[must_use]
    pub fn at(host: &'static str, transport: Transport) -> Self {
        Self { cookies: BTreeMap::new(), host, transport }
    }

    /// A browser with the cookies of another browser, on this host.
    #[must_use]
    pub fn with_cookies_of(other: &Self, host: &'static str) -> Self {
        Self { cookies: other.cookies.clone(), host, transport: other.transport }
    }

    /// The scheme and the host of the pages.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("{}://{}", self.transport.scheme(), self.host)
    }

    /// The names of the cookies that are not of a login in progress.
    #[must_use]
    pub fn sessions(&self) -> Vec<&String> {
        self.cookies.keys().filter(|name| !name.contains(".l")).collect()
    }

    /// Navigates to a URL or a path on the host.
    ///
    /// # Errors
    /// If there is no response, or a browser would reject its cookies.
    pub async fn open(&mut self, addr: SocketAddr, url: &str) -> anyhow::Result<Response> {
        let lines = ["Accept: text/html,*/*;q=0.8", "Sec-Fetch-Mode: navigate"];
        self.send(addr, "GET", url, &lines).await
    }

    /// Logs in at a page, and returns the response to the answer of the provider.
    ///
    /// # Errors
    /// If the page does not redirect to the provider.
    pub async fn log_in(
        &mut self,
        addr: SocketAddr,
        provider: &Provider,
        url: &str,
    ) -> anyhow::Result<Response> {
        let response = self.open(addr, url).await?;
        ensure!(response.status == 302, "{} {}", response.status, response.text());
        let back = provider.log_in(response.header("location").context("no location")?)?;
        self.open(addr, &back).await
    }

    /// Sends a request with the cookies and these header lines, and stores the cookies of the response.
    ///
    /// # Errors
    /// If there is no response, or a browser would reject its cookies.
    pub async fn send(
        &mut self,
        addr: SocketAddr,
        method: &str,
        url: &str,
        lines: &[&str],
    ) -> anyhow::Result<Response> {
        let target = url.strip_prefix(&self.origin()).unwrap_or(url);
        ensure!(target.starts_with('/'), "{url} is no URL of {}", self.origin());
        let mut client = Client::connect_by(addr, self.transport).await?;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.host);
        lines.iter().for_each(|line| head.push_str(&format!("{line}\r\n")));
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if !cookies.is_empty() {
            head.push_str(&format!("Cookie: {}\r\n", cookies.join("; ")));
        }
        let response = client.request(format!("{head}\r\n")).await?;
        for cookie in response.headers_named("set-cookie") {
            self.store(cookie)?;
        }
        Ok(response)
    }

    fn store(&mut self, cookie: &str) -> anyhow::Result<()> {
        let (pair, attributes) = cookie.split_once(';').context("no attributes")?;
        let (name, value) = pair.split_once('=').context("no value")?;
        let is_of_site = ["; SameSite=Lax", "; SameSite=Strict"].iter().any(|of| attributes.contains(of));
        ensure!(attributes.contains("; HttpOnly") && is_of_site, "{cookie}");
        ensure!(attributes.contains("Path=/;"), "{cookie}");
        ensure!(cookie.len() <= 4096, "browsers reject a cookie of {} bytes", cookie.len());
        let is_secure = self.transport.scheme() == "https";
        ensure!(attributes.contains("; Secure") == is_secure, "{cookie}");
        ensure!(name.starts_with("__") == is_secure, "{cookie}");
        if let Some((_, domain)) = attributes.split_once("Domain=") {
            let domain = domain.split(';').next().unwrap_or_default();
            ensure!(!name.starts_with("__Host-") && self.host.ends_with(domain), "{cookie}");
        }
        match attributes.contains("Max-Age=0;") {
            true => drop(self.cookies.remove(name)),
            false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
        }
        Ok(())
    }
}
