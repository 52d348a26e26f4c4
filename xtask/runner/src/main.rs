//! The runner that cargo calls for tests of the dashboard's components: that of wasm-bindgen, in the version of the lockfile. It is a
//! program of its own because it needs a hundred libraries that no other command of `cargo xtask` needs.

use wasm_bindgen_cli::wasm_bindgen_test_runner::run_cli_with_args;

fn main() -> anyhow::Result<()> {
    run_cli_with_args(std::env::args())
}
