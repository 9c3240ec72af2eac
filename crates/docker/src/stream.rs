//! The standard streams of a container as one stream to its guest.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bollard::container::LogOutput;
use bollard::errors::Error as Trouble;
use bytes::{Buf, Bytes};
use futures_util::Stream;
use tokio::io::{AsyncRead, ReadBuf};

/// How many bytes of stderr are kept.
const KEPT: usize = 4096;

/// The end of stderr: why a runtime or a guest could not start.
#[derive(Clone, Debug, Default)]
pub(crate) struct StderrTail(Arc<Mutex<Vec<u8>>>);

impl StderrTail {
    fn add(&self, bytes: &[u8]) {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = KEPT - words.len();
        words.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(crate) fn text(&self) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&words).trim().to_owned()
    }
}

type Output = Pin<Box<dyn Stream<Item = Result<LogOutput, Trouble>> + Send>>;

/// Standard output of a container.
pub(crate) struct GuestOutput {
    output: Output,
    waiting: Bytes,
    words: StderrTail,
}

impl GuestOutput {
    pub(crate) fn new(output: Output, words: StderrTail) -> Self {
        Self {
            output,
            waiting: Bytes::new(),
            words,
        }
    }
}

impl AsyncRead for GuestOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.waiting.is_empty() {
            match ready!(self.output.as_mut().poll_next(cx)) {
                Some(Ok(LogOutput::StdOut { message })) => self.waiting = message,
                Some(Ok(LogOutput::StdErr { message })) => self.words.add(&message),
                Some(Ok(LogOutput::StdIn { .. } | LogOutput::Console { .. })) => {
                    return Poll::Ready(Err(io::Error::other("the engine's stream is corrupted")));
                }
                Some(Err(trouble)) => return Poll::Ready(Err(io::Error::other(trouble))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let length = self.waiting.len().min(into.remaining());
        into.put_slice(&self.waiting[..length]);
        self.waiting.advance(length);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    fn read(parts: Vec<Result<LogOutput, Trouble>>) -> (io::Result<Vec<u8>>, String) {
        let words = StderrTail::default();
        let output = Box::pin(futures_util::stream::iter(parts));
        let mut stream = GuestOutput::new(output, words.clone());
        let mut all = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("runtime");
        let read = runtime.block_on(stream.read_to_end(&mut all));
        (read.map(|_| all), words.text())
    }

    #[test]
    fn output_is_the_stream_and_errors_are_kept_apart() {
        let message = |text: &'static str| Bytes::from_static(text.as_bytes());
        let (all, words) = read(vec![
            Ok(LogOutput::StdOut {
                message: message("a"),
            }),
            Ok(LogOutput::StdErr {
                message: message("no such file\n"),
            }),
            Ok(LogOutput::StdOut {
                message: Bytes::new(),
            }),
            Ok(LogOutput::StdOut {
                message: message("bc"),
            }),
        ]);
        assert_eq!(all.expect("all of it"), b"abc");
        assert_eq!(words, "no such file");
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_is_out_of_step_is_an_error() {
        let flood = |_| {
            Ok(LogOutput::StdErr {
                message: Bytes::from(vec![b'x'; 3000]),
            })
        };
        assert_eq!(read((0..3).map(flood).collect()).1.len(), KEPT);
        let (all, _) = read(vec![Ok(LogOutput::Console {
            message: Bytes::from_static(b"x"),
        })]);
        assert!(all.is_err());
    }
}
