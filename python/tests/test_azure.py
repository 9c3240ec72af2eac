"""The backend for Azure, as far as it goes without a network: what it is missing, and what it is given."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

import brig
from brig import _config, _native
from brig.agent_sandbox import ACASandboxProvider, BrigSandboxProvider
from conftest import skipped

COMPLETE = {
    "subscription": "sub",
    "resource_group": "rg",
    "sandbox_group": "group",
    "region": "eastus2",
}


@pytest.fixture(autouse=True)
def nothing_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "AZURE_SUBSCRIPTION_ID", "ACA_RESOURCE_GROUP", "ACA_SANDBOX_GROUP", "ACA_REGION", "AZURE_SANDBOX_REGION",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def built() -> None:
    if "aca" not in _native.backends():
        why = "Azure: the package is built without it"
        skipped(why)
        pytest.skip(why)


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize("missing", COMPLETE)
def test_what_is_missing_is_named(missing: str) -> None:
    given = {name: value for name, value in COMPLETE.items() if name != missing}
    with pytest.raises(brig.Unavailable) as refused:
        brig.run(["true"], backend="aca", azure=given)
    assert refused.value.code == "azure.settings"
    assert f"`{missing}`" in refused.value.message


@pytest.mark.usefixtures("built")
def test_what_is_wrong_is_named() -> None:
    for name, value in (("region", "East US"), ("resource_group", "a/../b"), ("endpoint", "http://x"), ("nothing", "x")):
        with pytest.raises(brig.InvalidArgument, match=name.replace("_", "[-_]")):
            brig.run(["true"], backend="aca", azure={**COMPLETE, name: value})


@pytest.mark.usefixtures("built")
def test_a_token_goes_only_to_hosts_of_azure() -> None:
    with pytest.raises(brig.Unavailable, match="no token for Azure is sent there"):
        brig.run(["true"], backend="aca", azure={**COMPLETE, "endpoint": "https://example.com"})


def test_an_unknown_backend_is_named_with_those_that_are_there() -> None:
    with pytest.raises(brig.Unavailable, match="`magic` is unknown") as unknown:
        brig.run(["true"], backend="magic")  # type: ignore[arg-type]
    assert unknown.value.code == "backend.unknown"
    assert "native, docker" in str(unknown.value.hint)


def test_a_credential_gives_tokens() -> None:
    asked: list[str] = []

    class Credential:
        def get_token(self, *scopes: str) -> Any:
            asked.extend(scopes)
            return SimpleNamespace(token="secret", expires_on=1234.5)

    made = _config.parts({"azure": {"region": "eastus2", "credential": Credential()}}, [])
    assert json.loads(made.setup)["settings"]["aca"] == {"region": "eastus2"}
    assert made.credential is not None
    assert made.credential("scope", None) == ("secret", 1234)
    assert asked == ["scope"]
    named = _config.parts({"azure": {"credential": "azure-cli"}}, [])
    assert named.credential is None
    assert json.loads(named.setup)["settings"]["aca"] == {"credential": "azure-cli"}


@pytest.mark.usefixtures("built")
def test_a_token_without_a_valid_end_is_an_error() -> None:
    """Nothing is sent: there is no token to send."""

    class Credential:
        def get_token(self, *_: str) -> Any:
            return SimpleNamespace(token="secret", expires_on=2**63)

    with pytest.raises(brig.Error, match="no valid end: 9223372036854775808"):
        brig.run(["true"], backend="aca", azure={**COMPLETE, "credential": Credential()})


def settings(provider: BrigSandboxProvider) -> dict[str, Any]:
    return dict(provider._options["azure"])


def test_the_arguments_of_agt_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    credential = object()
    provider = ACASandboxProvider(
        "rg",
        "group",
        region="eastus2",
        endpoint="https://management.eastus2.azuredevcompute.io/",
        subscription_id="sub",
        credential=credential,
        disk="python-3.12",
        ensure_group_location="westus2",
    )
    assert settings(provider) == {
        "resource_group": "rg",
        "sandbox_group": "group",
        "subscription": "sub",
        "region": "eastus2",
        "endpoint": "https://management.eastus2.azuredevcompute.io",
        "ensure_group_location": "westus2",
        "credential": credential,
    }
    assert provider._options["image"] == "python-3.12"
    assert settings(ACASandboxProvider("rg", "group", ensure_group_location="westus2"))["region"] == "westus2"
    monkeypatch.setenv("AZURE_SANDBOX_REGION", "northeurope")
    assert settings(ACASandboxProvider("rg", "group"))["region"] == "northeurope"


@pytest.mark.usefixtures("built")
def test_a_provider_says_what_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = ACASandboxProvider("rg", "group", subscription_id="sub")
    assert not nowhere.is_available()
    assert "needs `region=`" in str(nowhere.unavailable_reason)
    with pytest.raises(RuntimeError, match="ACASandboxProvider is not available: .*region"):
        nowhere.create_session("a")
    nobody = ACASandboxProvider("rg", "group", region="eastus2")
    assert "subscription_id" in str(nobody.unavailable_reason)
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "sub")
    with ACASandboxProvider("rg", "group", region="eastus2") as complete:
        # As in AGT: nothing was asked of Azure yet.
        assert complete.is_available() and complete.unavailable_reason is None
        with pytest.raises(ValueError, match="Invalid agent_id"):
            complete.create_session("a b")
    with pytest.raises(ValueError, match="Invalid sandbox_group"):
        ACASandboxProvider("rg", "a.b")
    # The service is never reached: this is found first.
    wrong = ACASandboxProvider("a/../b", "group", region="eastus2")
    with pytest.raises((ValueError, RuntimeError), match="resource[-_]group"):
        wrong.create_session("a")
