//! How the devices and hosts of a run were used over time, as rows: one per sample, rank and measure. Samples of the newest hour
//! are single, older ones are means.

use std::io::{self, Write};
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use wire::usage::Usage;
use wire::views::RunSummary;

use super::parquet::metadata;
use crate::state::run::Run;

/// The names of the columns.
pub const COLUMNS: [&str; 6] = ["end_unix_ns", "seconds", "rank", "measure", "unit", "value"];

/// One value of a measure on one rank.
struct Row {
    /// The end of the interval that the value covers, on the server's clock.
    end_unix_nanos: i64,
    /// The length of the interval, in seconds.
    seconds: f64,
    rank: u32,
    value: f32,
}

/// Returns the known values of a measure, by rank and time. If `rank` is given, only those of that rank.
fn rows(run: &Run, usage: Usage, rank: Option<u32>) -> Vec<Row> {
    let all = (0_u32..).zip(run.usage(usage)).filter(|(other, _)| rank.is_none_or(|only| only == *other));
    all.flat_map(|(rank, history)| {
        let values = history.values();
        let row = move |(end, seconds, value)| Row { end_unix_nanos: end, seconds, rank, value };
        values.samples().filter(|(_, _, value)| !value.is_nan()).map(row).collect::<Vec<_>>()
    })
    .collect()
}

/// Writes the rows as text with a header. Returns their number.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn csv(out: &mut impl Write, run: &Run, rank: Option<u32>) -> io::Result<u64> {
    writeln!(out, "{}", COLUMNS.join(","))?;
    let mut written = 0;
    for usage in Usage::ALL {
        for Row { end_unix_nanos, seconds, rank, value } in rows(run, usage, rank) {
            let (name, unit) = (usage.name(), usage.unit().name());
            writeln!(out, "{end_unix_nanos},{seconds:.3},{rank},{name},{unit},{value}")?;
            written += 1;
        }
    }
    Ok(written)
}

/// Writes the rows as Parquet, one row group per measure. Returns their number.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn parquet(
    out: impl Write + Send,
    run: &Run,
    summary: &RunSummary,
    rank: Option<u32>,
) -> io::Result<u64> {
    let write = || {
        let mut file = open(out, summary)?;
        let mut written = 0;
        for usage in Usage::ALL {
            let rows = rows(run, usage, rank);
            if !rows.is_empty() {
                written += rows.len() as u64;
                write_group(file.next_row_group()?, usage, &rows)?;
            }
        }
        file.finish()?;
        file.inner_mut().flush()?;
        Ok::<u64, ParquetError>(written)
    };
    write().map_err(io::Error::other)
}

fn open<W: Write + Send>(out: W, run: &RunSummary) -> Result<SerializedFileWriter<W>, ParquetError> {
    let types = [
        PhysicalType::INT64,
        PhysicalType::DOUBLE,
        PhysicalType::INT32,
        PhysicalType::BYTE_ARRAY,
        PhysicalType::BYTE_ARRAY,
        PhysicalType::DOUBLE,
    ];
    let field = |(name, physical): (&&str, PhysicalType)| {
        let is_text = physical == PhysicalType::BYTE_ARRAY;
        let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
        field.with_logical_type(is_text.then_some(LogicalType::String)).build().map(Arc::new)
    };
    let fields = COLUMNS.iter().zip(types).map(field).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("utilization").with_fields(fields).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        .set_key_value_metadata(Some(metadata(run)))
        .build();
    SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))
}

fn write_group<W: Write + Send>(
    mut group: SerializedRowGroupWriter<'_, W>,
    usage: Usage,
    rows: &[Row],
) -> Result<(), ParquetError> {
    let text = |text: &'static str| vec![ByteArray::from(text); rows.len()];
    column::<Int64Type, _>(&mut group, &rows.iter().map(|row| row.end_unix_nanos).collect::<Vec<_>>())?;
    column::<DoubleType, _>(&mut group, &rows.iter().map(|row| row.seconds).collect::<Vec<_>>())?;
    column::<Int32Type, _>(&mut group, &rows.iter().map(|row| row.rank as i32).collect::<Vec<_>>())?;
    column::<ByteArrayType, _>(&mut group, &text(usage.name()))?;
    column::<ByteArrayType, _>(&mut group, &text(usage.unit().name()))?;
    column::<DoubleType, _>(&mut group, &rows.iter().map(|row| f64::from(row.value)).collect::<Vec<_>>())?;
    group.close().map(drop)
}

/// Writes the next column of a group.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    if let Some(mut out) = group.next_column()? {
        out.typed::<T>().write_batch(values, None, None)?;
        out.close()?;
    }
    Ok(())
}
