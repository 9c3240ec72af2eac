//! Started containers whose guest waits for its first message. A container fits a session if it was created
//! from an equal description. It contains nothing of a session before it is taken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use brig_guest_host::link::Stream;
use brig_sandbox::Result;

use crate::engine::Engine;
use crate::removals::{ContainerName, Removals};
use crate::stream::{GuestOutput, StderrTail};

/// How many different containers are kept ready. The oldest are replaced.
const SHAPES: usize = 4;

/// A container whose guest waits for its first message. When this is dropped, it is removed.
#[derive(Debug)]
pub(crate) struct StartedContainer {
    pub name: ContainerName,
    pub stream: Stream,
    pub words: StderrTail,
    /// The runtime that the engine uses for it, as it says itself.
    pub runtime: Option<String>,
    /// Whether it comes from the pool, and may have ended meanwhile.
    pub warm: bool,
}

impl StartedContainer {
    pub(crate) async fn launch(
        engine: &Engine,
        removals: &Removals,
        body: ContainerCreateBody,
    ) -> Result<Self> {
        let name = removals.name();
        match start(engine, &name, body).await {
            Ok((stream, words, runtime)) => Ok(Self {
                name,
                stream,
                words,
                runtime,
                warm: false,
            }),
            Err(error) => {
                // The reason for the failed start is more useful than an error of the cleanup.
                let _ = name.remove().await;
                Err(error)
            }
        }
    }
}

async fn start(
    engine: &Engine,
    name: &ContainerName,
    body: ContainerCreateBody,
) -> Result<(Stream, StderrTail, Option<String>)> {
    let name = name.as_str();
    let options = CreateContainerOptionsBuilder::new().name(name).build();
    let create = engine.docker.create_container(Some(options), body);
    engine.ask("create a container", create).await?;
    let options = AttachContainerOptionsBuilder::new();
    let options = options.stream(true).stdin(true).stdout(true).stderr(true);
    // Before the start, so that no output is missed.
    let attach = engine.docker.attach_container(name, Some(options.build()));
    let inspect = engine.docker.inspect_container(name, None);
    let (attached, inspected) = tokio::try_join!(
        engine.ask("attach to a container", attach),
        engine.ask("inspect a container", inspect),
    )?;
    let runtime = inspected.host_config.and_then(|config| config.runtime);
    let start = engine.docker.start_container(name, None);
    engine.ask("start a container", start).await?;
    let words = StderrTail::default();
    let stream = Stream {
        from_guest: Box::new(GuestOutput::new(attached.output, words.clone())),
        to_guest: Box::new(attached.input),
    };
    Ok((stream, words, runtime))
}

/// Clones are the same pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    /// How many of each shape.
    size: usize,
    shapes: Arc<Mutex<VecDeque<Shape>>>,
}

#[derive(Debug)]
struct Shape {
    body: ContainerCreateBody,
    waiting: Vec<StartedContainer>,
    /// Being started.
    coming: usize,
}

impl Pool {
    pub(crate) fn of(size: usize) -> Self {
        Self {
            size,
            shapes: Arc::default(),
        }
    }

    /// A ready container, if there is one.
    pub(crate) fn take(&self, body: &ContainerCreateBody) -> Option<StartedContainer> {
        let mut shapes = self.shapes();
        let shape = shapes.iter_mut().find(|shape| shape.body == *body)?;
        shape.waiting.pop()
    }

    /// Starts missing containers of this shape in the background.
    pub(crate) fn refill(&self, engine: &Engine, removals: &Removals, body: &ContainerCreateBody) {
        if self.size == 0 {
            return;
        }
        let missing = {
            let mut shapes = self.shapes();
            let index = match shapes.iter().position(|shape| shape.body == *body) {
                Some(index) => index,
                None => {
                    shapes.push_back(Shape {
                        body: body.clone(),
                        waiting: Vec::new(),
                        coming: 0,
                    });
                    while shapes.len() > SHAPES {
                        shapes.pop_front();
                    }
                    shapes.len() - 1
                }
            };
            let shape = &mut shapes[index];
            let missing = self.size.saturating_sub(shape.waiting.len() + shape.coming);
            shape.coming += missing;
            missing
        };
        for _ in 0..missing {
            let (engine, removals) = (engine.clone(), removals.clone());
            let (pool, body) = (self.clone(), body.clone());
            tokio::spawn(async move {
                let started = StartedContainer::launch(&engine, &removals, body.clone()).await;
                let mut shapes = pool.shapes();
                if let Some(shape) = shapes.iter_mut().find(|shape| shape.body == body) {
                    shape.coming = shape.coming.saturating_sub(1);
                    // A failure is not reported here: it happens again when a container is needed.
                    let started = started.ok().map(|started| StartedContainer {
                        warm: true,
                        ..started
                    });
                    shape.waiting.extend(started);
                }
            });
        }
    }

    fn shapes(&self) -> MutexGuard<'_, VecDeque<Shape>> {
        self.shapes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
