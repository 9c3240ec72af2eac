//! What an execution asks of the world outside is on record, in its receipt and in the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brig_audit::{
    Event as Fact, Log, MemoryLog, Options, Receipt, Record, RecordError, Recorder, Verdict,
};

use super::fake::{Fake, agent};
use crate::{Error, Report, Request, Result, Sandbox, SessionConfig};

async fn run(recorder: Arc<dyn Recorder>, argv: &[&str]) -> Result<Report> {
    let sandbox = Sandbox::builder(Arc::new(Fake::default()))
        .recorder(recorder)
        .build()
        .expect("sandbox");
    let mut request = Request::command(argv.to_vec());
    request.env = vec![("TOKEN".into(), "hunter2".into())];
    sandbox
        .run_once(&agent(), SessionConfig::default(), request)
        .await
}

fn receipt(records: &[Record]) -> &Receipt {
    let receipt = records.iter().find_map(|record| match &record.event {
        Fact::Receipt(receipt) => Some(receipt),
        _ => None,
    });
    receipt.expect("receipt")
}

#[tokio::test]
async fn attempts_are_in_the_log_the_receipt_and_the_answer() {
    let log = Arc::new(MemoryLog::default());
    let report = run(log.clone(), &["ask", "1", "good"]).await;
    let json = report.expect("report").to_json();
    let records = log.records();
    let made = receipt(&records);
    assert_eq!(made.decision, Verdict::Allowed);
    for (list, name) in [
        ("egress", "host"),
        ("tools", "tool"),
        ("commands", "caller"),
    ] {
        assert_eq!(json[list][0][name], "good", "{json}");
        assert_eq!(json["omitted"][list], 0);
    }
    assert_eq!(made.egress[0].host, "good");
    assert_eq!(made.commands[0].arguments, ["good"]);
    assert_eq!(made.tools[0].tool, "good");
    let events: Vec<&Fact> = records.iter().map(|record| &record.event).collect();
    let asked = |fact: &&&Fact| {
        matches!(
            fact,
            Fact::EgressDecided(_) | Fact::CommandAttempted(_) | Fact::ToolCalled(_)
        )
    };
    assert_eq!(events.iter().filter(asked).count(), 3, "{events:?}");
}

#[tokio::test]
async fn a_denied_attempt_decides_what_a_receipt_says() {
    let log = Arc::new(MemoryLog::default());
    run(log.clone(), &["ask", "1", "evil"])
        .await
        .expect("report");
    assert_eq!(receipt(&log.records()).decision, Verdict::BlockedAtEgress);
}

