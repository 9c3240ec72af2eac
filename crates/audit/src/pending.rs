use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::RecordError;

type Answer = Result<(), RecordError>;

/// Records that are being written to disk. Wait for it, or await it.
#[derive(Debug)]
#[must_use = "the records are safe only once this has answered"]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Ready(Answer),
    Waiting(Arc<Promise>),
}

impl Pending {
    /// An answer that is known already.
    pub fn ready(answer: Answer) -> Self {
        Self(State::Ready(answer))
    }

    pub(crate) fn waiting(promise: Arc<Promise>) -> Self {
        Self(State::Waiting(promise))
    }

    /// The same, or the error if it is already known that the records cannot be kept.
    pub fn unless_failed(self) -> Result<Self, RecordError> {
        match self.0 {
            State::Ready(Err(error)) => Err(error),
            other => Ok(Self(other)),
        }
    }

    /// Blocks the thread until the records are safe.
    pub fn wait(self) -> Answer {
        match self.0 {
            State::Ready(answer) => answer,
            State::Waiting(promise) => promise.wait(),
        }
    }
}

impl Future for Pending {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        match &self.0 {
            State::Ready(answer) => Poll::Ready(answer.clone()),
            State::Waiting(promise) => promise.poll(context.waker()),
        }
    }
}

/// One answer that many wait for.
#[derive(Debug, Default)]
pub(crate) struct Promise {
    inner: Mutex<Inner>,
    kept: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    answer: Option<Answer>,
    wakers: Vec<Waker>,
}

impl Promise {
    pub(crate) fn keep(&self, answer: &Answer) {
        let wakers = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.answer = Some(answer.clone());
            std::mem::take(&mut inner.wakers)
        };
        self.kept.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn wait(&self) -> Answer {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(answer) = &inner.answer {
                return answer.clone();
            }
            inner = self
                .kept
                .wait(inner)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<Answer> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = &inner.answer {
            return Poll::Ready(answer.clone());
        }
        if !inner.wakers.iter().any(|known| known.will_wake(waker)) {
            inner.wakers.push(waker.clone());
        }
        Poll::Pending
    }
}
