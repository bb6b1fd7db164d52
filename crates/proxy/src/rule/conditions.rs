//! Conditions of a rule beside its path: the method, headers, and parameters of the query.

use sluicegate_http1::Known;
use sluicegate_model::rule::{Pattern, RuleMatch, ValueMatch};

use crate::feature::authentication::credential::is_line;
use crate::query::{decoded, pairs};
use crate::request::HeadView;

/// The conditions of a match. A request meets them if it meets each of them.
#[derive(Debug)]
pub(super) struct Conditions {
    method: Option<Box<[u8]>>,
    headers: Box<[Header]>,
    query: Box<[Parameter]>,
}

#[derive(Debug)]
struct Header {
    name: Box<str>,
    known: Known,
    value: Value,
}

#[derive(Debug)]
struct Parameter {
    name: Box<[u8]>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Exact(Box<[u8]>),
    Regex(Pattern),
    Present,
}

impl Conditions {
    /// The conditions of a match; `None` if the match has only a path.
    pub(super) fn of(source: &RuleMatch) -> Option<Box<Self>> {
        if source.is_path_alone() {
            return None;
        }
        let headers = source.headers.iter().map(|header| Header {
            name: header.name.clone(),
            known: Known::of(header.name.as_bytes()),
            value: Value::of(&header.value),
        });
        let query = source.query.iter().map(|parameter| Parameter {
            name: parameter.name.as_bytes().into(),
            value: Value::of(&parameter.value),
        });
        Some(Box::new(Self {
            method: source.method.as_ref().map(|method| method.as_bytes().into()),
            headers: headers.collect(),
            query: query.collect(),
        }))
    }

    /// Whether a request meets all conditions. The cheapest conditions are checked first.
    pub(super) fn are_met_by(&self, request: HeadView<'_>) -> bool {
        let HeadView { head, buf } = request;
        self.method.as_ref().is_none_or(|method| **method == *head.method_name.of(buf))
            && self.headers.iter().all(|header| header.is_met_by(request))
            && self.query.iter().all(|parameter| parameter.is_met_by(request))
    }
}

impl Header {
    fn is_met_by(&self, HeadView { head, buf }: HeadView<'_>) -> bool {
        let mut values = head
            .lines
            .iter()
            .filter(|line| is_line(line, self.known, &self.name, buf))
            .map(|line| line.value.of(buf));
        let Some(first) = values.next() else { return false };
        match values.next() {
            None => self.value.is_met_by(first),
            Some(second) => {
                let all: Vec<&[u8]> = [first, second].into_iter().chain(values).collect();
                self.value.is_met_by(&all.join(&b','))
            }
        }
    }
}

impl Parameter {
    fn is_met_by(&self, HeadView { head, buf }: HeadView<'_>) -> bool {
        let query = head.query.map_or(&[][..], |query| query.of(buf));
        let value = pairs(query, b'&').find(|(name, _)| *decoded(name) == *self.name);
        value.is_some_and(|(_, value)| self.value.is_met_by(&decoded(value)))
    }
}

impl Value {
    fn of(source: &ValueMatch) -> Self {
        match source {
            ValueMatch::Exact(value) => Self::Exact(value.as_bytes().into()),
            ValueMatch::Regex(pattern) => Self::Regex(pattern.clone()),
            ValueMatch::Present => Self::Present,
        }
    }

