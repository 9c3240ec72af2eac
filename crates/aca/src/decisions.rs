//! What the service decided about requests to hosts, as records. It remembers only the last decisions of each
//! kind, so what may be missing is recorded too.

use std::sync::{Arc, Mutex, PoisonError};

use brig_audit::Egress;
use brig_reason::ReasonCode;
use brig_sandbox::{Attempts, Result};
use reqwest::Method;
use serde_json::Value;

use crate::handle::{Seen, digest};
use crate::remote::Remote;

/// What was recorded of the decisions of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Decisions {
    /// Locked while the list is fetched.
    owner: tokio::sync::Mutex<Owner>,
    seen: Mutex<Seen>,
}

/// Whose the decisions are that were not recorded yet.
#[derive(Debug, Default)]
enum Owner {
    /// Nothing was executed by this process.
    #[default]
    Unknown,
    /// The last execution: what is decided after its end is recorded with it.
    Execution(Arc<Attempts>),
    /// The sandbox is deleted, and all was recorded before.
    Closed,
}

impl Decisions {
    /// Goes on from what another process has recorded.
    pub(crate) fn since(seen: Seen) -> Self {
        Self {
            seen: Mutex::new(seen),
            ..Self::default()
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.clone()
    }

    /// An execution is about to begin.
    pub(crate) async fn begin(&self, attempts: &Arc<Attempts>) {
        *self.owner.lock().await = Owner::Execution(attempts.clone());
    }

    /// Records what is new. Two executions side by side share the list: the one that ends first records it.
    pub(crate) async fn record(&self, remote: &Remote, attempts: &Arc<Attempts>) -> Result<()> {
        let mut owner = self.owner.lock().await;
        if matches!(*owner, Owner::Closed) {
            return Ok(());
        }
        *owner = Owner::Execution(attempts.clone());
        let new = self.fetch(remote).await;
        new.into_iter().try_for_each(|one| attempts.egress(one))
    }

    /// Deletes the sandbox, after what is new was recorded. If it can't be deleted it goes on, and so do the records.
    pub(crate) async fn close(&self, remote: &Remote) -> Result<()> {
        let mut owner = self.owner.lock().await;
        let recorded = match &*owner {
            Owner::Execution(attempts) => {
                let new = self.fetch(remote).await;
                new.into_iter().try_for_each(|one| attempts.egress(one))
            }
            Owner::Unknown | Owner::Closed => Ok(()),
        };
        remote.delete().await?;
        *owner = Owner::Closed;
        recorded
    }

    /// Before the sandbox is deleted: what no execution of this process can have asked for. Only counted: a host
    /// may have a secret in it, and only the process of its execution knows which secrets there were.
    pub(crate) async fn unattributed(&self, remote: &Remote) -> Vec<Egress> {
        let owner = self.owner.lock().await;
        if !matches!(*owner, Owner::Unknown) {
            return Vec::new();
        }
        let (counted, mut left): (Vec<Egress>, Vec<Egress>) = (self.fetch(remote).await)
            .into_iter()
            .partition(|one| one.code != ReasonCode::NetworkIncomplete.code());
        for (allowed, what) in [(true, "allowed"), (false, "denied")] {
            let count = counted.iter().filter(|one| one.allowed == allowed).count();
            if count > 0 {
                let detail = format!("after the last execution, {count} more were {what}");
                left.push(incomplete(detail, allowed));
            }
        }
        left
    }

    /// What is new, oldest first.
    async fn fetch(&self, remote: &Remote) -> Vec<Egress> {
        let api = remote.client.account.api;
        let call = remote.call(Method::GET, api.decisions);
        let answer = match remote.client.repeated(&call).await {
            Ok(answer) => answer,
            Err(failure) => {
                let reason = remote.client.unavailable(&failure).reason;
                return vec![incomplete(
                    format!("they could not be read: {reason}"),
                    true,
                )];
            }
        };
        let before = self.seen();
        let mut now = Seen::default();
        let mut new = Vec::new();
        for (kind, allowed) in [("allowed", true), ("denied", false)] {
            let (old, own) = match allowed {
                true => (&before.allowed, &mut now.allowed),
                false => (&before.denied, &mut now.denied),
            };
            let Some(entries) = answer[api.decided][kind].as_array() else {
                let problem = format!("the service gave no list of {kind} requests");
                new.push(incomplete(problem, true));
                own.clone_from(old);
                continue;
            };
            *own = entries.iter().map(digest).collect();
            let (count, whole) = new_entries(own, old, api.remembered);
            let fresh = entries.iter().take(count).rev();
            new.extend(fresh.map(|entry| egress(entry, allowed)));
            if !whole {
                let detail = format!(
                    "the service remembers {} {kind} requests, and there may have been more",
                    api.remembered
                );
                new.push(incomplete(detail, allowed));
            }
        }
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = now;
        new
    }
}

/// How many entries at the front of a list are new, and whether none can be missing. Both lists begin with
/// the newest entry. Equal entries are told apart by their place, so the lists are laid over each other.
fn new_entries(now: &[u64], before: &[u64], remembered: usize) -> (usize, bool) {
    let goes_on = |new: &usize| before.starts_with(&now[*new..]);
    let new = (0..now.len()).find(goes_on).unwrap_or(now.len());
    let full = now.len() >= remembered;
    let whole = match new == now.len() {
        // Nothing of what was seen is there any more.
        true => !full && before.is_empty(),
        // A full list of equal entries looks the same whatever has left it.
        false => !full || !(new + 1..now.len()).any(|more| goes_on(&more)),
    };
    (new, whole)
}

fn egress(entry: &Value, allowed: bool) -> Egress {
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    let code = match allowed {
        true => ReasonCode::NetworkRule,
        false => ReasonCode::NetworkNoRule,
    };
    Egress {
        allowed,
        code: code.into(),
        rule: entry["matchedRule"].as_str().map(str::to_owned),
        protocol: "http".into(),
        host: text("host").to_owned(),
        port: match text("scheme") {
            "http" => 80,
            _ => 443,
        },
        // A path may have a secret in it.
        detail: Some(text("method").to_owned()).filter(|method| !method.is_empty()),
        ..Egress::default()
    }
}

/// `allowed`: whether what is missing was allowed. What was not even asked for does not count as denied.
fn incomplete(detail: String, allowed: bool) -> Egress {
    Egress {
        allowed,
        code: ReasonCode::NetworkIncomplete.into(),
        protocol: "any".into(),
        host: "(other hosts)".into(),
        detail: Some(detail),
        ..Egress::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_it_was() {
        assert_eq!(new_entries(&[], &[], 4), (0, true));
        assert_eq!(new_entries(&[2, 1], &[], 4), (2, true));
        assert_eq!(new_entries(&[2, 1], &[2, 1], 4), (0, true));
        assert_eq!(new_entries(&[3, 2, 1], &[2, 1], 4), (1, true));
        assert_eq!(new_entries(&[6, 5, 4, 3], &[4, 3, 2, 1], 4), (2, true));
    }

    #[test]
    fn equal_entries_are_counted() {
        assert_eq!(new_entries(&[1, 1], &[1], 4), (1, true));
        assert_eq!(new_entries(&[1, 1, 1], &[1], 4), (2, true));
        assert_eq!(new_entries(&[2, 1, 1, 1], &[1, 1], 5), (2, true));
        assert_eq!(new_entries(&[2, 1, 1, 1], &[1, 1], 4), (2, false), "or 3");
    }

    #[test]
    fn what_may_be_missing_is_noticed() {
        assert_eq!(
            new_entries(&[4, 3, 2, 1], &[], 4),
            (4, false),
            "full at once"
        );
        assert_eq!(new_entries(&[9, 8, 7, 6], &[4, 3, 2, 1], 4), (4, false));
        assert_eq!(new_entries(&[9], &[1], 4), (1, false), "it began again");
        assert_eq!(new_entries(&[], &[1], 4), (0, false), "it is empty again");
        assert_eq!(
            new_entries(&[1, 1, 1, 1], &[1, 1, 1, 1], 4),
            (0, false),
            "equal ones may have left it"
        );
    }
}
