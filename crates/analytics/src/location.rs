//! The place of the database, as the option `--analytics-database` writes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::config::SslMode;

use crate::sql::postgres::{Password, Server, default_mode};
use crate::sql::sqlite::Sqlite;
use crate::sql::{Sql, SqlError};

/// The place of the database.
#[derive(Clone, Default)]
pub enum Location {
    /// In the memory of the process: lost at its end.
    #[default]
    Memory,
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// A server of PostgreSQL.
    Postgres(Postgres),
}

/// A server of PostgreSQL.
#[derive(Clone)]
pub struct Postgres {
    server: Box<Server>,
    /// The URL, which has no password.
    url: Box<str>,
}

/// The reason why a text is no place of a database.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// The scheme is unknown.
    #[error("not a database; write sqlite:FILE or postgres://USER@HOST/DATABASE")]
    Scheme,
    /// There is no file behind `sqlite:`.
    #[error("sqlite: needs a file, as in sqlite:/var/lib/sluicegate/analytics.db")]
    File,
    /// The URL has a password, which other users of the machine could see.
    #[error(
        "the URL contains a password, which other users of the machine can see; remove it, and use \
         --analytics-database-password-file or the variable SLUICEGATE_ANALYTICS_DATABASE_PASSWORD"
    )]
    Password,
    /// The URL is malformed.
    #[error("not a URL of PostgreSQL: {0}; write postgres://USER@HOST:PORT/DATABASE?sslmode=require")]
    Url(tokio_postgres::Error),
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err(LocationError::File) } else { Ok(Self::Sqlite(path.into())) };
        }
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(LocationError::Scheme);
        }
        let mut config: tokio_postgres::Config = text.parse().map_err(LocationError::Url)?;
        if config.get_password().is_some() {
            return Err(LocationError::Password);
        }
        if !text.contains("sslmode=") {
            config.ssl_mode(default_mode(&config));
        }
        let server = Box::new(Server { config, password: None, authorities: None });
        Ok(Self::Postgres(Postgres { server, url: text.into() }))
    }
}

impl Location {
    /// Sets the file with the password of PostgreSQL. The process reads the file for each connection.
    #[must_use]
    pub fn with_password_file(mut self, path: PathBuf) -> Self {
        if let Self::Postgres(Postgres { server, .. }) = &mut self {
            server.password = Some(Password::File(path));
        }
        self
    }

    /// Sets the password of PostgreSQL.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        if let Self::Postgres(Postgres { server, .. }) = &mut self {
            server.password = Some(Password::Given(Arc::from(password)));
        }
        self
    }

    /// Sets the CA certificates for PostgreSQL, a file in PEM. Without the file, the certificates that browsers trust.
    #[must_use]
    pub fn with_authorities(mut self, path: PathBuf) -> Self {
        if let Self::Postgres(Postgres { server, .. }) = &mut self {
            server.authorities = Some(path);
        }
        self
    }

    /// Whether connections to PostgreSQL need TLS.
    #[must_use]
    pub fn needs_tls(&self) -> bool {
        matches!(self, Self::Postgres(Postgres { server, .. }) if server.config.get_ssl_mode() == SslMode::Require)
    }

    /// Opens a connection. A statement takes at most this time.
    pub(crate) fn connect(&self, statement: Duration) -> Result<Box<dyn Sql>, SqlError> {
        Ok(match self {
            Self::Memory => Box::new(Sqlite::open(None)?),
            Self::Sqlite(path) => Box::new(Sqlite::open(Some(path))?),
            Self::Postgres(Postgres { server, .. }) => Box::new(server.connect(statement)?),
        })
    }
}

/// The place as it is logged.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(Postgres { url, .. }) => f.write_str(url),
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_a_file_of_sqlite_or_a_url_of_postgresql_without_a_password() {
        let of = |text: &str| {
            text.parse::<Location>().map(|location| (location.to_string(), location.needs_tls()))
        };
        assert_eq!(of("sqlite:/a/b.db").ok(), Some(("sqlite:/a/b.db".into(), false)));
        assert_eq!(of("sqlite:///a/b.db").ok(), Some(("sqlite:/a/b.db".into(), false)));
        for (url, needs_tls) in [
            ("postgres://gate@db.example/analytics", true),
            ("postgresql://gate@db.example/analytics?sslmode=disable", false),
            ("postgres://gate@localhost:5433/analytics", false),
            ("postgres://gate@127.0.0.1/analytics?sslmode=require", true),
        ] {
            assert_eq!(of(url).ok(), Some((url.into(), needs_tls)), "{url}");
        }
        let refused = |text: &str| of(text).expect_err(text).to_string();
        assert!(refused("mysql://a/b").contains("write sqlite:FILE or postgres://"));
        assert!(refused("sqlite:").contains("needs a file"));
        let password = refused("postgres://gate:secret@db/analytics");
        assert!(password.contains("--analytics-database-password-file") && !password.contains("secret"));
        assert!(refused("postgres://gate@db:x/analytics").contains("write postgres://"));
    }

    #[test]
    fn password_is_not_shown() {
        let location: Location = "postgres://gate@db/analytics".parse().expect("valid");
        let location = location.with_password("secret");
        assert!(!format!("{location:?} {location}").contains("secret"));
    }
}
