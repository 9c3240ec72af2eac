//! The sandbox group: each reason why it can't be used has its code and its fix.

use brig_sandbox::{Backend, SessionConfig};
use serde_json::json;

use crate::stand_in::{Fault, StandIn};

async fn cause(stand_in: &StandIn, more: &[(&str, &str)]) -> (String, String) {
    let backend = stand_in.backend_with(more);
    let cause = backend.probe(&SessionConfig::default()).await.unwrap_err();
    let finding = backend.findings(None).await;
    assert_eq!(finding.len(), 1);
    (cause.code.code().to_owned(), cause.fix.unwrap_or_default())
}

#[tokio::test]
async fn a_group_that_can_be_used_is_looked_up_once() {
    let stand_in = StandIn::start().await;
    let backend = stand_in.backend();
    for _ in 0..3 {
        backend.probe(&SessionConfig::default()).await.unwrap();
    }
    assert_eq!((stand_in.count("arm get"), stand_in.count("list")), (1, 1));
    let findings = backend.findings(None).await;
    assert!(
        findings[0].good && findings[0].detail.contains("rg-1/group-1"),
        "{findings:?}"
    );
    stand_in.check_clean();
}

#[tokio::test]
async fn a_missing_role_is_named_with_the_command() {
    let stand_in = StandIn::start().await;
    stand_in.fail("list", Fault::Status(403, ""));
    let (code, fix) = cause(&stand_in, &[]).await;
    assert_eq!(code, "azure.role");
    assert!(
        fix.contains("az role assignment create") && fix.contains("Data Owner"),
        "{fix}"
    );
    stand_in.fail("arm get", Fault::Status(403, "AuthorizationFailed"));
    let (code, fix) = cause(&stand_in, &[]).await;
    assert_eq!(code, "azure.role");
    assert!(fix.contains("--role \"Reader\""), "{fix}");
    stand_in.check_clean();
}

#[tokio::test]
async fn a_missing_group_is_named_or_created() {
    let stand_in = StandIn::start().await;
    stand_in.state().group = None;
    let (code, fix) = cause(&stand_in, &[]).await;
    assert_eq!(code, "azure.group");
    assert!(
        fix.contains("ensure_group_location") && fix.contains("az rest --method put"),
        "{fix}"
    );
    assert_eq!(
        stand_in.count("arm create"),
        0,
        "nothing is created unasked"
    );

    // A new group is not known everywhere at once, nor is a role in it.
    for (title, command) in [
        ("ResourceGroupNotFound", "az group create --name rg-1"),
        ("SubscriptionNotFound", "az account list"),
    ] {
        stand_in.fail("arm get", Fault::Status(404, title));
        let (code, fix) = cause(&stand_in, &[]).await;
        assert_eq!(code, "azure.group");
        assert!(fix.contains(command), "{fix}");
    }
    stand_in.fail("list", Fault::Status(404, "SandboxGroupNotFound"));
    stand_in.fail("list", Fault::Status(404, "SandboxGroupNotFound"));
    stand_in.fail("list", Fault::Status(403, ""));
    let backend = stand_in.backend_with(&[("ensure-group-location", "eastus2")]);
    backend.probe(&SessionConfig::default()).await.unwrap();
    assert_eq!(stand_in.count("arm create"), 1);
    let other = stand_in.backend_with(&[("ensure-group-location", "eastus2")]);
    other.probe(&SessionConfig::default()).await.unwrap();
    assert_eq!(stand_in.count("arm create"), 1, "it exists");
    stand_in.check_clean();
}

#[tokio::test]
async fn a_group_with_an_identity_is_refused_unless_it_is_accepted() {
    let stand_in = StandIn::start().await;
    stand_in.state().group = Some(json!({"identity": {"type": "SystemAssigned"}}));
    let (code, fix) = cause(&stand_in, &[]).await;
    assert_eq!(code, "azure.identity");
    assert!(
        fix.contains("group_identity: allow") && fix.contains("az rest --method patch"),
        "{fix}"
    );
    assert_eq!(stand_in.count("create"), 0);
    let backend = stand_in.backend_with(&[("group-identity", "allow")]);
    backend.probe(&SessionConfig::default()).await.unwrap();
    stand_in.check_clean();
}

#[tokio::test]
async fn a_wrong_token_is_not_a_missing_role() {
    let stand_in = StandIn::start().await;
    stand_in.fail("list", Fault::Status(401, "Unauthorized"));
    let (code, fix) = cause(&stand_in, &[]).await;
    assert_eq!(code, "azure.credential");
    assert!(fix.contains("az login --scope api://stand-in/"), "{fix}");
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_unreachable() {
    let stand_in = StandIn::start().await;
    // Nobody listens on port 1.
    let (code, fix) = cause(
        &stand_in,
        &[
            ("group-identity", "allow"),
            ("endpoint", "https://localhost:1"),
        ],
    )
    .await;
    assert_eq!(code, "azure.unreachable");
    assert!(fix.contains("curl -sSI https://localhost:1"), "{fix}");
}

/// Positive control: with the same file it works in every other test.
#[tokio::test]
async fn a_certificate_that_nobody_trusts_is_refused() {
    let (stand_in, other) = (StandIn::start().await, StandIn::start().await);
    let pem = other.settings()["ca-file"].clone();
    let (code, _) = cause(&stand_in, &[("ca-file", &pem)]).await;
    assert_eq!(code, "azure.unreachable");
    assert!(stand_in.state().log.is_empty(), "nothing was sent");
}
