//! PostgreSQL, over TCP, TLS or a Unix socket.

use std::error::Error;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Config};
use tokio_rustls::TlsConnector;

use super::{Dialect, Isolation, Sql, SqlError, Value, insertion};

/// The timeout of a connect.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of a statement at the client. The server has a shorter one.
const PATIENCE: Duration = Duration::from_secs(60);
/// The rows of one INSERT: 22 columns have 11,000 parameters, of 65,535.
const ROWS: usize = 500;
/// The key of the lock for background work.
const LOCK: i64 = 0x0073_6c75_6963_6567;

/// A server of PostgreSQL.
#[derive(Clone)]
pub(crate) struct Server {
    /// Host, user and database, without a password.
    pub(crate) config: Config,
    /// The source of the password.
    pub(crate) password: Option<Password>,
    /// The file with CA certificates; `None`: the certificates that browsers trust.
    pub(crate) authorities: Option<PathBuf>,
}

/// The source of a password.
#[derive(Clone)]
pub(crate) enum Password {
    /// A file, which is read for each connection.
    File(PathBuf),
    /// The password itself, from the environment.
    Given(Arc<str>),
}

impl Server {
    /// Connects. `statement_timeout` is a limit for each statement.
    pub(crate) fn connect(&self, statement_timeout: Duration) -> Result<Postgres, SqlError> {
        let mut config = self.config.clone();
        match &self.password {
            Some(Password::File(path)) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    SqlError::Setup(format!("cannot read the password file {}: {error}", path.display()))
                })?;
                config.password(text.trim_end_matches(['\n', '\r']));
            }
            Some(Password::Given(password)) => {
                config.password(password.as_bytes());
            }
            None => {}
        }
        config.connect_timeout(CONNECT).application_name("sluicegate");
        config.options(format!("-c statement_timeout={}", statement_timeout.as_millis()));
        let tls = Tls(Arc::new(self.tls()?));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| SqlError::Setup(format!("cannot start a runtime: {error}")))?;
        let client = runtime.block_on(async {
            let connecting = timeout(2 * CONNECT, config.connect(tls)).await;
            let (client, connection) =
                connecting.map_err(|_| SqlError::Setup("the connect timed out".to_owned()))??;
            // The client reports the error of the connection too.
            tokio::spawn(async move { drop(connection.await) });
            Ok::<_, SqlError>(client)
        })?;
        Ok(Postgres { runtime: Some(runtime), client })
    }

    fn tls(&self) -> Result<ClientConfig, SqlError> {
        let mut roots = RootCertStore::empty();
        match &self.authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let unusable = |error: &dyn Error| {
                    SqlError::Setup(format!("cannot use the CA certificates {}: {error}", path.display()))
                };
                let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(&error))?;
                for certificate in certificates {
                    let certificate = certificate.map_err(|error| unusable(&error))?;
                    roots.add(certificate).map_err(|error| unusable(&error))?;
                }
            }
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.map_err(|error| SqlError::Setup(error.to_string()))?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// The mode of TLS if the URL sets none: a server on another machine must have TLS.
pub(crate) fn default_mode(config: &Config) -> SslMode {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        Host::Unix(_) => true,
    };
    if config.get_hosts().iter().all(is_local) { SslMode::Prefer } else { SslMode::Require }
}

/// A connection to PostgreSQL, with a runtime of its own.
pub(crate) struct Postgres {
    /// `None` only during the drop.
    runtime: Option<Runtime>,
    client: Client,
}

impl Drop for Postgres {
    /// A runtime that waits for its tasks cannot be dropped by a task of another runtime.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Postgres {
    fn wait<T>(
        runtime: &Option<Runtime>,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, SqlError> {
        let runtime =
            runtime.as_ref().ok_or_else(|| SqlError::Setup("the connection is closed".to_owned()))?;
        let done = runtime.block_on(async { timeout(PATIENCE, work).await });
        Ok(done.map_err(|_| SqlError::Setup("the database does not respond".to_owned()))??)
    }
}

impl Sql for Postgres {
    fn begin(&mut self, isolation: Isolation) -> Result<(), SqlError> {
        self.run(match isolation {
            Isolation::Committed => "BEGIN",
            Isolation::Snapshot => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        })
    }

