//! Collect, keep, serve; and the paceline program.
