//! The compiled program, run by a small machine of our own and compared with the rules, and with
//! what another compiler makes of the same rules.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::*;

#[derive(Clone, Copy)]
struct Call {
    number: u32,
    arch: u32,
    arguments: [u64; 6],
}

/// Runs a program over a call, as the kernel would.
fn run(program: &[u64], call: Call) -> u32 {
    let word = |offset: u32| match offset {
        NUMBER => call.number,
        ARCH => call.arch,
        offset => {
            let index = (offset - ARGUMENTS) / 4;
            (call.arguments[(index / 2) as usize] >> (32 * (index % 2))) as u32
        }
    };
    let (mut at, mut value) = (0, 0);
    loop {
        let code = program[at];
        let k = code as u32;
        let (yes, no) = ((code >> 40) as u8 as usize, (code >> 32) as u8 as usize);
        at += 1;
        match (code >> 48) as u16 {
            LOAD => value = word(k),
            AND => value &= k,
            EQUAL => at += if value == k { yes } else { no },
            AT_LEAST => at += if value >= k { yes } else { no },
            0x25 => at += if value > k { yes } else { no },
            JUMP => at += k as usize,
            RETURN => return k,
            other => panic!("unknown instruction {other:#x}"),
        }
    }
}

fn rules() -> Vec<Rule> {
    let rule = |call, tests: &[Test], action| Rule {
        call,
        tests: tests.to_vec(),
        action,
    };
    let test = |argument, mask, value| Test {
        argument,
        mask,
        value,
    };
    let mut rules: Vec<Rule> = (0..300)
        .filter(|n| n % 7 != 0)
        .map(|n| rule(n, &[], Action::Allow))
        .collect();
    rules.extend([
        rule(7, &[test(0, u64::MAX, 5)], Action::Allow),
        rule(
            14,
            &[test(1, 0xffff_ffff, 3), test(2, 0xf, 1)],
            Action::Errno(13),
        ),
        rule(14, &[test(1, 0xffff_ffff, 3)], Action::Allow),
        rule(14, &[], Action::Errno(97)),
        rule(21, &[test(0, 0xffff_ffff_0000_00f0, 0)], Action::Allow),
        rule(21, &[], Action::Errno(1)),
    ]);
    rules
}

/// What the rules say, read one by one.
fn reference(rules: &[Rule], default: Action, call: Call) -> u32 {
    if call.arch != Arch::X86_64.audit_code() {
        return Action::Kill.code();
    }
    rules
        .iter()
        .filter(|rule| rule.call == call.number)
        .find(|rule| {
            rule.tests
                .iter()
                .all(|t| call.arguments[t.argument as usize] & t.mask == t.value)
        })
        .map_or(default, |rule| rule.action)
        .code()
}

fn interesting() -> Vec<u64> {
    vec![
        0,
        1,
        3,
        5,
        0xf0,
        0x1_0000_0003,
        0x1_0000_0005,
        u64::MAX,
        0xffff_ffff,
        1 << 63,
    ]
}

#[test]
fn the_program_says_what_the_rules_say() {
    let (rules, default) = (rules(), Action::Errno(38));
    let program = compile(Arch::X86_64, &rules, default);
    let numbers = (0..400).chain([X32_BIT - 1, X32_BIT, X32_BIT + 1, u32::MAX]);
    for number in numbers {
        for first in interesting() {
            for second in interesting() {
                for arch in [Arch::X86_64.audit_code(), 0x4000_0003, 0] {
                    let call = Call {
                        number,
                        arch,
                        arguments: [first, second, 1, 0, 0, 0],
                    };
                    assert_eq!(
                        run(&program, call),
                        reference(&rules, default, call),
                        "{number}"
                    );
                }
            }
        }
    }
}

/// The kernel translates a filter at each start, instruction by instruction.
#[test]
fn what_segments_have_in_common_is_there_once() {
    let rules = rules();
    let segments = segments(Arch::X86_64, &rules, Action::Errno(38));
    let program = compile(Arch::X86_64, &rules, Action::Errno(38));
    let whole: usize = segments.iter().map(|(_, code)| code.len() + 1).sum();
    assert!(
        program.len() < whole * 3 / 4,
        "{} of {whole}",
        program.len()
    );
}

#[test]
fn another_compiler_agrees() {
    // seccompiler has one action for all matches, so only the allowing rules are compared.
    let test = |argument, mask, value| Test {
        argument,
        mask,
        value,
    };
    let rules: Vec<Rule> = (0..200)
        .map(|call| Rule {
            call,
            tests: match call % 3 {
                0 => vec![],
                1 => vec![test(0, u64::MAX, 5)],
                _ => vec![test(1, 0xf0, 0x30), test(0, u64::MAX, u64::from(call))],
            },
            action: Action::Allow,
        })
        .collect();
    let ours = compile(Arch::X86_64, &rules, Action::Errno(1));
    let theirs = theirs(&rules);
    for number in 0..210 {
        for first in interesting().into_iter().chain([u64::from(number)]) {
            for second in interesting()
                .into_iter()
                .chain([0x30, 0x3f, 0x31_0000_0030])
            {
                let arch = Arch::X86_64.audit_code();
                let call = Call {
                    number,
                    arch,
                    arguments: [first, second, 0, 0, 0, 0],
                };
                assert_eq!(
                    run(&ours, call),
                    run(&theirs, call),
                    "{call:?}",
                    call = call.number
                );
            }
        }
    }
}

