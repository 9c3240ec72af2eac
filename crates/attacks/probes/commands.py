# Starts one program in every way there is. Each way gives it a number of its own to factor, so that
# its output, and what is on record about it, can be told apart.
import base64
import mmap
import shutil
import subprocess
import tempfile
import threading

NAME = ARGS["program"]
REAL = ARGS["path"]
PRIMES = [5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
          101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193,
          197, 199, 211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271]
HERE = tempfile.mkdtemp(dir=ARGS.get("folder"))
ONLY = ARGS.get("only")
count = 0
if ARGS.get("made_from"):
    # A program that was not there before the sandbox was.
    os.makedirs(os.path.dirname(REAL), exist_ok=True)
    shutil.copy(ARGS["made_from"], REAL)


def way(title, start):
    """`start` gets the number and returns what was printed."""
    global count
    number = str(3 * PRIMES[count])
    factors = ("3 " + str(PRIMES[count])).encode()
    count += 1
    if ONLY and title not in ONLY:
        return
    try:
        output, error = start(number), None
    except Exception as failure:
        output, error = b"", name_of(failure)
    report(title, factors in output, error, number)


def run(*words, **options):
    options.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20, **options)
    return done.stdout


def shell(text, program="sh"):
    return run(program, "-c", text)


def child(become):
    """What a child that becomes another program prints."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writer, 1)
            become()
        finally:
            os._exit(99)
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read()
    os.waitpid(pid, 0)
    return text


def words(*texts):
    return (ctypes.c_char_p * (len(texts) + 1))(*[text.encode() for text in texts], None)


def place(name):
    return os.path.join(HERE, name)


def symlink(number):
    os.symlink(REAL, place("link"))
    return run(place("link"), number)


def copy(name):
    def start(number):
        try:
            shutil.copy(REAL, place(name))
        except OSError:
            pass
        return run(place(name), number)

    return start


def hard_link(number):
    try:
        os.link(REAL, place("hard"))
    except OSError:
        if not ARGS.get("inside"):
            # Outside, the file may be another's or on another file system: link a copy.
            shutil.copy(REAL, place("hard-source"))
            os.link(place("hard-source"), place("hard"))
    return run(place("hard"), number)


def script(number):
    with open(place("script"), "w") as file:
        file.write("#!" + REAL + "\n")
    os.chmod(place("script"), 0o755)
    return run(place("script"), number)


def script_of_a_loader(number):
    """The kernel starts the loader, and nobody has asked for it."""
    with open(place("loaded"), "w") as file:
        file.write("#!" + ARGS["loader"] + " " + REAL + "\n")
    os.chmod(place("loaded"), 0o755)
    return run(place("loaded"), number)


def memory_file(number):
    flags = 0 if not ARGS.get("inside") else 8
    fd = os.memfd_create("program", flags)
    with open(REAL, "rb") as file:
        os.write(fd, file.read())
    return child(lambda: os.execve(fd, [NAME, number], {}))


def descriptor(number):
    fd = os.open(REAL, os.O_PATH)
    return child(lambda: os.execve(fd, [NAME, number], {}))


def descriptor_path(number):
    fd = os.open(REAL, os.O_PATH)
    return run("/proc/self/fd/" + str(fd), number, pass_fds=[fd])


def link_to(target):
    def start(number):
        link = tempfile.mktemp(dir=HERE)
        os.symlink(target, link)
        return run(link, number)

    return start


def held_by_another(number):
    """By a link of /proc to what another process holds open."""
    fd = os.open(REAL, os.O_PATH)
    path = f"/proc/{os.getpid()}/fd/{fd}"
    return child(lambda: LIBC.execve(path.encode(), words(NAME, number), words()))


def folder_moved_there(number):
    """What is at the path was elsewhere when it was last looked at."""
    folder, moved = os.path.dirname(REAL), place("moved")
    os.rename(folder, moved)
    try:
        return run(os.path.join(moved, os.path.basename(REAL)), number)
    finally:
        os.rename(moved, folder)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def masked(*calls):
    """A filter of its own answers these calls, so that nobody else is asked."""
    lines = [(0x20, 0, 0, 0)]
    for call in calls:
        lines += [(0x15, 0, 1, call), (0x06, 0, 0, 0x00050000)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines + [(0x06, 0, 0, 0x7FFF0000)])
    program = Filter(len(code) // 8, code)
    LIBC.prctl(38, 1, 0, 0, 0)
    if LIBC.syscall(317, 1, 0, ctypes.byref(program)) < 0:
        LIBC.prctl(22, 2, ctypes.byref(program), 0, 0)


def loader_behind_a_filter(number):
    """As the loader of the machine, by a path that another process has."""
    path = f"/proc/{os.getpid()}/root{os.path.realpath(ARGS['loader'])}"

    def become():
        masked(218, 318, 334)
        LIBC.execve(path.encode(), words("ld", REAL, number), words())

    return child(become)


def by_ctypes(number):
    return child(lambda: LIBC.execve(REAL.encode(), words(NAME, number), words()))


def by_vfork(number):
    """As `subprocess` does it where it can."""
    if not getattr(subprocess, "_USE_VFORK", False):
        raise RuntimeError("this Python has no vfork")
    return run(REAL, number, env={})


def by_thread(number):
    texts = []
    thread = threading.Thread(target=lambda: texts.append(run(NAME, number)))
    thread.start()
    thread.join()
    return texts[0]


def posix_spawn(number):
    reader, writer = os.pipe()
    pid = os.posix_spawn(REAL, [NAME, number], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)])
    os.close(writer)
    with os.fdopen(reader, "rb") as output:
        text = output.read()
    os.waitpid(pid, 0)
    return text


def system(number):
    os.system(f"{NAME} {number} >{place('system')}")
    with open(place("system"), "rb") as file:
        return file.read()


def grandchild(number):
    """Left its parent, its session and its streams before it asks."""
    target = place("grandchild")
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork() == 0:
            with open(target + ".part", "wb") as file:
                file.write(run(NAME, number))
            os.rename(target + ".part", target)
        os._exit(0)
    os.waitpid(pid, 0)
    until = time.monotonic() + 20
    while not os.path.exists(target) and time.monotonic() < until:
        time.sleep(0.02)
    with open(target, "rb") as file:
        return file.read()


def race(program, *arguments):
    """The path changes in memory that another process shares, while somebody looks at it."""
    shared = mmap.mmap(-1, 4096)
    harmless, wanted = b"/usr/bin/true\0", program.encode() + b"\0"
    address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
    going = True

    def swap():
        while going:
            shared[: len(harmless)] = harmless
            shared[: len(wanted)] = wanted

    thread = threading.Thread(target=swap)
    thread.start()
    text = b""
    try:
        for _ in range(ARGS.get("rounds", 40)):
            text += child(
                lambda: LIBC.execve(ctypes.c_void_p(address), words(*arguments), words())
            )
    finally:
        going = False
        thread.join()
    return text


way("name", lambda n: run(NAME, n))
way("absolute path", lambda n: run(REAL, n))
way("relative path", lambda n: run("./" + os.path.basename(REAL), n, cwd=os.path.dirname(REAL)))
way("path through /proc/self/root", lambda n: run("/proc/self/root" + REAL, n))
way("path with dots", lambda n: run("/usr/../usr/./bin/" + NAME, n))
way("symlink", symlink)
way("copy", copy(NAME))
way("renamed copy", copy("harmless"))
way("hard link", hard_link)
way("env", lambda n: run("env", NAME, n))
way("env -i", lambda n: run("env", "-i", "PATH=/usr/bin:/bin", NAME, n))
way("nice", lambda n: run("nice", NAME, n))
way("nohup", lambda n: run("nohup", NAME, n))
way("timeout", lambda n: run("timeout", "10", NAME, n))
way("xargs", lambda n: run("xargs", NAME, input=n.encode(), stdin=None))
way("find -exec", lambda n: run("find", "/", "-maxdepth", "0", "-exec", NAME, n, ";"))
way("loader", lambda n: run(ARGS["loader"], REAL, n))
way("loader with options", lambda n: run(ARGS["loader"], "--argv0", "x", REAL, n))
way("sh -c", lambda n: shell(f"{NAME} {n}"))
way("exec in a shell", lambda n: shell(f"exec {NAME} {n}"))
way("quotes in the name", lambda n: shell(f"{NAME[:2]}''{NAME[2:]} {n}"))
way("a backslash in the name", lambda n: shell(f"{NAME[:2]}\\{NAME[2:]} {n}"))
way("spaces by a variable", lambda n: shell(f"{NAME}${{IFS}}{n}"))
way("a name in a variable", lambda n: shell(f"a={NAME[:3]}; b={NAME[3:]}; $a$b {n}"))
way("an escape in the name", lambda n: shell(
    f"$'\\x{ord(NAME[0]):02x}{NAME[1:]}' {n}", "bash"))
way("a pattern", lambda n: shell(f"/usr/bin/{NAME[:-1]}[{NAME[-1]}] {n}"))
way("base64 to a shell", lambda n: shell(
    "echo " + base64.b64encode(f"{NAME} {n}".encode()).decode() + " | base64 -d | sh"))
way("here document", lambda n: shell(f"sh <<EOF\n{NAME} {n}\nEOF"))
way("os.system", system)
way("subprocess with a shell", lambda n: run(f"{NAME} {n}", shell=True))
way("posix_spawn", posix_spawn)
way("vfork", by_vfork)
way("ctypes execve", by_ctypes)
way("a thread", by_thread)
way("script", script)
way("memory file", memory_file)
way("descriptor", descriptor)
way("path of a descriptor", descriptor_path)
way("detached grandchild", grandchild)
way("path that changes", lambda n: race(REAL, NAME, n))
way("loader by a path that changes", lambda n: race(ARGS["loader"], NAME, REAL, n))
way("link through /proc/self/root", link_to("/proc/self/root" + REAL))
way("link through /proc/thread-self/root", link_to("/proc/thread-self/root" + REAL))
way("descriptor of another process", held_by_another)
way("loader behind a filter", loader_behind_a_filter)
way("loader by a link", lambda n: (
    os.symlink("/proc/self/root" + ARGS["loader"], place("ld.so")), run(place("ld.so"), REAL, n))[1])
way("script of a loader", script_of_a_loader)
# A record has room for fewer words than these, and for shorter ones.
way("loader with many options", lambda n: run(
    ARGS["loader"], "--argv0", n, *["--inhibit-cache"] * 80, REAL, n))
way("loader with a long path", lambda n: run(ARGS["loader"], "--argv0", n, "/." * 1000 + REAL, n))
if ARGS.get("made_from"):
    way("folder that was moved", folder_moved_there)
if ARGS.get("busybox"):
    way("busybox", lambda n: run(ARGS["busybox"], NAME, n))
    way("busybox by another name", lambda n: (
        os.symlink(ARGS["busybox"], place(NAME)), run(place(NAME), n))[1])
