# Goes on after `recorded.py`: a program and a script, whose paths differ in one byte.
os.symlink("/usr/bin/echo", "/workspace/flip-a")
make("/workspace/flip-b", "#!/bin/sh\necho script $1\n", 0o755)
shared[:18] = b"/workspace/flip-a\0"
going = True


def ask(number):
    child(lambda: LIBC.execve(ctypes.c_void_p(address), words("x", f"flip-{number}"), words()))


def flip():
    while going:
        shared[16] = ord("b")
        shared[16] = ord("a")


# One of each while nothing changes, so that a busy machine meets both.
ask(0)
shared[16] = ord("b")
ask(1)
thread = threading.Thread(target=flip)
thread.start()
for number in range(2, 40):
    ask(number)
going = False
thread.join()
