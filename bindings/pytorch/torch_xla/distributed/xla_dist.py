"""torch_xla.distributed.xla_dist: runs one command on every machine of a TPU pod, in conda, in docker or as it is.

    python -m torch_xla.distributed.xla_dist --tpu=NAME --conda-env=ENV --env=XLA_USE_BF16=1 -- python train.py

It asks gcloud what the TPU is, checks that there is a machine for every 8 cores, and starts the command on each machine by
gcloud's ssh. Output comes with `[number machine]` before each line. The first command that fails ends the others, and its
exit code is the launcher's.
"""
import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

from .. import _later

CORES_OF_A_MACHINE = 8
GRACE = 10.0  # seconds from SIGTERM to SIGKILL


class _Refusal(Exception):
    """What is wrong with the command line or the TPU; the launcher ends with it as its last words."""


def _options(words):
    parser = argparse.ArgumentParser(prog="python -m torch_xla.distributed.xla_dist", description=__doc__.splitlines()[0],
                                     usage="%(prog)s --tpu NAME [options] -- command ...")
    parser.add_argument("--tpu", required=True, metavar="NAME", help="the TPU")
    parser.add_argument("--vm", action="append", default=[], metavar="NAME",
                        help="a machine that drives 8 cores, once for each; without it the TPU's own machines")
    parser.add_argument("--zone", help="zone of the TPU and of its machines; gcloud's own without it")
    parser.add_argument("--project", help="project of both; gcloud's own without it")
    parser.add_argument("--conda-env", metavar="ENV", help="conda environment to run in")
    parser.add_argument("--docker-image", metavar="IMAGE", help="image that a container is made of to run in")
    parser.add_argument("--docker-container", metavar="NAME", help="running container to run in")
    parser.add_argument("--docker-run-flag", action="append", default=[], metavar="FLAG", help="for `docker run`; may come again")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variable of the command; may come again")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="behind --")
    options = parser.parse_args(words)
    if options.command[:1] == ["--"]:
        options.command = options.command[1:]
    _check(options)
    return options


def _check(options):
    if not options.command:
        raise _Refusal("there is no command: it comes behind --")
    if options.command[0].startswith("-"):
        raise _Refusal(f"'{options.command[0]}' is no option, and no command either: the command comes behind --")
    places = [name for name in ("conda_env", "docker_image", "docker_container") if getattr(options, name)]
    if len(places) > 1:
        raise _Refusal("the command runs in one place: " + " and ".join("--" + name.replace("_", "-") for name in places) +
                       " exclude each other")
    if options.docker_run_flag and not options.docker_image:
        raise _Refusal("--docker-run-flag is for --docker-image")
    for one in options.env:
        if not re.match(r"[A-Za-z_]\w*=", one):
            raise _Refusal(f"--env={one} is not NAME=VALUE")
    if len(set(options.vm)) < len(options.vm):
        raise _Refusal("--vm names a machine twice")


def _gcloud(options, *words):
    """gcloud's command line, with the project and the zone where they are given."""
    where = [f"--{name}={getattr(options, name)}" for name in ("project", "zone") if getattr(options, name)]
    return ["gcloud", *words, *where]


