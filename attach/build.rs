//! Links the library with `-z nodelete`, which keeps it mapped until the process ends. NCCL closes its profiler plugin
//! together with the last communicator, while a Paceline thread may still run the plugin's code.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
