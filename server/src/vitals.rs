//! The parts that a server cannot do without. When one of them fails, the server is not ready any more, and ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use tokio::sync::watch;

/// Knows whether a vital part has failed; clones share it.
#[derive(Clone)]
pub struct Vitals {
    failure: watch::Sender<Option<String>>,
}

impl Default for Vitals {
    fn default() -> Self {
        Self { failure: watch::Sender::new(None) }
    }
}

impl Vitals {
    /// Starts a thread whose panic is a failure of the server.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let vitals = self.clone();
        Builder::new().name(name.into()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                vitals.fail(format!("the thread {name} has failed"));
            }
        })
    }

    /// Starts a task whose panic is a failure of the server.
    pub fn spawn_task(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let (vitals, task) = (self.clone(), tokio::spawn(work));
        tokio::spawn(async move {
            if task.await.is_err_and(|error| error.is_panic()) {
                vitals.fail(format!("the task {name} has failed"));
            }
        });
    }

    fn fail(&self, what: String) {
        // The first failure is the cause of the others.
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(what);
            is_first
        });
    }

    /// What has failed, if anything.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Waits until something fails; says what.
    pub async fn failed(&self) -> String {
        let mut failures = self.failure.subscribe();
        // It cannot fail: the sender is in `self`.
        let failed = failures.wait_for(Option::is_some).await.map(|failure| failure.clone());
        failed.ok().flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_thread_or_a_task_is_a_failure_and_a_normal_end_is_none() {
        let vitals = Vitals::default();
        vitals.spawn("fine", || {}).unwrap().join().unwrap();
        assert_eq!(vitals.failure(), None);
        vitals.spawn("paceline-x", || panic!("as planned")).unwrap().join().unwrap();
        assert_eq!(vitals.failed().await, "the thread paceline-x has failed");
        let vitals = Vitals::default();
        vitals.spawn_task("hub", async { panic!("as planned") });
        assert_eq!(vitals.failed().await, "the task hub has failed");
    }
}
