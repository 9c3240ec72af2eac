//! The other end is a guest that misbehaves.

use std::time::Duration;

use brig_wire::{FileInfo, FileKind, MAX_CONTROL, cost};
use tokio::io::DuplexStream;
use tokio::time::timeout;

use super::*;

fn connect() -> (Connection, DuplexStream) {
    let (ours, guest) = tokio::io::duplex(64 * 1024);
    let (from_guest, to_guest) = tokio::io::split(ours);
    let stream = Stream {
        from_guest: Box::new(from_guest),
        to_guest: Box::new(to_guest),
    };
    let connection = Connection::start(stream, None);
    (connection, guest)
}

fn message(message: &FromGuest) -> Vec<u8> {
    brig_wire::encode(Kind::Control, 0, &brig_wire::to_bytes(message).unwrap())
}

/// Sends that many frames. Says whether it was cut off.
async fn flood(
    connection: &Connection,
    guest: &mut DuplexStream,
    frame: &[u8],
    count: usize,
) -> bool {
    use tokio::io::AsyncWriteExt;
    const LAST: u32 = u32::MAX;
    let (mut last, mut route) = connection.open(LAST, &[], &[]).unwrap();
    route.answered();
    let send = async {
        for _ in 0..count {
            guest.write_all(frame).await.unwrap();
        }
        let done = message(&FromGuest::Done { id: LAST, bytes: 0 });
        guest.write_all(&done).await.unwrap();
        // Nobody reads on once it was cut off.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = send => unreachable!(),
        answer = last.recv() => answer.is_none(),
    }
}

async fn next_frame(guest: &mut DuplexStream) -> Frame {
    use tokio::io::AsyncReadExt;
    let mut decoder = Decoder::default();
    let mut byte = [0];
    loop {
        if let Some(frame) = decoder.next_frame().unwrap() {
            return frame;
        }
        guest.read_exact(&mut byte).await.unwrap();
        decoder.feed(&byte);
    }
}

#[tokio::test]
async fn messages_that_nobody_takes_end_the_connection() {
    let (connection, mut guest) = connect();
    let (_inbox, _route) = connection.open(7, &[], &[]).unwrap();
    let failed = message(&FromGuest::Failed {
        id: 7,
        step: "x".repeat(MAX_CONTROL / 2),
        errno: 1,
    });
    assert!(flood(&connection, &mut guest, &failed, 1000).await);
}

#[tokio::test]
async fn handshakes_after_the_first_are_ignored() {
    let (connection, mut guest) = connect();
    let ready = message(&FromGuest::Ready {
        version: 1,
        kernel: None,
    });
    assert!(!flood(&connection, &mut guest, &ready, 1).await);
    connection.handshake().await.unwrap();
    assert!(!flood(&connection, &mut guest, &ready, 1000).await);
    assert!(connection.shared.routes().requests.is_empty());
}

#[tokio::test]
async fn small_frames_are_counted_for_what_they_cost() {
    let (connection, mut guest) = connect();
    let (mut inbox, _route) = connection.open(7, &[9], &[]).unwrap();
    let byte = brig_wire::encode(Kind::Data, 9, &[1]);
    let fit = (WINDOW / cost(1)) as usize;
    assert!(!flood(&connection, &mut guest, &byte, fit).await);
    // As much again once it was taken.
    for _ in 0..fit {
        assert!(matches!(inbox.recv().await, Some(Incoming::Data { .. })));
        connection.grant(9, 1).unwrap();
    }
    assert!(!flood(&connection, &mut guest, &byte, fit).await);
    assert!(flood(&connection, &mut guest, &byte, 1).await);
}

#[tokio::test]
async fn empty_frames_and_repeated_ends_do_not_pile_up() {
    let (connection, mut guest) = connect();
    let (mut inbox, _route) = connection.open(7, &[9], &[]).unwrap();
    let end = brig_wire::encode(Kind::End, 9, &[]);
    assert!(!flood(&connection, &mut guest, &end, 1000).await);
    assert!(matches!(inbox.recv().await, Some(Incoming::End)));
    assert!(
        timeout(Duration::from_millis(50), inbox.recv())
            .await
            .is_err()
    );

    let (_inbox, _route) = connection.open(8, &[10], &[]).unwrap();
    let empty = brig_wire::encode(Kind::Data, 10, &[]);
    assert!(flood(&connection, &mut guest, &empty, 1).await);
}

