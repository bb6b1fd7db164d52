//! The embedded files of the application, as they are in `app`.

use std::io::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA256, digest};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::body::Bytes;

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
const FILE_COUNT: usize = 38;

/// Every file with its media type.
const FILES: [(&str, &str, &[u8]); FILE_COUNT] = files![
    ("index.html", HTML),
    ("portal.html", HTML),
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
    ("portal/main.js", JS),
    ("portal/catalogue.js", JS),
    ("portal/api.js", JS),
    ("portal/subscriptions.js", JS),
    ("portal/keys.js", JS),
    ("portal/usage.js", JS),
];

/// A file of the application.
pub(crate) struct Asset {
    name: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
    pub(crate) gzip: Bytes,
    /// The entity tag, with its quotes.
    pub(crate) tag: String,
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let asset = |(name, media_type, bytes): (&'static str, &'static str, &'static [u8])| {
        let hash = digest(&SHA256, bytes);
        let hash: String = hash.as_ref().iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Asset { name, media_type, bytes, gzip: gzip(bytes), tag: format!("\"{hash}\"") }
    };
    FILES.into_iter().map(asset).collect()
});

/// The file of this name.
pub(crate) fn find(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// The page of the application.
pub(crate) fn page() -> &'static Asset {
    &ASSETS[0]
}

/// The page of the portal.
pub(crate) fn portal_page() -> &'static Asset {
    &ASSETS[1]
}

/// Compresses bytes.
pub(crate) fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    // Writing to memory does not fail.
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    packed.unwrap_or_default().into()
}
