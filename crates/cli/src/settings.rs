//! `brig config show`: what applies unless a flag says otherwise, and where it comes from.

use brig_config::UserConfig;
use brig_sandbox::Limits;
use serde_json::{Value, json};

use crate::args::{SettingsCommand, SettingsShowArgs};
use crate::failure::{self, Failure};
use crate::{backend, json, state, table, units, user, write_out};

pub(crate) fn run(command: &SettingsCommand) -> u8 {
    let SettingsCommand::Show(args) = command;
    show(args).unwrap_or_else(|failure| {
        failure.report(args.json);
        failure.exit()
    })
}

fn show(args: &SettingsShowArgs) -> Result<u8, Failure> {
    let store = user::store()?;
    let config = user::load(&store)?;
    let policy = user::default_policy(&store, &config);
    let policy = policy.map(|policy| policy.display().to_string());
    let settings = settings(&config, policy);
    let (file, there) = (store.path(), store.path().exists());
    if args.json {
        let settings: Vec<Value> = settings.iter().map(Setting::json).collect();
        json::print(&json!({
            "file": file,
            "exists": there,
            "state": state::directory()?,
            "settings": settings,
        }));
        return Ok(0);
    }
    let rows: Vec<[String; 3]> = settings.into_iter().map(Setting::row).collect();
    failure::note(&match there {
        true => format!("config.yaml is `{}`", file.display()),
        false => format!("there is no `{}`", file.display()),
    });
    let text = table::text(["SETTING", "VALUE", "FROM"], &rows);
    Ok(write_out(text.as_bytes()))
}

struct Setting {
    name: String,
    value: Option<String>,
    /// Whether the user's configuration sets it.
    own: bool,
}

impl Setting {
    /// The user's value, or else the built-in one.
    fn new(name: &str, own: Option<String>, built_in: Option<String>) -> Self {
        Self {
            name: name.into(),
            own: own.is_some(),
            value: own.or(built_in),
        }
    }

    fn from(&self) -> &'static str {
        if self.own { "config.yaml" } else { "built in" }
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "value": self.value, "from": self.from() })
    }

    fn row(self) -> [String; 3] {
        let from = self.from().into();
        [self.name, self.value.unwrap_or_else(|| "-".into()), from]
    }
}

fn settings(config: &UserConfig, policy: Option<String>) -> Vec<Setting> {
    let built_in = Limits::default();
    let (defaults, set) = (config.defaults(), &config.defaults().limits);
    let time = |time: std::time::Duration| {
        units::duration(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    };
    let size = |bytes: u64| Some(units::size(bytes));
    let mut all = vec![
        Setting::new(
            "backend",
            defaults.backend.clone(),
            Some(backend::DEFAULT.into()),
        ),
        Setting::new("policy", policy, None),
        Setting::new(
            "timeout",
            set.timeout.map(time),
            Some(format!(
                "{}, 24h with -t and for agents",
                time(built_in.timeout.value)
            )),
        ),
        Setting::new(
            "memory",
            set.memory.map(units::size),
            size(built_in.memory_bytes.value),
        ),
        Setting::new(
            "cpu",
            set.cpu.map(|cpu| cpu.to_string()),
            Some(built_in.cpus.value.to_string()),
        ),
        Setting::new(
            "pids",
            set.pids.map(|pids| pids.to_string()),
            Some(built_in.processes.value.to_string()),
        ),
        Setting::new(
            "disk",
            set.disk.map(units::size),
            size(built_in.disk_bytes.value),
        ),
        Setting::new(
            "output-max",
            set.output_max.map(units::size),
            size(built_in.output_bytes.value),
        ),
        Setting::new(
            "sandbox",
            config.sandbox().map(|on| on.to_string()),
            Some("true, unless a trusted agent file says false".into()),
        ),
    ];
    for (name, value) in &defaults.options {
        all.push(Setting::new(name, Some(value.clone()), None));
    }
    for (name, backend) in config.backends() {
        let name = format!("backend {}:{name}", backend.kind);
        all.push(Setting::new(&name, Some("configured".into()), None));
    }
    let hosts = |rules: &[brig_hosts::Rule]| {
        let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
        (!rules.is_empty()).then(|| rules.join(", "))
    };
    all.push(Setting::new("allowed hosts", hosts(config.allow()), None));
    all.push(Setting::new("blocked hosts", hosts(config.block()), None));
    for (name, alias) in config.aliases() {
        let name = format!("alias {name}");
        all.push(Setting::new(
            &name,
            Some(alias.path.display().to_string()),
            None,
        ));
    }
    all
}
