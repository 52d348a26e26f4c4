//! A reader for the binary version of CIFAR-10 as its authors publish it. Each file has 10,000 records of one label
//! byte and 3,072 pixel bytes (red, green, blue; 32 x 32 each).

use std::path::Path;

use crate::images::{Images, Split};

const RECORD_BYTES: usize = 1 + 3 * 32 * 32;
const CLASSES: u8 = 10;

/// A reason why a directory is not a copy of CIFAR-10.
#[derive(Debug, thiserror::Error)]
pub enum CifarError {
    /// A file cannot be read.
    #[error(
        "cannot read {path}: {reason}; --cifar10 needs the directory of data_batch_1.bin and the other files"
    )]
    Read {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        reason: std::io::Error,
    },
    /// A file has a wrong length.
    #[error(
        "{path} has {bytes} bytes, not a multiple of {RECORD_BYTES}; download the binary version of CIFAR-10 again"
    )]
    Length {
        /// The path of the file.
        path: String,
        /// The size of the file in bytes.
        bytes: usize,
    },
    /// A record has an impossible label.
    #[error("{path}: record {record} has label {label}, but labels are 0 to 9")]
    Label {
        /// The path of the file.
        path: String,
        /// The index of the record.
        record: usize,
        /// The label, which is the record's first byte.
        label: u8,
    },
}

/// Reads the five training files and the test file.
///
/// # Errors
/// Returns an error if a file is missing or malformed.
pub fn read(directory: &Path) -> Result<Split, CifarError> {
    let mut training = empty();
    for number in 1..=5 {
        read_file(&directory.join(format!("data_batch_{number}.bin")), &mut training)?;
    }
    let mut held_out = empty();
    read_file(&directory.join("test_batch.bin"), &mut held_out)?;
    Ok(Split { training, held_out })
}

fn empty() -> Images {
    Images { shape: [3, 32, 32], pixels: Vec::new(), labels: Vec::new(), classes: usize::from(CLASSES) }
}

fn read_file(path: &Path, images: &mut Images) -> Result<(), CifarError> {
    let name = || path.display().to_string();
    let bytes = std::fs::read(path).map_err(|reason| CifarError::Read { path: name(), reason })?;
    if bytes.is_empty() || bytes.len() % RECORD_BYTES != 0 {
        return Err(CifarError::Length { path: name(), bytes: bytes.len() });
    }
    for (record, image) in bytes.chunks_exact(RECORD_BYTES).enumerate() {
        let (label, pixels) = (image[0], &image[1..]);
        if label >= CLASSES {
            return Err(CifarError::Label { path: name(), record, label });
        }
        images.labels.push(label);
        // Over all pixels, the mean is 120.7 and the standard deviation 64.
        images.pixels.extend(pixels.iter().map(|pixel| (f32::from(*pixel) - 120.7) / 64.0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, Vec<u8>)], expected: Result<(usize, usize), &str>) {
        let directory = tempfile::tempdir().unwrap();
        for number in 1..=5 {
            std::fs::write(directory.path().join(format!("data_batch_{number}.bin")), record(number, 7))
                .unwrap();
        }
        for (name, bytes) in files {
            std::fs::write(directory.path().join(name), bytes).unwrap();
        }
        match (read(directory.path()), expected) {
            (Ok(split), Ok(expected)) => assert_eq!((split.training.len(), split.held_out.len()), expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (found, _) => panic!("{:?}, expected {expected:?}", found.map(|split| split.training.labels)),
        }
    }

    fn record(label: u8, pixel: u8) -> Vec<u8> {
        let mut record = vec![pixel; RECORD_BYTES];
        record[0] = label;
        record
    }

    #[test]
    fn complete_files_are_read_and_bad_files_are_named() {
        check(&[("test_batch.bin", [record(0, 0), record(9, 255)].concat())], Ok((5, 2)));
        check(&[], Err("test_batch.bin: "));
        check(&[("test_batch.bin", vec![0; 100])], Err("test_batch.bin has 100 bytes"));
        check(&[("data_batch_3.bin", record(10, 0))], Err("data_batch_3.bin: record 0 has label 10"));
    }
}
