//! Tests against results of PyTorch (`reducer/tests/vectors`).

use std::path::PathBuf;

use paceline_reducer::bucketing::{Caps, ELEMENT_BYTES, assign};
use paceline_reducer::{Instruments, Options, ParamId, Parameter, Reducer, Share};
use serde_json::Value;

use crate::steps::context;
use crate::worlds::{Kind, run};

/// Returns the directory of PyTorch's reference vectors.
pub fn vectors() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

pub fn json(path: PathBuf) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn floats(path: PathBuf) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn numbers(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

#[test]
fn buckets_are_assigned_as_in_pytorch() {
    let directory = vectors();
    let file = json(directory.join("bucket_assignment.json"));
    let mut checked = 0;
    for case in file["cases"].as_array().unwrap() {
        let limits = numbers(&case["bucket_size_limits"]);
        let dense = case["expect_sparse_gradient"].as_array().unwrap().iter().all(|sparse| sparse == false);
        let single = case["dtypes"].as_array().unwrap().iter().all(|dtype| dtype == "float32");
        if limits.len() > 2 || !dense || !single {
            continue;
        }
        let shapes: Vec<u64> =
            case["shapes"].as_array().unwrap().iter().map(|shape| numbers(shape).iter().product()).collect();
        let indices = numbers(&case["tensor_indices"]);
        let id = |place: usize| indices.get(place).map_or(place as u32, |index| *index as u32);
        let parameters = shapes.iter().enumerate().map(|(place, n)| (ParamId(id(place)), n * ELEMENT_BYTES));
        let caps = Caps { first_bytes: limits[0], other_bytes: limits[limits.len() - 1] };
        let found = assign(parameters, caps);
        let found: Vec<Vec<u64>> =
            found.iter().map(|b| b.iter().map(|id| u64::from(id.0)).collect()).collect();
        let expected: Vec<Vec<u64>> = case["buckets"].as_array().unwrap().iter().map(numbers).collect();
        assert_eq!(found, expected, "{}", case["name"]);
        checked += 1;
    }
    assert!(checked >= 60, "only {checked} cases apply");
}

/// Reduces one parameter, with one gradient of `inputs` per rank, and returns the result of every rank.
fn reduce(kind: Kind, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let ranks = inputs.len() as u32;
    run(kind, ranks, |comm| {
        let mine = &inputs[comm.rank().0 as usize];
        let parameters = vec![Parameter::new("p", [mine.len()])];
        let mut reducer = Reducer::new(parameters, comm, Options::default(), Instruments::none()).unwrap();
        reducer.begin_step(context(0), Share::even(ranks)).unwrap();
        reducer.mark_ready(ParamId(0), mine).unwrap();
        reducer.finish_step().unwrap().gradient(ParamId(0)).unwrap().to_vec()
    })
}

#[test]
fn averages_are_as_in_pytorch() {
    let directory = vectors();
    let mut checked = 0;
    for ranks in [2, 3, 4] {
        let manifest = json(directory.join(format!("reduce/manifest_w{ranks}.json")));
        for case in manifest["cases"].as_array().unwrap().iter().filter(|case| case["dtype"] == "float32") {
            let read = |entry: &Value| floats(directory.join("reduce").join(entry["file"].as_str().unwrap()));
            let inputs: Vec<Vec<f32>> = case["inputs"].as_array().unwrap().iter().map(read).collect();
            let expected = read(&case["ddp_default"]);
            for kind in [Kind::Threads, Kind::Ring] {
                let found = reduce(kind, &inputs);
                assert!(found.iter().all(|rank| bits(rank) == bits(&found[0])), "ranks differ");
                for (index, (found, expected)) in found[0].iter().zip(&expected).enumerate() {
                    let scale: f32 = inputs.iter().map(|rank| rank[index].abs()).sum::<f32>() / ranks as f32;
                    // Two ranks have only one order of addition. With more, the order differs, and the last bit may
                    // too.
                    let tolerance = if ranks == 2 { 0.0 } else { scale * 2.0 * f32::EPSILON };
                    assert!((found - expected).abs() <= tolerance, "{kind:?} {}: element {index}", case["n"]);
                }
                checked += 1;
            }
        }
    }
    assert_eq!(checked, 30);
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
