//! Parts of sentences that later evidence makes more precise.

/// What a rank loses time to, as long as nothing says to whom.
pub(crate) const TO_ITS_HOST: &str = "time on its host";
/// The same of several ranks.
pub(crate) const TO_THEIR_HOSTS: &str = "time on their hosts";
/// How ranks compute whose processor is slow,
pub(crate) const SLOW_PROCESSOR: &str = "on a slower processor";
/// and how they compute otherwise.
pub(crate) const SLOW_COMPUTE: &str = "longer than the others";
/// Why ranks take turns at being last where they are off their processors.
pub(crate) const OFF_IN_TURNS: &str =
    "ranks do not have their cores for themselves, so that now one, now another is kept off its processor";
