"""The provider of the Agent Governance Toolkit, on the same engine. For every line on its input it
creates a session, runs code in it twice, destroys it, and prints the milliseconds of create, the
second run and destroy."""

import sys
import time
import warnings

import docker

warnings.simplefilter("ignore")
from agent_sandbox import DockerSandboxProvider, IsolationRuntime

url, image = sys.argv[1:]
# It calls `python`, which the image has under another name.
named = docker.DockerClient(base_url=url).containers.run(
    image, ["ln", "-sf", "python3", "/usr/bin/python"], detach=True, network_disabled=True
)
named.wait()
image = named.commit("brig-bench-agt").id
named.remove()
provider = DockerSandboxProvider(image=image, docker_url=url, runtime=IsolationRuntime.RUNC)

# It asks for profiles by names that no engine takes, or that this one does not have.
run = provider._client.containers.run
provider._client.containers.__class__.run = lambda _, **given: run(
    **{**given, "security_opt": ["no-new-privileges"]}
)


def timed(work):
    began = time.monotonic()
    result = work()
    return result, (time.monotonic() - began) * 1e3


for _ in sys.stdin:
    session, create = timed(lambda: provider.create_session("bench"))
    names = (session.agent_id, session.session_id)
    provider.execute_code(*names, "pass")
    handle, again = timed(lambda: provider.execute_code(*names, "pass"))
    assert handle.result.success, handle.result
    _, destroy = timed(lambda: provider.destroy_session(*names))
    print(create, again, destroy, flush=True)
