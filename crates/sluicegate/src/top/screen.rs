//! A table that a terminal shows again and again.

use std::io::{self, Read as _, Write as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal in raw mode, with another screen.
pub(crate) struct Terminal {
    before: Termios,
}

impl Terminal {
    pub(crate) fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let this = Self { before };
        // The other screen, without a cursor.
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(this)
    }

    /// Shows a text, as far as there is room.
    pub(crate) fn show(&self, text: &str) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())?;
        let (rows, columns) = (usize::from(size.ws_row).max(2), usize::from(size.ws_col).max(2));
        let mut screen = "\x1b[H".to_owned();
        for line in text.lines().take(rows - 1) {
            screen.extend(line.chars().take(columns));
            // Clears the rest of the line. Raw mode does not return the carriage.
            screen.push_str("\x1b[K\r\n");
        }
        screen.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(screen.as_bytes())?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The pressed keys. The thread ends with the process.
pub(crate) fn keys() -> Receiver<u8> {
    let (sender, keys) = channel();
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes().map_while(Result::ok) {
            if sender.send(key).is_err() {
                return;
            }
        }
    });
    keys
}

/// Waits for the interval. Returns whether a key ends the command.
pub(crate) fn quits(keys: &Receiver<u8>, interval: Duration) -> bool {
    // Ctrl-C and Ctrl-D in raw mode.
    const QUIT: [u8; 4] = [b'q', b'Q', 3, 4];
    let end = Instant::now() + interval;
    loop {
        match keys.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(key) if QUIT.contains(&key) => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}