#[tokio::test]
async fn attempts_never_repeat_a_secret() {
    let log = Arc::new(MemoryLog::default());
    let long = "x".repeat(5000);
    let report = run(log.clone(), &["ask", "1", "a-hunter2-b", &long]).await;
    let text = format!("{:?}", log.records());
    assert!(text.contains("a-[redacted]-b"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!text.contains(&long[..300]), "and are short");
    let json = report.expect("report").to_json().to_string();
    assert!(!json.contains("hunter2"), "{json}");
    // Names of hosts have no case, and one form.
    for host in ["A-HUNTER2-B", "x.hUnTeR2.io.", "hunter2"] {
        run(log.clone(), &["ask", "1", host]).await.expect("report");
        let text = format!("{:?}", log.records()).to_ascii_lowercase();
        assert!(!text.contains("hunter2"), "{text}");
    }
    // A program that cannot be started is named in the error.
    let failed = run(log.clone(), &["no-such-hunter2"]).await;
    assert!(matches!(failed, Err(Error::CannotRun { .. })), "{failed:?}");
    assert!(!format!("{:?}", log.records()).contains("hunter2"));
}

#[tokio::test]
async fn a_flood_of_attempts_is_counted_exactly() {
    let folder = tempfile::tempdir().expect("folder");
    let log = Arc::new(Log::open(folder.path(), Options::default()).expect("log"));
    let report = run(log, &["ask", "5000", "evil"]).await;
    let json = report.expect("report").to_json();
    assert_eq!(json["egress"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["egress"][0]["times"]["count"], 5000);
    assert_eq!(json["omitted"]["egress"], 0);
    assert_eq!(json["totals"]["denied"], 5000);
    assert_eq!(json["commands"].as_array().map(Vec::len), Some(1));
    assert_eq!(json["commands"][0]["times"]["count"], 5000);
    assert_eq!(json["omitted"]["commands"], 0);
    let (mut kept, mut total, mut commands) = (0, 0, 0);
    let mut cursor = brig_audit::log::Cursor::new(folder.path());
    cursor
        .read(|line| {
            let record: Record = serde_json::from_str(line.record).expect("record");
            match record.event {
                Fact::EgressDecided(_) => kept += 1,
                Fact::EgressTotal(egress) => total += egress.times.expect("times").count,
                Fact::CommandAttempted(_) => kept += 1,
                Fact::CommandTotal(command) => commands += command.times.expect("times").count,
                _ => {}
            }
            true
        })
        .expect("log");
    assert_eq!((total, commands), (5000, 5000));
    assert!((1..200).contains(&kept), "{kept}");
}

#[tokio::test]
async fn whatever_is_attempted_there_is_a_receipt() {
    // Each of these characters takes six bytes or four when it is written.
    for odd in ["\u{1}", "\u{1f}\"\\", "\u{10ffff}", "\u{7f}\u{9b}", "x"] {
        let folder = tempfile::tempdir().expect("folder");
        let log = Arc::new(Log::open(folder.path(), Options::default()).expect("log"));
        let argument = odd.repeat(300);
        let mut argv = vec!["differ", "60", "evil"];
        argv.extend([&*argument; 64]);
        run(log.clone(), &argv).await.expect("an answer");
        argv[2] = "good";
        run(log, &argv).await.expect("an answer");
        let mut ends = Vec::new();
        let mut cursor = brig_audit::log::Cursor::new(folder.path());
        cursor
            .read(|line| {
                let record: Record = serde_json::from_str(line.record).expect("record");
                match record.event {
                    Fact::ExecutionFinished { .. } => ends.push("end"),
                    Fact::Receipt(receipt) => {
                        assert_eq!(receipt.commands.len(), 25);
                        assert_eq!(receipt.omitted.commands, 35);
                        assert!(line.record.len() < 512 << 10, "{}", line.record.len());
                        ends.push("receipt");
                    }
                    _ => {}
                }
                true
            })
            .expect("log");
        assert_eq!(ends, ["end", "receipt", "end", "receipt"], "{odd:?}");
    }
}

/// A log that fails in the middle of an execution, and only then.
#[derive(Debug, Default)]
struct Hiccup(AtomicUsize);

impl Recorder for Hiccup {
    fn append(&self, record: Record) -> Result<(), RecordError> {
        if matches!(record.event, Fact::EgressDecided(_)) {
            self.0.fetch_add(1, Ordering::SeqCst);
            return Err(RecordError::new("the disk is full"));
        }
        Ok(())
    }
}

/// What ran is reported with the error.
fn unrecorded(result: &Result<Report>) -> bool {
    matches!(result, Err(Error::Interrupted(known)) if matches!(known.error, Error::Record(_)))
}

#[tokio::test]
async fn an_execution_whose_attempt_cannot_be_recorded_is_ended() {
    let log = Arc::new(Hiccup::default());
    let stopped = run(log.clone(), &["beg", "good"]).await;
    assert!(unrecorded(&stopped), "{stopped:?}");
    assert_eq!(log.0.load(Ordering::SeqCst), 1);
    let quick = run(log, &["ask", "1", "good"]).await;
    assert!(unrecorded(&quick), "{quick:?}");
    run(Arc::new(Hiccup::default()), &["echo", "x"])
        .await
        .expect("control");
}
