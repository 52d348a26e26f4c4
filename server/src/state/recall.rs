//! Steps whose records have left memory, read back from disk: a request is put in line ([`request`]), the step is read
//! from the files of its run ([`stored`]) and kept for a while ([`cache`]), or the answer says why it is not shown
//! ([`not_shown`]). An export reads many of them at once ([`older`]).

pub(super) mod cache;
pub mod not_shown;
pub mod older;
pub mod request;
pub mod stored;

#[cfg(test)]
mod tests;
