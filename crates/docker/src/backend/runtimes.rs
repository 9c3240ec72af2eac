//! The runtime of a sandbox: the one that is named, or the strongest that works and enforces what is needed.

use std::collections::BTreeMap;

use brig_reason::ReasonCode;
use brig_sandbox::{Control, Controls, Error, InitialState, Plan, Result, SessionConfig};

use super::DockerBackend;
use crate::choice::{self, Choice};
use crate::limits;
use crate::options::{IMAGE, RUNTIME};
use crate::runtime::{Kind, Runtime};

impl DockerBackend {
    pub(super) fn controls(&self, runtime: &Runtime, config: &SessionConfig) -> Controls {
        let armor = self.armor.as_ref().map(drop).map_err(|wanted| *wanted);
        limits::controls(&self.facts, runtime, armor, config)
    }

    /// The runtime that is named. `None`: it is to be chosen.
    pub(super) fn named(&self, asked: Option<&str>) -> Result<Option<Runtime>> {
        match asked.or(self.usual_runtime.as_deref()) {
            None | Some("auto") => Ok(None),
            Some(name) => Runtime::named(&self.facts, name).map(Some),
        }
    }

    /// The runtime of a plan.
    pub(super) fn planned(&self, plan: &Plan) -> Result<Runtime> {
        let name = plan.option(RUNTIME).or(self.usual_runtime.as_deref());
        let name = name.unwrap_or_default();
        let mut ranked = Runtime::ranked(&self.facts).into_iter();
        match ranked.find(|runtime| runtime.name == name) {
            Some(runtime) => Ok(runtime),
            None => Runtime::named(&self.facts, name),
        }
    }

    pub(super) fn choose(&self, config: &SessionConfig) -> Result<Choice> {
        let controls = |runtime: &Runtime| self.controls(runtime, config);
        let ranked = Runtime::ranked(&self.facts);
        choice::choose(ranked, &self.broken, config, controls).ok_or_else(|| Error::Engine {
            code: ReasonCode::EngineRuntime,
            step: "choose a runtime".into(),
            problem: "the engine has none".into(),
            hint: None,
        })
    }

    /// Why a runtime can't even run an empty sandbox. `None` if it can, or if that can't be said now.
    async fn defect(&self, runtime: &Runtime, image: Option<&str>) -> Option<Error> {
        let mut config = SessionConfig {
            options: BTreeMap::from([(RUNTIME.into(), runtime.name.clone())]),
            waive: Control::ALL.into_iter().collect(),
            ..SessionConfig::default()
        };
        config
            .options
            .extend(image.map(|image| (IMAGE.into(), image.to_owned())));
        let made = async {
            let plan = Plan::make(&config, self, InitialState::Empty).await?;
            self.create_on(&plan, runtime).await?.destroy().await
        };
        made.await.err().filter(of_runtime)
    }

    /// Tries all runtimes that are chosen before the plain ones. Returns those that do not work, and why.
    pub(super) async fn try_all(&self) -> Vec<(String, String)> {
        let mut broken = Vec::new();
        for runtime in Runtime::ranked(&self.facts) {
            if runtime.kind != Kind::Plain
                && let Some(defect) = self.defect(&runtime, self.image.as_deref()).await
            {
                let why = defect.to_string();
                self.broken.insert(&runtime, why.clone());
                broken.push((runtime.name, why));
            }
        }
        broken
    }

    /// After a failure: if the runtime was chosen and does not work, another one is chosen from now on. One that
    /// the user named is never replaced. Nor is one that works without what the plan adds: code could use that
    /// to get a weaker one.
    pub(super) async fn learn(&self, plan: &Plan, runtime: &Runtime, error: &Error) {
        if plan.is_chosen(RUNTIME)
            && runtime.kind != Kind::Plain
            && of_runtime(error)
            && let Some(defect) = self.defect(runtime, plan.option(IMAGE)).await
        {
            self.broken.insert(runtime, defect.to_string());
        }
    }
}

/// Whether it may be the runtime that failed, and not the engine or what was requested.
fn of_runtime(error: &Error) -> bool {
    matches!(
        error.reason(),
        ReasonCode::EngineFailed
            | ReasonCode::EngineRuntimeIgnored
            | ReasonCode::BackendSetup
            | ReasonCode::BackendLost
    )
}
