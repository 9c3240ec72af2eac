# Waits until the host has made, moved and removed mounts, and says what of it can be seen here.
SIGNAL = ARGS["signal"]
with open(f"{SIGNAL}/ready-{ARGS['who']}", "w"):
    pass
deadline = time.monotonic() + 60
while not os.path.exists(f"{SIGNAL}/go"):
    if time.monotonic() > deadline:
        report("signal", False, "timed out")
        sys.exit(70)
    time.sleep(0.02)

for place in ARGS["places"]:
    name = place["name"]
    for kind in ("made", "moved"):
        if place.get(kind):
            attempt(f"{name}: {kind}", lambda: os.path.exists(f"{place[kind]}/leak"))
    if place.get("nested"):
        attempt(f"{name}: removed", lambda: not os.path.exists(f"{place['nested']}/kept"))
    if place.get("sealed"):

        def write():
            with open(f"{place['sealed']}/written", "w"):
                return True

        attempt(f"{name}: written", write)
