//! The output of ranks. Each line is prefixed with its rank in the rank's color, and lines are never mixed.

use std::collections::VecDeque;
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::Child;
use tokio::task::JoinSet;

/// The number of lines that are retained per rank, to be shown if it fails.
const TAIL_LINES: usize = 20;
/// The longest line, in bytes. Longer lines are split.
const MAX_LINE_BYTES: usize = 16 << 10;
/// The time to wait for the end of output after all ranks have ended. Other processes may still hold the pipes open.
const DRAIN_WITHIN: Duration = Duration::from_secs(2);
/// ANSI colors that are legible on light and on dark backgrounds: cyan, yellow, magenta, green, blue, red.
const COLORS: [u8; 6] = [36, 33, 35, 32, 34, 31];

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

    /// Returns the lines, indented.
    pub(super) fn lines(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }
}

/// The printer of all ranks' output.
pub(super) struct Output {
    width: usize,
    colors: bool,
    readers: Mutex<JoinSet<()>>,
}

impl Output {
    pub(super) fn new(ranks: u32) -> Self {
        let colors = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let width = (ranks.max(1) - 1).to_string().len();
        Self { width, colors, readers: Mutex::default() }
    }

    /// Starts to print a rank's standard output and standard error. Returns the tail of both.
    pub(super) fn follow(&self, rank: u32, child: &mut Child) -> Tail {
        let tail = Tail::default();
        let width = self.width;
        let prefix = if self.colors {
            let color = COLORS[rank as usize % COLORS.len()];
            format!("\x1b[{color}m[{rank:>width$}]\x1b[0m ")
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

    /// Waits until all output of the ranks is printed, but at most for [`DRAIN_WITHIN`].
    pub(super) async fn finish(&self) {
        let mut readers = std::mem::take(&mut *self.readers.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while readers.join_next().await.is_some() {} };
        // A process that holds a pipe open after this time is not a rank.
        let _held_open = tokio::time::timeout(DRAIN_WITHIN, all).await;
    }

    /// Prints a line of the launcher itself to standard error.
    pub(super) fn say(&self, text: &str) {
        let (bold, plain) = if self.colors { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
        // If standard error is closed, the line is lost.
        let _closed = writeln!(std::io::stderr().lock(), "{bold}paceline: {text}{plain}");
    }
}

async fn copy(stream: impl AsyncRead + Unpin, prefix: String, tail: Tail) {
    let mut reader = BufReader::with_capacity(MAX_LINE_BYTES, stream);
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
        if newline.is_some() || line.len() >= MAX_LINE_BYTES {
            show(&line, &prefix, &tail);
            line.clear();
        }
    }
}

fn show(line: &[u8], prefix: &str, tail: &Tail) {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end_matches('\r');
    tail.push(text);
    // If standard output is closed, the line is lost. The job continues.
    let _closed = writeln!(std::io::stdout().lock(), "{prefix}{text}");
}
