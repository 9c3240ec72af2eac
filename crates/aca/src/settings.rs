//! What can be configured: flags, help, checks and documentation are made from these lists.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brig_reason::ReasonCode;
use brig_sandbox::backend::{BackendKind, OptionSpec, Options as Values, any};
use brig_sandbox::{BackendId, Error, Result, Unavailable};
use reqwest::Url;

use crate::account::{Account, endpoint};
use crate::api;
use crate::credentials::{Choice, TokenSource};

pub(crate) const IMAGE: &str = "image";

/// What can be said of the backend without an account.
pub static KIND: BackendKind = BackendKind {
    name: "aca",
    title: "Azure",
    options: &[OptionSpec {
        name: IMAGE,
        value_name: "NAME",
        help: "The disk image: the name of a public one, or `id:ID` of one of the group [default: python-3.13]",
        check: check_image,
    }],
    settings: &[
        OptionSpec {
            name: "subscription",
            value_name: "ID",
            help: "The subscription [default: AZURE_SUBSCRIPTION_ID]",
            check: check_segment,
        },
        OptionSpec {
            name: "resource-group",
            value_name: "NAME",
            help: "The resource group, which must exist [default: ACA_RESOURCE_GROUP]",
            check: check_segment,
        },
        OptionSpec {
            name: "sandbox-group",
            value_name: "NAME",
            help: "The sandbox group [default: ACA_SANDBOX_GROUP]",
            check: check_segment,
        },
        OptionSpec {
            name: "region",
            value_name: "NAME",
            help: "The region of the sandbox group, such as eastus2 [default: ACA_REGION]",
            check: check_region,
        },
        OptionSpec {
            name: "ensure-group-location",
            value_name: "REGION",
            help: "Create the sandbox group there if it does not exist",
            check: check_region,
        },
        OptionSpec {
            name: "group-identity",
            value_name: "refuse|allow",
            help: "Whether a group with a managed identity may be used: code can get its tokens [default: refuse]",
            check: check_identity,
        },
        OptionSpec {
            name: "credential",
            value_name: "NAME",
            help: "Where tokens come from: auto, client-secret, workload-identity, managed-identity, azure-cli or developer-tools [default: auto]",
            check: check_credential,
        },
        OptionSpec {
            name: "api-version",
            value_name: "VERSION",
            help: "The API version of the service [default: 2026-02-01-preview]",
            check: check_version,
        },
        OptionSpec {
            name: "endpoint",
            value_name: "URL",
            help: "The address of the service, in place of that of the region. A host that is not Azure's needs `scope` too",
            check: check_url,
        },
        OptionSpec {
            name: "scope",
            value_name: "SCOPE",
            help: "The scope of tokens for the service [default: that of the API version]",
            check: any,
        },
        OptionSpec {
            name: "arm-endpoint",
            value_name: "URL",
            help: "The address of Azure Resource Manager. A host that is not Azure's needs `arm_scope` too",
            check: check_url,
        },
        OptionSpec {
            name: "arm-scope",
            value_name: "SCOPE",
            help: "The scope of tokens for Azure Resource Manager",
            check: any,
        },
        OptionSpec {
            name: "ca-file",
            value_name: "FILE",
            help: "A PEM file with certificate authorities to trust, beside those of the system",
            check: any,
        },
    ],
    mounts_scripts: false,
};

const DEFAULT_IMAGE: &str = "python-3.13";
/// Lists the groups with their resource groups and regions.
const FIND_GROUP: &str =
    "az resource list --resource-type Microsoft.App/sandboxGroups --output table";
const ARM: &str = "https://management.azure.com";
const ARM_SCOPE: &str = "https://management.azure.com/.default";

/// Where sandboxes are created, and how.
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) id: BackendId,
    pub(crate) values: Values,
    pub(crate) tokens: Option<Arc<dyn TokenSource>>,
    pub(crate) timing: Timing,
    environment: fn(&str) -> Option<String>,
}

/// How long things may take, and how often they are asked for.
#[derive(Clone, Debug)]
pub struct Timing {
    /// Until a request without a large body must be answered.
    pub request: Duration,
    /// Until a request that creates, saves or copies must be answered.
    pub slow_request: Duration,
    /// Before a request is repeated that may be. Doubled each time.
    pub retry: Duration,
    /// Between two looks at a state that changes.
    pub poll: Duration,
    /// Until a sandbox must run, or be gone.
    pub settle: Duration,
    /// How long a sandbox is looked for whose creation was not answered.
    pub lookup: Duration,
    /// How long a new group may be unusable.
    pub new_group: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            request: Duration::from_secs(60),
            slow_request: Duration::from_secs(300),
            retry: Duration::from_millis(500),
            poll: Duration::from_secs(2),
            settle: Duration::from_secs(300),
            lookup: Duration::from_secs(20),
            new_group: Duration::from_secs(20 * 60),
        }
    }
}

impl Options {
    /// With settings of the user's configuration. What is missing is taken from the environment.
    pub fn configured(id: BackendId, settings: &Values) -> Result<Self> {
        KIND.check_settings(&id, settings)?;
        Ok(Self {
            id,
            values: settings.clone(),
            tokens: None,
            timing: Timing::default(),
            environment: |name| std::env::var(name).ok().filter(|value| !value.is_empty()),
        })
    }

