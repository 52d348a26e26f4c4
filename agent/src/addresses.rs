//! The server's network addresses. ureq asks for them before every request, even where a connection is open, and its own
//! resolver starts a thread for every question: ten threads per second in a training process.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// The time after which a name is looked up again: a server may move while its old address still answers.
const LOOK_UP_EVERY: Duration = Duration::from_secs(300);
/// The shortest time between lookups, however many requests fail.
const LOOK_UP_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// The addresses of one server. An address in numbers needs no lookup. The addresses of a name are remembered. Clones
/// share them.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    lookup: Arc<dyn Resolver>,
    remembered: Arc<Mutex<Option<Remembered>>>,
}

#[derive(Debug)]
struct Remembered {
    addresses: ResolvedSocketAddrs,
    looked_up: Instant,
    /// Whether a request or a lookup has failed since the last successful lookup.
    is_doubtful: bool,
}

impl Remembered {
    fn is_due(&self, now: Instant) -> bool {
        let limit = if self.is_doubtful { LOOK_UP_AT_MOST_EVERY } else { LOOK_UP_EVERY };
        now.saturating_duration_since(self.looked_up) >= limit
    }
}

impl Addresses {
    /// Remembers what `lookup` finds.
    pub(crate) fn new(lookup: impl Resolver) -> Self {
        Self { lookup: Arc::new(lookup), remembered: Arc::default() }
    }

    /// Records that a request failed: the server may have moved.
    pub(crate) fn doubt(&self) {
        if let Some(known) = &mut *self.remembered.lock().unwrap_or_else(PoisonError::into_inner) {
            known.is_doubtful = true;
        }
    }

    fn resolve_at(
        &self,
        now: Instant,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        if let Some(literal) = literal(uri) {
            let mut addresses = self.empty();
            addresses.push(literal);
            return Ok(addresses);
        }
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = remembered.as_ref().filter(|known| !known.is_due(now)) {
            return Ok(known.addresses.clone());
        }
        match self.lookup.resolve(uri, config, timeout) {
            Ok(addresses) => {
                let found = Remembered { addresses, looked_up: now, is_doubtful: false };
                Ok(remembered.insert(found).addresses.clone())
            }
            // While names cannot be looked up, the server may still be where it was.
            Err(error) => remembered.as_mut().map_or(Err(error), |known| {
                (known.looked_up, known.is_doubtful) = (now, true);
                Ok(known.addresses.clone())
            }),
        }
    }
}

impl Default for Addresses {
    fn default() -> Self {
        Self::new(DefaultResolver::default())
    }
}

impl Resolver for Addresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.resolve_at(Instant::now(), uri, config, timeout)
    }
}

/// Returns the address if the URI has it in numbers.
fn literal(uri: &Uri) -> Option<SocketAddr> {
    DefaultResolver::host_and_port(uri.scheme()?, uri.authority()?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts lookups. The n-th one finds port n; none succeeds while the names' server is down.
    #[derive(Clone, Debug, Default)]
    struct Names {
        lookups: Arc<AtomicUsize>,
        is_down: Arc<std::sync::atomic::AtomicBool>,
    }

    impl Resolver for Names {
        fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
            let number = self.lookups.fetch_add(1, Ordering::Relaxed) + 1;
            if self.is_down.load(Ordering::Relaxed) {
                return Err(Error::HostNotFound);
            }
            let mut addresses = self.empty();
            addresses.push(SocketAddr::from(([127, 0, 0, 1], number as u16)));
            Ok(addresses)
        }
    }

    /// Returns the port of the only address of `uri` that is known `seconds` after `start`; `None` if it has none.
    fn port(addresses: &Addresses, uri: &str, (start, seconds): (Instant, f64)) -> Option<u16> {
        let (at, uri) = (start + Duration::from_secs_f64(seconds), uri.parse().unwrap());
        let found = addresses.resolve_at(at, &uri, &Config::default(), NextTimeout::default()).ok()?;
        let [address] = &found[..] else { panic!("{found:?}") };
        Some(address.port())
    }

    #[test]
    fn an_address_in_numbers_is_never_looked_up() {
        let names = Names::default();
        let (addresses, start) = (Addresses::new(names.clone()), Instant::now());
        let uris = [
            ("http://127.0.0.1:8080/api", 8_080),
            ("http://[::1]:9000/api", 9_000),
            ("http://10.0.0.1/", 80),
        ];
        for (uri, expected) in uris {
            assert_eq!(port(&addresses, uri, (start, 0.0)), Some(expected), "{uri}");
        }
        assert_eq!(names.lookups.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_name_is_looked_up_once_and_again_after_a_failure_or_some_minutes() {
        const SERVER: &str = "http://paceline.example:8080/api";
        let names = Names::default();
        let (addresses, start) = (Addresses::new(names.clone()), Instant::now());
        let at = |seconds: f64| port(&addresses, SERVER, (start, seconds));
        assert_eq!([at(0.0), at(0.1), at(60.0), at(299.0)], [Some(1); 4]);
        assert_eq!([at(300.0), at(301.5)], [Some(2); 2]);
        addresses.doubt();
        assert_eq!([at(301.6), at(302.0), at(500.0)], [Some(3); 3]);
        addresses.doubt();
        addresses.doubt();
        assert_eq!(at(302.5), Some(3), "one lookup per second is enough");
        names.is_down.store(true, Ordering::Relaxed);
        assert_eq!([at(303.0), at(303.9)], [Some(3); 2], "an old address is better than none");
        names.is_down.store(false, Ordering::Relaxed);
        assert_eq!(at(304.0), Some(5), "the failed lookup was the fourth one");
    }

    #[test]
    fn a_name_that_was_never_found_has_no_address() {
        let names = Names::default();
        names.is_down.store(true, Ordering::Relaxed);
        let (addresses, start) = (Addresses::new(names), Instant::now());
        assert_eq!(port(&addresses, "http://paceline.example:8080/", (start, 0.0)), None);
    }
}
