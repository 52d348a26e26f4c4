//! Bucket records as comma-separated text with a header. Unknown values are empty.

use std::io::{self, Write};

use wire::live::Waterfall;

use super::model::{self, COLUMNS};

/// A writer of rows as text.
pub struct Writer<W> {
    out: W,
    rank: Option<u32>,
    line: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins the file with its header. If `rank` is given, only that rank is written.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn begin(mut out: W, rank: Option<u32>) -> io::Result<Self> {
        writeln!(out, "{}", COLUMNS.join(","))?;
        Ok(Self { out, rank, line: Vec::new() })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        for rank in model::ranks(step, self.rank) {
            for bucket in &rank.buckets {
                self.line.clear();
                for value in model::row(&rank, bucket) {
                    if let Some(value) = value {
                        write!(self.line, "{value}")?;
                    }
                    self.line.push(b',');
                }
                // A newline replaces the last comma.
                if let Some(last) = self.line.last_mut() {
                    *last = b'\n';
                }
                self.out.write_all(&self.line)?;
            }
        }
        Ok(())
    }

    /// Returns the underlying writer.
    #[must_use]
    pub fn finish(self) -> W {
        self.out
    }
}
