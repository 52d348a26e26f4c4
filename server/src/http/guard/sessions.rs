//! Sessions of browsers. A browser shows the token once and then keeps the random id of a session, so that the token
//! itself is neither stored in the browser nor sent to other servers on the same host.
//!
//! Sessions are in memory only: after a restart of the server, browsers show the token again.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::equal;

/// The time after which a session that is not used ends.
pub(super) const LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The age at which the use of a session renews it. A day, because each renewal sends a cookie.
const RENEW_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The largest number of sessions: 1,024 x 100 bytes = 100 KB, which are compared in about 50 µs.
const MOST: usize = 1_024;
/// The length of an id, in bytes. It cannot be guessed.
const ID_BYTES: usize = 32;

/// The open sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    /// In the order in which they were opened or renewed.
    open: Mutex<VecDeque<Session>>,
    ended: watch::Sender<()>,
}

#[derive(Debug)]
struct Session {
    id: String,
    renewed: Instant,
    /// Whether a request has shown the id. A program that opens an address with the token, and keeps no cookies, never does.
    is_used: bool,
}

/// What the use of an open session means for its cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The browser's cookie is still good.
    Plain,
    /// The session lasts longer now, and so must the cookie.
    Renewed,
}

impl Sessions {
    /// Opens a session and returns its id. If there are too many, the oldest one that was never used ends, or else the one that was
    /// renewed longest ago.
    ///
    /// # Errors
    /// Returns an error if the system has no random numbers.
    pub(super) fn open(&self, now: Instant) -> Result<String, getrandom::Error> {
        let id = new_id()?;
        let mut open = self.lock(now);
        if open.len() >= MOST {
            let superfluous = open.iter().position(|session| !session.is_used).unwrap_or(0);
            open.remove(superfluous);
        }
        open.push_back(Session { id: id.clone(), renewed: now, is_used: false });
        Ok(id)
    }

    pub(super) fn renew(&self, id: &str, now: Instant) -> Option<Use> {
        let mut open = self.lock(now);
        let at = position(&open, id)?;
        open[at].is_used = true;
        if now.duration_since(open[at].renewed) < RENEW_AFTER {
            return Some(Use::Plain);
        }
        let session = open.remove(at)?;
        open.push_back(Session { renewed: now, ..session });
        Some(Use::Renewed)
    }

    pub(super) fn end(&self, id: &str, now: Instant) {
        let mut open = self.lock(now);
        if let Some(at) = position(&open, id) {
            open.remove(at);
            self.ended.send_replace(());
        }
    }

    /// Returns a receiver that changes when someone ends a session.
    pub(super) fn ends(&self) -> watch::Receiver<()> {
        self.ended.subscribe()
    }

    /// Returns the sessions that are open at this time.
    fn lock(&self, now: Instant) -> MutexGuard<'_, VecDeque<Session>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while open.front().is_some_and(|oldest| now.duration_since(oldest.renewed) >= LIFETIME) {
            open.pop_front();
        }
        open
    }
}

/// Returns the place of a session. Every id is compared, each in constant time, so that the time says nothing about ids.
fn position(open: &VecDeque<Session>, id: &str) -> Option<usize> {
    open.iter()
        .enumerate()
        .fold(None, |found, (at, session)| if equal(&session.id, id) { Some(at) } else { found })
}

fn new_id() -> Result<String, getrandom::Error> {
    let mut bytes = [0; ID_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::with_capacity(2 * ID_BYTES), |mut id, byte| {
        // Writing to a string cannot fail.
        let _written = write!(id, "{byte:02x}");
        id
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn a_session_lasts_a_week_from_its_last_renewal_or_until_it_is_ended() {
        let (sessions, start) = (Sessions::default(), Instant::now());
        let id = sessions.open(start).unwrap();
        assert_eq!(sessions.renew(&id, start + DAY / 2), Some(Use::Plain));
        assert_eq!(sessions.renew(&id, start + 6 * DAY), Some(Use::Renewed));
        assert_eq!(sessions.renew(&id, start + 6 * DAY), Some(Use::Plain));
        assert_eq!(sessions.renew(&id, start + 12 * DAY), Some(Use::Renewed), "renewals extend it");
        assert_eq!(sessions.renew(&id, start + 19 * DAY), None, "unused for a week");
        let (other, third) = (sessions.open(start).unwrap(), sessions.open(start).unwrap());
        sessions.end(&other, start);
        assert_eq!(sessions.renew(&other, start), None);
        assert_eq!(sessions.renew(&third, start), Some(Use::Plain));
    }

    #[test]
    fn ids_are_256_random_bits_and_no_part_of_one_opens_anything() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let ids: std::collections::BTreeSet<String> = (0..100).map(|_| sessions.open(now).unwrap()).collect();
        assert_eq!(ids.len(), 100);
        let id = ids.first().unwrap();
        assert_eq!(id.len(), 64);
        for wrong in ["", &id[1..], &id[..63], &id.to_uppercase().replace('A', "b")] {
            assert_eq!(sessions.renew(wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn beyond_the_largest_number_the_oldest_session_ends() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let ids: Vec<String> = (0..=MOST).map(|_| sessions.open(now).unwrap()).collect();
        assert_eq!(sessions.renew(&ids[0], now), None);
        assert_eq!(sessions.renew(&ids[1], now), Some(Use::Plain));
        assert_eq!(sessions.renew(&ids[MOST], now), Some(Use::Plain));

        // Requests with the token that keep no cookie do not end the sessions of browsers.
        for _ in 0..2 * MOST {
            sessions.open(now).unwrap();
        }
        assert_eq!(sessions.renew(&ids[1], now), Some(Use::Plain));
    }
}