    /// Takes tokens from there.
    #[must_use]
    pub fn with_tokens(self, tokens: Arc<dyn TokenSource>) -> Self {
        Self {
            tokens: Some(tokens),
            ..self
        }
    }

    /// Waits differently.
    #[must_use]
    pub fn with_timing(self, timing: Timing) -> Self {
        Self { timing, ..self }
    }

    pub(crate) fn image(&self) -> &str {
        self.values.get(IMAGE).map_or(DEFAULT_IMAGE, String::as_str)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    /// `find`: a command that shows what it can be.
    fn needed(
        &self,
        name: &'static str,
        variable: &str,
        find: &str,
    ) -> Result<String, Unavailable> {
        let found = self.value(name).map(str::to_owned);
        let value = found.or_else(|| (self.environment)(variable));
        let value = value.ok_or_else(|| Unavailable {
            code: ReasonCode::AzureSettings,
            reason: format!("the setting `{}` is missing", key(name)),
            fix: Some(format!(
                "set `{}` under `backends` in config.yaml, or `export {variable}=…`; to find it: {find}",
                key(name)
            )),
        })?;
        let spec = KIND.settings.iter().find(|spec| spec.name == name);
        let check = spec.map_or(any as fn(&str) -> _, |spec| spec.check);
        check(&value).map_err(|problem| invalid(name, problem))?;
        Ok(value)
    }

    /// What is missing is named with the step that adds it.
    pub(crate) fn account(&self) -> Result<Account, Unavailable> {
        let subscription = self.needed(
            "subscription",
            "AZURE_SUBSCRIPTION_ID",
            "az account show --query id --output tsv",
        )?;
        let resource_group = self.needed(
            "resource-group",
            "ACA_RESOURCE_GROUP",
            "az group list --output table",
        )?;
        let group = self.needed("sandbox-group", "ACA_SANDBOX_GROUP", FIND_GROUP)?;
        let api = api::of(self.value("api-version").unwrap_or(api::DEFAULT))
            .ok_or_else(|| invalid("api-version", "it is unknown".into()))?;
        let service = match self.value("endpoint") {
            Some(given) => endpoint("endpoint", given, self.value("scope"), api.scope)?,
            None => {
                let region = self.needed("region", "ACA_REGION", FIND_GROUP)?;
                let host = format!("https://management.{region}.azuredevcompute.io");
                let scope = self.value("scope").unwrap_or(api.scope);
                endpoint("region", &host, Some(scope), api.scope)?
            }
        };
        let arm = self.value("arm-endpoint").unwrap_or(ARM);
        let arm = endpoint("arm-endpoint", arm, self.value("arm-scope"), ARM_SCOPE)?;
        Ok(Account {
            api,
            service,
            arm,
            group_path: format!(
                "/subscriptions/{subscription}/resourceGroups/{resource_group}/sandboxGroups/{group}"
            ),
            arm_path: format!(
                "/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/Microsoft.App/sandboxGroups/{group}"
            ),
            resource_group,
            group,
            region: (self.value("region").map(str::to_owned))
                .or_else(|| (self.environment)("ACA_REGION")),
            ensure_location: self.value("ensure-group-location").map(str::to_owned),
            allows_identity: self.value("group-identity") == Some("allow"),
            credential: Choice::parse(self.value("credential").unwrap_or("auto")),
            ca_file: self.value("ca-file").map(PathBuf::from),
        })
    }
}

/// A setting as it is written in the configuration.
fn key(name: &str) -> String {
    name.replace('-', "_")
}

pub(crate) fn invalid(name: &'static str, problem: String) -> Unavailable {
    Unavailable {
        code: ReasonCode::InputConfig,
        reason: format!("invalid {}: {problem}", key(name)),
        fix: Some(format!("correct `{}` in config.yaml", key(name))),
    }
}

/// What becomes a part of a path must not change which path it is.
pub(crate) fn check_segment(text: &str) -> Result<(), String> {
    let fits = !text.is_empty()
        && text.len() <= 128
        && !text.contains("..")
        && (text.bytes()).all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
    match fits {
        true => Ok(()),
        false => Err(format!(
            "`{}` must be 1 to 128 of a-z A-Z 0-9 _ . -",
            text.escape_debug()
        )),
    }
}

/// It becomes a part of a host name.
fn check_region(text: &str) -> Result<(), String> {
    let fits = (1..=40).contains(&text.len())
        && (text.bytes()).all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    match fits {
        true => Ok(()),
        false => Err(format!(
            "`{}` is not the name of a region, such as eastus2",
            text.escape_debug()
        )),
    }
}

fn check_image(text: &str) -> Result<(), String> {
    check_segment(text.strip_prefix("id:").unwrap_or(text))
}

fn check_identity(text: &str) -> Result<(), String> {
    match text {
        "refuse" | "allow" => Ok(()),
        _ => Err("it must be `refuse` or `allow`".into()),
    }
}

fn check_credential(text: &str) -> Result<(), String> {
    match text == "auto" || Choice::parse(text).is_some() {
        true => Ok(()),
        false => Err(format!("`{}` is unknown", text.escape_debug())),
    }
}

fn check_version(text: &str) -> Result<(), String> {
    match api::of(text) {
        Some(_) => Ok(()),
        None => Err(format!(
            "`{}` is unknown; known: {}",
            text.escape_debug(),
            api::DEFAULT
        )),
    }
}

fn check_url(text: &str) -> Result<(), String> {
    match Url::parse(text) {
        Ok(url) if url.scheme() == "https" && url.path() == "/" && url.query().is_none() => Ok(()),
        _ => Err("it must be https://HOST or https://HOST:PORT".into()),
    }
}

/// The error of a step that needed the account.
pub(crate) fn unavailable(id: &BackendId, cause: Unavailable) -> Error {
    Error::Unavailable {
        backend: id.clone(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(values: &[(&str, &str)]) -> Options {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        let options = Options::configured(BackendId::of("aca"), &values.collect());
        Options {
            environment: |_| None,
            ..options.expect("settings")
        }
    }

    const COMPLETE: [(&str, &str); 4] = [
        ("subscription", "sub"),
        ("resource-group", "rg"),
        ("sandbox-group", "group"),
        ("region", "eastus2"),
    ];

    #[test]
    fn a_region_is_enough_for_the_endpoint() {
        let account = options(&COMPLETE).account().expect("an account");
        assert_eq!(
            account.service.url.as_str(),
            "https://management.eastus2.azuredevcompute.io/"
        );
        assert_eq!(account.service.scope, "https://dynamicsessions.io/.default");
        assert_eq!(
            account.group_path,
            "/subscriptions/sub/resourceGroups/rg/sandboxGroups/group"
        );
        assert_eq!(account.arm.url.as_str(), "https://management.azure.com/");
    }

    #[test]
    fn what_is_missing_is_named_with_a_fix() {
        for (missing, variable) in [
            ("subscription", "AZURE_SUBSCRIPTION_ID"),
            ("resource-group", "ACA_RESOURCE_GROUP"),
            ("sandbox-group", "ACA_SANDBOX_GROUP"),
            ("region", "ACA_REGION"),
        ] {
            let rest: Vec<_> = (COMPLETE.into_iter())
                .filter(|(name, _)| *name != missing)
                .collect();
            let cause = options(&rest).account().expect_err("refused");
            assert_eq!(cause.code, ReasonCode::AzureSettings);
            assert!(cause.reason.contains(&key(missing)), "{cause}");
            let fix = cause.fix.expect("a fix");
            assert!(fix.contains(variable) && fix.contains("az "), "{fix}");
        }
    }

    #[test]
    fn a_token_for_azure_goes_to_no_other_host() {
        let mut given = COMPLETE.to_vec();
        given.push(("endpoint", "https://azuredevcompute.io.evil.example"));
        let cause = options(&given).account().expect_err("refused");
        assert!(cause.reason.contains("no token"), "{cause}");
        given.push(("scope", "api://mine/.default"));
        let account = options(&given).account().expect("a scope of its own");
        assert_eq!(account.service.scope, "api://mine/.default");
        given[4].1 = "https://management.westus2.azuredevcompute.io";
        given.truncate(5);
        options(&given).account().expect("control: a host of Azure");
        given.push(("arm-endpoint", "https://arm.evil.example"));
        options(&given).account().expect_err("refused");
    }

    #[test]
    fn values_that_would_change_the_path_or_the_host_are_refused() {
        for (name, bad) in [
            ("subscription", "a/b"),
            ("resource-group", ".."),
            ("sandbox-group", ""),
            ("region", "eastus2.evil.example"),
            ("region", "eastus2/"),
            ("endpoint", "http://management.azuredevcompute.io"),
            ("endpoint", "https://management.azuredevcompute.io/path"),
            ("api-version", "1999-01-01"),
            ("image", "a/b"),
            ("credential", "magic"),
        ] {
            let values = [(name.to_owned(), bad.to_owned())].into();
            let refused = Options::configured(BackendId::of("aca"), &values);
            assert!(refused.is_err(), "{name}: {bad}");
        }
    }

    #[test]
    fn the_guide_has_every_option() {
        let guide = include_str!("../../../docs/guides/azure.md");
        let flags = KIND.options.iter().map(|spec| (spec.name.into(), spec));
        let settings = KIND.settings.iter().map(|spec| (key(spec.name), spec));
        for (name, spec) in flags.chain(settings) {
            let row = format!("| `{name}` | {} |\n", spec.help);
            assert!(guide.contains(&row), "{row}");
        }
        let lines = guide
            .lines()
            .skip_while(|line| *line != "    options:")
            .skip(1);
        let example: Vec<&str> = (lines.take_while(|line| line.starts_with("      ")))
            .filter_map(|line| Some(line.trim().split_once(':')?.0))
            .collect();
        assert_eq!(example.len(), 3, "control: {example:?}");
        for name in example {
            let known = KIND.settings.iter().any(|spec| key(spec.name) == name);
            assert!(known, "{name}");
        }
    }
}
