//! What a timeline says of a tensor: the operation on it, and its size.

use wire::event::Function;

/// Returns the function of an operation; `None` for anything else.
pub(super) fn function(operation: &str) -> Option<Function> {
    Some(match operation {
        // Adasum sums what is not parallel.
        "ALLREDUCE" | "ADASUM" => Function::AllReduce,
        "ALLGATHER" => Function::AllGather,
        "BROADCAST" => Function::Broadcast,
        "ALLTOALL" => Function::AllToAll,
        "REDUCESCATTER" => Function::ReduceScatter,
        "BARRIER" => Function::Other,
        _ => return None,
    })
}

/// Returns the size of a tensor, in bytes, from its type (`float32`) and its shape (`[2, 3]`).
pub(super) fn bytes(dtype: &str, shape: &str) -> Option<u64> {
    let element = match dtype {
        "uint8" | "int8" | "bool" => 1,
        "uint16" | "int16" | "float16" => 2,
        "int32" | "float32" => 4,
        "int64" | "float64" => 8,
        _ => return None,
    };
    let sizes = shape.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut sizes = sizes.split(',').map(str::trim).filter(|_| !sizes.is_empty());
    sizes.try_fold(element, |bytes: u64, size| bytes.checked_mul(size.parse().ok()?))
}

/// Returns what a rank passes to a collective, in bytes. `output` is the size of the output on rank 0. The parts of an all-to-all
/// differ, so they are not known.
pub(super) fn passed(function: Function, output: u64, ranks: usize) -> Option<u64> {
    match function {
        Function::AllReduce | Function::Broadcast | Function::ReduceScatter => Some(output),
        Function::AllGather => output.checked_div(ranks as u64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_types_and_shapes() {
        assert_eq!(bytes("float32", "[4096, 1001]"), Some(4 * 4_096 * 1_001));
        assert_eq!(
            (bytes("float16", "[]"), bytes("bool", "[3]"), bytes("int64", "[0]")),
            (Some(2), Some(3), Some(0))
        );
        for (dtype, shape) in
            [("<unknown>", "[1]"), ("int8", "1"), ("int8", "[x]"), ("int8", "[9999999999, 9999999999, 9]")]
        {
            assert_eq!(bytes(dtype, shape), None, "{dtype} {shape}");
        }
    }

    #[test]
    fn a_rank_passes_its_part_of_what_is_gathered() {
        assert_eq!(passed(Function::AllGather, 800, 4), Some(200));
        assert_eq!(passed(Function::AllReduce, 800, 4), Some(800));
        assert_eq!(passed(Function::AllToAll, 800, 4), None);
        assert_eq!(passed(Function::AllGather, 800, 0), None);
    }
}
