//! Parts of sentences that other modules replace when they find more precise evidence.

/// The object of "loses" for one rank, while nothing shows who takes the time.
pub(crate) const TO_ITS_HOST: &str = "time on its host";
/// The object of "loses" for several ranks.
pub(crate) const TO_THEIR_HOSTS: &str = "time on their hosts";
/// The rest of "computes" for ranks whose processor is slow.
pub(crate) const SLOW_PROCESSOR: &str = "on a slower processor";
/// The rest of "computes" for ranks that are slow for another reason.
pub(crate) const SLOW_COMPUTE: &str = "more slowly than the others";
/// The reason why ranks take turns at being last, where they are kept off their processors.
pub(crate) const OFF_IN_TURNS: &str =
    "their cores are shared, so different ranks are kept off their processors in turn";
