//! Who must not get in, and who does not come.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use reducer::Communicator;
use reducer::ring::{Config, Ring};
use wire::ids::RunId;

use crate::worlds::{config, free_address};

/// Rank 0 of two waits while `intruder` tries to get in; gives the intruder's error and then lets rank 1 in.
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
fn strangers_are_refused_and_told_why() {
    let run = RunId::new("other").unwrap();
    check(
        |config| Config { run: run.clone(), ..config.clone() },
        "it belongs to run \"other\", but here run \"test\" meets",
    );
    check(
        |config| Config { world_size: 3, ..config.clone() },
        "it counts 3 ranks (WORLD_SIZE), but rank 0 counts 2",
    );
}

#[test]
fn two_processes_of_one_rank_are_told() {
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
            refused[0].contains("rank 1 is here already: two processes have the same RANK"),
            "{errors:?}"
        );
        let missing = errors.iter().filter(|text| text.contains("rank 2 of 3 did not come")).count();
        assert_eq!(missing, 2, "{errors:?}");
    });
}

#[test]
fn a_web_browser_does_not_disturb() {
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
fn nobody_at_the_master_address_is_told() {
    let master = free_address();
    let config = Config { rendezvous: Duration::from_millis(200), ..config(1, 2, &master) };
    let error = Ring::connect(&config).err().unwrap().to_string();
    let expected = format!("the ranks did not meet at {master} within 0.2 s: rank 0 could not be reached: ");
    assert!(error.starts_with(&expected), "{error}");
}
