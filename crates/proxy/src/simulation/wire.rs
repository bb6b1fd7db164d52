//! A connection of a simulated client or endpoint, with a buffer of received bytes.

use std::future::poll_fn;
use std::io;

use tokio::io::ReadBuf;

use crate::net::simulated::Stream;

pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) received: Vec<u8>,
}

impl Wire {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, received: Vec::new() }
    }

    /// Receives more bytes. False at the end of the stream.
    pub(super) async fn fill(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        let taken = poll_fn(|cx| self.stream.poll_receive(cx, &mut ReadBuf::new(&mut bytes), false)).await?;
        self.received.extend_from_slice(&bytes[..taken]);
        Ok(taken > 0)
    }

    pub(super) async fn send(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let sent = poll_fn(|cx| self.stream.poll_send(cx, data)).await?;
            data = &data[sent..];
        }
        Ok(())
    }

    /// Receives a head, and removes it. `None` if the stream ends before the first byte.
    pub(super) async fn head(&mut self) -> io::Result<Option<Head>> {
        loop {
            if let Some(end) = self.received.windows(4).position(|window| window == b"\r\n\r\n") {
                let text = String::from_utf8_lossy(&self.received[..end]).into_owned();
                self.received.drain(..end + 4);
                return Ok(Some(Head { text }));
            }
            if !self.fill().await? {
                return match self.received.is_empty() {
                    true => Ok(None),
                    false => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
    }

    /// Receives the body behind a head, and removes it.
    pub(super) async fn body(&mut self, head: &Head) -> io::Result<Vec<u8>> {
        if head.value("transfer-encoding").is_some() {
            return self.chunks().await;
        }
        let length = match head.value("content-length") {
            Some(length) => length.parse().map_err(io::Error::other)?,
            None if head.text.starts_with("HTTP/") => {
                while self.fill().await? {}
                self.received.len()
            }
            None => 0,
        };
        self.wait_for(length).await?;
        Ok(self.received.drain(..length).collect())
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                match self.received.windows(2).position(|window| window == b"\r\n") {
                    Some(line) => break line,
                    None => self.wait_for(self.received.len() + 1).await?,
                }
            };
            let size = String::from_utf8_lossy(&self.received[..line]).into_owned();
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            self.wait_for(line + 2 + size + 2).await?;
            body.extend_from_slice(&self.received[line + 2..line + 2 + size]);
            self.received.drain(..line + 2 + size + 2);
            if size == 0 {
                return Ok(body);
            }
        }
    }

    async fn wait_for(&mut self, length: usize) -> io::Result<()> {
        while self.received.len() < length {
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

pub(super) struct Head {
    pub(super) text: String,
}

impl Head {
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.text.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The status of a response.
    pub(super) fn status(&self) -> u16 {
        self.text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// The ID in the target of a request, such as `/0/17`.
    pub(super) fn id(&self) -> Option<usize> {
        id_of(self.text.split(' ').nth(1)?)
    }
}

pub(super) fn id_of(target: &str) -> Option<usize> {
    target.rsplit('/').next()?.parse().ok()
}

/// The byte that fills the bodies of a request and of its responses. No byte of the chunked coding.
pub(super) fn letter(id: usize) -> u8 {
    b'g' + (id % 20) as u8
}

pub(super) fn chunked(letter: u8, length: usize) -> Vec<u8> {
    let mut coded = Vec::new();
    for size in [length / 2, length - length / 2].into_iter().filter(|size| *size > 0) {
        coded.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        coded.resize(coded.len() + size, letter);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(b"0\r\n\r\n");
    coded
}