    fn run(&mut self, sql: &str) -> Result<(), SqlError> {
        Self::wait(&self.runtime, self.client.batch_execute(sql))
    }

    fn execute(&mut self, sql: &str, parameters: &[Value]) -> Result<u64, SqlError> {
        let parameters: Vec<_> = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        Self::wait(&self.runtime, self.client.execute(sql, &parameters))
    }

    fn fetch(&mut self, sql: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, SqlError> {
        let parameters: Vec<_> = parameters.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let rows = Self::wait(&self.runtime, self.client.query(sql, &parameters))?;
        let values = rows.iter().map(|row| {
            let columns = row.columns().iter().enumerate().map(|(nth, column)| {
                Ok(match *column.type_() {
                    Type::INT8 => Value::Int(row.try_get(nth)?),
                    Type::INT4 => Value::Int(row.try_get::<_, i32>(nth)?.into()),
                    Type::TEXT => Value::Text(row.try_get(nth)?),
                    Type::BYTEA => Value::Blob(row.try_get(nth)?),
                    _ => return Err(SqlError::Type),
                })
            });
            columns.collect()
        });
        values.collect()
    }

    fn insert(&mut self, table: &str, columns: &[&str], rows: &[Vec<Value>]) -> Result<(), SqlError> {
        let Self { runtime, client } = self;
        Self::wait(runtime, async {
            let mut whole = None;
            for rows in rows.chunks(ROWS) {
                let statement = match &whole {
                    Some(whole) if rows.len() == ROWS => whole,
                    _ => &*whole.insert(client.prepare(&insertion(table, columns, rows.len())).await?),
                };
                let parameters: Vec<_> =
                    rows.iter().flatten().map(|value| value as &(dyn ToSql + Sync)).collect();
                client.execute(statement, &parameters).await?;
            }
            Ok(())
        })
    }

    fn is_alone(&mut self) -> Result<bool, SqlError> {
        let sql =
            format!("SELECT CASE WHEN pg_try_advisory_xact_lock({LOCK}) THEN 1::bigint ELSE 0::bigint END");
        let rows = self.fetch(&sql, &[])?;
        Ok(rows.first().and_then(|row| row.first()) == Some(&Value::Int(1)))
    }

    fn dialect(&self) -> Dialect {
        Dialect { id: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", bytes: "BYTEA" }
    }

    fn set_deadline(&mut self, _: Option<Instant>) -> Result<(), SqlError> {
        // The server has a timeout for each statement.
        Ok(())
    }

    fn memory(&mut self) -> Result<Option<u64>, SqlError> {
        Ok(None)
    }
}

impl ToSql for Value {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Int(int) if *ty == Type::INT4 => i32::try_from(*int)?.to_sql(ty, out),
            Self::Int(int) => int.to_sql(ty, out),
            Self::Text(text) => text.to_sql(ty, out),
            Self::Blob(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(ty: &Type) -> bool {
        [Type::INT8, Type::INT4, Type::TEXT, Type::BYTEA].contains(ty)
    }

    to_sql_checked!();
}

/// TLS by rustls.
#[derive(Clone)]
struct Tls(Arc<ClientConfig>);

/// TLS for a host.
struct TlsTo {
    config: Arc<ClientConfig>,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = TlsConnection<S>;
    type TlsConnect = TlsTo;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsTo> {
        Ok(TlsTo { config: self.0.clone(), host: host.to_owned() })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsTo {
    type Stream = TlsConnection<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TlsConnection<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            TlsConnector::from(self.config).connect(name, stream).await.map(TlsConnection)
        })
    }
}

/// A connection over TLS.
struct TlsConnection<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for TlsConnection<S> {
    /// SCRAM without channel binding, as in most clients. TLS verifies the server.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsConnection<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
