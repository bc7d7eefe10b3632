"""Compiling for TPUs that are not there: libtpu from the package registry in a virtual environment of the build tree, every process of
it with a deadline, because libtpu can hang and can end the process."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import threading

SOURCE = pathlib.Path(os.environ["WEFT_SOURCE"])
BUILD = pathlib.Path(os.environ["WEFT_BUILD"])
sys.path.insert(0, str(SOURCE / "tests" / "support"))
import models  # noqa: E402
import python_env  # noqa: E402

PACKAGES = ["libtpu==0.0.52"]
FIGURES = ("flops", "bytes_accessed", "temporary_bytes", "code_bytes")
SAID = re.compile(r"compiled for \S+ in .* (?P<code_bytes>\d+) bytes of code, (?P<temporary_bytes>\d+) bytes of temporaries, "
                  r"(?:(?P<flops>\d+) flops, )?(?P<bytes_accessed>\d+) bytes accessed")


def enter(script):
    """Runs `script` where libtpu is: a loud skip without the package registry, a failure in CI."""
    python_env.enter("tpu", PACKAGES, script, "--no-deps", needed=os.environ.get("CI") == "true")


def libtpu():
    return str(pathlib.Path(importlib.util.find_spec("libtpu").submodule_search_locations[0]) / "libtpu.so")


def listener(folder):
    """The plugin that writes down what it is given to compile."""
    path = os.path.join(folder, "listener.so")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(SOURCE / "tests" / "pjrt" / "listener.c"), "-o", path], check=True)
    return path


def step(name, folder, deadline, topology="v5e:1x1", precision="highest"):
    """Two training steps of a model in a context for the topology: ([(text, what the plugin told of it)], the process's end), or
    AssertionError with what the process said. What takes no arguments, and makes the optimizer's slots, is left out."""
    heard = os.path.join(folder, f"{name}-{topology}-{precision}".replace(":", "-"))
    os.makedirs(heard)
    env = dict(os.environ, WEFT_PLATFORM="tpu", TPU_LIBRARY_PATH=os.path.join(folder, "listener.so"), WEFT_LISTEN_TO=libtpu(), WEFT_LISTEN_IN=heard,
               WEFT_TOPOLOGY=topology, WEFT_MATMUL_PRECISION=precision, WEFT_ON_READ="zeros", WEFT_CACHE_MODE="off", WEFT_LOG="debug")
    try:
        done = subprocess.run([sys.executable, str(SOURCE / "tests" / "support" / "models.py"), name], env=env, capture_output=True, text=True, timeout=deadline)
    except subprocess.TimeoutExpired as late:
        raise AssertionError(f"{name} for {topology}: not compiled within {deadline} s\n{(late.stderr or b'').decode()[-2000:]}") from None
    if done.returncode:
        raise AssertionError(f"{name} for {topology}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    texts = [pathlib.Path(heard, f"{i}.mlir").read_text(encoding="utf-8") for i in range(len(os.listdir(heard)))]
    figures = [{key: int(value or 0) for key, value in found.groupdict().items()} for found in SAID.finditer(done.stderr)]
    if len(texts) != len(figures):
        raise AssertionError(f"{len(texts)} programs were compiled and {len(figures)} told of:\n{done.stderr[-2000:]}")
    return [(text, told) for text, told in zip(texts, figures, strict=True) if "@main() ->" not in text], json.loads(done.stdout)


def check_text(name, text, precision="HIGHEST"):
    """A training step's text: every product and convolution says the precision, every parameter and slot is taken over, by a result of
    its own and of its type."""
    products = re.findall(r'"stablehlo\.(?:dot_general|convolution)".*', text)
    said = f"precision_config = [#stablehlo<precision {precision}>, #stablehlo<precision {precision}>]"
    assert products and all(said in line for line in products), f"{name}: a product without {said}"
    head = re.search(r"@main\((.*)\) -> \((.*)\) \{", text)
    arguments = re.findall(r"tensor<([^>]*)>( \{tf\.aliasing_output = (\d+) : i32\})?", head[1])
    results = re.findall(r"tensor<([^>]*)>", head[2])
    aliases = [(kind, int(to)) for kind, given, to in arguments if given]
    assert len({to for _, to in aliases}) == len(aliases) and all(results[to] == kind for kind, to in aliases), f"{name}: aliases {aliases} of {results}"
    model, kinds = models.MODELS[name](), [kind for kind, _ in aliases]
    for shape in set(model.shapes):
        kind = "x".join(map(str, (*shape, "f32")))
        wanted = model.slots * model.shapes.count(shape)
        assert kinds.count(kind) == wanted, f"{name}: {kinds.count(kind)} of {wanted} parameters and slots {kind} are taken over"
    assert len(kinds) == model.slots * len(model.shapes), f"{name}: {len(kinds)} arguments are taken over"


def compile_texts(files, deadline, topology="v5e:1x1"):
    """Yields for each file what weft_dump_compiled found of it, in order: its line, with "error" where the plugin refused, died or took
    longer than `deadline` seconds. It is started anew behind a file that killed it."""
    files = [str(f) for f in files]
    while files:
        batch = files[:200]  # arguments have an end
        with subprocess.Popen([str(BUILD / "bin" / "weft_dump_compiled"), libtpu(), topology, *batch],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            said = []
            reader = threading.Thread(target=lambda: said.append(process.stderr.read()[-600:]), daemon=True)
            reader.start()
            for file in batch:
                watch = threading.Timer(deadline, process.kill)
                watch.start()
                line = process.stdout.readline()
                late = not watch.is_alive()
                watch.cancel()
                files.pop(0)
                if line:
                    yield json.loads(line)
                    continue
                process.kill()
                reader.join()
                yield {"file": file, "died": True,
                       "error": f"no answer within {deadline} s" if late else f"the process ended ({process.wait()}): {said[0]}"}
                break
