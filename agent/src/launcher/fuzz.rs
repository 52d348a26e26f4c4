//! Fuzz targets for environments that no launcher sets. A process never gets a rank other than its launcher's, and
//! never trains alone if a launcher started it as one of several.

use ::fuzz::{Corpus, Verdict};

use super::*;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// Parses `NAME=VALUE` pairs separated by spaces. The first pair of a name counts, as in the C library.
fn variables(text: &str) -> Vec<(&str, &str)> {
    text.split(' ').filter_map(|pair| pair.split_once('=')).filter(|(_, value)| !value.is_empty()).collect()
}

fn check(bytes: &[u8], _choice: u64) -> Verdict {
    // The standard library leaves out variables that are not UTF-8.
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
    let variables = variables(text);
    let get =
        |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let names = |launcher| LAUNCHERS.iter().find(|names| names.launcher == launcher).expect("all are listed");
    match membership_from(get) {
        Ok(None) => {
            let said = LAUNCHERS.iter().find(|names| get(names.rank).is_some());
            ensure(said.is_none(), || "a rank that is set was ignored".into())
        }
        Ok(Some(found)) => {
            let Membership { rank, world_size, .. } = found;
            ensure(rank < world_size, || format!("rank {rank} of {world_size}"))?;
            let names = names(found.launcher);
            let is = |name: &str, number| {
                get(name).is_some_and(|value| {
                    value.trim().trim_start_matches('+').trim_start_matches('0') == number
                })
            };
            let decimal = |number: u32| number.to_string().trim_start_matches('0').to_owned();
            ensure(is(names.rank, decimal(rank)), || format!("{} is read as {rank}", names.rank))?;
            let size = names.world_size.iter().find(|name| get(name).is_some()).expect("it was read");
            ensure(is(size, decimal(world_size)), || format!("{size} is read as {world_size}"))?;
            let torchrun =
                get("RANK").is_none() || get("WORLD_SIZE").is_none() || found.launcher == Launcher::Torchrun;
            ensure(torchrun, || format!("{:?} decides before torchrun", found.launcher))
        }
        Err(error) => {
            let (sentence, variable) = (error.to_string(), error.variable());
            ensure(sentence.contains(variable), || format!("{sentence:?} does not name {variable}"))?;
            ensure(sentence.len() < 400 + 10 * bytes.len(), || format!("{} bytes of error", sentence.len()))
        }
    }
}

#[test]
fn environments() {
    let corpus = Corpus::lines(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/environments.txt"));
    let words =
        ["-1", "4294967295", "4294967296", "1e3", "0x4", "+3", " 3", "3 ", "\u{0663}", "latest", "NaN", "="];
    corpus.words(&words).check("launcher", 30_000, check);
}

/// The run id must be the value of a variable too.
#[test]
fn run_ids_come_from_what_is_set() {
    let corpus = Corpus::lines(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/environments.txt"));
    corpus.words(&["PACELINE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"]).check(
        "run-id",
        10_000,
        |bytes, _| {
            let Ok(text) = std::str::from_utf8(bytes) else { return Ok(()) };
            let variables = variables(text);
            let get = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            };
            let Some(id) = run_id_from(get) else { return Ok(()) };
            let is_whole = variables.iter().any(|(_, value)| *value == id) || id.starts_with("slurm-");
            ensure(is_whole, || format!("{id:?} is not the value of a variable"))
        },
    );
}