def _describe(options):
    """What gcloud knows of the TPU."""
    if shutil.which("gcloud") is None:
        raise _Refusal("gcloud is not on PATH: it says what the TPU is, and reaches its machines")
    done = subprocess.run(_gcloud(options, "compute", "tpus", "tpu-vm", "describe", options.tpu, "--format=json"),
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise _Refusal(f"gcloud does not describe the TPU '{options.tpu}': {done.stderr.strip()}")
    try:
        found = json.loads(done.stdout)
        kind, ends = found["acceleratorType"].rpartition("/")[2], found.get("networkEndpoints", [])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _Refusal(f"what gcloud says of the TPU '{options.tpu}' has no acceleratorType: {done.stdout[:200]!r}") from error
    if found.get("state", "READY") != "READY":
        raise _Refusal(f"the TPU '{options.tpu}' is {found['state']}, not READY")
    return kind, len(ends)


def _machines(options):
    """(names of the machines, whether they are the TPU's own). Their number is the number of cores by 8."""
    kind, ends = _describe(options)
    cores = re.fullmatch(r"v[234]-(\d+)|v5p-(\d+)", kind)
    if cores:
        cores = int(cores.group(1) or cores.group(2))
        wanted = max(1, cores // CORES_OF_A_MACHINE)
        rule = f"{options.tpu} is a {kind}: {cores} cores, one machine for every {CORES_OF_A_MACHINE}"
    else:  # The number behind other names is one of chips, of which machines have different numbers.
        wanted = max(1, ends)
        rule = f"{options.tpu} is a {kind} with {wanted} machine{'' if wanted == 1 else 's'}"
    there = len(options.vm) if options.vm else ends or wanted
    if there != wanted:
        raise _Refusal(f"{there} machine{'' if there == 1 else 's'}, and {wanted} {'is' if wanted == 1 else 'are'} wanted: {rule}")
    return (options.vm, False) if options.vm else ([f"{options.tpu}-{at}" for at in range(wanted)], True)


def _variables(options, number, machines):
    """Variables of the command on a machine: the user's, and behind them who it is where nobody has said so."""
    chosen = dict(one.split("=", 1) for one in options.env)
    ours = {"PJRT_DEVICE": "TPU"}
    if len(machines) > 1:
        ours.update({"TPU_WORKER_ID": str(number), "TPU_WORKER_HOSTNAMES": ",".join(machines)})
    return [f"{name}={value}" for name, value in {**ours, **chosen}.items()]


def _on_machine(options, number, machines):
    """The command line for a machine's shell. Folders are the same there, apart from those of docker's images."""
    variables = _variables(options, number, machines)
    if options.docker_image or options.docker_container:
        flags = [word for one in variables for word in ("-e", one)]
        if options.docker_image:
            words = ["docker", "run", "--network=host", "--privileged", *options.docker_run_flag, *flags, options.docker_image]
        else:
            words = ["docker", "exec", *flags, options.docker_container]
        return shlex.join([*words, *options.command])
    words = ["env", *variables, *options.command]
    if options.conda_env:
        words = ["conda", "run", "--no-capture-output", "--name", options.conda_env, *words]
    return f"cd {shlex.quote(os.getcwd())} && {shlex.join(words)}"


def _ssh(options, number, machines, own):
    command = f"--command={_on_machine(options, number, machines)}"
    if own:
        return _gcloud(options, "compute", "tpus", "tpu-vm", "ssh", options.tpu, f"--worker={number}", command)
    return _gcloud(options, "compute", "ssh", machines[number], "--internal-ip", command)


def _copy_lines(source, target, prefix, lock):
    """Lines of a command to the launcher's own output, whole."""
    for line in source:
        with lock:
            target.write(prefix + line if line.endswith("\n") else prefix + line + "\n")
            target.flush()


def _end(processes):
    """Ends those that run: SIGTERM to each with what it started, later SIGKILL."""
    deadline = time.monotonic() + GRACE
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, number)
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()) if number == signal.SIGTERM else None)
            except subprocess.TimeoutExpired:
                pass


def _wait(processes):
    """The exit code of the first that fails, else 0; none runs on."""
    running = list(processes)
    try:
        while running:
            for process in [one for one in running if one.poll() is not None]:
                running.remove(process)
                if process.returncode:
                    return process.returncode if process.returncode > 0 else 128 - process.returncode
            time.sleep(0.05)
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        _end(processes)


def _run(options, machines, own):
    lock, processes, copiers = threading.Lock(), [], []
    for number, machine in enumerate(machines):
        process = subprocess.Popen(_ssh(options, number, machines, own), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        processes.append(process)
        for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            copiers.append(threading.Thread(target=_copy_lines, args=(source, target, f"[{number} {machine}] ", lock), daemon=True))
            copiers[-1].start()
    code = _wait(processes)
    for copier in copiers:
        copier.join(GRACE)
    return code


def main(words=None):
    """Runs the command line; gives its exit code."""
    try:
        options = _options(sys.argv[1:] if words is None else words)
        machines, own = _machines(options)
    except _Refusal as refusal:
        print(f"xla_dist: {refusal}", file=sys.stderr)
        return 2
    return _run(options, machines, own)


def __getattr__(name):
    raise _later.missing(__name__, name)


if __name__ == "__main__":
    sys.exit(main())
