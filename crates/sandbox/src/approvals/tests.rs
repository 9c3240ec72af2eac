use std::sync::Mutex;

use brig_audit::MemoryLog;

use super::queue::{self, Given, Waiting, read, write};
use super::*;
use crate::shared::lock;

fn request(timeout: Duration) -> ApprovalRequest {
    let name = "a";
    ApprovalRequest {
        id: new_id(),
        agent: name.parse().expect("a name"),
        session: name.parse().expect("a name"),
        execution: name.parse().expect("a name"),
        subject: Subject::of_call("send", "{}"),
        rule: Some("ask".into()),
        message: "mail needs a second pair of eyes".into(),
        asked: Timestamp::now(),
        timeout,
    }
}

fn queue() -> (tempfile::TempDir, Arc<ApprovalQueue>) {
    let state = tempfile::tempdir().expect("directory");
    let queue = ApprovalQueue::open(state.path()).expect("queue");
    (state, Arc::new(queue))
}

/// Until the request is there.
async fn listed(queue: &ApprovalQueue) -> ApprovalRequest {
    loop {
        if let Some(found) = queue.list().expect("a list").pop() {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn names(state: &tempfile::TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(state.path().join("approvals")).expect("directory");
    let names = entries.map(|entry| entry.expect("entry").file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn another_process_answers_and_nothing_is_left() {
    let (state, queue) = queue();
    for approved in [true, false] {
        let asked = request(LONG);
        let (own, waiting) = (asked.clone(), queue.clone());
        let task = tokio::spawn(async move { waiting.ask(&own).await });
        // As another process sees it.
        let other = ApprovalQueue::open(state.path()).expect("queue");
        let found = listed(&other).await;
        assert_eq!(found, asked);
        let answer = match approved {
            true => ApprovalAnswer::approve("alice"),
            false => ApprovalAnswer::deny("alice").because("no"),
        };
        other.answer(&found, answer.clone()).expect("in time");
        let again = other.answer(&found, ApprovalAnswer::approve("mallory"));
        assert!(again.is_err(), "an answer counts once");
        assert_eq!(task.await.expect("answered"), answer);
        assert_eq!(names(&state), Vec::<String>::new());
        assert!(matches!(other.get(&found.id), Err(QueueError::Unknown(_))));
    }
}

#[tokio::test]
async fn an_answer_for_another_request_or_text_does_not_count() {
    let (state, queue) = queue();
    let asked = request(LONG);
    let entry = queue.add(&asked).expect("added");
    let mut other = asked.clone();
    other.subject = Subject::of_call("send", r#"{"to": "everybody"}"#);
    let forged = queue.answer(&other, ApprovalAnswer::approve("mallory"));
    assert!(matches!(forged, Err(QueueError::Unknown(_))));
    // Written past the queue, as a process of the same user could.
    let given = Given::new(&other, Some(ApprovalAnswer::approve("mallory")));
    assert!(queue.claim(&given).expect("written"));
    assert_eq!(queue.answered(&asked), None, "another digest");
    drop(entry);
    assert_eq!(names(&state), Vec::<String>::new());
    for id in ["", "../x", "..", &"a".repeat(31), &"/".repeat(32)] {
        assert!(matches!(queue.get(id), Err(QueueError::Unknown(_))), "{id}");
    }
}

#[tokio::test]
async fn who_stops_waiting_takes_the_answer_away() {
    let (state, queue) = queue();
    let asked = request(LONG);
    let entry = queue.add(&asked).expect("added");
    assert_eq!(entry.close(), None);
    let late = queue.answer(&asked, ApprovalAnswer::approve("alice"));
    assert!(matches!(late, Err(QueueError::Answered(_))), "{late:?}");
    drop(entry);
    // The other way round: the answer was first.
    let asked = request(LONG);
    let entry = queue.add(&asked).expect("added");
    let answer = ApprovalAnswer::approve("alice");
    queue.answer(&asked, answer.clone()).expect("in time");
    assert_eq!(entry.close(), Some(answer));
    drop(entry);
    assert_eq!(names(&state), Vec::<String>::new());
}

#[tokio::test]
async fn answers_and_deadlines_that_race_agree() {
    let (_state, queue) = queue();
    for round in 0..40_u64 {
        // Where the answer is taken at once, that is no reason to say that nobody waited.
        let asked = request(LONG);
        let entry = queue.add(&asked).expect("added");
        let (own, other) = (asked.clone(), queue.clone());
        let answering = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 20));
            other.answer(&own, ApprovalAnswer::approve("alice")).is_ok()
        });
        std::thread::sleep(Duration::from_micros((40 - round) * 20));
        let kept = entry.close();
        drop(entry);
        let told = answering.join().expect("no panic");
        assert_eq!(told, kept.is_some(), "round {round}");
    }
}

#[test]
fn what_ended_processes_left_is_swept() {
    let (state, queue) = queue();
    let asked = request(LONG);
    let entry = queue.add(&asked).expect("added");
    let path = queue.path(&asked.id, "json");
    let mut waiting: Waiting = read(&path).expect("a request");
    assert_eq!(queue.list().expect("a list").len(), 1, "the control");
    // The same process id, used again.
    waiting.owner.start += 1;
    std::fs::remove_file(&path).expect("removed");
    write(&path, &waiting).expect("written");
    assert!(queue.list().expect("a list").is_empty());
    assert_eq!(names(&state), Vec::<String>::new());
    drop(entry);
}

#[test]
fn a_directory_of_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (state, _queue) = queue();
    let directory = state.path().join("approvals");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).expect("mode");
    assert!(matches!(
        ApprovalQueue::open(state.path()),
        Err(QueueError::Io { .. })
    ));
    std::fs::remove_dir(&directory).expect("removed");
    std::os::unix::fs::symlink("/tmp", &directory).expect("link");
    assert!(ApprovalQueue::open(state.path()).is_err(), "a link");
}