#[tokio::test]
async fn a_listing_that_cannot_be_ends_the_connection() {
    let long = "x".repeat(256);
    let many = vec!["x"; brig_wire::LISTING_PART + 1];
    let names = [&long, "", ".", "..", "../escape", "/etc/passwd", "a\0b"];
    for names in names.map(|name| vec![name]).into_iter().chain([many]) {
        let (connection, mut guest) = connect();
        let (_inbox, _route) = connection.open(7, &[], &[]).unwrap();
        let entry = |name: &str| FileInfo {
            name: name.into(),
            kind: FileKind::File,
            size: 0,
            mode: 0,
        };
        let listing = |names: &[&str]| {
            message(&FromGuest::Listing {
                id: 7,
                entries: names.iter().copied().map(entry).collect(),
                last: false,
            })
        };
        let fine = listing(&vec![&long[1..]; brig_wire::LISTING_PART]);
        assert!(!flood(&connection, &mut guest, &fine, 1).await);
        assert!(flood(&connection, &mut guest, &listing(&names), 1).await);
    }
}

/// A caller that stops waiting must not leave its program or its transfer behind.
#[tokio::test]
async fn what_nobody_waits_for_any_more_is_ended() {
    let (connection, mut guest) = connect();
    let (_, mut route) = connection.open(7, &[9], &[10]).unwrap();
    route.answered();
    drop(route);
    let (_, route) = connection.open(8, &[11], &[12]).unwrap();
    drop(route);
    let order = brig_wire::from_bytes(&next_frame(&mut guest).await.payload);
    assert_eq!(order.ok(), Some(ToGuest::Kill { id: 8 }));
    // What it had to say is taken still, so that it can come to its end.
    let rest = brig_wire::encode(Kind::Data, 11, &[7; 1000]);
    assert!(!flood(&connection, &mut guest, &rest, 1).await);
    let credit = next_frame(&mut guest).await;
    assert_eq!((credit.channel, credit.credit()), (11, Some(1000)));
    let routes = connection.shared.routes();
    assert!(routes.receiving.is_empty() && routes.sending.is_empty());
}

#[tokio::test]
async fn a_file_without_end_is_not_fetched() {
    use tokio::io::AsyncWriteExt;
    let (connection, mut guest) = connect();
    let endless = async {
        let frame = next_frame(&mut guest).await;
        let Ok(ToGuest::Get { channel, .. }) = brig_wire::from_bytes(&frame.payload) else {
            panic!("a file was asked for");
        };
        let piece = brig_wire::encode(Kind::Data, channel, &[7; 1000]);
        loop {
            guest.write_all(&piece).await.unwrap();
            assert_eq!(next_frame(&mut guest).await.kind, Kind::Credit);
        }
    };
    let mut kept = Vec::new();
    let fetched = tokio::select! {
        () = endless => unreachable!(),
        fetched = crate::link::files::get(&connection, "file", &mut kept, 10_000) => fetched,
    };
    assert!(fetched.unwrap_err().to_string().contains("larger than"));
    assert_eq!(kept.len(), 10_000);
}

#[tokio::test]
async fn nobody_waits_for_a_listener_that_is_gone() {
    let (connection, _guest) = connect();
    let processed = || {
        timeout(
            Duration::from_secs(10),
            connection.notifications_processed(),
        )
    };
    processed().await.expect("nobody listened yet");
    let (inbox, _route) = connection.open_notifications().unwrap();
    tokio::select! {
        () = connection.notifications_processed() => panic!("control: somebody listens"),
        () = tokio::time::sleep(Duration::from_millis(50)) => {}
    }
    let waiting = async {
        tokio::join!(processed(), async {
            tokio::task::yield_now().await;
            connection.disconnect("it lies".into());
            drop(inbox);
        })
    };
    waiting.await.0.expect("the listener went meanwhile");
    processed().await.expect("the listener is gone");
    assert!(!connection.is_open());
}
