"""Plants bugs in the code that reads and writes files, one at a time, and sees its tests turn red.

Each bug is one place of a source file that is written anew. The file is compiled as the build compiles it, linked in its own one's
place, and the tests that should notice are run: they must pass without the bug and fail with it. The build tree is not touched.

usage: WEFT_BUILD=build/release python3 tests/serialization/planted_bugs.py [NAME...]
"""
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(os.environ.get("WEFT_BUILD", os.path.join(SOURCE, "build", "release")))
TESTS, LIBRARY = "bin/weft_test_serialization", "lib/libweft.so.1"
MEMORY_KIB = 8 << 20  # for TESTS, since a bug may ask for all there is; PyTorch reserves more
SECONDS = 240
BUGS = [  # name, file, what stands there, what is planted, who must notice: a filter of TESTS, or a Python test of the library
    ("renamed before it is synced", "serialization/atomic_file.cc",
     "    if (durability_ == Durability::kPower) WEFT_RETURN_IF_ERROR(Sync(wait));\n", "", "CrashStates.ALossOfPower*"),
    ("the folder is not synced", "serialization/atomic_file.cc", "if (durability_ == Durability::kPower) return SyncDirectory(place_.folder);", "",
     "CrashStates.ALossOfPower*"),
    ("the checksum of a tensor is ignored", "serialization/checkpoint_payloads.cc",
     "if (ChecksumsMatch(entry.sums[index], Checksum64(bytes))) return absl::OkStatus();", "return absl::OkStatus();", "CheckpointDamage.*"),
    ("the checksum of a cache entry is ignored", "serialization/cache_entry.cc",
     "if (!ChecksumsMatch(Hash128{header.body_hash[0], header.body_hash[1]}, Checksum128(body)))", "if (false)", "CacheEntry.*"),
    ("a MAC is ignored", "serialization/cache_entry.cc", "if (!mac_key.empty() && !MacsEqual(", "if (false && !MacsEqual(", "CacheEntry.*:CompileCache.WithAKey*"),
    ("a payload may end behind the data", "serialization/checkpoint_reader.cc",
     "entry.payload_bytes() <= data_end() - entry.payload) {", "true) {", "CheckpointForged.*"),
    ("a tensor may end behind its storage", "serialization/interchange/pytorch_values.cc",
     "return static_cast<uint64_t>(last) < storage.elements / each ? absl::OkStatus() : outside();", "return absl::OkStatus();", "pytorch_files_test.py"),
    ("a storage may end behind its member", "serialization/interchange/pytorch.cc",
     "if (member.bytes % width != 0 || member.bytes / width != storage.elements) {", "if (false) {", "pytorch_files_test.py"),
    ("an alias may lead round in a circle", "serialization/tree.cc", "if (states[at] == kOpen) return UserError(", "if (false) return UserError(", "Checkpoint.*"),
    ("the unpickler resolves one more global", "serialization/interchange/pytorch_values.cc",
     "if (std::ranges::find(kFunctions, name) != std::end(kFunctions) ||",
     "if (name == \"builtins.eval\" || name == \"__builtin__.eval\" || std::ranges::find(kFunctions, name) != std::end(kFunctions) ||",
     "pytorch_files_test.py"),
]


def judge(who, program):
    """0 if the tests end with 0 in time."""
    if who.endswith(".py"):
        command = [sys.executable, os.path.join(SOURCE, "tests", "serialization", who)]
    else:
        command = ["bash", "-c", f"ulimit -v {MEMORY_KIB}; exec \"$@\"", "-", program, "--gtest_brief=1", "--gtest_filter=" + who]
    try:
        return subprocess.run(command, cwd=BUILD, timeout=SECONDS, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env=dict(os.environ, WEFT_LIB=program, WEFT_SOURCE=SOURCE, WEFT_BUILD=BUILD)).returncode
    except subprocess.TimeoutExpired:
        return 124


def target(who):
    return LIBRARY if who.endswith(".py") else TESTS


def link_command(name):
    """The last command that makes the target, in the words of the build."""
    path = os.path.realpath(os.path.join(BUILD, name))
    lines = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", os.path.relpath(path, BUILD)], capture_output=True, text=True, check=True).stdout
    return re.sub(r"(^|\s)-o \S+", r"\1-o @OUT@", lines.splitlines()[-1], count=1)


def plant(bug, folder, compile_commands, links):
    name, file, was, becomes, who = bug
    path = os.path.join(SOURCE, file)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if text.count(was) != 1:
        return f"the place stands {text.count(was)} times in {file}"
    planted, made, program = (os.path.join(folder, leaf) for leaf in (os.path.basename(file), "planted.o", "program"))
    with open(planted, "w", encoding="utf-8") as f:
        f.write(text.replace(was, becomes))
    command = compile_commands[path]
    own = re.search(r" -o (\S+)", command)[1]
    subprocess.run(command.replace(f" -o {own}", f" -o {made}").replace(f" -c {path}", f" -Wno-error -w -c {planted}"), shell=True, cwd=BUILD, check=True)
    link = links[target(who)].replace("@OUT@", program)
    # An object in front of the archives goes before the archive's own.
    link = re.sub(rf"(?<=\s){re.escape(own)}(?=\s)", made, link) if own in link else link.replace(" lib/layers/", f" {made} lib/layers/", 1)
    subprocess.run(link, shell=True, cwd=BUILD, check=True)
    return None if judge(who, program) != 0 else f"{who} passes with it"


def main():
    names = set(sys.argv[1:])
    with open(os.path.join(BUILD, "compile_commands.json"), encoding="utf-8") as f:
        compile_commands = {entry["file"]: entry["command"] for entry in json.load(f)}
    bugs = [bug for bug in BUGS if not names or bug[0] in names]
    links = {name: link_command(name) for name in {target(bug[4]) for bug in bugs}}
    failed = 0
    for who in sorted({bug[4] for bug in bugs}):
        if judge(who, os.path.join(BUILD, target(who))) != 0:
            sys.exit(f"planted_bugs: {who} fails without any bug")
    for bug in bugs:
        with tempfile.TemporaryDirectory() as folder:
            why = plant(bug, folder, compile_commands, links)
        failed += why is not None
        print(f"{'FAILED' if why else 'red'}  {bug[0]}: {why or bug[4]}", flush=True)
    print(f"{len(bugs) - failed} passed, {failed} failed")
    sys.exit(failed != 0 or not bugs)


if __name__ == "__main__":
    main()
