//! The path for the service, as rewrites (`path_handling: v0`; see [`sluicegate_kong::path::join`]).

use sluicegate_kong::router::{Part, Path};
use sluicegate_model::value::{CapturePath, RewritePattern};

use crate::object::path::literal;

/// The rewrites of a part of a route.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Rewrites {
    /// The rewrite of all paths: the expression, and the new path.
    pub(super) regex: Option<(String, String)>,
    /// The paths of which nothing remains, and their new path.
    pub(super) exact: Vec<(String, String)>,
    /// The rewrite of paths that match the expressions as a whole.
    pub(super) whole: Option<(String, String)>,
}

/// The path cannot be written as a rewrite.
#[derive(Debug, PartialEq)]
pub(super) struct Inexpressible(pub(super) &'static str);

/// The rewrites of a part whose service has this path.
pub(super) fn rewrites(part: &Part<'_>, service: Option<&str>) -> Result<Rewrites, Inexpressible> {
    let service = service.filter(|path| !path.is_empty()).unwrap_or("/");
    let base = service.strip_suffix('/').unwrap_or(service);
    let ends_with_slash = base.len() < service.len();
    if base.contains(['$', '?', '#']) {
        return Err(Inexpressible("the path of the service has a '$', '?' or '#'"));
    }
    let keeps_root = |matches_root: bool| match !ends_with_slash && matches_root {
        true => vec![("/".to_owned(), base.to_owned())],
        false => Vec::new(),
    };
    if !part.route.strip_path {
        if base.is_empty() {
            return Ok(Rewrites::default());
        }
        let matches_root = part.paths.is_empty() || part.paths.iter().any(|path| path.matched("/").is_some());
        let regex = Some(("^(.*)$".to_owned(), format!("{base}$1")));
        return Ok(Rewrites { regex, exact: keeps_root(matches_root), whole: None });
    }
    let mut groups = 0;
    let mut alternatives = Vec::new();
    let mut exact = Vec::new();
    let mut is_regex = false;
    for path in &part.paths {
        match path {
            Path::Prefix(prefix) => {
                alternatives.push(literal(prefix));
                if !prefix.ends_with('/') && !base.is_empty() {
                    exact.push((prefix.clone(), base.to_owned()));
                }
            }
            Path::Regex(expression, compiled) => {
                is_regex = true;
                alternatives.push(expression.clone());
                groups += compiled.as_ref().map_or(0, |compiled| compiled.captures_len() - 1);
            }
        }
    }
    let is_root =
        matches!(&part.paths[..], [] | [Path::Prefix(_)]) && alternatives.iter().all(|path| path == "/");
    if is_root {
        if base.is_empty() {
            return Ok(Rewrites::default());
        }
        let regex = Some(("^(.*)$".to_owned(), format!("{base}$1")));
        return Ok(Rewrites { regex, exact: keeps_root(true), whole: None });
    }
    if groups >= 9 {
        return Err(Inexpressible("the regular expressions have more than 8 groups"));
    }
    let matched = match &alternatives[..] {
        [one] if !is_regex => one.clone(),
        all => format!("(?:{})", all.join("|")),
    };
    let regex = Some((format!("^{matched}(.*)$"), format!("{base}/${}", groups + 1)));
    let whole = (is_regex && !base.is_empty()).then(|| ("^.*?(/?)$".to_owned(), format!("{base}$1")));
    let is_valid = |(pattern, value): &(String, String)| {
        RewritePattern::new(pattern).is_ok() && CapturePath::new(value).is_ok()
    };
    match regex.as_ref().is_none_or(is_valid) {
        true => Ok(Rewrites { regex, exact, whole }),
        false => Err(Inexpressible("the paths are longer than 1024 bytes, or need too much memory")),
    }
}

#[cfg(test)]
mod tests {
    use regex::bytes::Regex;
    use sluicegate_kong::File;
    use sluicegate_kong::path::join;
    use sluicegate_kong::router::order;

    use super::*;

    /// The path that the rewrites make.
    fn applied(rewrites: &Rewrites, part: &Part<'_>, path: &str) -> String {
        if let Some((_, to)) = rewrites.exact.iter().find(|(exact, _)| exact == path) {
            return to.clone();
        }
        let is_whole = part.paths.iter().any(|of| of.matched(path) == Some(path.len()));
        let rewrite = rewrites.whole.as_ref().filter(|_| is_whole).or(rewrites.regex.as_ref());
        let Some((pattern, value)) = rewrite else { return path.to_owned() };
        let captures = Regex::new(pattern).unwrap().captures(path.as_bytes()).unwrap();
        let (before, group) = value.split_once('$').unwrap();
        let rest =
            captures.get(group.parse().unwrap()).map_or("", |of| std::str::from_utf8(of.as_bytes()).unwrap());
        // The data plane merges slashes.
        format!("{before}{rest}").replace("//", "/")
    }

    #[test]
    fn rewrites_make_the_path_that_kong_makes() {
        for paths in [
            "[/]",
            "[/route]",
            "[/route/]",
            "[/rou]",
            "['~/r[a-z]+']",
            "['~/(r)(o)u', '~/x']",
            "[/route, /other]",
            "null",
        ] {
            for strip in [true, false] {
                let text = format!(
                    "_format_version: \"3.0\"\nroutes: [{{name: a, hosts: [a.test], paths: {paths}, strip_path: {strip}}}]"
                );
                let file = File::read(&text, &|_| None).unwrap();
                for part in order(&file.routes) {
                    for service in [None, Some("/"), Some("/srv"), Some("/srv/"), Some("/a/b"), Some("/a/b/")]
                    {
                        for path in [
                            "/",
                            "/route",
                            "/route/",
                            "/routereq",
                            "/route/req",
                            "/rou",
                            "/roureq",
                            "/x",
                            "/x/",
                            "/other/1",
                        ] {
                            let request = sluicegate_kong::router::Request::new("a.test", path);
                            let Some(matched) = part.matched(&request) else { continue };
                            let expected = join(service.unwrap_or("/"), path, strip.then_some(matched));
                            let found = applied(&rewrites(&part, service).unwrap(), &part, path);
                            assert_eq!(found, expected, "{paths} {strip} {service:?} {path}");
                        }
                    }
                }
            }
        }
    }
}
