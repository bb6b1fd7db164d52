//! Bounded values: numbers, durations, sizes, texts and lists that are valid whenever they exist.
//!
//! The range of a value is part of its type. The schema of a CRD, the check of YAML and the decoder of the link take the range
//! from the type, so the range stands in one place.
//!
//! | module | what |
//! |---|---|
//! | [`number`] | [`Number`]: whole numbers |
//! | [`cipher_suites`] | [`CipherSuites`]: lists in the format of OpenSSL |
//! | [`span`] | [`Span`]: durations, written as `1h30m` (GEP-2257) |
//! | [`size`] | [`Size`]: sizes in bytes, written as `10Mi` |
//! | [`network`] | [`Network`]: networks and single addresses |
//! | [`origin`] | [`OriginPattern`]: origins of web pages |
//! | [`text`] | names, values, hosts and paths |
//! | [`template`] | [`Template`]: texts with variables of nginx |
//! | [`entries`] | [`Entries`]: lists |
//! | [`syntax`] | the rules of texts, with the reason for a rejection |

pub mod cipher_suites;
pub mod entries;
pub mod network;
pub mod number;
pub mod origin;
pub mod secret;
pub mod size;
pub mod span;
pub mod syntax;
pub mod template;
pub mod text;

pub use cipher_suites::CipherSuites;
pub use entries::Entries;
pub use network::Network;
pub use number::{Number, OutOfRange, Percent, Port, Weight};
pub use origin::OriginPattern;
pub use size::Size;
pub use span::{Age, Span, Timeout};
pub use template::{Template, TemplateError, TemplatePart, Variable};
pub use text::{
    AnnotatedHeader, Audience, CapturePath, CheckTarget, ClaimName, ClaimValue, ClientId, ConditionPath,
    ConsumerName, CookieDomain, CookieName, CookiePath, CredentialPrefix, DataKey, EditedHeader,
    EndpointName, ForwardedHeader, GroupName, HeaderName, HeaderValue, Hostname, IdentityHeader, InlineKeys,
    KeyPrefix, LimitName, LoginParameterName, MatchValue, MediaType, MethodName, NamespaceScope,
    ParameterName, ProviderName, Realm, RequestMethod, RewritePath, RewritePattern, Scope, ScopeList,
    ServerAddress, ServerUser, ServiceHeader, SignInParameter, SignInUrl, TimeZoneName, Url,
};
