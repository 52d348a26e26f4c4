//! Names the library libcuda.so, so that programs that look for libcuda find it. The same file replaces the other
//! libraries.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
