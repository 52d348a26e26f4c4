//! What the server knows of requests without the right token: how many there were, from where, and how long the next
//! answer to a wrong token takes. A mistyped token would otherwise leave a job unobserved and the server silent.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::views::UnauthorizedRequests;

/// The shortest time between two lines in the log.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// The delay of the answer to a peer's first wrong token. Each further one doubles it.
const FIRST_DELAY: Duration = Duration::from_millis(10);
/// The longest delay. Connections that wait for it are [strangers](super::super::connections), of which there are few.
const LONGEST_DELAY: Duration = Duration::from_secs(1);
/// The time after which the wrong tokens of a peer are forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// The largest number of peers that are remembered: 1,024 x 50 bytes = 50 KB. The one that was quiet longest leaves first.
const MOST_PEERS: usize = 1_024;
/// The unit in which requests are counted, and the number of units that the page shows: an hour.
const UNIT: Duration = Duration::from_secs(60);
const UNITS: usize = 60;

/// Why a request is unauthorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lack {
    /// It has no token.
    NoToken,
    /// It has a token, which is not the server's.
    WrongToken,
    /// It has the cookie of a session that has ended. Every page that was open when the server restarted sends one.
    EndedSession,
}

impl Lack {
    /// Returns the name in metrics, one of [`LACKS`](crate::metrics::LACKS).
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::WrongToken => "wrong_token",
            Self::EndedSession => "ended_session",
        }
    }
}

/// The record of unauthorized requests.
#[derive(Debug, Default)]
pub struct Unauthorized(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Those of the last hour.
    minutes: VecDeque<Minute>,
    newest: Option<IpAddr>,
    peers: BTreeMap<IpAddr, Peer>,
    unsaid: Counts,
    said: Option<Instant>,
    is_line_due: bool,
}

/// The counts of a minute.
#[derive(Debug)]
struct Minute {
    start: Instant,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    no_token: u64,
    wrong_token: u64,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    wrong: u32,
    last: Instant,
}

/// What to do about an unauthorized request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Consequence {
    /// The delay of the answer.
    pub(super) delay: Duration,
    /// The time after which [`Unauthorized::line`] has a line to log. `None` if an earlier request waits for that.
    pub(super) say_after: Option<Duration>,
}

impl Unauthorized {
    /// Notes a request from `peer`. Ended sessions are not a reason to look for a mistyped token, and have no consequence.
    pub(super) fn note(&self, lack: Lack, peer: Option<IpAddr>, now: Instant) -> Consequence {
        let mut state = self.lock();
        let delay = match lack {
            Lack::EndedSession => return Consequence { delay: Duration::ZERO, say_after: None },
            Lack::NoToken => Duration::ZERO,
            Lack::WrongToken => peer.map_or(FIRST_DELAY, |peer| state.delay(peer, now)),
        };
        state.newest = peer.or(state.newest);
        state.unsaid.add(lack);
        state.this_minute(now).add(lack);
        let next = state.said.map_or(now, |said| (said + SAY_EVERY).max(now));
        let say_after = (!std::mem::replace(&mut state.is_line_due, true)).then(|| next - now);
        Consequence { delay, say_after }
    }

    /// Returns the line to log about the requests since the last line.
    pub(super) fn line(&self, now: Instant) -> String {
        let mut state = self.lock();
        (state.is_line_due, state.said) = (false, Some(now));
        let counts = std::mem::take(&mut state.unsaid);
        let newest = state.newest.map_or_else(|| "an unknown address".into(), |peer| peer.to_string());
        let parts = [(counts.wrong_token, "with a wrong token"), (counts.no_token, "without a token")];
        let parts = parts.into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = parts.map(|(number, which)| requests(number, which)).collect();
        format!(
            "refused {}, the newest from {newest}: an agent there may lack the server's token (PACELINE_TOKEN), and its \
             job is not observed",
            parts.join(" and ")
        )
    }

