//! The host names for TLS, compiled from the model for lookup in a handshake.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, ServerConfig, SupportedProtocolVersion};
use sluicegate_any_certificate::AnyCertificate;
use sluicegate_model::tls::{TicketSecret, TlsSettings, TlsVersion, UnknownNames};
use sluicegate_model::value::CipherSuites;
use sluicegate_model::{Certificate, ClientAuth, ClientAuthMode, EntryPoint, HostPattern, Settings, Tls};

use super::acme::AcmeHosts;
use super::client_auth;
use super::own::own_certificate;
use super::quic::HostConfig;
use super::ticket::{self, Tickets};
use super::{certified_key, provider, provider_with};
use crate::failure::TlsFault;
use crate::name::{HostMap, host_name};

/// The protocols for ALPN (RFC 7301), in order of preference. Clients of HTTP/1.0 offer only `http/1.0`.
const PROTOCOLS: [&[u8]; 3] = [b"h2", b"http/1.1", b"http/1.0"];

/// The host names for TLS.
#[derive(Debug, Default)]
pub(crate) struct TlsTable {
    hosts: HostMap<Entry>,
    default: Option<Arc<Host>>,
    unknown_names: UnknownNames,
    /// The hosts whose certificates the control plane orders, the same at all entry points.
    acme: Option<Arc<AcmeHosts>>,
    /// Whether the names belong to the listeners of Gateways. A connection is for one listener, even if its certificate
    /// covers names of other listeners (Gateway API, `GatewayHTTPSListenerDetectMisdirectedRequests`).
    has_listeners: bool,
}

/// The host names for TLS of each entry point.
#[derive(Debug, Default)]
pub(crate) struct TlsTables {
    flags: Arc<TlsTable>,
    /// The entry points of Gateways, and the HTTPS listeners that flags set if Gateways add names there.
    others: HashMap<EntryPoint, Arc<TlsTable>>,
    /// The entry points without names.
    nameless: Arc<TlsTable>,
}

impl TlsTables {
    /// The tables of a process without a data plane: no names, and the hosts whose certificates the control plane orders.
    pub(crate) fn of_no_worker(tls: &Tls) -> Self {
        let acme = AcmeHosts::compile(&tls.acme).map(Arc::new);
        let table = Arc::new(TlsTable { acme, ..TlsTable::default() });
        Self { flags: table.clone(), others: HashMap::new(), nameless: table }
    }

    /// The hosts whose certificates the control plane orders, if there are any.
    pub(crate) fn acme(&self) -> Option<&Arc<AcmeHosts>> {
        self.flags.acme.as_ref()
    }

    /// Whether names are for this entry point alone.
    pub(crate) fn has(&self, entry_point: &EntryPoint) -> bool {
        self.others.contains_key(entry_point)
    }

    /// The names of an entry point.
    pub(crate) fn of(&self, entry_point: &EntryPoint) -> Arc<TlsTable> {
        match (self.others.get(entry_point), entry_point) {
            (Some(own), _) => own.clone(),
            // A Gateway has no certificates but those of its listeners.
            (None, EntryPoint::Gateway(_)) => self.nameless.clone(),
            (None, _) => self.flags.clone(),
        }
    }
}

/// The handling of a name.
#[derive(Clone, Debug)]
enum Entry {
    /// The gateway terminates TLS.
    Host(Arc<Host>),
    /// The configuration is unusable, so that all connections are rejected.
    Unusable,
    /// Connections are passed through without decryption.
    Passthrough,
}

/// The result of a lookup.
pub(super) enum Found<'t> {
    Host(&'t Arc<Host>),
    /// TLS passthrough.
    Passthrough,
}

/// A host name with certificates, or the default.
#[derive(Debug)]
pub(crate) struct Host {
    pub(super) config: Arc<ServerConfig>,
    /// The configuration for HTTP/3, if the gateway serves HTTP/3 for the host.
    pub(super) quic: Option<HostConfig>,
    /// `None` for the default.
    pattern: Option<HostPattern>,
    certificates: Vec<Arc<Certificate>>,
    pub(crate) client_auth: Option<Arc<ClientAuth>>,
    /// Whether the connections are relayed to a route instead of carrying HTTP.
    pub(crate) relays: bool,
}

/// The host that a connection was opened for.
#[derive(Debug)]
pub(crate) struct Session {
    /// The requested server name, in lower case.
    pub(crate) name: Option<Box<str>>,
    pub(crate) host: Arc<Host>,
    /// The version and the cipher, after the handshake.
    pub(crate) negotiated: (Option<ProtocolVersion>, Option<CipherSuite>),
}

impl TlsTable {
    /// The configuration for the handshake with an ACME server that validates a challenge for a name.
    pub(super) fn challenge(&self, name: Option<&str>) -> Option<&Arc<ServerConfig>> {
        self.acme.as_ref()?.challenge(name?)
    }