    fn is_met_by(&self, value: &[u8]) -> bool {
        match self {
            Self::Exact(exact) => **exact == *value,
            Self::Regex(pattern) => pattern.is_match(value),
            Self::Present => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};
    use sluicegate_model::PathPattern;
    use sluicegate_model::rule::{HeaderMatch, QueryMatch};

    use super::*;

    fn is_met(change: impl FnOnce(&mut RuleMatch), request: &str) -> bool {
        let mut of = RuleMatch::path(PathPattern::Prefix("/".into()));
        change(&mut of);
        let text = request.replace('\n', "\r\n") + "\r\n\r\n";
        let mut head = RequestHead::default();
        assert!(head.parse(text.as_bytes(), &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        let conditions = Conditions::of(&of).unwrap();
        conditions.are_met_by(HeadView { head: &head, buf: text.as_bytes() })
    }

    fn exact(value: &str) -> ValueMatch {
        ValueMatch::Exact(value.into())
    }

    fn regex(text: &str) -> ValueMatch {
        ValueMatch::Regex(Pattern::new(text, false).unwrap())
    }

    #[test]
    fn match_with_only_a_path_has_no_conditions() {
        assert!(Conditions::of(&RuleMatch::path(PathPattern::Prefix("/".into()))).is_none());
    }

    #[test]
    fn method_condition_matches_the_exact_method() {
        let get = |of: &mut RuleMatch| of.method = Some("GET".into());
        assert!(is_met(get, "GET / HTTP/1.1\nHost: a"));
        assert!(!is_met(get, "POST / HTTP/1.1\nHost: a"));
        assert!(!is_met(get, "HEAD / HTTP/1.1\nHost: a"));
    }

    #[test]
    fn request_matches_only_if_all_header_conditions_match() {
        let headers = |all: &[(&str, ValueMatch)]| {
            let all =
                all.iter().map(|(name, value)| HeaderMatch { name: (*name).into(), value: value.clone() });
            let all: Vec<_> = all.collect();
            move |of: &mut RuleMatch| of.headers = all
        };
        for (conditions, lines, expected) in [
            (&[("x-a", exact("1"))][..], "X-A: 1", true),
            (&[("x-a", exact("1"))], "X-A:\t1 ", true),
            (&[("x-a", exact("1"))], "X-A: 2", false),
            (&[("x-a", exact("1"))], "X-A-B: 1", false),
            (&[("x-a", exact("1"))], "X-A: 1\nX-A: 2", false),
            (&[("x-a", exact("1,2"))], "X-A: 1\nx-a: 2", true),
            (&[("x-a", ValueMatch::Present)], "X-A:", true),
            (&[("x-a", ValueMatch::Present)], "X-B: 1", false),
            (&[("x-a", regex("^v[0-9]$"))], "X-A: v2", true),
            (&[("x-a", regex("^v[0-9]$"))], "X-A: v22", false),
            (&[("x-a", exact("1")), ("cookie", regex("a=b"))], "X-A: 1\nCookie: a=b", true),
            (&[("x-a", exact("1")), ("cookie", regex("a=b"))], "X-A: 1", false),
        ] {
            let request = format!("GET / HTTP/1.1\nHost: a\n{lines}");
            assert_eq!(is_met(headers(conditions), &request), expected, "{conditions:?} {lines:?}");
        }
    }

    #[test]
    fn query_condition_compares_the_first_parameter_of_the_name_after_decoding() {
        let parameter = |name: &str, value: ValueMatch| {
            let all = vec![QueryMatch { name: name.into(), value }];
            move |of: &mut RuleMatch| of.query = all
        };
        for (name, value, target, expected) in [
            ("a", exact("1"), "/?a=1", true),
            ("a", exact("1"), "/?b=2&a=1", true),
            ("a", exact("1"), "/?a=2&a=1", false),
            ("a", exact("1"), "/", false),
            ("a", exact("x y"), "/?a=x%20y", true),
            ("a", exact("x y"), "/?a=x+y", true),
            ("a b", exact("1"), "/?a%20b=1", true),
            ("a", exact(""), "/?a", true),
            ("a", ValueMatch::Present, "/?a=", true),
            ("A", exact("1"), "/?a=1", false),
            ("a", regex("^[0-9]+$"), "/?a=12x", false),
        ] {
            let request = format!("GET {target} HTTP/1.1\nHost: a");
            assert_eq!(
                is_met(parameter(name, value.clone()), &request),
                expected,
                "{name} {value:?} {target}"
            );
        }
    }
}
