"""cmake --install into a folder, and away again, without losing CMake's list of what the developer himself installed from the build."""
import glob
import os
import re
import shutil
import subprocess

SOURCE = os.environ["WEFT_SOURCE"]
BUILD = os.environ["WEFT_BUILD"]
with open(os.path.join(SOURCE, "scripts", "cmake", "WeftOptions.cmake"), encoding="utf-8") as options:
    VERSION = re.search(r"WEFT_RELEASE_VERSION ([\d.]+)\)", options.read()).group(1)
UNINSTALL = os.path.join(SOURCE, "scripts", "cmake", "uninstall.cmake")


def run(*args, **more):
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)} exited {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def install(prefix, lists, *more):
    """Into `prefix`; the list of the files goes into the folder `lists`, as `uninstall` wants it. One at a time (RESOURCE_LOCK)."""
    os.makedirs(lists, exist_ok=True)
    saved = {}
    for name in glob.glob(os.path.join(BUILD, "install_manifest*.txt")):
        with open(name, "rb") as handle:
            saved[name] = handle.read()
        os.remove(name)
    try:
        run("cmake", "--install", BUILD, "--prefix", prefix, *more)
    finally:
        for name in glob.glob(os.path.join(BUILD, "install_manifest*.txt")):
            shutil.move(name, os.path.join(lists, os.path.basename(name)))
        for name, text in saved.items():
            with open(name, "wb") as out:
                out.write(text)


def uninstall(lists):
    return subprocess.run(["cmake", f"-DWEFT_BUILD={lists}", "-P", UNINSTALL], capture_output=True, text=True)
