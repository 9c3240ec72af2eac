//! Executions in a session: the instance is kept for the next one, and the files are saved.

use std::sync::Arc;

use brig_audit::Event as Fact;

use super::Session;
use super::inner::Inner;
use super::live::Live;
use super::ticket::Ticket;
use crate::lifecycle::{self, Scope};
use crate::shared::{SessionKey, Shared, lock};
use crate::{Error, ExecutionHandle, ExecutionId, Language, Plan, Report, Request, Result};

impl Session {
    /// Starts an execution. A denial is [`crate::Error::Denied`].
    pub async fn start(&self, request: Request) -> Result<ExecutionHandle> {
        let (execution, ends) = request.check(&self.inner.config)?;
        let scope = InSession {
            ticket: Ticket::take(&self.inner, ends.signals.clone())?,
            inner: self.inner.clone(),
            shared: self.shared.clone(),
        };
        lifecycle::start(scope, execution, ends).await
    }

    /// Runs source code in a fresh interpreter, to its end.
    pub async fn execute_code(
        &self,
        language: Language,
        source: impl Into<Vec<u8>>,
    ) -> Result<Report> {
        self.start(Request::code(language, source))
            .await?
            .wait()
            .await
    }

    /// Runs a program with its arguments, to its end.
    pub async fn run(&self, command: Vec<String>) -> Result<Report> {
        self.start(Request::command(command)).await?.wait().await
    }
}

struct InSession {
    ticket: Ticket,
    inner: Arc<Inner>,
    shared: Arc<Shared>,
}

impl Scope for InSession {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn session(&self) -> &SessionKey {
        &self.inner.key
    }

    fn execution(&self) -> &ExecutionId {
        &self.ticket.id
    }

    /// Counted across processes.
    fn step(&self) -> Result<u64> {
        let SessionKey { agent, session } = &self.inner.key;
        let kept = match self.shared.storage.durable() {
            Some(store) if self.inner.durable => store.next_step(agent, session)?,
            _ => None,
        };
        Ok(kept.unwrap_or_else(|| lock(&self.inner.state).next_step()))
    }

    fn plan(&self) -> Arc<Plan> {
        lock(&self.inner.state).plan.clone()
    }

    async fn acquire(&self) -> Result<Live> {
        self.inner.live(&self.shared).await
    }

    fn started(&self) {
        self.ticket.started();
    }

    fn was_destroyed(&self) -> bool {
        self.inner.was_destroyed(&self.shared)
    }

    async fn release(&self, live: &Live, ran: bool) -> Result<()> {
        match (ran, live.is_lost()) {
            (true, false) => self.inner.save(&self.shared, live).await,
            // It ended after the program did, and had the only copy.
            (true, true) if live.head.is_some() => Err(Error::InstanceLost(
                "it ended before the files were saved".into(),
            )),
            _ => Ok(()),
        }
    }

    fn not_released(&self, error: Error) -> (Error, Option<Fact>) {
        let error = Error::NotSaved(Box::new(error));
        let fact = Fact::FilesNotSaved {
            code: error.code().into(),
            message: error.to_string(),
        };
        (error, Some(fact))
    }

    fn finished(&mut self, result: Result<&Report, &Error>) {
        self.ticket.finish(result);
    }
}

impl Inner {
    /// Mirrors the files to disk, if they are kept: nothing that was answered is lost.
    pub(super) async fn save(&self, shared: &Shared, live: &Live) -> Result<()> {
        let Some(head) = &live.head else {
            return Ok(());
        };
        let _one_at_a_time = self.saving.lock().await;
        let saved = shared.save(head, live.instance.as_ref()).await;
        if !self.was_destroyed(shared) {
            return saved;
        }
        // Destroying it here ends what runs, and says so. Who was not ended must not take its files for saved.
        match lock(&self.state).destroyed_here {
            true => Ok(()),
            false => Err(self.gone()),
        }
    }

    /// By this process or by another.
    fn was_destroyed(&self, shared: &Shared) -> bool {
        if lock(&self.state).is_destroyed() {
            return true;
        }
        let store = shared.storage.durable();
        store.is_some_and(|store| !store.exists(&self.key.agent, &self.key.session))
    }
}
