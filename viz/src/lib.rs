//! Charts as pixels: plain Rust, no web.
