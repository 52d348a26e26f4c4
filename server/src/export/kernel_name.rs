//! Names of kernels in tables: many are the signature of a template.

/// The longest name, in characters.
const MAX_CHARS: usize = 60;
/// Words in the names of many kernels.
const NOT_TELLING: [&str; 5] =
    ["void ", "at::native::", "(anonymous namespace)::", "cutlass::", "<unnamed>::"];

/// Returns a name in at most 60 characters. Words that many kernels begin with tell none of them apart.
pub(crate) fn shortened(name: &str) -> String {
    let name = NOT_TELLING.iter().fold(name.to_owned(), |name, word| name.replace(word, ""));
    match name.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_cut_where_it_tells_a_kernel_apart() {
        let name = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >";
        let short = "vectorized_elementwise_kernel<4, CUDAFunctor_add<float>, at:...";
        assert_eq!(shortened(name), short);
        assert_eq!(shortened("ampere_sgemm_128x64_nn"), "ampere_sgemm_128x64_nn");
    }
}
