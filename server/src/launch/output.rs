//! The ranks' output: each line with its rank in front, in the rank's colour, never two lines mixed.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::task::JoinSet;

/// Lines kept of each rank, to show when it fails.
const TAIL_LINES: usize = 20;
/// A line longer than this is shown in pieces.
const MOST_LINE_BYTES: usize = 16 << 10;
/// Pipes may be held open by grandchildren; the launcher does not wait for them longer than this.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// ANSI colours that read on light and dark: cyan, yellow, magenta, green, blue, red.
const COLOURS: [u8; 6] = [36, 33, 35, 32, 34, 31];

/// The last lines of one rank.
#[derive(Clone, Default)]
pub(super) struct Tail {
    lines: Arc<Mutex<VecDeque<String>>>,
}

impl Tail {
    fn push(&self, line: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == TAIL_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    }

    /// The lines, indented.
    pub(super) fn lines(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }
}

/// Prints for all ranks.
pub(super) struct Output {
    width: usize,
    colours: bool,
    readers: Mutex<JoinSet<()>>,
}

impl Output {
    pub(super) fn new(ranks: u32) -> Self {
        let colours = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let width = (ranks.max(1) - 1).to_string().len();
        Self { width, colours, readers: Mutex::default() }
    }

    /// Follows a rank's two streams.
    pub(super) fn follow(&self, rank: u32, child: &mut Child) -> Tail {
        let tail = Tail::default();
        let width = self.width;
        let prefix = if self.colours {
            let colour = COLOURS[rank as usize % COLOURS.len()];
            format!("\x1b[{colour}m[{rank:>width$}]\x1b[0m ")
        } else {
            format!("[{rank:>width$}] ")
        };
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(copy(stdout, prefix.clone(), tail.clone()));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(copy(stderr, prefix, tail.clone()));
        }
        tail
    }

    /// Waits until all that the ranks wrote is printed.
    pub(super) async fn finish(&self) {
        let mut readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while readers.join_next().await.is_some() {} };
        // Whoever still holds a pipe then is not one of the ranks.
        let _held_open = tokio::time::timeout(DRAIN_WITHIN, all).await;
    }

    /// A line of the launcher's own.
    pub(super) fn say(&self, text: &str) {
        let (on, off) = if self.colours { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        // There is nobody to tell when standard error is closed.
        let _closed = writeln!(std::io::stderr().lock(), "{on}paceline: {text}{off}");
    }
}

async fn copy(stream: impl AsyncRead + Unpin, prefix: String, tail: Tail) {
    let mut reader = BufReader::with_capacity(MOST_LINE_BYTES, stream);
    let mut line = Vec::new();
    loop {
        let Ok(read) = reader.fill_buf().await else { return };
        if read.is_empty() {
            if !line.is_empty() {
                show(&line, &prefix, &tail);
            }
            return;
        }
        let newline = read.iter().position(|&byte| byte == b'\n');
        let taken = newline.map_or(read.len(), |at| at + 1);
        line.extend_from_slice(&read[..newline.unwrap_or(read.len())]);
        reader.consume(taken);
        if newline.is_some() || line.len() >= MOST_LINE_BYTES {
            show(&line, &prefix, &tail);
            line.clear();
        }
    }
}

fn show(line: &[u8], prefix: &str, tail: &Tail) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('\r');
    tail.push(text);
    // A reader that went away ends the printing, not the job.
    let _closed = writeln!(std::io::stdout().lock(), "{prefix}{text}");
}