    /// The host for the server name that a client requests.
    pub(super) fn find(&self, name: Option<&str>) -> Result<Found<'_>, TlsFault> {
        match (self.hosts.find(name.unwrap_or_default().as_bytes()), name, self.unknown_names) {
            (Some(Entry::Host(host)), ..) => Ok(Found::Host(host)),
            (Some(Entry::Passthrough), ..) => Ok(Found::Passthrough),
            (Some(Entry::Unusable), ..) => Err(TlsFault::Unusable),
            (None, Some(_), UnknownNames::Refuse) => Err(TlsFault::UnknownName),
            (None, ..) => self.default.as_ref().map(Found::Host).ok_or(TlsFault::UnknownName),
        }
    }

    /// The check of clients' certificates in connections for a name; `None`: no check. The error is the reason why the
    /// handshake fails. Without any names, as in a process without a data plane, no handshake fails.
    pub(crate) fn client_auth(&self, name: &str) -> Result<Option<&Arc<ClientAuth>>, TlsFault> {
        if self.default.is_none() && self.hosts.is_empty() {
            return Ok(None);
        }
        match self.find(Some(name).filter(|name| name.parse::<std::net::IpAddr>().is_err()))? {
            Found::Host(host) => Ok(host.client_auth.as_ref()),
            Found::Passthrough => Ok(None),
        }
    }

    /// Whether a request for this host must not be served on the session's connection (421; RFC 9110, 7.4), because its
    /// certificate does not cover the host, or because the host belongs to another listener. A client without a server name has received no promise about the certificate.
    pub(crate) fn is_misdirected(&self, session: &Session, authority: &[u8]) -> bool {
        let host = host_name(authority);
        let Some(name) = &session.name else { return false };
        if host.is_empty() || host.eq_ignore_ascii_case(name.as_bytes()) {
            return false;
        }
        let here = match self.hosts.find(host) {
            // The gateway serves no HTTP for this host.
            Some(Entry::Passthrough) => return true,
            Some(Entry::Host(here)) if here.relays => return true,
            Some(Entry::Host(here)) => here,
            Some(Entry::Unusable) => return false,
            None => match &self.default {
                Some(here) => here,
                None => return false,
            },
        };
        here.pattern != session.host.pattern && (self.has_listeners || !session.host.covers(host))
    }
}

impl Session {
    /// The version of TLS, as nginx writes it.
    pub(crate) fn protocol(&self) -> &'static str {
        match self.negotiated.0 {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "",
        }
    }

    /// The name of the cipher in OpenSSL, as nginx writes it.
    pub(crate) fn cipher(&self) -> &'static str {
        use CipherSuite as Suite;

        match self.negotiated.1 {
            Some(Suite::TLS13_AES_256_GCM_SHA384) => "TLS_AES_256_GCM_SHA384",
            Some(Suite::TLS13_AES_128_GCM_SHA256) => "TLS_AES_128_GCM_SHA256",
            Some(Suite::TLS13_CHACHA20_POLY1305_SHA256) => "TLS_CHACHA20_POLY1305_SHA256",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384) => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256) => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Some(Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256) => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Some(Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384) => "ECDHE-RSA-AES256-GCM-SHA384",
            Some(Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256) => "ECDHE-RSA-AES128-GCM-SHA256",
            Some(Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256) => "ECDHE-RSA-CHACHA20-POLY1305",
            _ => "",
        }
    }

    /// Whether the connection was opened under this client certificate policy.
    pub(crate) fn is_under(&self, policy: &Arc<ClientAuth>) -> bool {
        self.host.client_auth.as_ref().is_some_and(|own| Arc::ptr_eq(own, policy) || own == policy)
    }
}

impl Host {
    /// Whether the configuration names the host. `false`: the host stands for all other names.
    pub(crate) fn is_configured(&self) -> bool {
        self.pattern.is_some()
    }

    fn covers(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        self.certificates.iter().any(|certificate| certificate.covers(&name))
    }
}

/// Compiles tables, and reuses unchanged parts.
#[derive(Debug)]
pub(crate) struct Compiler {
    /// The keys in use, by the addresses of their certificates.
    keys: HashMap<usize, (Arc<Certificate>, Arc<CertifiedKey>)>,
    own_secret: Option<TicketSecret>,
    /// The default certificate, if the configuration has no usable default certificate.
    own_certificate: Option<Arc<Certificate>>,
    latest: Option<Latest>,
}

/// The last compiled configuration.
#[derive(Debug)]
struct Latest {
    tls: Arc<Tls>,
    settings: TlsSettings,
    tables: Arc<TlsTables>,
    /// The compiled hosts, by the addresses of the hosts of `tls`.
    hosts: HashMap<usize, Entry>,
}

