//! The types of values, as ingress-nginx 1.15 reads them.

use std::sync::Arc;

use sluicegate_model::value::{Template, syntax};

use crate::object::{Kind, ObjectRef};

/// The value of an annotation, without surrounding white space.
pub(crate) struct Value<'v> {
    pub(crate) text: &'v str,
    /// The namespace of the Ingress.
    pub(crate) namespace: &'v Arc<str>,
    /// Whether the value may name objects of other namespaces (`allow-cross-namespace-resources`).
    pub(crate) crosses_namespaces: bool,
}

impl<'v> Value<'v> {
    /// A value that names no object of another namespace.
    pub(crate) fn within(text: &'v str, namespace: &'v Arc<str>) -> Self {
        Self { text, namespace, crosses_namespaces: false }
    }

    /// `true` or `false`, in the spellings of Go (`strconv.ParseBool`).
    pub(crate) fn switch(&self) -> Result<bool, String> {
        match self.text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            other => Err(format!("{other:?} is neither \"true\" nor \"false\"")),
        }
    }

    /// A whole number.
    pub(crate) fn number(&self) -> Result<i64, String> {
        self.text.parse().map_err(|_| format!("{:?} is not a whole number", self.text))
    }

    /// A number of seconds; `None` for 0 or less.
    pub(crate) fn seconds(&self) -> Result<Option<u64>, String> {
        self.number().map(|seconds| u64::try_from(seconds).ok().filter(|seconds| *seconds > 0))
    }

    /// A text with variables of nginx.
    pub(crate) fn template(&self) -> Result<Template, String> {
        Template::new(self.text).map_err(|fault| format!("{:?} {fault}", self.text))
    }

    /// One of these words.
    pub(crate) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, String> {
        let found = words.iter().find(|(word, _)| *word == self.text).map(|(_, meaning)| *meaning);
        found.ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            format!("{:?} is not one of {}", self.text, words.join(", "))
        })
    }

    /// A size of nginx in bytes: a number with `k`, `m` or `g` in either case, powers of 1024.
    pub(crate) fn size(&self) -> Result<u64, String> {
        let text = self.text;
        let fault = || format!("{text:?} is not a size such as 8m: write a number with k, m or g");
        let (number, unit) = match text.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&text[..at], 1 << 10),
            Some((at, 'm' | 'M')) => (&text[..at], 1 << 20),
            Some((at, 'g' | 'G')) => (&text[..at], 1 << 30),
            _ => (text, 1),
        };
        let number: u64 = number.parse().map_err(|_| fault())?;
        number.checked_mul(unit).ok_or_else(fault)
    }

    /// The entries of a list with commas, without empty entries.
    pub(crate) fn list(&self) -> impl Iterator<Item = &str> {
        self.text.split(',').map(str::trim).filter(|entry| !entry.is_empty())
    }

    /// An object of the namespace of the Ingress: `name`, or `namespace/name`. ingress-nginx reads objects of other namespaces
    /// only with `allow-cross-namespace-resources`.
    pub(crate) fn object(&self, kind: Kind) -> Result<ObjectRef, String> {
        let (within, name) = self.text.split_once('/').unwrap_or((self.namespace, self.text));
        let is_own = *within == **self.namespace;
        if !is_own && !self.crosses_namespaces {
            return Err(format!(
                "{:?} is of another namespace: name a {kind} of namespace {}, or set allow-cross-namespace-resources",
                self.text, self.namespace
            ));
        }
        if let Some(fault) = syntax::dns_name_fault(within).filter(|_| !is_own) {
            return Err(format!("{within:?} {fault}"));
        }
        match syntax::dns_name_fault(name) {
            Some(fault) => Err(format!("{name:?} {fault}")),
            None => {
                let namespace = if is_own { self.namespace.clone() } else { within.into() };
                Ok(ObjectRef { kind, namespace, name: name.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value<'_> {
        static NAMESPACE: std::sync::LazyLock<Arc<str>> = std::sync::LazyLock::new(|| "shop".into());
        Value::within(text, &NAMESPACE)
    }

    #[test]
    fn sizes_have_the_units_of_nginx_which_are_powers_of_1024() {
        for (text, bytes) in
            [("0", Some(0)), ("8m", Some(8 << 20)), ("1K", Some(1024)), ("2g", Some(2 << 30))]
        {
            assert_eq!(value(text).size().ok(), bytes, "{text}");
        }
        for text in ["", "m", "-1", "8mb", "1.5m", "99999999999999999g"] {
            assert!(value(text).size().is_err(), "{text}");
        }
    }

    #[test]
    fn switches_have_the_spellings_of_go() {
        assert_eq!((value("T").switch(), value("0").switch()), (Ok(true), Ok(false)));
        assert!(value("yes").switch().is_err() && value("on").switch().is_err());
    }

    #[test]
    fn object_of_another_namespace_is_rejected() {
        assert_eq!(&*value("shop/users").object(Kind::Secret).unwrap().name, "users");
        assert!(value("other/users").object(Kind::Secret).is_err());
        assert!(value("../users").object(Kind::Secret).is_err());
        let crossing = |text| Value { crosses_namespaces: true, ..value(text) };
        assert_eq!(&*crossing("other/users").object(Kind::Secret).unwrap().namespace, "other");
        assert!(crossing("../users").object(Kind::Secret).is_err());
        assert!(value("shop/../../etc").object(Kind::Secret).is_err());
    }
}
