# Writes a lot, exactly as much as asked for.
left = ARGS["bytes"]
stream = ARGS.get("stream", 1)
pattern = bytes.fromhex(ARGS["pattern"])
chunk = pattern * max(1, (1 << 16) // len(pattern))
while left:
    left -= os.write(stream, chunk[:left])
os._exit(ARGS.get("exit", 0))
