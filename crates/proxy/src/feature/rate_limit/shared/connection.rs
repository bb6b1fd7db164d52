//! A connection to a Redis or Valkey server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;
use sluicegate_model::policy::{Redis, RedisTls};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::reply::{Reply, UnexpectedReply};
use crate::tls::verifying;

/// The longest reply, in bytes.
const REPLY_MAX: usize = 32 * 1024;

/// The largest allowed difference of the clocks. A clock that jumps makes counts wrong for as long as it jumps.
pub(super) const APART_MAX: Duration = Duration::from_mins(1);

/// The length limit of a server's error message in the log, in characters.
const TOLD_MAX: usize = 200;

pub(super) struct Connection {
    stream: Box<dyn Stream>,
    /// Received bytes that were not parsed yet: at most [`REPLY_MAX`].
    input: Vec<u8>,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Why a limit is not shared at the moment.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    #[error("{0}")]
    Connection(#[from] io::Error),
    #[error("{0:?} is not a name that a certificate can have")]
    Name(Box<str>),
    #[error("cannot use the CA certificates for the server's certificate: {0}")]
    Authorities(#[from] rustls::Error),
    #[error("the server closed the connection")]
    Closed,
    #[error("the server did not respond within {0:?}")]
    Timeout(Duration),
    #[error("the server responds with {0:?}")]
    Refused(String),
    #[error("the server's response is not valid in the Redis protocol: {0}")]
    UnexpectedReply(#[from] UnexpectedReply),
    #[error("the server's response is longer than {REPLY_MAX} bytes")]
    Long,
    #[error("the server's clock differs from this machine's clock by more than {APART_MAX:?}")]
    Clock,
    #[error("the server's response does not fit the command")]
    Unexpected,
}

impl Connection {
    /// Connects, and authenticates.
    pub(super) async fn open(redis: &Redis) -> Result<Self, ServerError> {
        let stream = TcpStream::connect(&*redis.address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &redis.tls {
            None => Box::new(stream),
            Some(RedisTls { server_name, authorities }) => {
                let name = ServerName::try_from(server_name.to_string());
                let name = name.map_err(|_| ServerError::Name(server_name.clone()))?;
                let tls = TlsConnector::from(Arc::new(verifying(authorities)?));
                Box::new(tls.connect(name, stream).await?)
            }
        };
        let mut connection = Self { stream, input: Vec::new() };
        let mut greeting = Vec::new();
        let mut commands = 0;
        if let Some(password) = &redis.password {
            let username = redis.username.as_ref().map(|username| username.as_bytes());
            let parts = [Some(&b"AUTH"[..]), username, Some(&**password)];
            command(&mut greeting, parts.into_iter().flatten());
            commands += 1;
        }
        if redis.database.get() != 0 {
            command(&mut greeting, [&b"SELECT"[..], redis.database.to_string().as_bytes()]);
            commands += 1;
        }
        connection.send(&greeting).await?;
        for _ in 0..commands {
            match connection.receive().await? {
                Reply::Done => {}
                _ => return Err(ServerError::Unexpected),
            }
        }
        Ok(connection)
    }

    pub(super) async fn send(&mut self, commands: &[u8]) -> Result<(), ServerError> {
        self.stream.write_all(commands).await?;
        Ok(self.stream.flush().await?)
    }

    /// The next reply. A reply with an error is an error.
    pub(super) async fn receive(&mut self) -> Result<Reply, ServerError> {
        loop {
            if let Some((reply, used)) = Reply::parse(&self.input)? {
                self.input.drain(..used);
                return match reply {
                    Reply::Error(text) => Err(ServerError::Refused(text.chars().take(TOLD_MAX).collect())),
                    reply => Ok(reply),
                };
            }
            let room = REPLY_MAX - self.input.len();
            if room == 0 {
                return Err(ServerError::Long);
            }
            let mut piece = (&mut self.stream).take(room as u64);
            if piece.read_buf(&mut self.input).await? == 0 {
                return Err(ServerError::Closed);
            }
        }
    }

    /// Whether no bytes arrived unasked.
    pub(super) fn is_at_rest(&self) -> bool {
        self.input.is_empty()
    }
}

/// Writes a command: a list of strings (RESP, "Sending commands to a Redis server").
pub(super) fn command<'p>(out: &mut Vec<u8>, parts: impl IntoIterator<Item = &'p [u8], IntoIter: Clone>) {
    let parts = parts.into_iter();
    out.extend_from_slice(format!("*{}\r\n", parts.clone().count()).as_bytes());
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
}
