//! Blocking sockets.

use std::io::{self, Read};

/// Reads available bytes, or waits for them; 0 at the end.
///
/// A socket with a timeout is interrupted whenever the process is stopped and continued, such as by a debugger or the
/// freezer of a container. Signal handlers make no difference (signal(7)). The read continues after an interruption.
pub(crate) fn read_some(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_read_is_retried() -> io::Result<()> {
        struct Stopped(u8);
        impl Read for Stopped {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0 += 1;
                if self.0 < 3 {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    (&b"answer"[..]).read(buffer)
                }
            }
        }
        let mut buffer = [0; 16];
        let read = read_some(&mut Stopped(0), &mut buffer)?;
        assert_eq!(&buffer[..read], b"answer");
        Ok(())
    }
}
