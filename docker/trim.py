"""Copies programs, and what they need to run, out of a root file system into an empty folder.

    trim.py FOLDER PROGRAM...

Runs inside that root, as root. What is not copied is not there: no package manager, and no shell
unless it is among the programs. Of all files only the programs and their loader can be executed.
"""
import json
import os
import shutil
import subprocess
import sys

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Looked for by the C library and by Python when they need them.
DATA = [
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/os-release",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/lib/locale/C.utf8",
    "/usr/lib/ssl/openssl.cnf",
    "/usr/share/zoneinfo",
]
# Programs that are many others, shells among them, by whatever name they are called.
MANY = {"busybox", "toybox"}
# Not needed to run anything, and what installs packages.
NOT_OF_PYTHON = {"ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo"}
NOT_OF_PACKAGES = ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "distutils-precedence")

ASK_PYTHON = """
import json, site, sysconfig
paths = sysconfig.get_paths()
print(json.dumps([paths["stdlib"], paths["platstdlib"], *site.getsitepackages()]))
"""


class Trimmed:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder)
        os.chmod(folder, 0o755)
        for link in ["bin", "sbin", "lib", "lib32", "lib64", "libx32"]:
            if os.path.islink(f"/{link}"):
                os.symlink(os.readlink(f"/{link}"), f"{folder}/{link}")
        for name in ["dev", "etc", "proc", "run", "sys", "usr/bin", "usr/local/bin"]:
            self.make(f"/{name}")
        for name in ["tmp", "workspace"]:
            os.chmod(self.make(f"/{name}"), 0o1777)

    def make(self, folder):
        inside = self.folder + folder
        os.makedirs(inside, mode=0o755, exist_ok=True)
        return inside

    def put(self, path, mode=0o444):
        """A file, and if it is a link, what it leads to."""
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        inside = self.folder + path
        if os.path.isdir(path) and not os.path.islink(path):
            for entry in os.scandir(path):
                self.put(entry.path, mode)
            return
        if os.path.lexists(inside):
            if not os.path.islink(inside):
                os.chmod(inside, os.stat(inside).st_mode & 0o777 | mode)
                return
        else:
            self.make(os.path.dirname(path))
            if os.path.islink(path):
                os.symlink(os.readlink(path), inside)
            else:
                shutil.copyfile(path, inside)
                os.chmod(inside, mode)
                self.libraries(path)
        if os.path.islink(path) and os.path.exists(path):
            self.put(os.path.join(os.path.dirname(path), os.readlink(path)), mode)

    def libraries(self, path):
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return
        said = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
        for line in said.splitlines():
            words = [word for word in line.split() if word.startswith("/")]
            if words and "not found" not in line:
                is_loader = os.path.basename(words[0]).startswith("ld-")
                self.put(words[0], 0o555 if is_loader else 0o444)

    def program(self, name):
        found = [path for folder in PATH.split(":") if (path := shutil.which(name, path=folder))]
        plain = [path for path in found if name in MANY or os.path.basename(os.path.realpath(path)) not in MANY]
        if found and not plain:
            sys.exit(f"trim: `{name}` is {os.path.realpath(found[0])} here, which is a shell too; name that")
        if not found:
            sys.exit(f"trim: there is no program `{name}` in this root; install its package first")
        path = plain[0]
        self.put(path, 0o555)
        return os.path.realpath(path)

    def python(self, path):
        said = subprocess.run([path, "-I", "-c", ASK_PYTHON], check=True, capture_output=True, text=True)
        stdlib, *others = json.loads(said.stdout)
        for folder in {stdlib, *others}:
            for entry in os.scandir(folder) if os.path.isdir(folder) else []:
                name = entry.name
                packaging = name.split("-")[0].split(".")[0] in NOT_OF_PACKAGES
                unneeded = folder == stdlib and (name in NOT_OF_PYTHON or name.startswith("config-"))
                if not packaging and not unneeded and not name.startswith("distutils-precedence"):
                    self.put(entry.path)


def main():
    folder, *names = sys.argv[1:]
    if not names:
        sys.exit("trim: which programs?")
    trimmed = Trimmed(folder)
    programs = {trimmed.program(name) for name in names}
    for path in sorted(programs):
        with open(path, "rb") as file:
            first = file.readline(256)
        if first.startswith(b"#!"):
            interpreter = os.path.realpath(first[2:].split()[0].decode())
            if interpreter not in programs:
                sys.exit(f"trim: {path} is a script for {interpreter}; name that too")
        if os.path.basename(path).startswith("python3"):
            trimmed.python(path)
    for path in DATA:
        if os.path.exists(path):
            trimmed.put(path)
    for name, text in {
        "passwd": "root:x:0:0:root:/:/nonexistent\nnobody:x:65534:65534:nobody:/workspace:/nonexistent\n",
        "group": "root:x:0:\nnogroup:x:65534:\n",
    }.items():
        with open(f"{trimmed.folder}/etc/{name}", "w") as file:
            file.write(text)


main()
