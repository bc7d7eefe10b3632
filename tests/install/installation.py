"""cmake --install into a folder, and away again, without losing CMake's list of what the developer himself installed from the build;
and docs/install.md as a reader follows it."""
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


def follow_the_guide(work, installing, uninstalling):
    """The files of docs/install.md are written to `work`, its shell blocks run there one after another in one shell; PREFIX is work/weft.
    `installing` and `uninstalling` stand in for the page's two commands that a developer gives in the folder of the sources. Returns
    what was printed."""
    with open(os.path.join(SOURCE, "docs", "install.md"), encoding="utf-8") as handle:
        page = handle.read()
    for name, text in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        with open(os.path.join(work, name), "w", encoding="utf-8") as out:
            out.write(text)
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    script = "set -eu\n" + "\n".join(f"echo '== block {i}'\n{block}" for i, block in enumerate(blocks, 1))
    for command, instead in (('cmake --install build/release --prefix "$PREFIX"', installing),
                             ("cmake --build build/release --target uninstall", uninstalling)):
        if script.count(command) != 1:
            raise AssertionError(f"docs/install.md says {script.count(command)} times, not once: {command}")
        script = script.replace(command, instead)
    env = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "XDG_CACHE_HOME")}
    printed = run("bash", "-c", script, cwd=work, env=dict(env, HOME=work), timeout=300)
    # By pkg-config, CMake, Meson, and from a bundle that moved.
    said = re.findall(r"^weft \d+\.\d+\.\d+, ABI 1\.\d+$", printed, re.MULTILINE)
    if len(blocks) < 6 or len(said) != 4:
        raise AssertionError(f"{len(blocks)} blocks, of which {len(said)} ran the program, not 4:\n{printed[-6000:]}")
    if os.path.exists(os.path.join(work, "weft")):
        raise AssertionError(f"uninstalling left something:\n{printed[-6000:]}")
    return printed
