# Leaves a process behind that did everything to outlive its parents.
daemonise(ARGS["marker"], ARGS["seconds"])
time.sleep(0.2)
report("left behind", True)
