//! What a keeper reports about its program, over a pipe to the guest.
//!
//! Encoded by hand: a keeper writes the report after its seccomp filter is installed, when it should
//! do as little as possible. Each report has its length before it, because two may be read at once, and a mark
//! after it ([`crate::pipe_key`]).

use crate::pipe_key::PipeKey;

/// The longest report. What a failed step says beyond that is cut off.
pub(crate) const MOST: usize = 400;

/// Sent once per execution.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeeperReport {
    /// The program ended by itself.
    Ended(Ended),
    /// The program was never started.
    Failed { step: String, errno: i32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    /// As `waitpid` reports it.
    pub status: i32,
    /// Nothing else is left in the namespace, so the guest need not wait for its end.
    pub alone: bool,
    pub cpu_microseconds: u64,
    pub peak_memory_bytes: u64,
}

impl KeeperReport {
    pub(crate) fn encode(&self, key: &PipeKey) -> Vec<u8> {
        let mut report = self.content();
        report.truncate(MOST);
        let length = u16::try_from(report.len()).unwrap_or_default();
        [&length.to_le_bytes()[..], &key.marked(report)].concat()
    }

    /// The first report. `None` if it is none of the keeper's.
    pub(crate) fn decode(bytes: &[u8], key: &PipeKey) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (report, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (mark, _) = rest.split_first_chunk()?;
        key.accepts(report, mark).then(|| Self::of(report))?
    }

    fn content(&self) -> Vec<u8> {
        match self {
            KeeperReport::Ended(ended) => [
                &[b'X'][..],
                &ended.status.to_le_bytes(),
                &[u8::from(ended.alone)],
                &ended.cpu_microseconds.to_le_bytes(),
                &ended.peak_memory_bytes.to_le_bytes(),
            ]
            .concat(),
            // The child reports this, and then the keeper reports the exit of the child.
            KeeperReport::Failed { step, errno } => {
                [&[b'E'][..], &errno.to_le_bytes(), step.as_bytes()].concat()
            }
        }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let number = i32::from_le_bytes(*number);
        match tag {
            b'X' => {
                let (alone, rest) = rest.split_first()?;
                let (cpu, rest) = rest.split_first_chunk::<8>()?;
                let (peak, _) = rest.split_first_chunk::<8>()?;
                Some(KeeperReport::Ended(Ended {
                    status: number,
                    alone: *alone == 1,
                    cpu_microseconds: u64::from_le_bytes(*cpu),
                    peak_memory_bytes: u64::from_le_bytes(*peak),
                }))
            }
            b'E' => Some(KeeperReport::Failed {
                step: String::from_utf8_lossy(rest).into_owned(),
                errno: number,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports() -> [KeeperReport; 2] {
        let failed = KeeperReport::Failed {
            step: "execute".into(),
            errno: 2,
        };
        let ended = KeeperReport::Ended(Ended {
            status: 127 << 8,
            alone: true,
            cpu_microseconds: 100,
            peak_memory_bytes: 4096,
        });
        [failed, ended]
    }

    #[test]
    fn a_failure_is_not_confused_with_the_end_that_follows_it() {
        let key = PipeKey::new().expect("a key");
        let [failed, ended] = reports();
        let both = [failed.encode(&key), ended.encode(&key)].concat();
        assert_eq!(KeeperReport::decode(&both, &key), Some(failed));
        assert_eq!(KeeperReport::decode(&ended.encode(&key), &key), Some(ended));
    }

    #[test]
    fn what_somebody_else_wrote_is_no_report() {
        let (key, other) = (
            PipeKey::new().expect("a key"),
            PipeKey::new().expect("a key"),
        );
        for report in reports() {
            let bytes = report.encode(&key);
            assert_eq!(KeeperReport::decode(&report.encode(&other), &key), None);
            for index in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[index] ^= 1;
                assert_eq!(KeeperReport::decode(&changed, &key), None, "{index}");
                assert_eq!(KeeperReport::decode(&bytes[..index], &key), None, "{index}");
            }
        }
    }

    #[test]
    fn a_long_step_is_cut_off() {
        let key = PipeKey::new().expect("a key");
        let step = "x".repeat(5000);
        let bytes = KeeperReport::Failed { step, errno: 2 }.encode(&key);
        let Some(KeeperReport::Failed { step, errno: 2 }) = KeeperReport::decode(&bytes, &key)
        else {
            panic!("a report");
        };
        assert_eq!(step.len(), MOST - 5);
    }
}
