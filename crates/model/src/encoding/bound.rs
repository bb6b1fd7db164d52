//! The allowed values of types. A bound is a type of its own, so that the decoder, the check of YAML and the schema of a CRD
//! share the bound. A bound of a single type stands beside that type.

use std::ops::RangeInclusive;

/// The allowed values of a type.
pub trait Bound {
    /// The type.
    type Value: ?Sized;
    /// The name of the value in messages.
    const FIELD: &'static str;

    /// Whether a value is allowed.
    fn allows(value: &Self::Value) -> bool;
}

/// Bounds of numbers and durations: ranges.
macro_rules! ranges {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $range:expr, $field:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl $name {
            /// The allowed values.
            pub const RANGE: RangeInclusive<$type> = $range;
        }

        impl Bound for $name {
            type Value = $type;
            const FIELD: &'static str = $field;

            fn allows(value: &$type) -> bool {
                Self::RANGE.contains(value)
            }
        }
    )*};
}

ranges! {
    /// A percentage from 0 to 100.
    PercentOrZero: u8 = 0..=100, "a percentage";
    /// A percentage with a fraction, from 0 to 100.
    Share: f64 = 0.0..=100.0, "the share of requests that are traced";
    /// Header lines in one head.
    HeaderLines: usize = 1..=256, "the number of header lines";
    /// A window of flow control (RFC 9113, 6.9.1).
    FlowWindow: u32 = 0..=(1 << 31) - 1, "a window of flow control";
}

/// Bounds of texts.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $rule:expr, $field:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Bound for $name {
            type Value = str;
            const FIELD: &'static str = $field;

            fn allows(text: &str) -> bool {
                let rule: fn(&str) -> bool = $rule;
                rule(text)
            }
        }
    )*};
}

texts! {
    /// The name of a header in any case (RFC 9110, 5.1).
    HeaderName = is_token, "the name of a header";
    /// The name in a host pattern.
    Name = is_filled, "the name of a host";
    /// The pattern of a path.
    PatternPath = |text| text.starts_with('/'), "a path";
}

fn is_filled(text: &str) -> bool {
    !text.is_empty()
}

/// RFC 9110, 5.6.2.
fn is_token(text: &str) -> bool {
    is_filled(text)
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Bounds of lists and bytes that must not be empty.
macro_rules! filled {
    ($($(#[$doc:meta])* $name:ident: $field:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<T>(std::marker::PhantomData<T>);

        impl<T> Bound for $name<T> {
            type Value = [T];
            const FIELD: &'static str = $field;

            fn allows(values: &[T]) -> bool {
                !values.is_empty()
            }
        }
    )*};
}

filled! {
    /// The certificate chain.
    Chain: "the chain of a certificate";
}
