# Looks for a process of its own sandbox by its name.
attempt("find by name", by_name, fork=False)
