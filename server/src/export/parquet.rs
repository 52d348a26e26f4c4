//! Bucket records as Parquet: INT64 columns, delta-encoded and compressed with zstd, written one row group at a time.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use wire::live::Waterfall;
use wire::views::RunSummary;

use super::model::{self, COLUMNS, OPTIONAL};

/// The number of rows in a group. A group is in memory until it is full: 15 columns of 8 bytes take 16 MB.
const GROUP_ROWS: usize = 128 << 10;

/// A writer of rows as Parquet.
pub struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    rank: Option<u32>,
    columns: [Column; COLUMNS.len()],
}

/// The present values of a column, and for each row whether it has one.
#[derive(Default)]
struct Column {
    values: Vec<i64>,
    is_there: Vec<i16>,
}

impl<W: Write + Send> Writer<W> {
    /// Begins the file. The id and name of the run are in its metadata.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn begin(out: W, run: &RunSummary, rank: Option<u32>) -> io::Result<Self> {
        let file = open(out, run).map_err(io::Error::other)?;
        Ok(Self { file, rank, columns: std::array::from_fn(|_| Column::default()) })
    }

    /// Adds a step.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn step(&mut self, step: &Waterfall) -> io::Result<()> {
        for rank in model::ranks(step, self.rank) {
            for bucket in &rank.buckets {
                for (column, value) in self.columns.iter_mut().zip(model::row(&rank, bucket)) {
                    column.is_there.push(i16::from(value.is_some()));
                    column.values.extend(value);
                }
            }
        }
        if self.columns[0].is_there.len() >= GROUP_ROWS { self.flush() } else { Ok(()) }
    }

    /// Writes the last group and the footer.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.flush()?;
        self.file.into_inner().map_err(io::Error::other)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.columns[0].is_there.is_empty() {
            return Ok(());
        }
        write_group(&mut self.file, &self.columns).map_err(io::Error::other)?;
        for column in &mut self.columns {
            column.values.clear();
            column.is_there.clear();
        }
        Ok(())
    }
}

/// Returns what a file says about its run.
pub(super) fn metadata(run: &RunSummary) -> Vec<KeyValue> {
    let key_value =
        |key: &str, value: String| KeyValue { key: format!("paceline.{key}"), value: Some(value) };
    vec![
        key_value("run", run.run.to_string()),
        key_value("name", run.name.clone()),
        key_value("ranks", run.ranks_expected.to_string()),
    ]
}

fn open<W: Write + Send>(out: W, run: &RunSummary) -> Result<SerializedFileWriter<W>, ParquetError> {
    let field = |name: &&'static str| {
        let repetition = if OPTIONAL.contains(name) { Repetition::OPTIONAL } else { Repetition::REQUIRED };
        let field = Type::primitive_type_builder(name, PhysicalType::INT64);
        field.with_repetition(repetition).build().map(Arc::new)
    };
    let fields = COLUMNS.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("buckets").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_key_value_metadata(Some(metadata(run)))
        .build();
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    columns: &[Column],
) -> Result<(), ParquetError> {
    let mut group = file.next_row_group()?;
    for (name, column) in COLUMNS.iter().zip(columns) {
        let Some(mut out) = group.next_column()? else { break };
        let levels = OPTIONAL.contains(name).then_some(column.is_there.as_slice());
        out.typed::<Int64Type>().write_batch(&column.values, levels, None)?;
        out.close()?;
    }
    group.close().map(drop)
}
