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
