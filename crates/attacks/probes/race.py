# A second process rewrites the path while the kernel or anybody else looks at it.
import mmap

ALLOWED, FORBIDDEN = ARGS["allowed"].encode(), ARGS["forbidden"].encode()
ROUNDS, OPEN, CLOSE = ARGS["rounds"], 2, 3
shared = mmap.mmap(-1, 4096)
length = max(len(ALLOWED), len(FORBIDDEN)) + 1
texts = [text.ljust(length, b"\0") for text in (ALLOWED, FORBIDDEN)]
shared[:length] = texts[0]

flipper = os.fork()
if flipper == 0:
    end = time.monotonic() + ARGS["seconds"] + 5
    while time.monotonic() < end:
        for _ in range(10000):
            shared[:length] = texts[1]
            shared[:length] = texts[0]
    os._exit(0)

address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(shared)))
call = LIBC.syscall
number, flags = ctypes.c_long(OPEN), ctypes.c_long(os.O_RDWR)
end = time.monotonic() + ARGS["seconds"]
hits = {"allowed": 0, "forbidden": 0, "refused": 0}
rounds = 0
identities = {}
for name, path in (("allowed", ALLOWED), ("forbidden", FORBIDDEN)):
    try:
        found = os.stat(path)
        identities[(found.st_dev, found.st_ino)] = name
    except OSError:
        pass
while rounds < ROUNDS and time.monotonic() < end:
    rounds += 1
    file = call(number, address, flags)
    if file < 0:
        hits["refused"] += 1
        continue
    found = os.fstat(file)
    hits[identities.get((found.st_dev, found.st_ino), "forbidden")] += 1
    os.close(file)
os.kill(flipper, signal.SIGKILL)
os.waitpid(flipper, 0)
report("reach the forbidden file", hits["forbidden"] > 0, value={**hits, "rounds": rounds})
report("reach the allowed file", hits["allowed"] > 0)
