# Leaves a process behind that did everything to outlive its parents.
daemonise(ARGS["marker"], ARGS["seconds"])
report("left behind", True)
