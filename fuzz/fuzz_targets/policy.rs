#![no_main]

#[path = "../policy.rs"]
mod policy;

use brig_policy::Compat;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((kind, data)) = data.split_first() else {
        return;
    };
    match kind % 5 {
        0 => drop(policy::load("p.yaml", data, Compat::Strict)),
        1 => drop(policy::load("p.yaml", data, Compat::Agt)),
        2 => drop(policy::load("p.json", data, Compat::Strict)),
        3 => drop(policy::load("p.json", data, Compat::Agt)),
        _ => policy::read(data),
    }
});
