//! A table of INT64 columns, stored as one Parquet file.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Repetition, Type as PhysicalType, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::Int64Type;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// The number of keys read at a time.
const KEYS_AT_ONCE: usize = 1 << 16;
/// The number of rows below which a table is not compressed. They fit into one miniblock of the encoding, from which
/// compression gains nothing.
const FEW_ROWS: usize = 32;

/// A column, and the range of its values that is wanted.
pub(super) type Key = (&'static str, RangeInclusive<i64>);

/// `N` named columns of equal length.
pub(super) struct Table<const N: usize> {
    names: [&'static str; N],
    columns: [Vec<i64>; N],
}

impl<const N: usize> Table<N> {
    pub(super) fn new(names: [&'static str; N]) -> Self {
        Self { names, columns: std::array::from_fn(|_| Vec::new()) }
    }

    pub(super) fn push(&mut self, row: [i64; N]) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value);
        }
    }

    pub(super) fn rows(&self) -> impl Iterator<Item = [i64; N]> + '_ {
        (0..self.columns[0].len()).map(|row| std::array::from_fn(|column| self.columns[column][row]))
    }

    /// Sorts the rows by the first column. Rows with equal values keep their order.
    pub(super) fn group(&mut self) {
        let mut order: Vec<usize> = (0..self.columns[0].len()).collect();
        order.sort_by_key(|&row| self.columns[0][row]);
        for column in &mut self.columns {
            *column = order.iter().map(|&row| column[row]).collect();
        }
    }

    /// Encodes the columns as a Parquet file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ParquetError> {
        let field = |name: &&'static str| {
            let field = Type::primitive_type_builder(name, PhysicalType::INT64);
            field.with_repetition(Repetition::REQUIRED).build().map(Arc::new)
        };
        let fields = self.names.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let schema = Type::group_type_builder("records").with_fields(fields).build()?;
        let compression = if self.columns[0].len() < FEW_ROWS {
            Compression::UNCOMPRESSED
        } else {
            Compression::ZSTD(ZstdLevel::try_new(1)?)
        };
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::DELTA_BINARY_PACKED)
            .set_compression(compression)
            .build();
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let mut group = writer.next_row_group()?;
        for column in &self.columns {
            let Some(mut out) = group.next_column()? else { break };
            out.typed::<Int64Type>().write_batch(column, None, None)?;
            out.close()?;
        }
        group.close()?;
        writer.into_inner()
    }

    /// Decodes the columns `names` of a Parquet file. The file may have other columns, in any order.
    pub(super) fn decode(file: Bytes, names: [&'static str; N]) -> Result<Self, String> {
        let reader = File::new(file).map_err(|error| error.to_string())?;
        let mut table = Self::new(names);
        for (name, column) in names.iter().zip(&mut table.columns) {
            *column = read_column(&reader, name).map_err(|error| error.to_string())?;
        }
        table.checked()
    }

    /// Decodes like [`Self::decode`], with only the rows whose key is wanted.
    pub(super) fn decode_where(file: Bytes, names: [&'static str; N], key: Key) -> Result<Self, String> {
        let mut table = Self::new(names);
        table.read_where(file, &key).map_err(|error| error.to_string())?;
        table.checked()
    }

    fn read_where(&mut self, file: Bytes, key: &Key) -> Result<(), ParquetError> {
        let reader = File::new(file)?;
        for group in 0..reader.num_row_groups() {
            let wanted = rows_where(&reader, group, key)?;
            if wanted.is_empty() {
                continue;
            }
            for (name, values) in self.names.iter().zip(&mut self.columns) {
                let (mut column, _) = open_column(&reader, group, name)?;
                let mut at = 0;
                for rows in &wanted {
                    column.skip_records(rows.start - at)?;
                    column.read_records(rows.len(), None, None, values)?;
                    at = rows.end;
                }
            }
        }
        Ok(())
    }

    fn checked(self) -> Result<Self, String> {
        let rows = self.columns[0].len();
        if self.columns.iter().any(|column| column.len() != rows) {
            return Err("its columns differ in length".into());
        }
        Ok(self)
    }
}

type File = SerializedFileReader<Bytes>;

fn read_column(reader: &File, name: &str) -> Result<Vec<i64>, ParquetError> {
    let mut values = Vec::new();
    for group in 0..reader.num_row_groups() {
        let (mut column, rows) = open_column(reader, group, name)?;
        column.read_records(rows, None, None, &mut values)?;
    }
    Ok(values)
}

/// Opens a column of a row group. Returns it with the number of rows of the group.
fn open_column(
    reader: &File,
    group: usize,
    name: &str,
) -> Result<(ColumnReaderImpl<Int64Type>, usize), ParquetError> {
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let at = schema
        .columns()
        .iter()
        .position(|column| column.name() == name)
        .ok_or_else(|| ParquetError::General(format!("it has no column {name:?}")))?;
    let group = reader.get_row_group(group)?;
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
    match group.get_column_reader(at)? {
        ColumnReader::Int64ColumnReader(column) => Ok((column, rows)),
        _ => Err(ParquetError::General(format!("its column {name:?} is not INT64"))),
    }
}

/// Returns the rows of a group whose key is wanted, as ranges.
fn rows_where(reader: &File, group: usize, (key, wanted): &Key) -> Result<Vec<Range<usize>>, ParquetError> {
    let (mut column, rows) = open_column(reader, group, key)?;
    let (mut found, mut keys): (Vec<Range<usize>>, _) = (Vec::new(), Vec::new());
    let mut first_row = 0;
    while first_row < rows {
        keys.clear();
        column.read_records(KEYS_AT_ONCE.min(rows - first_row), None, None, &mut keys)?;
        for row in (first_row..).zip(&keys).filter(|&(_, key)| wanted.contains(key)).map(|(row, _)| row) {
            match found.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => found.push(row..row + 1),
            }
        }
        if keys.is_empty() {
            return Err(ParquetError::General(format!("its column {key:?} is too short")));
        }
        first_row += keys.len();
    }
    Ok(found)
}
