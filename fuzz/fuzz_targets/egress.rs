#![no_main]

#[path = "../egress.rs"]
mod egress;

use std::sync::LazyLock;

static GATE: LazyLock<egress::Gate> = LazyLock::new(egress::Gate::new);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some((kind, data)) = data.split_first() {
        GATE.read(usize::from(*kind), data);
    }
});
