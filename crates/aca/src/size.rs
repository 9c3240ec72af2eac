//! Limits as a size of the service. Which sizes between the listed ones it accepts is not known, so no other
//! is asked for.

use brig_sandbox::Limits;
use brig_sandbox::config::MIB;
use serde_json::{Value, json};

/// One size, smallest first in [`SIZES`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub name: &'static str,
    pub millicpus: u32,
    pub memory_mib: u64,
}

static SIZES: [Size; 5] = [
    Size {
        name: "XS",
        millicpus: 250,
        memory_mib: 512,
    },
    Size {
        name: "S",
        millicpus: 500,
        memory_mib: 1024,
    },
    Size {
        name: "M",
        millicpus: 1000,
        memory_mib: 2048,
    },
    Size {
        name: "L",
        millicpus: 2000,
        memory_mib: 4096,
    },
    Size {
        name: "XL",
        millicpus: 4000,
        memory_mib: 8192,
    },
];

/// The size for some limits, and which of them it holds.
#[derive(Debug)]
pub(crate) struct Fit {
    pub size: &'static Size,
    pub cpu: bool,
    pub memory: bool,
}

/// The largest size within both limits; if none is, the smallest.
pub(crate) fn fit(limits: &Limits) -> Fit {
    let cpu = |size: &Size| f64::from(size.millicpus) <= limits.cpus.value * 1000.0;
    let memory = |size: &Size| size.memory_mib * MIB <= limits.memory_bytes.value;
    let within = SIZES.iter().rev().find(|size| cpu(size) && memory(size));
    let size = within.unwrap_or(&SIZES[0]);
    Fit {
        size,
        cpu: cpu(size),
        memory: memory(size),
    }
}

/// What no size can give although it was asked for.
pub(crate) fn too_much(limits: &Limits) -> Option<String> {
    let largest = &SIZES[SIZES.len() - 1];
    let cpu = limits.cpus.asked && limits.cpus.value * 1000.0 > f64::from(largest.millicpus);
    let memory = limits.memory_bytes.asked && limits.memory_bytes.value > largest.memory_mib * MIB;
    (cpu || memory).then(|| format!("the largest size of the service has {}", largest.text()))
}

impl Size {
    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": format!("{}m", self.millicpus),
            "memory": format!("{}Mi", self.memory_mib),
        })
    }

    pub(crate) fn text(&self) -> String {
        let cpus = f64::from(self.millicpus) / 1000.0;
        format!(
            "{cpus} CPUs and {} MiB (size {})",
            self.memory_mib, self.name
        )
    }

    /// Whether this is what the service says it gave.
    pub(crate) fn is(&self, resources: &Value) -> bool {
        given(resources) == Some((self.millicpus.into(), self.memory_mib))
    }

    /// Whether the service gave no more than this.
    pub(crate) fn holds(&self, resources: &Value) -> bool {
        given(resources)
            .is_some_and(|(cpu, memory)| cpu <= self.millicpus.into() && memory <= self.memory_mib)
    }
}

/// Thousandths of a processor, and MiB.
fn given(resources: &Value) -> Option<(u64, u64)> {
    let cpu = resources["cpu"].as_str()?;
    let cpu = match cpu.strip_suffix('m') {
        Some(text) => text.parse().ok()?,
        None => thousandths(cpu)?,
    };
    let memory = resources["memory"].as_str()?;
    let memory = match memory.strip_suffix("Gi") {
        Some(text) => thousandths(text)? * 1024 / 1000,
        None => memory.strip_suffix("Mi")?.parse().ok()?,
    };
    Some((cpu, memory))
}

/// Of a decimal number such as `0.25`.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{part:0<3}");
    if digits.len() > 3 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1000)?.checked_add(digits.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use brig_sandbox::Limit;

    use super::*;

    fn limits(cpus: f64, memory_mib: u64) -> Limits {
        Limits {
            cpus: Limit::asked(cpus),
            memory_bytes: Limit::asked(memory_mib * MIB),
            ..Limits::default()
        }
    }

    #[test]
    fn the_largest_size_within_both_limits_is_taken() {
        for (cpus, memory, size) in [
            (1.0, 512, "XS"),
            (1.0, 2048, "M"),
            (1.9, 8192, "M"),
            (4.0, 8192, "XL"),
            (0.25, 100_000, "XS"),
        ] {
            let fit = fit(&limits(cpus, memory));
            assert_eq!((fit.size.name, fit.cpu, fit.memory), (size, true, true));
        }
        assert_eq!(fit(&Limits::default()).size.name, "XS");
    }

    #[test]
    fn limits_that_no_size_enforces_are_reported() {
        let small = fit(&limits(0.1, 512));
        assert_eq!((small.cpu, small.memory), (false, true));
        let small = fit(&limits(1.0, 128));
        assert_eq!((small.cpu, small.memory), (true, false));
        assert!(too_much(&limits(8.0, 1024)).is_some());
        assert!(too_much(&limits(1.0, 16_384)).is_some());
        assert!(too_much(&limits(4.0, 8192)).is_none());
    }

    #[test]
    fn what_the_service_says_is_read_in_every_form() {
        let size = &SIZES[2];
        for (cpu, memory) in [("1000m", "2048Mi"), ("1", "2Gi"), ("1.0", "2.0Gi")] {
            assert!(
                size.is(&json!({"cpu": cpu, "memory": memory})),
                "{cpu} {memory}"
            );
        }
        for (cpu, memory) in [
            ("2", "2Gi"),
            ("1", "4Gi"),
            ("1", "x"),
            ("", "2Gi"),
            ("1", "2G"),
        ] {
            assert!(
                !size.is(&json!({"cpu": cpu, "memory": memory})),
                "{cpu} {memory}"
            );
        }
        assert!(!size.is(&Value::Null));
        assert!(size.holds(&json!({"cpu": "0.25", "memory": "512Mi"})));
        assert!(!size.holds(&json!({"cpu": "2", "memory": "512Mi"})));
    }
}