impl Latest {
    /// Whether an equal host of another configuration is compiled to the same.
    fn has_hosts_of(&self, tls: &Tls, settings: &Settings) -> bool {
        self.settings == settings.tls
            && self.tls.default == tls.default
            && self.tls.ticket_secrets == tls.ticket_secrets
    }
}

impl Compiler {
    pub(crate) fn new() -> Self {
        let own_secret = ticket::own_secret().inspect_err(|_| {
            tracing::warn!("cannot get random numbers for session tickets; TLS sessions are not resumed");
        });
        let own_certificate = own_certificate().inspect_err(|error| {
            tracing::warn!(%error, "cannot create the self-signed default certificate; clients of hosts without a certificate are rejected");
        });
        Self {
            keys: HashMap::new(),
            own_secret: own_secret.ok(),
            own_certificate: own_certificate.ok().map(Arc::new),
            latest: None,
        }
    }

    /// The tables of a configuration. An unusable certificate is left out and logged: the control plane has checked all
    /// certificates before.
    pub(crate) fn compile(&mut self, tls: &Arc<Tls>, settings: &Settings) -> Arc<TlsTables> {
        if let Some(latest) = &self.latest
            && (Arc::ptr_eq(&latest.tls, tls) || latest.tls == *tls)
            && latest.settings == settings.tls
        {
            return latest.tables.clone();
        }
        let known = self.latest.take().filter(|latest| latest.has_hosts_of(tls, settings));
        let keys = &mut self.keys;
        let mut compiled = |certificates: &[Arc<Certificate>]| -> Vec<Arc<CertifiedKey>> {
            let mut usable = Vec::new();
            for certificate in certificates {
                let at = Arc::as_ptr(certificate).addr();
                let key = keys.get(&at).map(|(_, key)| key.clone());
                let key = key.or_else(|| {
                    let compiled = certified_key(certificate);
                    compiled.inspect_err(|error| tracing::error!(%error, source = %certificate.source, "cannot use a certificate; its hosts use another certificate, or the default")).ok().map(Arc::new)
                });
                if let Some(key) = key {
                    keys.insert(at, (certificate.clone(), key.clone()));
                    usable.push(key);
                }
            }
            usable
        };
        let own: Vec<Arc<Certificate>> = self.own_certificate.iter().cloned().collect();
        let (default_keys, default_certificates) = match compiled(&tls.default) {
            keys if keys.is_empty() => (compiled(&own), own),
            keys => (keys, tls.default.clone()),
        };
        let secrets = match &*tls.ticket_secrets {
            [] => self.own_secret.iter().cloned().collect(),
            given => given.to_vec(),
        };
        let mut tickets: Vec<(Option<Arc<ClientAuth>>, Arc<Tickets>)> = Vec::new();
        let mut host =
            |pattern, certificates: &[Arc<Certificate>], auth: &Option<Arc<ClientAuth>>, relays, ciphers| {
                let own = compiled(certificates);
                let (keys, certificates) = match own.is_empty() {
                    true => (default_keys.clone(), default_certificates.clone()),
                    false => (own, certificates.to_vec()),
                };
                let sealed = match tickets.iter().find(|(known, _)| known == auth) {
                    Some((_, tickets)) => tickets.clone(),
                    None => {
                        let of_policy = Arc::new(Tickets::new(secrets.clone(), purpose(auth.as_deref())));
                        tickets.push((auth.clone(), of_policy.clone()));
                        of_policy
                    }
                };
                let config = server_config(keys, auth.as_deref(), sealed, (&settings.tls, ciphers), relays)
                .inspect_err(
                    |error| tracing::error!(%error, "cannot serve a host over TLS; its clients are rejected"),
                );
                let config = config.ok()?;
                let http3 = settings.tls.http3.filter(|_| !relays);
                let quic = http3.and_then(|http3| {
                    // A client without a certificate so far could send requests.
                    HostConfig::new(&config, http3.early_data && auth.is_none())
                        .inspect_err(|error| tracing::error!(%error, "cannot serve a host over HTTP/3"))
                        .ok()
                });
                Some(Arc::new(Host {
                    config: Arc::new(config),
                    quic,
                    pattern,
                    certificates,
                    client_auth: auth.clone(),
                    relays,
                }))
            };
        let acme = AcmeHosts::compile(&tls.acme).map(Arc::new);
        let mut by_entry_point: HashMap<&EntryPoint, HostMap<Entry>> = HashMap::new();
        let mut compiled_hosts = HashMap::with_capacity(tls.hosts.len());
        for name in &tls.hosts {
            let known =
                known.as_ref().and_then(|latest| latest.hosts.get(&Arc::as_ptr(name).addr()).cloned());
            let entry = known.unwrap_or_else(|| {
                let relays = name.relay.is_some();
                let of = (&name.certificates, &name.client_auth);
                let host = host(Some(name.host.clone()), of.0, of.1, relays, name.ciphers);
                host.map_or(Entry::Unusable, Entry::Host)
            });
            compiled_hosts.insert(Arc::as_ptr(name).addr(), entry.clone());
            by_entry_point.entry(&name.entry_point).or_default().insert(&name.host, entry);
        }
        for name in &tls.passthrough {
            let hosts = by_entry_point.entry(&name.entry_point).or_default();
            hosts.insert(&name.host, Entry::Passthrough);
        }
        let hosts = by_entry_point.remove(&EntryPoint::Flags).unwrap_or_default();
        let default =
            host(None, &[], &None, false, CipherSuites::default()).filter(|_| !default_keys.is_empty());
        let others = by_entry_point.into_iter().map(|(entry_point, hosts_there)| {
            let has_listeners = matches!(entry_point, EntryPoint::Gateway(_));
            let mut table = TlsTable {
                hosts: hosts_there,
                default: None,
                unknown_names: UnknownNames::Refuse,
                acme: acme.clone(),
                has_listeners,
            };
            if *entry_point == EntryPoint::FlagsHttps {
                table.hosts.add_missing(&hosts);
                (table.default, table.unknown_names) = (default.clone(), settings.tls.unknown_names);
            }
            (entry_point.clone(), Arc::new(table))
        });
        let others = others.collect();
        let unknown_names = settings.tls.unknown_names;
        let nameless = Arc::new(TlsTable { acme: acme.clone(), ..TlsTable::default() });
        let flags = Arc::new(TlsTable { hosts, default, unknown_names, acme, has_listeners: false });
        let tables = Arc::new(TlsTables { flags, others, nameless });
        self.forget_keys(tls);
        let (tls, settings) = (tls.clone(), settings.tls.clone());
        self.latest = Some(Latest { tls, settings, tables: tables.clone(), hosts: compiled_hosts });
        tables
    }

