//! More output than anybody wants (attack 62).

use brig_sandbox::config::{Limit, OutputOverflow};
use brig_sandbox::{Limits, SessionConfig};
use serde_json::json;

use crate::owner::{self, Task};
use crate::probe;
use crate::target::{AttackTarget, request};

#[macro_export]
macro_rules! output {
    ($target:path) => {
        $crate::attacks!($target, output:
            a_flood_is_counted_and_dropped,
            a_flood_can_end_the_execution,
            the_cut_is_exact_whatever_the_bytes_are,
        );
    };
}

const CAP: u64 = 64 * 1024;
const GIB: u64 = 1 << 30;

fn config(overflow: OutputOverflow) -> SessionConfig {
    let limits = Limits {
        output_bytes: Limit::asked(CAP),
        output_overflow: overflow,
        ..Limits::default()
    };
    SessionConfig {
        limits,
        ..SessionConfig::default()
    }
}

/// One line of a gibibyte, in a process of its own so that its memory can be measured. With
/// `BRIG_ATTACKS_FULL` it is the ten of the catalogue.
pub async fn a_flood_is_counted_and_dropped(target: &AttackTarget) {
    let bytes = if std::env::var_os("BRIG_ATTACKS_FULL").is_some() {
        10 * GIB
    } else {
        GIB
    };
    let small = Task::run(
        target.config(config(OutputOverflow::Truncate)),
        &probe!("flood"),
        &json!({"bytes": 1024, "pattern": "61"}),
    );
    let quiet = owner::run(&target.owner, &[], &small, &[]);
    assert_eq!(
        (quiet.stdout_total, quiet.stdout_kept),
        (1024, 1024),
        "{quiet:?}"
    );

    for (stream, name) in [(1, "stdout"), (2, "stderr")] {
        let bytes = if stream == 1 { bytes } else { 64 << 20 };
        let args = json!({"bytes": bytes, "pattern": "61", "stream": stream});
        let flood = Task::run(
            target.config(config(OutputOverflow::Truncate)),
            &probe!("flood"),
            &args,
        );
        let answer = owner::run(&target.owner, &[], &flood, &[]);
        assert_eq!(
            (answer.error.as_deref(), answer.exit_code),
            (None, 0),
            "{answer:?}"
        );
        let (total, kept) = if stream == 1 {
            (answer.stdout_total, answer.stdout_kept)
        } else {
            (answer.stderr_total, answer.stderr_kept)
        };
        assert_eq!((total, kept), (bytes, CAP), "{name}");
        let grown = answer.owner_peak_kib.saturating_sub(quiet.owner_peak_kib);
        assert!(grown < 16 * 1024, "{name}: the owner grew by {grown} KiB");
    }
}

pub async fn a_flood_can_end_the_execution(target: &AttackTarget) {
    // More than can be written before the deadline, so that only the limit can end it in time.
    let args = json!({"bytes": 1u64 << 50, "pattern": "0a"});
    let report = target
        .report(config(OutputOverflow::Kill), &probe!("flood"), &args)
        .await
        .unwrap();
    let outcome = report.outcome;
    assert_eq!(
        outcome.killed.as_ref().map(|reason| reason.name()),
        Some("output")
    );
    assert_eq!(outcome.stdout.bytes.len() as u64, CAP);

    let fits = json!({"bytes": CAP, "pattern": "0a"});
    let report = target
        .report(config(OutputOverflow::Kill), &probe!("flood"), &fits)
        .await
        .unwrap();
    let outcome = report.outcome;
    assert!(
        outcome.success() && !outcome.stdout.truncated(),
        "what fits is left alone"
    );
}

/// Invalid UTF-8, NUL, a character that the cap cuts in two.
pub async fn the_cut_is_exact_whatever_the_bytes_are(target: &AttackTarget) {
    let session = target.session(config(OutputOverflow::Truncate)).await;
    for pattern in ["ff", "00", "c3", "e282ac", "f09f9880", "1b5b33316d", "0d0a"] {
        let bytes: Vec<u8> = (0..pattern.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&pattern[at..at + 2], 16).unwrap())
            .collect();
        for total in [CAP - 1, CAP, CAP + 1, CAP + 12345] {
            let args = json!({"bytes": total, "pattern": pattern});
            let running = session
                .start(request(&probe!("flood"), &args))
                .await
                .unwrap();
            let report = running.wait().await.unwrap();
            let outcome = &report.outcome;
            let kept = total.min(CAP) as usize;
            // The probe writes whole chunks of whole patterns, then a part of one.
            let chunk = bytes.repeat((1 << 16) / bytes.len());
            let written: Vec<u8> = chunk.iter().copied().cycle().take(kept).collect();
            assert_eq!(outcome.stdout.total, total, "{pattern}");
            assert_eq!(outcome.stdout.truncated(), total > CAP, "{pattern}");
            assert!(
                outcome.stdout.bytes == written,
                "{pattern}: the bytes are not those written"
            );
            assert!(report.to_json()["result"]["stdout"].is_string());
        }
    }
    session.destroy().await.unwrap();
}
