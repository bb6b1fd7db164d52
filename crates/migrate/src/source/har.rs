//! HTTP archives (HAR 1.2), which browsers write. Only methods and URLs are read: headers may hold credentials.

use serde::Deserialize;

use super::{Request, SourceError};

#[derive(Deserialize)]
struct Archive {
    log: Log,
}

#[derive(Deserialize)]
struct Log {
    entries: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    request: Sent,
}

#[derive(Deserialize)]
struct Sent {
    method: String,
    url: String,
}

/// The requests of a HAR file, and the number of entries that are no requests over HTTP.
///
/// # Errors
///
/// The text is not a HAR file.
pub fn read(text: &str) -> Result<(Vec<Request>, usize), SourceError> {
    let archive: Archive = serde_json::from_str(text)?;
    let mut skipped = 0;
    let requests = archive.log.entries.into_iter().filter_map(|Entry { request: Sent { method, url } }| {
        let request = of_url(&method, &url);
        skipped += usize::from(request.is_none());
        request
    });
    Ok((requests.collect(), skipped))
}

fn of_url(method: &str, url: &str) -> Option<Request> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"))?;
    let (authority, target) = match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => (&rest[..at], rest[at..].to_owned()),
        Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
        None => (rest, "/".to_owned()),
    };
    Request::new(authority, method, &target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn har_file_gives_hosts_methods_and_targets() {
        let text = r#"{"log": {"entries": [
            {"request": {"method": "GET", "url": "https://a.test/x?y=1#z", "headers": []}},
            {"request": {"method": "GET", "url": "http://b.test:8080?q"}},
            {"request": {"method": "GET", "url": "data:text/plain,x"}}
        ]}}"#;
        let (requests, skipped) = read(text).unwrap();
        let expected = [("a.test", "/x?y=1"), ("b.test", "/?q")];
        assert_eq!(requests, expected.map(|(host, target)| Request::new(host, "GET", target).unwrap()));
        assert_eq!(skipped, 1);
        assert!(read("{}").is_err());
    }
}