fn theirs(rules: &[Rule]) -> Vec<u64> {
    let mut map: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for rule in rules {
        let conditions: Vec<SeccompCondition> = rule
            .tests
            .iter()
            .map(|t| {
                let compare = SeccompCmpOp::MaskedEq(t.mask);
                SeccompCondition::new(t.argument, SeccompCmpArgLen::Qword, compare, t.value)
                    .unwrap()
            })
            .collect();
        let entry = map.entry(i64::from(rule.call)).or_default();
        if !conditions.is_empty() {
            entry.push(SeccompRule::new(conditions).unwrap());
        }
    }
    let filter = SeccompFilter::new(
        map,
        SeccompAction::Errno(1),
        SeccompAction::Allow,
        TargetArch::x86_64,
    );
    let program: BpfProgram = filter.unwrap().try_into().unwrap();
    program
        .iter()
        .map(|i| instruction(i.code, usize::from(i.jt), usize::from(i.jf), i.k))
        .collect()
}

/// What the filter that asks says to the calls that could get around it, whatever is in the bits
/// that the kernel does not look at.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_filter_that_asks_leaves_no_way_around() {
    let program = crate::notify::exec_filter(true, &[]);
    let say = |number: i64, first: u64| {
        let call = Call {
            number: number as u32,
            arch: Arch::X86_64.audit_code(),
            arguments: [first, 0, 0, 0, 0, 0],
        };
        run(&program, call)
    };
    let (ask, allow) = (Action::Notify.code(), Action::Allow.code());
    let (absent, denied) = (Action::Errno(22).code(), Action::Errno(1).code());
    for high in [0, 1 << 32, 1 << 63] {
        for call in [libc::SYS_execve, libc::SYS_execveat] {
            assert_eq!(say(call, high | 5), ask);
        }
        assert_eq!(say(libc::SYS_arch_prctl, high | 0x1002), ask);
        for operation in [0, 1, 4, 5] {
            assert_eq!(say(libc::SYS_seccomp, high | operation), absent);
        }
        for operation in [2, 3] {
            assert_eq!(say(libc::SYS_seccomp, high | operation), allow);
        }
        assert_eq!(say(libc::SYS_prctl, high | 22), absent);
        assert_eq!(say(libc::SYS_prctl, high | 35), denied);
        assert_eq!(say(libc::SYS_prctl, high | 15), allow);
        assert_eq!(say(libc::SYS_personality, high | 0x40000), denied);
        assert_eq!(say(libc::SYS_personality, high | 0x240001), denied);
        for harmless in [0, 8, 0xffff_ffff] {
            assert_eq!(say(libc::SYS_personality, high | harmless), allow);
        }
    }
    assert_eq!(say(libc::SYS_brk, 0), ask);
    assert_eq!(say(libc::SYS_brk, 1 << 32), allow);
    for other in [libc::SYS_read, libc::SYS_set_tid_address] {
        assert_eq!(say(other, 0), allow);
    }
    // The same calls under the numbers of another ABI don't exist.
    for call in [520, 545, libc::SYS_seccomp, libc::SYS_execve] {
        assert_eq!(say(call | i64::from(X32_BIT), 1), Action::Errno(38).code());
    }
}

/// What names an address is asked about; what goes where a connection leads is not.
#[cfg(target_arch = "x86_64")]
#[test]
fn calls_that_name_an_address_are_asked_about() {
    let mediated = crate::mediate::MediatedCalls {
        addresses: true,
        ..Default::default()
    };
    let program = crate::mediate::filter(mediated);
    let say_of = |number: i64, descriptor: u64, address: u64| {
        let call = Call {
            number: number as u32,
            arch: Arch::X86_64.audit_code(),
            arguments: [descriptor, 0x1000, 5, 0, address, 16],
        };
        run(&program, call)
    };
    let say = |number: i64, address: u64| say_of(number, 3, address);
    let (ask, allow) = (Action::Notify.code(), Action::Allow.code());
    for call in [libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_sendmmsg] {
        assert_eq!(say(call, 0), ask);
    }
    assert_eq!(say(libc::SYS_sendto, 0), allow);
    for address in [1, 1 << 32, 1 << 63, u64::MAX] {
        assert_eq!(say(libc::SYS_sendto, address), ask);
    }
    // But for the one that hands out who is asked.
    let handoff = u64::from(crate::mediate::HANDOFF);
    for high in [0, 1 << 32] {
        assert_eq!(say_of(libc::SYS_sendmsg, high | handoff, 0), allow);
        assert_eq!(say_of(libc::SYS_sendmmsg, high | handoff, 0), ask);
        assert_eq!(say_of(libc::SYS_sendmsg, high | (handoff - 1), 0), ask);
    }
    for call in [libc::SYS_write, libc::SYS_recvmsg, libc::SYS_bind] {
        assert_eq!(say(call, 1), allow);
    }
}
