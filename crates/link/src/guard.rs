//! Whether a last valid version would open what a newer one closes. The newer one cannot be read as a whole, so no more is
//! read of it than which paths have which policies.

use minicbor::{Decoder, decode};
use sluicegate_model::encoding::SKIPPED_FROM;
use sluicegate_model::{PathPattern, Route, VirtualHost};

/// Indices of [`VirtualHost`] and of [`Route`]; a test holds them against the model.
mod index {
    pub(super) const HOST_KNOWN: std::ops::RangeInclusive<i64> = 0..=2;
    pub(super) const ROUTES: i64 = 1;
    pub(super) const FALLBACK: i64 = 2;
    pub(super) const ROUTE_KNOWN: std::ops::RangeInclusive<i64> = 0..=8;
    pub(super) const PATH: i64 = 1;
    pub(super) const SECURITY: i64 = 6;
}

/// What can be read of a host.
#[derive(Debug, Default)]
pub(crate) struct HostOutline {
    /// What is for all paths comes first.
    routes: Vec<RouteOutline>,
    /// Whether it has a field that this version does not know and may not skip.
    has_unknown: bool,
}

/// What can be read of a route.
#[derive(Debug, Default)]
pub(crate) struct RouteOutline {
    path: Option<PathPattern>,
    has_security: bool,
    /// Whether it has a field that this version does not know and may not skip, such as a new kind of policy.
    has_unknown: bool,
}

/// The fields of a map, each as its index and its encoding.
fn fields<'b>(
    decoder: &mut Decoder<'b>,
    mut each: impl FnMut(i64, &'b [u8]) -> Result<(), decode::Error>,
) -> Result<(), decode::Error> {
    let length = decoder.map()?.ok_or_else(|| decode::Error::message("indefinite length"))?;
    for _ in 0..length {
        let index = decoder.i64()?;
        let begin = decoder.position();
        decoder.skip()?;
        each(index, decoder.input().get(begin..decoder.position()).unwrap_or_default())?;
    }
    Ok(())
}

impl HostOutline {
    /// Nothing, if it is no host at all.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut outline = Self::default();
        let mut others = Vec::new();
        let read = fields(&mut Decoder::new(body), |index, item| {
            let mut decoder = Decoder::new(item);
            match index {
                index::ROUTES => {
                    for _ in 0..decoder.array()?.unwrap_or_default() {
                        others.push(RouteOutline::decode(&mut decoder)?);
                    }
                }
                index::FALLBACK => outline.routes.push(RouteOutline::decode(&mut decoder)?),
                _ => outline.has_unknown |= is_unknown(index, &index::HOST_KNOWN),
            }
            Ok(())
        });
        read.ok()?;
        outline.routes.append(&mut others);
        Some(outline)
    }

    /// Whether an older form would serve a path without what guards it now: by the route of that path, or by one for less
    /// of it.
    pub(crate) fn is_opened_by(&self, older: &VirtualHost) -> bool {
        if self.has_unknown {
            return true;
        }
        let mut now = Vec::with_capacity(self.routes.len());
        for route in &self.routes {
            match &route.path {
                Some(path) => now.push((path, route)),
                // Whatever it is for.
                None if route.is_guarded() => return true,
                None => {}
            }
        }
        let before: Vec<_> =
            older.fallback.iter().chain(&older.routes).map(|route| (&route.path, route)).collect();
        let paths = now.iter().map(|(path, _)| *path).chain(before.iter().map(|(path, _)| *path));
        paths.map(PathPattern::as_str).any(|path| match (serves(&now, path), serves(&before, path)) {
            (Some(now), Some(older)) => now.is_opened_by(older),
            _ => false,
        })
    }
}

impl RouteOutline {
    /// Nothing, if it is no route at all.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        Self::decode(&mut Decoder::new(body)).ok()
    }

    fn decode(decoder: &mut Decoder<'_>) -> Result<Self, decode::Error> {
        let mut outline = Self::default();
        fields(decoder, |index, item| {
            match index {
                index::PATH => outline.path = decode(item).ok(),
                index::SECURITY => outline.has_security = true,
                _ => outline.has_unknown |= is_unknown(index, &index::ROUTE_KNOWN),
            }
            Ok(())
        })?;
        Ok(outline)
    }

    fn is_guarded(&self) -> bool {
        self.has_security || self.has_unknown
    }

    /// Whether an older one for the same paths would be served without what guards it now. Without limits of its rate, or
    /// with other headers, it lets nobody in who may not.
    pub(crate) fn is_opened_by(&self, older: &Route) -> bool {
        self.has_unknown || self.has_security && older.security.is_none()
    }
}

fn is_unknown(index: i64, known: &std::ops::RangeInclusive<i64>) -> bool {
    !known.contains(&index) && index < SKIPPED_FROM
}

/// Which route takes a path (see [`PathPattern`]). Of those that are equal, the last.
fn serves<R: Copy>(routes: &[(&PathPattern, R)], path: &str) -> Option<R> {
    let takes = |pattern: &PathPattern| match (pattern, path.strip_prefix(pattern.as_str())) {
        (_, None) => false,
        (PathPattern::Exact(_), Some(rest)) => rest.is_empty(),
        (PathPattern::Prefix(pattern), Some(rest)) => {
            rest.is_empty() || rest.starts_with('/') || &**pattern == "/"
        }
        (PathPattern::Starts(_), Some(_)) => true,
    };
    let rank = |pattern: &PathPattern| match pattern {
        PathPattern::Exact(_) => 2,
        PathPattern::Prefix(_) => 1,
        PathPattern::Starts(_) => 0,
    };
    let taking = routes.iter().filter(|(pattern, _)| takes(pattern));
    let best = taking.max_by_key(|(pattern, _)| (pattern.as_str().len(), rank(pattern)));
    best.map(|(_, route)| *route)
}
