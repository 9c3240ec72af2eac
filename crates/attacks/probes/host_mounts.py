# Not a probe: plays the host, in a mount namespace whose mounts are shared. Prepares folders, starts
# a control and the owner of a sandbox, then mounts, moves and unmounts while both run.
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ARGS = json.loads(sys.argv[1])
BASE = ARGS["base"]
LIBC = ctypes.CDLL(None, use_errno=True)
MS_MOVE = 8192


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def move(source, target):
    """`mount --move` also writes to /run, which only root may."""
    if LIBC.mount(source.encode(), target.encode(), None, ctypes.c_ulong(MS_MOVE), None) != 0:
        raise OSError(ctypes.get_errno(), f"move to {target}")


def tmpfs(path):
    os.makedirs(path, exist_ok=True)
    mount("-t", "tmpfs", "-o", "size=1m,mode=0777", "brig-test", path)


def put(path):
    with open(path, "w") as file:
        file.write("x")
    os.chmod(path, 0o644)


def folder(path):
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o777)


def prepare():
    mount("-t", "tmpfs", "-o", "size=64m,mode=0777", "brig-test", BASE)
    mount("--make-shared", BASE)
    tmpfs(f"{BASE}/aside")
    mount("--make-private", f"{BASE}/aside")
    folder(f"{BASE}/signal")
    for name in ARGS["folders"]:
        folder(f"{BASE}/{name}")
    for place in ARGS["places"]:
        for kind in ("made", "moved", "nested"):
            path = place.get(kind)
            if path and path.startswith(BASE):
                folder(path)
        if place.get("nested"):
            tmpfs(place["nested"])
            put(place["nested"] + "/kept")
    if ARGS.get("root"):
        shutil.copytree(ARGS["root"], f"{BASE}/root", dirs_exist_ok=True)
        os.chmod(f"{BASE}/root", 0o755)
    if ARGS.get("venv"):
        folder(f"{BASE}/venv/bin")
        os.symlink("/usr/bin/python3", f"{BASE}/venv/bin/python3")
        with open(f"{BASE}/venv/pyvenv.cfg", "w") as file:
            file.write("home = /usr/bin\n")


def wait_for(name, *processes):
    deadline = time.monotonic() + 90
    while not os.path.exists(f"{BASE}/signal/{name}"):
        if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
            raise SystemExit(f"{name} did not come")
        time.sleep(0.02)


def change():
    for number, place in enumerate(ARGS["places"]):
        tmpfs(place["made"])
        put(place["made"] + "/leak")
        if place.get("moved"):
            aside = f"{BASE}/aside/{number}"
            tmpfs(aside)
            put(aside + "/leak")
            move(aside, place["moved"])
        if place.get("nested"):
            subprocess.run(["umount", place["nested"]], check=True)


def start(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


started = []
try:
    prepare()
    control = start(["unshare", "--mount", "--propagation", "slave", *ARGS["control"]])
    started.append(control)
    owner = start(ARGS["owner"])
    started.append(owner)
    wait_for("ready-control", control)
    try:
        wait_for("ready-inside", owner)
    except SystemExit:
        # Whatever it has to say: it may have been refused.
        owner.send_signal(signal.SIGKILL)
        said = owner.communicate()[0].decode(errors="replace")
        print(json.dumps({"control": "", "owner": said}))
        raise SystemExit(0)
    change()
    put(f"{BASE}/signal/go")
    answer = {"control": control.communicate()[0].decode(), "owner": owner.communicate()[0].decode()}
    print(json.dumps(answer))
finally:
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
    if ARGS.get("clean"):
        for place in ARGS["places"]:
            for kind in ("made", "moved", "nested"):
                if place.get(kind):
                    subprocess.run(["umount", "-q", place[kind]])
        subprocess.run(["umount", "-q", "-R", BASE])
