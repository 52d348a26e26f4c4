//! Tests of processes that must not join a ring, and of ranks that do not join.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use paceline_reducer::Communicator;
use paceline_reducer::ring::{Config, Ring};
use wire::ids::RunId;

use crate::worlds::{config, free_address};

/// Lets `intruder` try to join while rank 0 of two waits. Checks the intruder's error, then lets rank 1 join.
fn check(intruder: impl Fn(&Config) -> Config, expected: &str) {
    let master = free_address();
    std::thread::scope(|scope| {
        let ring =
            |config: Config| scope.spawn(move || Ring::connect(&config).map(|mut ring| ring.barrier()));
        let rank_0 = ring(config(0, 2, &master));
        let refused = ring(intruder(&config(1, 2, &master))).join().unwrap().unwrap_err().to_string();
        assert!(refused.contains(expected) && refused.contains(&master), "{refused:?} lacks {expected:?}");
        let rank_1 = ring(config(1, 2, &master));
        for rank in [rank_0, rank_1] {
            rank.join().unwrap().unwrap().unwrap();
        }
    });
}

#[test]
fn processes_of_another_run_or_world_are_refused() {
    let run = RunId::new("other").unwrap();
    check(
        |config| Config { run: run.clone(), ..config.clone() },
        "it belongs to run \"other\", but rank 0 to run \"test\"",
    );
    check(
        |config| Config { world_size: 3, ..config.clone() },
        "its WORLD_SIZE is 3, but rank 0 has WORLD_SIZE 2",
    );
}

#[test]
fn a_second_process_of_a_rank_is_refused() {
    let master = free_address();
    std::thread::scope(|scope| {
        let connect = |rank| {
            let config = Config { rendezvous: Duration::from_secs(2), ..config(rank, 3, &master) };
            scope.spawn(move || Ring::connect(&config).err().unwrap().to_string())
        };
        let errors: Vec<_> = [connect(0), connect(1), connect(1)].map(|rank| rank.join().unwrap()).into();
        let refused: Vec<_> = errors.iter().filter(|text| text.contains("refused this process")).collect();
        assert_eq!(refused.len(), 1, "{errors:?}");
        assert!(
            refused[0].contains("rank 1 has already joined: two processes have the same RANK"),
            "{errors:?}"
        );
        let missing = errors.iter().filter(|text| text.contains("rank 2 of 3 did not arrive")).count();
        assert_eq!(missing, 2, "{errors:?}");
    });
}

#[test]
fn an_http_client_does_not_disturb_the_rendezvous() {
    let master = free_address();
    std::thread::scope(|scope| {
        let rank_0 = {
            let config = config(0, 2, &master);
            scope.spawn(move || Ring::connect(&config).map(drop))
        };
        let mut browser = loop {
            if let Ok(stream) = TcpStream::connect(&master) {
                break stream;
            }
            std::thread::yield_now();
        };
        browser.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        browser.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains("it does not speak this protocol"));
        Ring::connect(&config(1, 2, &master)).unwrap();
        rank_0.join().unwrap().unwrap();
    });
}

#[test]
fn an_unreachable_master_address_is_reported() {
    let master = free_address();
    let config = Config { rendezvous: Duration::from_millis(200), ..config(1, 2, &master) };
    let error = Ring::connect(&config).err().unwrap().to_string();
    let expected = format!("the ranks did not meet at {master} within 0.2 s: rank 0 could not be reached: ");
    assert!(error.starts_with(&expected), "{error}");
}
