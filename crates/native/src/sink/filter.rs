//! Classic BPF filters for the raw sockets of the sink: the first packet of each connection and every
//! datagram, but not those to loopback.
//!
//! A list of tests is compiled here, because `tc`-style BPF needs `libpcap`, and hand-counted jumps are
//! error-prone.

use std::net::Ipv4Addr;

use brig_linux::net::Instruction;

/// Bytes of a packet that are kept: enough for the headers and a DNS query.
const KEPT: u32 = 600;

const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF_INDEXED: u16 = 0x48;
const LOAD_BYTE_INDEXED: u16 = 0x50;
/// Sets the index register to the length of the IPv4 header at the given offset.
const HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// `SKF_NET_OFF`: offsets relative to the network header, also on sockets whose packets begin after it.
const NETWORK_HEADER: u32 = (-0x0010_0000_i32).cast_unsigned();

/// The addresses that DNS hands out: 198.18.0.0/15.
const POOL: u32 = 0xc612_0000;
const POOL_MASK: u32 = 0xfffe_0000;

const SYN_AND_ACK: u32 = 0x12;
const SYN: u32 = 0x02;

/// One test of a packet.
enum Test {
    Load(u16, u32),
    And(u32),
    KeepIf(u32),
    DropIf(u32),
    DropUnless(u32),
    /// Skips this many tests unless the value matches.
    SkipUnless(u32, u8),
}

pub(super) fn in_pool(address: Ipv4Addr) -> bool {
    u32::from(address) & POOL_MASK == POOL
}

/// The first packets of connections, except those to the `listening` ports of the pool, which their listeners
/// decide on and record.
pub(super) fn tcp4(listening: &[u16]) -> Vec<Instruction> {
    use Test::{And, DropIf, DropUnless, Load, SkipUnless};
    let mut tests = vec![
        Load(LOAD_BYTE, 16),
        DropIf(127),
        Load(HEADER_LENGTH, 0),
        Load(LOAD_BYTE_INDEXED, 13),
        And(SYN_AND_ACK),
        DropUnless(SYN),
        Load(LOAD_WORD, 16),
        And(POOL_MASK),
        SkipUnless(POOL, u8::try_from(listening.len() + 1).unwrap_or(u8::MAX)),
        Load(LOAD_HALF_INDEXED, 2),
    ];
    tests.extend(listening.iter().map(|port| DropIf(u32::from(*port))));
    compile(&tests, KEPT)
}

/// For a listener on all addresses: only connections to the pool or to loopback.
pub(super) fn listener() -> Vec<Instruction> {
    use Test::{And, DropUnless, KeepIf, Load};
    const DESTINATION: u32 = NETWORK_HEADER.wrapping_add(16);
    let tests = [
        Load(LOAD_WORD, DESTINATION),
        And(POOL_MASK),
        KeepIf(POOL),
        Load(LOAD_BYTE, DESTINATION),
        DropUnless(127),
    ];
    compile(&tests, u32::MAX)
}

pub(super) fn udp4() -> Vec<Instruction> {
    compile(&[Test::Load(LOAD_BYTE, 16), Test::DropIf(127)], KEPT)
}

pub(super) fn tcp6() -> Vec<Instruction> {
    use Test::{And, DropUnless, Load};
    let mut tests = beyond_loopback6();
    tests.extend([Load(LOAD_BYTE, 13), And(SYN_AND_ACK), DropUnless(SYN)]);
    compile(&tests, KEPT)
}

pub(super) fn udp6() -> Vec<Instruction> {
    compile(&beyond_loopback6(), KEPT)
}

fn beyond_loopback6() -> Vec<Test> {
    use Test::{DropIf, Load, SkipUnless};
    const DESTINATION: u32 = NETWORK_HEADER.wrapping_add(24);
    vec![
        Load(LOAD_WORD, DESTINATION),
        SkipUnless(0, 6),
        Load(LOAD_WORD, DESTINATION.wrapping_add(4)),
        SkipUnless(0, 4),
        Load(LOAD_WORD, DESTINATION.wrapping_add(8)),
        SkipUnless(0, 2),
        Load(LOAD_WORD, DESTINATION.wrapping_add(12)),
        DropIf(1),
    ]
}

/// The last instruction drops, the one before accepts. Jumps have 8 bits, which suffices for 100 tests.
fn compile(tests: &[Test], kept: u32) -> Vec<Instruction> {
    let keep = tests.len();
    let drop = keep + 1;
    let distance = |from: usize, to: usize| u8::try_from(to - from - 1).unwrap_or(u8::MAX);
    let instruction = |code, jump_true, jump_false, value| Instruction {
        code,
        jump_true,
        jump_false,
        value,
    };
    let mut filter: Vec<Instruction> = tests
        .iter()
        .enumerate()
        .map(|(at, test)| match *test {
            Test::Load(code, offset) => instruction(code, 0, 0, offset),
            Test::And(mask) => instruction(AND, 0, 0, mask),
            Test::KeepIf(value) => instruction(JUMP_EQUAL, distance(at, keep), 0, value),
            Test::DropIf(value) => instruction(JUMP_EQUAL, distance(at, drop), 0, value),
            Test::DropUnless(value) => instruction(JUMP_EQUAL, 0, distance(at, drop), value),
            Test::SkipUnless(value, count) => instruction(JUMP_EQUAL, 0, count, value),
        })
        .collect();
    filter.push(instruction(RETURN, 0, 0, kept));
    filter.push(instruction(RETURN, 0, 0, 0));
    filter
}