    /// Forgets the keys that are not in use any more.
    fn forget_keys(&mut self, tls: &Tls) {
        let of_hosts = tls.hosts.iter().flat_map(|host| &host.certificates);
        let all = of_hosts.chain(&tls.default).chain(&self.own_certificate);
        let used: HashSet<usize> = all.map(|certificate| Arc::as_ptr(certificate).addr()).collect();
        self.keys.retain(|certificate, _| used.contains(certificate));
    }
}

fn server_config(
    keys: Vec<Arc<CertifiedKey>>,
    client_auth: Option<&ClientAuth>,
    tickets: Arc<Tickets>,
    (settings, ciphers): (&TlsSettings, CipherSuites),
    relays: bool,
) -> Result<ServerConfig, Box<dyn std::error::Error>> {
    let versions: &[&SupportedProtocolVersion] = match settings.min_version {
        TlsVersion::Tls12 => &[&TLS13, &TLS12],
        TlsVersion::Tls13 => &[&TLS13],
    };
    let builder =
        ServerConfig::builder_with_provider(provider_with(ciphers)).with_protocol_versions(versions)?;
    let builder = match client_auth {
        None => builder.with_no_client_auth(),
        Some(
            ClientAuth { mode: ClientAuthMode::OptionalNoCa, .. } | ClientAuth { at_requests: Some(_), .. },
        ) => {
            // A header tells the endpoint whether the certificate is valid.
            builder.with_client_cert_verifier(Arc::new(AnyCertificate(provider())))
        }
        Some(auth) => {
            let verifier = client_auth::verifier(auth)?;
            let verifier = match auth.mode {
                ClientAuthMode::Required => verifier,
                _ => verifier.allow_unauthenticated(),
            };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(ByKey(keys)));
    // The gateway does not know the protocol of a relayed connection, so it negotiates none.
    if !relays {
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    }
    // Tickets need no memory here and are valid in every process; RFC 5077 does the same for TLS 1.2.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = tickets;
    Ok(config)
}

/// The group of hosts whose tickets are interchangeable: all hosts without client certificates, otherwise the hosts of
/// the same policy. A ticket contains the verified identity, which is not verified again.
fn purpose(auth: Option<&ClientAuth>) -> Vec<u8> {
    let Some(auth) = auth else { return Vec::new() };
    let mut digest = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    let lists = auth.crls.iter().map(|crl| crl.as_ref());
    for part in auth.roots.iter().map(|root| root.as_ref()).chain(lists) {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut purpose = vec![auth.mode as u8, u8::from(auth.at_requests.is_some())];
    purpose.extend_from_slice(digest.finish().as_ref());
    purpose
}

/// Chooses the first certificate whose key the client can verify.
#[derive(Debug)]
pub(super) struct ByKey(pub(super) Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByKey {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let offered = hello.signature_schemes();
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(offered).is_some();
        self.0.iter().find(fits).or(self.0.first()).cloned()
    }
}
