//! Sends the batches that earlier jobs could not send before they ended.

use agent::leftovers::{Leftovers, Sent};

use super::complain;

/// Sends all leftovers of this user, each to its server, and says what became of them. `token` is that of the servers.
pub(super) fn send(token: Option<&str>) {
    let Some(leftovers) = Leftovers::of_environment() else { return };
    leftovers.send(token).iter().map(said).for_each(|line| complain(&line));
}

/// Does the same on another thread, beside a server.
pub(super) async fn send_aside(token: Option<String>) {
    let _panicked = tokio::task::spawn_blocking(move || send(token.as_deref())).await;
}

fn said(sent: &Sent) -> String {
    let Sent { file, server, stored, refused, left, is_given_up } = sent;
    let batches = |count: u64| if count == 1 { "1 batch".to_owned() } else { format!("{count} batches") };
    let mut line = format!("{} of an earlier job", file.display());
    if *stored > 0 {
        line += &format!(": {} sent to {server}", batches(*stored));
    }
    if let Some((count, reason)) = refused {
        line += &format!("; {server} refuses {}: {reason}", batches(*count));
    }
    if let Some(left) = left {
        let what =
            if *is_given_up { "is removed, because it is 30 days old and" } else { "is kept, because" };
        line += &format!(" {what} {left}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_line_that_says_what_became_of_it() {
        let sent = |stored, refused: Option<(u64, &str)>, left: Option<&str>| Sent {
            file: "/s/r-rank-0.spool".into(),
            server: "http://h:1".into(),
            stored,
            refused: refused.map(|(count, reason)| (count, reason.to_owned())),
            left: left.map(str::to_owned),
            is_given_up: false,
        };
        assert_eq!(
            said(&sent(2, None, None)),
            "/s/r-rank-0.spool of an earlier job: 2 batches sent to http://h:1"
        );
        assert_eq!(
            said(&sent(0, Some((1, "409: taken")), None)),
            "/s/r-rank-0.spool of an earlier job; http://h:1 refuses 1 batch: 409: taken"
        );
        assert_eq!(
            said(&sent(0, None, Some("the server does not answer"))),
            "/s/r-rank-0.spool of an earlier job is kept, because the server does not answer"
        );
        let old = Sent { is_given_up: true, ..sent(0, None, Some("the server does not answer")) };
        assert!(said(&old).ends_with("is removed, because it is 30 days old and the server does not answer"));
    }
}
