//! The assignment of parameters to buckets, a pure function with the same result on all ranks.

use wire::ids::Bucket;

use crate::model::ParamId;

/// The size of a gradient element, in bytes.
pub const ELEMENT_BYTES: u64 = size_of::<f32>() as u64;

/// The size limits of buckets, as in PyTorch DDP. A small first bucket starts communication early; large buckets use
/// the link well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The bucket cap of the first bucket, in bytes.
    pub first_bytes: u64,
    /// The bucket cap of all other buckets, in bytes.
    pub other_bytes: u64,
}

/// The environment variable that sets the bucket cap of a job, in MiB.
pub const BUCKET_CAP: &str = "PACELINE_BUCKET_CAP_MIB";

/// A bucket cap that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bucket cap {value:?} is not a number of MiB above 0 and below a million")]
pub struct CapError {
    value: String,
}

impl Caps {
    /// Returns one cap for all buckets, in MiB.
    ///
    /// # Errors
    /// Returns an error if the cap is not above 0 and below a million.
    pub fn from_mib(mib: f64) -> Result<Self, CapError> {
        if !(mib > 0.0 && mib < 1e6) {
            return Err(CapError { value: mib.to_string() });
        }
        let bytes = (mib * f64::from(1 << 20)) as u64;
        Ok(Self { first_bytes: bytes, other_bytes: bytes })
    }

    /// Returns the caps that `PACELINE_BUCKET_CAP_MIB` sets, and the default if it is not set.
    ///
    /// # Errors
    /// Returns an error if the variable is not a number of MiB above 0 and below a million.
    pub fn from_env() -> Result<Self, CapError> {
        Self::from_variable(std::env::var_os(BUCKET_CAP).map(|value| value.to_string_lossy().into_owned()))
    }

    fn from_variable(value: Option<String>) -> Result<Self, CapError> {
        let Some(value) = value else { return Ok(Self::default()) };
        value.trim().parse().ok().and_then(|mib| Self::from_mib(mib).ok()).ok_or(CapError { value })
    }
}

impl Default for Caps {
    fn default() -> Self {
        Self { first_bytes: 1 << 20, other_bytes: 25 << 20 }
    }
}

/// Fills buckets with `parameters` (id and bytes) in the given order. A bucket closes as soon as its size reaches its
/// cap, so a parameter larger than the cap closes the bucket that it falls into.
#[must_use]
pub fn assign(parameters: impl IntoIterator<Item = (ParamId, u64)>, caps: Caps) -> Vec<Vec<ParamId>> {
    let mut buckets: Vec<Vec<ParamId>> = Vec::new();
    let mut open: Vec<ParamId> = Vec::new();
    let mut open_bytes = 0_u64;
    for (id, bytes) in parameters {
        open.push(id);
        open_bytes = open_bytes.saturating_add(bytes);
        let cap = if buckets.is_empty() { caps.first_bytes } else { caps.other_bytes };
        if open_bytes >= cap {
            buckets.push(std::mem::take(&mut open));
            open_bytes = 0;
        }
    }
    if !open.is_empty() {
        buckets.push(open);
    }
    buckets
}

/// The position of a parameter's gradient in its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamPlace {
    /// The bucket.
    pub bucket: Bucket,
    /// The index of the gradient's first element in the bucket.
    pub offset: usize,
    /// The number of elements.
    pub len: usize,
}

/// Returns the position of every parameter, by id. `lens` has their numbers of elements.
///
/// # Panics
/// Panics if `buckets` does not contain every parameter of `lens` exactly once.
#[must_use]
pub fn places(buckets: &[Vec<ParamId>], lens: &[usize]) -> Vec<ParamPlace> {
    let mut places = vec![None; lens.len()];
    for (index, bucket) in buckets.iter().enumerate() {
        let mut offset = 0;
        for &ParamId(id) in bucket {
            let len = lens[id as usize];
            let replaced =
                places[id as usize].replace(ParamPlace { bucket: Bucket(index as u32), offset, len });
            assert!(replaced.is_none(), "parameter {id} is in two buckets");
            offset += len;
        }
    }
    places.into_iter().map(|place| place.expect("every parameter is in a bucket")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u64], caps: (u64, u64), expected: &[&[u32]]) {
        let caps = Caps { first_bytes: caps.0, other_bytes: caps.1 };
        let ids = bytes.iter().enumerate().map(|(id, bytes)| (ParamId(id as u32), *bytes));
        let found = assign(ids, caps);
        let found: Vec<Vec<u32>> = found.iter().map(|b| b.iter().map(|p| p.0).collect()).collect();
        assert_eq!(found, expected, "{bytes:?} with caps {caps:?}");
    }

    #[test]
    fn the_environment_sets_one_cap_in_mib() {
        let caps = |value: &str| Caps::from_variable(Some(value.to_owned()));
        assert_eq!(Caps::from_variable(None), Ok(Caps::default()));
        assert_eq!(caps("0.5"), Ok(Caps { first_bytes: 512 << 10, other_bytes: 512 << 10 }));
        for wrong in ["", "0", "-1", "1e6", "NaN", "25MB"] {
            let error = caps(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn a_bucket_closes_at_its_cap() {
        check(&[], (10, 20), &[]);
        check(&[4, 4, 4], (10, 20), &[&[0, 1, 2]]);
        check(&[4, 6, 4], (10, 20), &[&[0, 1], &[2]]);
        check(&[100, 4, 16, 1], (10, 20), &[&[0], &[1, 2], &[3]]);
        check(&[0, 0], (10, 20), &[&[0, 1]]);
        check(&[1, 1], (0, 0), &[&[0], &[1]]);
    }
}
