//! Feeds mutated bytes to everything that reads from inside the sandbox. The same entry function is
//! fuzzed with coverage in `fuzz/`.

#[path = "../../../fuzz/egress.rs"]
mod entry;

const INPUTS: usize = 20_000;

#[test]
fn a_sandbox_can_send_anything() {
    let fuzzer = entry::Gate::new();
    for (kind, seeds) in entry::SEEDS.iter().enumerate() {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ kind as u64);
        let mut accepted = 0;
        for seed in *seeds {
            assert!(
                fuzzer.read(kind, seed),
                "{kind}: {:?}",
                String::from_utf8_lossy(seed)
            );
        }
        for _ in 0..INPUTS {
            let mut input = seeds[random.below(seeds.len())].to_vec();
            for _ in 0..=random.below(3) {
                random.change(&mut input);
            }
            accepted += usize::from(fuzzer.read(kind, &input));
        }
        assert!(
            (INPUTS / 100..INPUTS).contains(&accepted),
            "{kind}: {accepted}"
        );
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(5) {
            0 => input.truncate(at),
            1 => input.insert(at, self.below(256) as u8),
            2 if !input.is_empty() => drop(input.remove(at)),
            3 if !input.is_empty() => {
                input[at] = [0, 0xff, b'.', b':', b'\n', b'*', b'%'][self.below(7)]
            }
            _ if !input.is_empty() => input[at] ^= 1 << self.below(8),
            _ => {}
        }
    }
}
