//! Answers of many megabytes, which are in memory until the client has read them. Few are there at once, so that clients that read
//! slowly do not fill the memory.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::error::Failure;

/// The number of large answers at once. Each has at most 256 MiB.
const MOST: usize = 4;
/// The time that a request waits for its turn.
const WAIT: Duration = Duration::from_secs(10);

/// The turns of the server's large answers.
#[derive(Clone)]
pub struct Turns {
    free: Arc<Semaphore>,
    wait: Duration,
}

/// The turn of one answer, from before it is made until the client has it.
pub struct Turn(OwnedSemaphorePermit);

impl Default for Turns {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MOST)), wait: WAIT }
    }
}

impl Turns {
    /// Waits for a turn.
    ///
    /// # Errors
    /// Returns an error if other answers are not read in time.
    pub async fn wait(&self) -> Result<Turn, Failure> {
        let turn = timeout(self.wait, self.free.clone().acquire_owned()).await;
        turn.ok().and_then(Result::ok).map(Turn).ok_or_else(|| {
            Failure::Busy(format!("{MOST} large answers are being sent to other clients: try again"))
        })
    }
}

impl Turn {
    /// Returns a body with these bytes. The turn ends with it.
    pub fn body(self, bytes: impl Into<Bytes>) -> Body {
        let Self(permit) = self;
        Body::new(Full::new(bytes.into()).map_frame(move |frame| {
            let _held = &permit;
            frame
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_ends_with_its_body() {
        let turns = Turns { wait: Duration::from_millis(1), ..Turns::default() };
        let mut bodies = Vec::new();
        for _ in 0..MOST {
            bodies.push(turns.wait().await.unwrap().body("abc"));
        }
        assert!(matches!(turns.wait().await, Err(Failure::Busy(_))));
        let read = bodies.pop().unwrap().collect().await.unwrap().to_bytes();
        assert_eq!(read, "abc");
        assert!(turns.wait().await.is_ok());
    }
}
