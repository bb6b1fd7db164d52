//! Access logs: the default format of ingress-nginx and nginx, and lines of JSON.

use serde_json::Value;

use super::Request;

/// The requests of a log. A line without a host is for `host`. The second value is the number of lines that are no requests.
#[must_use]
pub fn read(text: &str, host: Option<&str>) -> (Vec<Request>, usize) {
    let mut skipped = 0;
    let requests = text.lines().filter(|line| !line.trim().is_empty()).filter_map(|line| {
        let request = match line.trim_start().starts_with('{') {
            true => of_json(line, host),
            false => of_text(line, host),
        };
        skipped += usize::from(request.is_none());
        request
    });
    (requests.collect(), skipped)
}

/// A line such as `10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] "GET /cart HTTP/1.1" 200 ...`. The first quoted text is the request.
fn of_text(line: &str, host: Option<&str>) -> Option<Request> {
    let request = line.split('"').nth(1)?;
    of_request_line(request, host?)
}

/// `METHOD TARGET VERSION`.
fn of_request_line(line: &str, host: &str) -> Option<Request> {
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    Request::new(host, method, target)
}

/// A JSON object with the names of nginx's variables, or with common short names.
fn of_json(line: &str, host: Option<&str>) -> Option<Request> {
    let entry: Value = serde_json::from_str(line).ok()?;
    let text = |names: &[&str]| names.iter().find_map(|name| entry.get(name)?.as_str());
    let host = text(&["host", "vhost", "http_host", "authority", "server_name"]).or(host)?;
    if let Some(line) = text(&["request"]) {
        return of_request_line(line, host);
    }
    let method = text(&["request_method", "method"])?;
    let target = text(&["request_uri", "uri", "path", "url"])?;
    match text(&["args", "query", "request_query"]).filter(|query| !query.is_empty() && !target.contains('?'))
    {
        Some(query) => Request::new(host, method, &format!("{target}?{query}")),
        None => Request::new(host, method, target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_log_format_of_ingress_nginx_is_read_for_the_named_host() {
        let line = "10.0.0.1 - - [25/Nov/2026:10:00:00 +0000] \"GET /cart?x=1 HTTP/2.0\" 200 5 \"-\" \"curl/8\" 93 0.002 [shop-cart-80] \
                    [] 10.1.0.7:8080 5 0.002 200 abc";
        let (requests, skipped) = read(&format!("{line}\nnot a line\n\n"), Some("shop.test"));
        assert_eq!(requests, [Request::new("shop.test", "GET", "/cart?x=1").unwrap()]);
        assert_eq!(skipped, 1);
        assert_eq!(read(line, None).0, []);
    }

    #[test]
    fn lines_of_json_have_their_own_host() {
        let text = "{\"host\":\"a.test\",\"request_method\":\"HEAD\",\"request_uri\":\"/x\"}\n\
                    {\"vhost\":\"b.test\",\"method\":\"GET\",\"path\":\"/y\",\"request_query\":\"q=1\"}\n\
                    {\"host\":\"c.test\",\"request\":\"POST /z HTTP/1.1\"}\n{\"host\":1}\n";
        let (requests, skipped) = read(text, None);
        let expected = [("a.test", "HEAD", "/x"), ("b.test", "GET", "/y?q=1"), ("c.test", "POST", "/z")];
        assert_eq!(
            requests,
            expected.map(|(host, method, target)| Request::new(host, method, target).unwrap())
        );
        assert_eq!(skipped, 1);
    }
}
