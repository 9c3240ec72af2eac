//! Memory of TCP connections that no program has accepted. The kernel counts it to no control group
//! until then, so code could fill the machine's memory with them.

use std::fs::File;
use std::io::{BufRead, BufReader};

/// With fewer sockets in the network, nobody looks closer.
const FEW_SOCKETS: u64 = 256;
/// What the kernel keeps for a connection, beside its data.
const EACH: u64 = 8 << 10;
/// What it may keep for the data of one, however few bytes that are.
const MOST_DATA: u64 = 128 << 10;
/// So many connections with data are an ordinary queue.
const FEW_WITH_DATA: u64 = 256;

const ESTABLISHED: &str = "01";
const CLOSE_WAIT: &str = "08";

/// How much that is in the network of a process. It may take long if there is much.
pub(crate) fn bytes(pid: u32) -> u64 {
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/{pid}/net/{name}"));
    let mut waiting = Waiting::default();
    for table in tables {
        if let Ok(table) = File::open(table) {
            waiting.count(BufReader::new(table));
        }
    }
    waiting.bytes()
}

/// Whether a network has so many sockets that it may be much.
pub(crate) fn may_be_much(pid: u32) -> bool {
    let counts = [("sockstat", "TCP: inuse "), ("sockstat6", "TCP6: inuse ")];
    let in_use = counts.map(|(file, name)| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{file}"));
        text.map_or(0, |text| number_after(&text, name))
    });
    in_use.iter().sum::<u64>() > FEW_SOCKETS
}

fn number_after(text: &str, name: &str) -> u64 {
    let rest = text.lines().find_map(|line| line.strip_prefix(name));
    let number = rest.and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[derive(Debug, Default)]
struct Waiting {
    connections: u64,
    with_data: u64,
    data: u64,
}

impl Waiting {
    fn count(&mut self, table: impl BufRead) {
        for line in table.lines().map_while(Result::ok) {
            let Some(data) = unaccepted(&line) else {
                continue;
            };
            self.connections += 1;
            self.data += data;
            // The end of the stream counts as a byte.
            self.with_data += u64::from(data > 1);
        }
    }

    fn bytes(&self) -> u64 {
        let most = match self.with_data {
            ..=FEW_WITH_DATA => 0,
            many => many * MOST_DATA,
        };
        self.connections * EACH + (2 * self.data).max(most)
    }
}

/// The bytes that wait in a connection that belongs to no program yet: it has no inode.
fn unaccepted(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().take(10).collect();
    let [_, _, _, state, queues, .., inode] = fields[..] else {
        return None;
    };
    if inode != "0" || !matches!(state, ESTABLISHED | CLOSE_WAIT) {
        return None;
    }
    let (_, received) = queues.split_once(':')?;
    u64::from_str_radix(received, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A1B5 00000000:0000 0A 00000000:00000002 00:00000000 00000000 65534        0 5021 1
   1: 0100007F:A1B5 0100007F:C350 01 00000000:00000010 00:00000000 00000000     0        0 0 1
   2: 0100007F:A1B5 0100007F:C351 08 00000000:00000001 00:00000000 00000000     0        0 0 1
   3: 0100007F:C350 0100007F:A1B5 01 00000007:00000000 00:00000000 00000000 65534        0 5022 1
   4: 0100007F:C351 0100007F:A1B5 05 00000000:00000000 00:00000000 00000000     0        0 0 1
";

    #[test]
    fn connections_without_a_program_are_counted() {
        let mut waiting = Waiting::default();
        waiting.count(TABLE.as_bytes());
        assert_eq!((waiting.connections, waiting.with_data), (2, 1));
        assert_eq!(waiting.bytes(), 2 * EACH + 2 * 17);
        let many = Waiting {
            connections: 1000,
            with_data: 1000,
            data: 1000,
        };
        assert_eq!(many.bytes(), 1000 * (EACH + MOST_DATA));
        assert_eq!(number_after("TCP: inuse 12 orphan 0\n", "TCP: inuse "), 12);
    }

    #[test]
    fn the_kernel_lists_them() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let address = listener.local_addr().expect("address");
        let one = std::net::TcpStream::connect(address).expect("connect");
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("table");
        let at = format!("0100007F:{:04X}", address.port());
        let mut ours = table
            .lines()
            .filter(|line| line.split_whitespace().nth(1) == Some(&at));
        assert!(ours.any(|line| unaccepted(line) == Some(0)), "{table}");
        let accepted = listener.accept().expect("accept");
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("table");
        let mut ours = table
            .lines()
            .filter(|line| line.split_whitespace().nth(1) == Some(&at));
        assert!(!ours.any(|line| unaccepted(line).is_some()), "{table}");
        drop(accepted);
        drop((one, listener));
    }
}