    /// Returns the requests of the last hour, for the page.
    #[must_use]
    pub fn last_hour(&self, now: Instant) -> UnauthorizedRequests {
        let mut state = self.lock();
        state.forget_minutes(now);
        let sum = |count: fn(&Counts) -> u64| state.minutes.iter().map(|minute| count(&minute.counts)).sum();
        let (no_token, wrong_token) = (sum(|counts| counts.no_token), sum(|counts| counts.wrong_token));
        let newest = state.newest.filter(|_| !state.minutes.is_empty());
        UnauthorizedRequests { no_token, wrong_token, newest_peer: newest.map(|peer| peer.to_string()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn add(&mut self, lack: Lack) {
        match lack {
            Lack::NoToken => self.no_token += 1,
            Lack::WrongToken => self.wrong_token += 1,
            Lack::EndedSession => {}
        }
    }
}

impl State {
    fn this_minute(&mut self, now: Instant) -> &mut Counts {
        self.forget_minutes(now);
        if self.minutes.back().is_none_or(|minute| now.duration_since(minute.start) >= UNIT) {
            self.minutes.push_back(Minute { start: now, counts: Counts::default() });
        }
        let at = self.minutes.len() - 1;
        &mut self.minutes[at].counts
    }

    fn forget_minutes(&mut self, now: Instant) {
        let hour = UNIT * UNITS as u32;
        while self.minutes.front().is_some_and(|minute| now.duration_since(minute.start) >= hour) {
            self.minutes.pop_front();
        }
    }

    /// Counts another wrong token of `peer` and returns the delay of its answer.
    fn delay(&mut self, peer: IpAddr, now: Instant) -> Duration {
        if !self.peers.contains_key(&peer)
            && self.peers.len() >= MOST_PEERS
            && let Some((&quiet, _)) = self.peers.iter().min_by_key(|(_, peer)| peer.last)
        {
            self.peers.remove(&quiet);
        }
        let known = self.peers.entry(peer).or_insert(Peer { wrong: 0, last: now });
        let wrong = if now.duration_since(known.last) >= FORGET_AFTER { 0 } else { known.wrong };
        *known = Peer { wrong: wrong.saturating_add(1), last: now };
        FIRST_DELAY.saturating_mul(1 << wrong.min(16)).min(LONGEST_DELAY)
    }
}

fn requests(number: u64, which: &str) -> String {
    format!("{number} request{} {which}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, last]))
    }

    #[test]
    fn the_delay_doubles_per_peer_up_to_a_second_and_is_forgotten() {
        let (record, start) = (Unauthorized::default(), Instant::now());
        let delay = |peer, at| record.note(Lack::WrongToken, peer, at).delay.as_millis();
        let delays: Vec<u128> = (0..10).map(|_| delay(peer(1), start)).collect();
        assert_eq!(delays, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
        assert_eq!(delay(peer(2), start), 10, "another peer starts at the beginning");
        assert_eq!(record.note(Lack::NoToken, peer(1), start).delay, Duration::ZERO);
        assert_eq!(record.note(Lack::EndedSession, peer(1), start).delay, Duration::ZERO);
        assert_eq!(delay(peer(1), start + FORGET_AFTER), 10);
    }

    #[test]
    fn many_peers_take_no_more_memory_and_the_busiest_stays() {
        let (record, start) = (Unauthorized::default(), Instant::now());
        for number in 0..10_000_u32 {
            let at = start + Duration::from_millis(u64::from(number));
            record.note(Lack::WrongToken, Some(IpAddr::from(number.to_be_bytes())), at);
            record.note(Lack::WrongToken, peer(1), at);
        }
        assert_eq!(record.lock().peers.len(), MOST_PEERS);
        assert_eq!(
            record.note(Lack::WrongToken, peer(1), start + Duration::from_secs(10)).delay,
            LONGEST_DELAY
        );
    }

    #[test]
    fn two_thousand_wrong_tokens_are_two_lines_with_their_number_and_the_newest_peer() {
        let (record, start) = (Unauthorized::default(), Instant::now());
        let first = record.note(Lack::WrongToken, peer(7), start);
        assert_eq!(first.say_after, Some(Duration::ZERO));
        assert!(
            record.line(start).starts_with("refused 1 request with a wrong token, the newest from 10.0.0.7")
        );
        let second = start + Duration::from_secs(4);
        let waits: Vec<Option<Duration>> =
            (0..1_999).map(|_| record.note(Lack::WrongToken, peer(8), second).say_after).collect();
        assert_eq!(waits[0], Some(Duration::from_secs(6)), "ten seconds after the first line");
        assert!(waits[1..].iter().all(Option::is_none), "one line is enough");
        record.note(Lack::NoToken, None, second);
        let line = record.line(start + SAY_EVERY);
        assert!(
            line.starts_with(
                "refused 1999 requests with a wrong token and 1 request without a token, the newest from 10.0.0.8"
            ),
            "{line}"
        );
    }

    #[test]
    fn metrics_know_every_lack() {
        for lack in [Lack::NoToken, Lack::WrongToken, Lack::EndedSession] {
            assert!(crate::metrics::LACKS.contains(&lack.name()), "{lack:?}");
        }
    }

    #[test]
    fn the_page_shows_the_last_hour_and_ended_sessions_are_no_wrong_tokens() {
        let (record, start) = (Unauthorized::default(), Instant::now());
        let minute = |minutes: u64| start + Duration::from_secs(60 * minutes);
        record.note(Lack::WrongToken, peer(1), start);
        record.note(Lack::NoToken, peer(2), minute(30));
        record.note(Lack::EndedSession, peer(3), minute(30));
        let shown = record.last_hour(minute(59));
        assert_eq!((shown.wrong_token, shown.no_token), (1, 1));
        assert_eq!(shown.newest_peer.as_deref(), Some("10.0.0.2"));
        let shown = record.last_hour(minute(61));
        assert_eq!((shown.wrong_token, shown.no_token), (0, 1));
        assert_eq!(record.last_hour(minute(95)), UnauthorizedRequests::default());
        for second in 0..20_000 {
            record.note(Lack::WrongToken, peer(1), minute(100) + Duration::from_secs(second));
        }
        assert!(record.lock().minutes.len() <= UNITS);
    }
}
