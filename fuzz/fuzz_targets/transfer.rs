#![no_main]

//! A folder that a guest sends: whatever it says, nothing is written anywhere else.

use std::fs;
use std::os::fd::OwnedFd;

use brig_transfer::{Bounds, Receiver};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let outer = std::env::temp_dir().join(format!("brig-fuzz-{}", std::process::id()));
    let inner = outer.join("inner");
    fs::create_dir_all(&inner).expect("a folder");
    let folder: OwnedFd = fs::File::open(&inner).expect("the folder").into();
    let bounds = Bounds {
        entries: 50,
        bytes: 1 << 16,
    };
    let mut receiver = Receiver::exact(folder, bounds);
    let piece = 1 + data.first().map_or(0, |byte| usize::from(byte % 31));
    // After the first error nothing more is given.
    let _ = data
        .chunks(piece)
        .try_for_each(|piece| receiver.take(piece));
    drop(receiver);
    assert_eq!(fs::read_dir(&outer).expect("outer").count(), 1);
    fs::remove_dir_all(&outer).expect("removed");
});
