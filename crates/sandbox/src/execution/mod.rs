//! One execution: what is asked, how it is watched, and what is known of it afterwards.

mod ask;
mod running;
pub(crate) mod supervise;
pub(crate) mod table;

pub use ask::Request;
pub use running::Running;
pub use table::ExecutionInfo;

pub(crate) use ask::Prepared;

use tokio::sync::mpsc;

use crate::Event;
use crate::backend::ExecCommand;

/// Pieces of output that may wait for a slow reader before the program is slowed down.
const EVENTS: usize = 64;

/// What connects an execution with those who watch it.
pub(crate) struct Channels {
    pub control: mpsc::UnboundedSender<ExecCommand>,
    pub orders: mpsc::UnboundedReceiver<ExecCommand>,
    pub sender: Option<mpsc::Sender<Event>>,
    pub events: Option<mpsc::Receiver<Event>>,
}

pub(crate) fn channels(stream: bool) -> Channels {
    let (control, orders) = mpsc::unbounded_channel();
    let (sender, events) = stream.then(|| mpsc::channel(EVENTS)).unzip();
    Channels {
        control,
        orders,
        sender,
        events,
    }
}