#[tokio::test]
async fn a_flood_is_denied() {
    let (_state, queue) = queue();
    let mut tasks = Vec::new();
    for _ in 0..queue::MOST {
        let waiting = queue.clone();
        tasks.push(tokio::spawn(
            async move { waiting.ask(&request(LONG)).await },
        ));
    }
    while queue.list().expect("a list").len() < queue::MOST {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let answer = queue.ask(&request(LONG)).await;
    assert_eq!((answer.approved, &*answer.by), (false, "brig"));
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        assert!(task.await.is_err());
    }
    assert!(queue.list().expect("a list").is_empty(), "cancelled");
}

#[test]
fn a_long_text_is_cut_within_no_character_and_says_so() {
    let long = "é".repeat(SHOWN);
    let subject = Subject::of_call("send", &format!("x{long}"));
    assert!(!subject.is_whole() && subject.text.len() <= SHOWN);
    assert_eq!(subject.bytes, 2 * SHOWN + 1);
    assert!(Subject::of_call("send", "{}").is_whole());
}

fn attempts(log: &Arc<MemoryLog>) -> (SessionKey, ExecutionId, Attempts) {
    let agent: AgentId = "a".parse().expect("a name");
    let session = SessionKey::new(&agent, &SessionId::random());
    let execution = ExecutionId::random();
    let secrets = vec!["hunter22".to_owned()];
    let attempts = Attempts::new(session.clone(), execution.clone(), secrets, log.clone());
    (session, execution, attempts)
}

fn needs_approval() -> Decision {
    Decision::require_approval(ReasonCode::PolicyApproval, "careful").by_rule("ask")
}

/// Never answers.
#[derive(Debug, Default)]
struct Silent(Mutex<Vec<String>>);

#[async_trait]
impl Approver for Silent {
    async fn ask(&self, request: &ApprovalRequest) -> ApprovalAnswer {
        lock(&self.0).push(request.id.clone());
        std::future::pending().await
    }
}

#[tokio::test]
async fn every_end_of_a_request_is_recorded_once() {
    let log = Arc::new(MemoryLog::default());
    let (session, execution, attempts) = attempts(&log);
    let approver: Arc<dyn Approver> = Arc::new(Silent::default());
    let mut asker = Asker {
        session: &session,
        execution: &execution,
        approver: Some(&approver),
        timeout: Duration::from_millis(20),
        attempts: &attempts,
        id: new_id(),
    };
    let subject = || Subject::of_call("send", "{}");
    let late = asker
        .ask(subject(), &needs_approval())
        .await
        .expect("recorded");
    assert_eq!(late.outcome, ApprovalOutcome::TimedOut);
    asker.timeout = LONG;
    let decision = needs_approval();
    let dropped = asker.ask(subject(), &decision);
    let waited = tokio::time::timeout(Duration::from_millis(20), dropped).await;
    assert!(waited.is_err());
    let yes: Arc<dyn Approver> = Arc::new(ApprovalFunction::new(
        |request: ApprovalRequest| async move {
            assert_eq!(request.rule.as_deref(), Some("ask"));
            ApprovalAnswer::approve("alice").because("for hunter22")
        },
    ));
    asker.approver = Some(&yes);
    let given = asker.ask(subject(), &decision).await.expect("recorded");
    assert_eq!(given.reason.as_deref(), Some("for [redacted]"));
    asker.approver = None;
    let nobody = asker.ask(subject(), &decision).await.expect("nobody");
    let outcomes: Vec<String> = (log.records().iter())
        .map(|record| match &record.event {
            brig_audit::Event::ApprovalRequested(asked) => asked.name.clone(),
            brig_audit::Event::ApprovalAnswered(approval) => approval.outcome.name().into(),
            other => panic!("{other:?}"),
        })
        .collect();
    let expected = ["send", "timed-out", "send", "cancelled", "send", "approved"];
    assert_eq!(outcomes, expected);
    for (approval, allowed) in [(&late, false), (&given, true), (&nobody, false)] {
        let after = super::decision(&decision, approval, LONG);
        assert_eq!(after.allowed, allowed, "{after:?}");
        assert!(!after.needs_approval);
        assert_eq!(after.rule.as_deref(), Some("ask"));
    }
}
