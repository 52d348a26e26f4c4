//! Charts as pixels.
