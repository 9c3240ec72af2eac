# Which of these variables arrived.
for name in ARGS["names"]:
    report(name, name in os.environ, value=os.environ.get(name))
report("all", True, value=dict(os.environ))
