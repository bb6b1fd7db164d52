//! The embedded files of the applications, as they are in `app`, and the pages that `app` has as templates.

use std::io::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;

use crate::access::SiteKind;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($(($name:literal, $media_type:expr)),* $(,)?) => {
        [$(($name, $media_type, include_bytes!(concat!("../app/", $name)).as_slice())),*]
    };
}

/// The number of files.
const FILE_COUNT: usize = 37;

/// Every file with its media type.
const FILES: [(&str, &str, &[u8]); FILE_COUNT] = files![
    ("style.css", CSS),
    ("icon.svg", SVG),
    ("main.js", JS),
    ("lib/dom.js", JS),
    ("lib/data.js", JS),
    ("lib/format.js", JS),
    ("lib/table.js", JS),
    ("lib/chart.js", JS),
    ("lib/icons.js", JS),
    ("lib/openapi.js", JS),
    ("lib/tryit.js", JS),
    ("theme.js", JS),
    ("pages/overview.js", JS),
    ("pages/routes.js", JS),
    ("pages/explain.js", JS),
    ("pages/upstreams.js", JS),
    ("pages/certificates.js", JS),
    ("pages/policies.js", JS),
    ("pages/apis.js", JS),
    ("pages/api.js", JS),
    ("pages/consumers.js", JS),
    ("pages/problems.js", JS),
    ("pages/analytics.js", JS),
    ("pages/audit.js", JS),
    ("pages/plans.js", JS),
    ("pages/subscriptions.js", JS),
    ("pages/keys.js", JS),
    ("lib/change.js", JS),
    ("lib/document.js", JS),
    ("lib/frame.js", JS),
    ("lib/trail.js", JS),
    ("portal/main.js", JS),
    ("portal/catalogue.js", JS),
    ("portal/api.js", JS),
    ("portal/subscriptions.js", JS),
    ("portal/keys.js", JS),
    ("portal/usage.js", JS),
];

/// The head that all pages have in common.
const HEAD: &str = include_str!("../app/head.html");

/// The page of an application, below the head.
const PAGE: &str = include_str!("../app/page.html");

/// A page with a message, below the head.
const MESSAGE: &str = include_str!("../app/message.html");

/// A file of the application.
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: Bytes,
    pub(crate) gzip: Bytes,
    /// The entity tag, with its quotes.
    pub(crate) tag: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let asset = |(name, media_type, bytes)| Asset::new(name, media_type, Bytes::from_static(bytes));
    FILES.into_iter().map(asset).collect()
});

static PAGES: LazyLock<[Asset; 2]> = LazyLock::new(|| {
    [SiteKind::Dashboard, SiteKind::Portal].map(|site| {
        let (script, noscript) = match site {
            SiteKind::Dashboard => (
                "/app/main.js",
                "The dashboard needs JavaScript. The commands <code>sluicegate routes</code>, <code>sluicegate upstreams</code> and \
                 <code>sluicegate explain</code> show the same facts in a terminal.",
            ),
            SiteKind::Portal => ("/app/portal/main.js", "The portal needs JavaScript."),
        };
        let page = [HEAD, PAGE].concat();
        let page = page.replace("{{title}}", site.title()).replace("{{script}}", script);
        Asset::new("", HTML, page.replace("{{noscript}}", noscript).into())
    })
});

impl Asset {
    fn new(name: &'static str, media_type: &'static str, bytes: Bytes) -> Self {
        let hash = digest(&SHA256, &bytes);
        let hash: String = hash.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Self { name, media_type, gzip: gzip(&bytes), bytes, tag: format!("\"{hash}\"") }
    }
}

/// The file of this name.
pub(crate) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The page of the application of a site.
pub(crate) fn page(site: SiteKind) -> &'static Asset {
    match site {
        SiteKind::Dashboard => &PAGES[0],
        SiteKind::Portal => &PAGES[1],
    }
}

/// A page with a message, and a link. The browser follows the link at once if `goes_on`.
pub(crate) fn message(
    site: SiteKind,
    (title, message): (&str, &str),
    (href, link): (&str, &str),
    goes_on: bool,
) -> String {
    let refresh = match goes_on {
        true => format!("<meta http-equiv=\"refresh\" content=\"0; url={}\">\n", escaped(href)),
        false => String::new(),
    };
    let head = HEAD.replace("{{title}}", &format!("{} – {}", escaped(title), site.title()));
    let mut page = head;
    // One pass: a message that looks like a field stays a message.
    let mut rest = MESSAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let (field, after) = after.split_once("}}").unwrap_or((after, ""));
        page.push_str(before);
        match field {
            "refresh" => page.push_str(&refresh),
            "site" => page.push_str(site.title()),
            "title" => page.push_str(&escaped(title)),
            "message" => page.push_str(&escaped(message)),
            "href" => page.push_str(&escaped(href)),
            _ => page.push_str(&escaped(link)),
        }
        rest = after;
    }
    page.push_str(rest);
    page
}

/// A text for HTML, also inside of quotes.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(character),
        }
    }
    out
}

/// Compresses bytes.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_message_never_becomes_html() {
        let evil = "<b>{{href}} \"' & </b>";
        let page = message(SiteKind::Portal, (evil, evil), ("/a?b=\"><i>", evil), true);
        assert!(!page.contains("<b>") && !page.contains("<i>"), "{page}");
        assert!(
            page.contains("<p class=\"break\">&lt;b&gt;{{href}} &quot;&#39; &amp; &lt;/b&gt;</p>"),
            "{page}"
        );
        assert!(page.contains("content=\"0; url=/a?b=&quot;&gt;&lt;i&gt;\""), "{page}");
    }
}
