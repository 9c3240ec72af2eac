//! Containers that have been started and wait for their first word. What a container is made of
//! decides whom it fits; nothing of a session is in it before it is taken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{AttachContainerOptionsBuilder, CreateContainerOptionsBuilder};
use brig_sandbox::Result;
use brig_sandbox::link::Stream;

use crate::engine::Engine;
use crate::leftovers::{Leftovers, Name};
use crate::stream::{FromGuest, LastWords};

/// Different containers that are kept ready; the oldest make room.
const SHAPES: usize = 4;

/// A container whose guest waits to be greeted. Dropped, it is removed.
#[derive(Debug)]
pub struct Started {
    pub name: Name,
    pub stream: Stream,
    pub words: LastWords,
    /// Whether it waited, and may have ended meanwhile.
    pub warm: bool,
}

impl Started {
    pub async fn launch(
        engine: &Engine,
        leftovers: &Leftovers,
        body: ContainerCreateBody,
    ) -> Result<Self> {
        let name = leftovers.name();
        match start(engine, &name, body).await {
            Ok((stream, words)) => Ok(Self {
                name,
                stream,
                words,
                warm: false,
            }),
            Err(error) => {
                // Why it did not start says more than what became of the rest.
                let _ = name.remove().await;
                Err(error)
            }
        }
    }
}

async fn start(
    engine: &Engine,
    name: &Name,
    body: ContainerCreateBody,
) -> Result<(Stream, LastWords)> {
    let name = name.as_str();
    let options = CreateContainerOptionsBuilder::new().name(name).build();
    let create = engine.docker.create_container(Some(options), body);
    engine.ask("create a container", create).await?;
    let options = AttachContainerOptionsBuilder::new();
    let options = options.stream(true).stdin(true).stdout(true).stderr(true);
    // Before the start, so that nothing it says is missed.
    let attach = engine.docker.attach_container(name, Some(options.build()));
    let attached = engine.ask("attach to a container", attach).await?;
    let start = engine.docker.start_container(name, None);
    engine.ask("start a container", start).await?;
    let words = LastWords::default();
    let stream = Stream {
        from_guest: Box::new(FromGuest::new(attached.output, words.clone())),
        to_guest: Box::new(attached.input),
    };
    Ok((stream, words))
}

/// Clones are the same pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// How many of each shape.
    size: usize,
    shapes: Arc<Mutex<VecDeque<Shape>>>,
}

#[derive(Debug)]
struct Shape {
    body: ContainerCreateBody,
    waiting: Vec<Started>,
    /// Being started.
    coming: usize,
}

impl Pool {
    pub fn of(size: usize) -> Self {
        Self {
            size,
            shapes: Arc::default(),
        }
    }

    /// One that waits, if there is any.
    pub fn take(&self, body: &ContainerCreateBody) -> Option<Started> {
        let mut shapes = self.shapes();
        let shape = shapes.iter_mut().find(|shape| shape.body == *body)?;
        shape.waiting.pop()
    }

    /// Starts what is missing of this shape, while nobody waits for it.
    pub fn refill(&self, engine: &Engine, leftovers: &Leftovers, body: &ContainerCreateBody) {
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
            let (engine, leftovers) = (engine.clone(), leftovers.clone());
            let (pool, body) = (self.clone(), body.clone());
            tokio::spawn(async move {
                let started = Started::launch(&engine, &leftovers, body.clone()).await;
                let mut shapes = pool.shapes();
                if let Some(shape) = shapes.iter_mut().find(|shape| shape.body == body) {
                    shape.coming = shape.coming.saturating_sub(1);
                    // What failed will fail again, and be reported, when it is needed.
                    let started = started.ok().map(|started| Started {
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
