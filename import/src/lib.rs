//! Reads what other tools recorded of a job, and turns it into Paceline's records.
//!
//! What a file holds decides its format ([`read`]). Each format has a folder: traces of PyTorch's profiler ([`kineto`]),
//! dumps of its flight recorder ([`flight_recorder`]), logs of NCCL Inspector ([`inspector`]), the tables of StragglerAnalysis
//! ([`stragglers`]), timelines of Horovod ([`horovod`]) and execution traces ([`execution`]). A trace may be larger than memory,
//! and is read as a stream ([`pieces`]).
//!
//! What a device ran, as the profiler and execution traces have it, becomes records as [`records`] says. Every other format
//! becomes a [`timeline`]: at once where it has times, and through [`calls`] where the files of all ranks together say when collectives ran. The ranks of several
//! files become a job ([`job`]): ranks get their numbers, collectives are matched, and all of it becomes the batches that
//! agents would have sent.
//!
//! Nothing is guessed without being said: a file that is damaged gives what it holds, and [`RankRecording::remarks`] say what is
//! missing.

pub mod calls;
mod chunks;
mod detect;
pub mod execution;
pub mod flight_recorder;
mod format;
mod group;
pub mod horovod;
pub mod inspector;
pub mod job;
pub mod kineto;
mod listed;
mod number;
mod pickle;
pub mod pieces;
pub mod records;
mod remarks;
mod source;
pub mod stragglers;
pub mod timeline;
mod torch;
mod unpacked;
mod unreadable;
mod whole;

use std::io::Read;

pub use format::Format;
pub use group::Group;
pub use pickle::NotPlain;
pub use remarks::Remarks;
pub use source::{Content, RankRecording, Source};
pub use unpacked::{FarLonger, Swollen};
pub use unreadable::Unreadable;

use detect::Detected;

/// Reads a file, which may be compressed. What it holds decides its format, not its name.
///
/// # Errors
/// Returns an error if nothing of the file can be read, if it holds no collective and no work of a device, or if its format is
/// known and not read.
pub fn read(file: &str, bytes: impl Read) -> Result<Source, Unreadable> {
    let swollen = Swollen::default();
    let read = pieces::plain(bytes, &swollen).map_err(Unreadable::from).and_then(read_plain);
    match read {
        Ok((format, ranks)) => Ok(Source { file: file.to_owned(), format, ranks }),
        // Whatever reading ended with, this is why.
        Err(_) if swollen.is_found() => Err(Unreadable::Swollen(FarLonger)),
        Err(error) => Err(error),
    }
}

fn read_plain(plain: impl Read) -> Result<(Format, Vec<RankRecording>), Unreadable> {
    let plain = detect::Headed::new(plain);
    let format = match detect::detect(plain.head()) {
        Detected::Format(format) => format,
        Detected::Unsupported(why) => return Err(Unreadable::Unsupported(why)),
    };
    let ranks = match format {
        Format::Kineto => vec![kineto(plain)?],
        Format::FlightRecorder => vec![flight_recorder::read(plain)?.into()],
        Format::Inspector => vec![inspector::read(plain)?],
        Format::Stragglers => stragglers::read(plain)?,
        Format::Horovod => horovod::read(plain)?.into(),
        Format::Execution => {
            let is_protobuf = execution::is_protobuf(plain.head());
            vec![execution::read(plain, is_protobuf)?]
        }
    };
    Ok((format, ranks))
}

fn kineto(plain: impl Read) -> Result<RankRecording, Unreadable> {
    let trace = kineto::read(plain)?;
    if trace.work.is_empty() { Err(Unreadable::NoWork) } else { Ok(trace.into()) }
}
