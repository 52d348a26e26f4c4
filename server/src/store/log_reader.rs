//! Reads the batches of a log.

use super::folder::{RunFolder, log_name};
use super::log_format::{self, Contents, Gap};
use super::manifest::LogDamage;
use super::segment::Received;
use super::{StepRange, StoreError};

/// Reads the batches of log `number`, and the damage that hides other batches. Only the newest log may end in a torn
/// tail.
///
/// # Errors
/// Returns an error if the file cannot be read at all.
pub fn read(
    folder: &RunFolder,
    number: u32,
    is_newest: bool,
) -> Result<(Vec<Received>, Option<LogDamage>), StoreError> {
    read_steps(folder, number, is_newest, None)
}

/// Reads a log like [`read`], with only the records of `steps` if it is not `None` (see [`Received::only`]).
///
/// # Errors
/// Returns an error if the file cannot be read at all.
pub fn read_steps(
    folder: &RunFolder,
    number: u32,
    is_newest: bool,
    steps: Option<StepRange>,
) -> Result<(Vec<Received>, Option<LogDamage>), StoreError> {
    let path = folder.log(number);
    let bytes = folder.disk.read(&path).map_err(StoreError::io(&path, "read"))?;
    let Contents { entries, gaps, torn } = log_format::read(&bytes);
    let (mut batches, mut damage) = (Vec::new(), Damages::default());
    if log_format::is_of_other_version(&bytes) {
        damage.add(|| {
            "it has another version, and this program reads version 1: use the release that wrote it".into()
        });
    } else {
        for Gap { at, bytes } in gaps {
            damage.add(|| format!("{bytes} bytes at offset {at} do not match their checksum"));
        }
    }
    for entry in entries {
        match wire::codec::decode(&entry.frame) {
            Ok(batch) => batches.extend(Received { at: entry.received, batch }.only(steps)),
            Err(error) => damage.add(|| format!("an entry is not a batch: {error}")),
        }
    }
    if torn > 0 && !is_newest {
        damage.add(|| format!("its last {torn} bytes are a truncated batch"));
    }
    Ok((batches, damage.into_log_damage(number)))
}

/// Counts damaged places and describes the first.
#[derive(Default)]
struct Damages {
    count: u64,
    first: String,
}

impl Damages {
    fn add(&mut self, describe: impl FnOnce() -> String) {
        if self.count == 0 {
            self.first = describe();
        }
        self.count += 1;
    }

    fn into_log_damage(self, number: u32) -> Option<LogDamage> {
        let Self { count, first } = self;
        let more = if count > 1 { format!(" (and {} more places)", count - 1) } else { String::new() };
        (count > 0)
            .then(|| LogDamage { batches: count, reason: format!("{}: {first}{more}", log_name(number)) })
    }
}
