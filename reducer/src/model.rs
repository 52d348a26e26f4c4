//! The parameters of a model, and the check that all ranks have the same ones.

use std::collections::HashMap;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use wire::ids::Rank;

use crate::communicator::Communicator;
use crate::error::ReduceError;

/// The index of a parameter in the list that the reducer was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParamId(pub u32);

/// A trainable tensor of 32-bit floats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name, unique within the model. Errors and the reported layout use it.
    pub name: String,
    /// The dimensions.
    pub shape: Vec<usize>,
}

impl Parameter {
    /// Creates a parameter.
    pub fn new(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), shape: shape.into() }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }
}

pub(crate) fn check_names(parameters: &[Parameter]) -> Result<HashMap<String, ParamId>, ReduceError> {
    if parameters.is_empty() {
        return Err(ReduceError::NoParameters);
    }
    let mut ids = HashMap::with_capacity(parameters.len());
    for (second, parameter) in parameters.iter().enumerate() {
        if let Some(ParamId(first)) = ids.insert(parameter.name.clone(), ParamId(second as u32)) {
            let name = parameter.name.clone();
            return Err(ReduceError::DuplicateName { name, first: first as usize, second });
        }
    }
    Ok(ids)
}

/// Fails on every rank, with the same text, if a rank has other parameters or options than rank 0. If all agree, the
/// check costs one gather of eight bytes per rank.
pub(crate) fn check_agreement(
    parameters: &[Parameter],
    options: &str,
    comm: &mut dyn Communicator,
) -> Result<(), ReduceError> {
    let mine = describe(parameters, options);
    let hashes = comm.all_gather(&hash(mine.as_bytes()).to_le_bytes())?;
    if hashes.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    let mut first = mine.clone().into_bytes();
    comm.broadcast(Rank(0), &mut first)?;
    let difference = difference(&mine, &String::from_utf8_lossy(&first)).unwrap_or_default();
    let all = comm.all_gather(difference.as_bytes())?;
    let differing = (0..).map(Rank).zip(all).filter(|(_, text)| !text.is_empty());
    Err(ReduceError::ModelMismatch(
        differing.map(|(rank, text)| (rank, String::from_utf8_lossy(&text).into_owned())).collect(),
    ))
}

/// Describes the options in one line, then each parameter in one line.
fn describe(parameters: &[Parameter], options: &str) -> String {
    let mut text = options.to_owned();
    for Parameter { name, shape } in parameters {
        text.push_str(&format!("\n{name:?} with shape {shape:?}"));
    }
    text
}

fn difference(mine: &str, first: &str) -> Option<String> {
    let (mut ours, mut theirs) = (mine.lines(), first.lines());
    if let (Some(our), Some(their)) = (ours.next(), theirs.next())
        && our != their
    {
        return Some(format!("it has the options {our}, rank 0 has {their}"));
    }
    let (ours, theirs): (Vec<_>, Vec<_>) = (ours.collect(), theirs.collect());
    if ours.len() != theirs.len() {
        let extra = (0..).zip(ours.iter()).find(|(index, line)| theirs.get(*index) != Some(*line));
        let extra =
            extra.map(|(index, line)| format!("; the first that differs is parameter {index}, {line}"));
        let (have, has) = (ours.len(), theirs.len());
        return Some(format!("it has {have} parameters, rank 0 has {has}{}", extra.unwrap_or_default()));
    }
    let differing = ours.iter().zip(&theirs).enumerate().find(|(_, (our, their))| our != their)?;
    let (index, (our, their)) = differing;
    Some(format!("parameter {index} is {our}, on rank 0 it is {their}"))
}

/// Returns a hash that is the same in every process.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(bytes);
    hasher.finish()
}
