//! TLS as options.

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use sluicegate_control::{ObjectName, TranslateOptions};
use sluicegate_model::tls::{Hsts, Http3, TlsSettings, TlsVersion, UnknownNames};

use crate::address::{listen_address, object_name};
use crate::settings::time;

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// The address where the gateway accepts HTTPS; may be given several times. [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    pub(crate) listen_https: Vec<SocketAddr>,
    /// Serve HTTP/3 at the UDP port of each HTTPS listener, and announce it in responses over HTTPS.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    http3: bool,
    /// The UDP port that responses announce for HTTP/3 (Alt-Svc): the port of the load balancer. A Gateway listener
    /// with its own address or Service announces its own port. [default: the port of the listener, range: 1 to 65535]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    http3_port: Option<u16>,
    /// How long clients remember the announcement of HTTP/3. 0s: clients forget earlier announcements. [default: 24h]
    #[arg(long, value_name = "TIME", value_parser = time)]
    http3_max_age: Option<Duration>,
    /// Accept HTTP/3 requests with safe methods before the end of the handshake (0-RTT). An attacker can replay these
    /// requests. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    http3_early_data: bool,
    /// The number of HTTP/3 handshakes in progress of one worker above which clients must prove their address (Retry). 0:
    /// always. Above ten times this number, and above 1000, the gateway refuses HTTP/3 connections. [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    http3_max_handshakes: Option<u32>,
    /// The Secret with the default certificate: for clients that send no host or an unknown host, and for hosts without
    /// a certificate. [default: a self-signed certificate, which each data plane makes at start]
    #[arg(long, value_name = "NAMESPACE/NAME", alias = "default-ssl-certificate", value_parser = object_name)]
    default_tls_certificate: Option<ObjectName>,
    /// The Secret with the keys of TLS session tickets: values of at least 32 random bytes. Every gateway with this
    /// Secret resumes the sessions of the others. The first key in alphabetical order seals tickets, and all keys open
    /// tickets. [default: a key made at start]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    tls_ticket_secret: Option<ObjectName>,
    /// The oldest TLS version that the gateway accepts.
    #[arg(long, value_enum, value_name = "VERSION", default_value = "1.2")]
    tls_min_version: MinVersion,
    /// The response to a TLS client that asks for a host without a certificate: the default certificate, or a refused
    /// handshake.
    #[arg(long, value_enum, value_name = "RESPONSE", default_value = "default")]
    tls_unknown_names: UnknownNamesArg,
    /// Redirect plain HTTP to HTTPS (308) for hosts with TLS. An Ingress can override the setting.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = true)]
    ssl_redirect: bool,
    /// The port in redirects to HTTPS. The redirect omits the port 443. [range: 1 to 65535]
    #[arg(long, value_name = "PORT", default_value_t = 443, value_parser = clap::value_parser!(u16).range(1..))]
    https_redirect_port: u16,
    /// Send Strict-Transport-Security over HTTPS, with this max-age, such as 365d. Browsers then use only HTTPS for
    /// that time. 0s: browsers forget an earlier header. [default: no header]
    #[arg(long, value_name = "TIME", value_parser = time)]
    hsts_max_age: Option<Duration>,
    /// Add includeSubDomains to Strict-Transport-Security, so that browsers apply the header to all subdomains.
    /// Without --hsts-max-age, the option has no effect. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hsts_include_subdomains: Option<bool>,
    /// Add preload to Strict-Transport-Security, so that browsers may include the host in their built-in lists.
    /// Without --hsts-max-age, the option has no effect. [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    hsts_preload: Option<bool>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MinVersion {
    #[value(name = "1.2")]
    Tls12,
    #[value(name = "1.3")]
    Tls13,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnknownNamesArg {
    Default,
    Refuse,
}

impl TlsArgs {
    /// Applies the options to the options of the translation.
    pub(crate) fn apply(&self, options: &mut TranslateOptions) {
        options.settings.tls = self.settings();
        options.ssl_redirect = self.ssl_redirect;
        options.default_certificate.clone_from(&self.default_tls_certificate);
        options.ticket_secret.clone_from(&self.tls_ticket_secret);
    }

    /// Whether plain HTTP is redirected to HTTPS.
    pub(crate) fn ssl_redirect(&self) -> bool {
        self.ssl_redirect
    }

    /// The TLS settings of client connections.
    pub(crate) fn settings(&self) -> TlsSettings {
        TlsSettings {
            min_version: match self.tls_min_version {
                MinVersion::Tls12 => TlsVersion::Tls12,
                MinVersion::Tls13 => TlsVersion::Tls13,
            },
            unknown_names: match self.tls_unknown_names {
                UnknownNamesArg::Default => UnknownNames::Default,
                UnknownNamesArg::Refuse => UnknownNames::Refuse,
            },
            hsts: self.hsts_max_age.map(|max_age| Hsts {
                max_age,
                include_subdomains: self.hsts_include_subdomains.unwrap_or_default(),
                preload: self.hsts_preload.unwrap_or_default(),
            }),
            redirect_port: self.https_redirect_port,
            http3: self.http3.then(|| {
                let by_default = Http3::default();
                Http3 {
                    port: self.http3_port,
                    max_age: self.http3_max_age.unwrap_or(by_default.max_age),
                    early_data: self.http3_early_data,
                    handshakes: self.http3_max_handshakes.unwrap_or(by_default.handshakes),
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use sluicegate_control::{Store, translate};

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(options: &[&str]) -> Result<TranslateOptions, clap::Error> {
        let line = ["sluicegate", "serve", "--manifests", "x"].iter().chain(options);
        let Command::Serve(args) = Cli::try_parse_from(line)?.command else { unreachable!("it is serve") };
        let mut translated = TranslateOptions::default();
        args.tls.apply(&mut translated);
        Ok(translated)
    }

    #[test]
    fn absent_tls_options_use_the_default_settings_of_the_model() -> Result<(), clap::Error> {
        let options = parsed(&[])?;
        assert_eq!(options.settings.tls, TlsSettings::default());
        assert!(options.ssl_redirect);
        Ok(())
    }

    #[test]
    fn control_planes_with_equal_tls_options_publish_equal_configurations() -> Result<(), clap::Error> {
        let [one, other] = [parsed(&["--listen-https=:8443"])?, parsed(&["--listen-https=:8443"])?];
        assert_eq!(translate(&Store::default(), &one).config, translate(&Store::default(), &other).config);
        Ok(())
    }

    #[test]
    fn valid_tls_options_apply_and_invalid_tls_options_are_rejected() -> Result<(), clap::Error> {
        let options = parsed(&[
            "--listen-https=:8443",
            "--tls-min-version=1.3",
            "--tls-unknown-names=refuse",
            "--ssl-redirect=false",
            "--hsts-max-age=365d",
            "--hsts-preload",
            "--default-ssl-certificate=a/b",
        ])?;
        let tls = &options.settings.tls;
        assert_eq!(tls.min_version, TlsVersion::Tls13);
        assert_eq!(tls.unknown_names, UnknownNames::Refuse);
        assert_eq!(tls.hsts.map(|hsts| hsts.to_string()).as_deref(), Some("max-age=31536000; preload"));
        assert!(!options.ssl_redirect);
        assert_eq!(options.default_certificate, Some(ObjectName { namespace: "a".into(), name: "b".into() }));
        for wrong in ["--tls-min-version=1.1", "--default-tls-certificate=a", "--tls-ticket-secret=a/b/c"] {
            assert!(parsed(&[wrong]).is_err(), "{wrong}");
        }
        Ok(())
    }
}
