//! The lists of hosts that people keep, and a server to try them on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;

use serde_json::Value;

use super::{Brig, Done};

pub(crate) fn sandbox(brig: &Brig, words: &[&str]) -> Done {
    brig.run(["sandbox"].iter().chain(words))
}

pub(crate) fn path(brig: &Brig) -> PathBuf {
    brig.home().join("config/brig/config.yaml")
}

pub(crate) fn write_config(brig: &Brig, text: &str) {
    fs::create_dir_all(path(brig).parent().unwrap()).unwrap();
    fs::write(path(brig), text).unwrap();
}

pub(crate) fn text(brig: &Brig) -> String {
    fs::read_to_string(path(brig)).unwrap()
}

pub(crate) fn records(brig: &Brig, event: &str) -> Vec<Value> {
    let lines = brig.run(["audit", "show", "--json", "--event", event]);
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap()["record"].clone();
    let records = lines.stdout().lines().map(line).collect::<Vec<_>>();
    // No log at all is no record.
    records
        .into_iter()
        .filter(|record| !record.is_null())
        .collect()
}

/// Answers whoever connects.
pub(crate) fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
            );
        }
    });
    port
}

/// Prints what a server says, or the code and the reason of a refusal.
pub(crate) fn fetch(port: u16) -> String {
    format!(
        "import os, urllib.request, urllib.error\n\
         for name in 'no_proxy', 'NO_PROXY': os.environ.pop(name, None)\n\
         try: print(urllib.request.urlopen('http://127.0.0.1:{port}/', timeout=20).read().decode())\n\
         except urllib.error.HTTPError as e: print(e.code, e.headers['x-brig-reason'])\n\
         except OSError as e: print('off')\n"
    )
}
