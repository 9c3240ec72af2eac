//! Interpreters and environment variables of an image.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use brig_guest_host::link::{Guard, GuestInstance, Interpreters};
use brig_guest_host::listeners;
use brig_sandbox::{Language, Plan, Result, env};

use crate::image::Image;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// By their names, best first.
const NAMES: [(Language, &[&str]); 3] = [
    (Language::Python, &["python3", "python"]),
    (Language::Bash, &["bash"]),
    (Language::Node, &["node", "nodejs"]),
];

/// The interpreters of known images, by the id of the image.
#[derive(Debug, Default)]
pub(crate) struct KnownInterpreters(Mutex<HashMap<String, Interpreters>>);

impl KnownInterpreters {
    /// Asks the guest, once for each image.
    pub(crate) async fn interpreters<G: Guard>(
        &self,
        image: &Image,
        guest: &GuestInstance<G>,
    ) -> Result<Interpreters> {
        let known = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&image.id)
            .cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let names: Vec<&str> = NAMES
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .collect();
        let mut found = guest.find(&names, path(image)).await?.into_iter();
        let mut interpreters = Interpreters::default();
        for (language, names) in NAMES {
            let first = found
                .by_ref()
                .take(names.len())
                .flatten()
                .collect::<Vec<_>>();
            if let Some(program) = first.into_iter().next() {
                interpreters.set(language, program);
            }
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(image.id.clone(), interpreters.clone());
        Ok(interpreters)
    }
}

/// The `PATH` of the image.
pub(crate) fn path(image: &Image) -> &str {
    let given = image.env.iter().find(|(name, _)| name == "PATH");
    given.map_or(PATH, |(_, path)| path.as_str())
}

/// The environment of every program: variables of the image that a caller could set too, those of every
/// sandbox, and those of the plan. Each name once: programs take the first one, which would be the image's.
pub(crate) fn variables(image: &Image, plan: &Plan) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = vec![("LANG".into(), "C.UTF-8".into())];
    let harmless = |(name, value): &&(String, String)| env::check(name, value).is_ok();
    let of_image = image.env.iter().filter(harmless).cloned();
    let fixed = [
        ("PATH", path(image)),
        ("HOME", plan.home()),
        ("USER", "nobody"),
        ("LOGNAME", "nobody"),
        // Unbuffered, so that the output of a killed run is not lost.
        ("PYTHONUNBUFFERED", "1"),
    ];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let own = fixed.into_iter().chain(listeners::env(plan));
    for (name, value) in of_image.chain(own).chain(plan.env().iter().cloned()) {
        variables.retain(|(other, _)| *other != name);
        variables.push((name, value));
    }
    variables
}
