//! The threads and tasks that a server cannot work without. If one of them panics, the server reports that it is not
//! ready and exits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{Builder, JoinHandle};

use tokio::sync::watch;

/// The record of the first failed thread or task. Clones share it.
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
    /// Starts a thread. If the thread panics, the server has failed.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn spawn(
        &self,
        name: &'static str,
        work: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let vitals = self.clone();
        Builder::new().name(name.into()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(work)).is_err() {
                vitals.fail(format!("thread {name} has failed"));
            }
        })
    }

    /// Starts a task. If the task panics, the server has failed.
    pub fn spawn_task(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let (vitals, task) = (self.clone(), tokio::spawn(work));
        tokio::spawn(async move {
            if task.await.is_err_and(|error| error.is_panic()) {
                vitals.fail(format!("task {name} has failed"));
            }
        });
    }

    fn fail(&self, what: String) {
        // Later failures follow from the first one.
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(what);
            is_first
        });
    }

    /// Returns the first failure, or `None` if there is none.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Waits for a failure and returns it.
    pub async fn failed(&self) -> String {
        let mut failures = self.failure.subscribe();
        // This cannot fail: the sender is in `self`.
        let failed = failures.wait_for(Option::is_some).await.map(|failure| failure.clone());
        failed.ok().flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_thread_or_a_task_is_a_failure_and_a_normal_exit_is_not() {
        let vitals = Vitals::default();
        vitals.spawn("fine", || {}).unwrap().join().unwrap();
        assert_eq!(vitals.failure(), None);
        vitals.spawn("paceline-x", || panic!("expected")).unwrap().join().unwrap();
        assert_eq!(vitals.failed().await, "thread paceline-x has failed");
        let vitals = Vitals::default();
        vitals.spawn_task("hub", async { panic!("expected") });
        assert_eq!(vitals.failed().await, "task hub has failed");
    }
}
