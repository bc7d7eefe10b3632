"""python -m libweft doctor|run|show

doctor             versions, library, devices and cache, and a computation as a check; exit status 1 where something is wrong
run FILE [x.npy …] runs a function (a file of weft_function_save, or StableHLO text) on inputs, or on zeros where none are
given
show FILE          what a checkpoint or a function holds
"""

import argparse
import os
import platform
import sys


def doctor(_):
    import libweft as wf

    print("libweft  %s, ABI %d.%d, from %s" % (wf.__version__, *_abi(wf), wf.library_path()))
    print("Python   %s, %s" % (platform.python_version(), platform.platform()))
    print("accelerator %s" % (wf._fast.accelerator.__file__ if wf._fast.accelerator else "none"))
    try:
        import numpy

        print("NumPy    %s" % numpy.__version__)
    except ImportError:
        print("NumPy    not installed (it is not needed)")
    context = wf.context()
    for d in context.devices:
        print("device   %s, %s" % (d.name, d.kind))
    print("cache    %s, %s" % (context.option("cache_mode"), context.option("cache_dir") or "the usual folder"))
    print(
        "settings %s"
        % (" ".join("%s=%s" % (k, v) for k, v in sorted(os.environ.items()) if k.startswith(("WEFT_", "LIBWEFT_"))) or "none")
    )
    found = (wf.arange(10, dtype="f32") * 2).sum().item()
    print("check    %s" % ("a sum is as it should be" if found == 90 else "FAILED: a sum is %r, not 90" % found))
    return 0 if found == 90 else 1


def _abi(wf):
    version = wf._call.bind("weft_abi_version", wf._call.ctypes.c_uint32)()
    return version >> 16, version & 0xFFFF


def _function(wf, path):
    with open(path, "rb") as f:
        head = f.read(4096)
    if b"module" in head or b"func.func" in head:
        with open(path, encoding="utf-8") as f:
            return wf.from_stablehlo(f.read())
    return wf.Function.load(path)


def run(options):
    import libweft as wf

    function = _function(wf, options.file)
    wanted = function.inputs
    if options.inputs and len(options.inputs) != len(wanted):
        print("run: %d inputs were given, and the function takes %d" % (len(options.inputs), len(wanted)), file=sys.stderr)
        return 2
    if options.inputs:
        import numpy

        inputs = [wf.tensor(numpy.load(path)).astype(kind) for path, (kind, _) in zip(options.inputs, wanted)]
    else:
        inputs = [wf.zeros(shape, kind) for kind, shape in wanted]
    for result in function.call(*inputs):
        print("%s%s" % (result.dtype, list(result.shape)))
        print(result)
    return 0


def show(options):
    import libweft as wf

    try:
        reader = wf.files.Reader(options.file)
    except wf.Error as error:
        try:
            print(_function(wf, options.file).text())
            return 0
        except (wf.Error, UnicodeDecodeError):
            raise error from None
    info = reader.info
    print("%s, step %d, %d tensors, %d bytes" % (info["producer"], info["step"], info["tensors"], info["file_bytes"]))
    for key, value in reader.metadata.items():
        print("%s = %s" % (key, value))
    for path, kind, shape, size in reader.entries():
        print("%-40s %s%s  %d bytes" % (path, kind, list(shape), size))
    return 0


def main():
    parser = argparse.ArgumentParser(
        prog="python -m libweft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", help="the C library, a file or its folder, before what LIBWEFT_PATH says")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor").set_defaults(run=doctor)
    for name, function in (("run", run), ("show", show)):
        command = commands.add_parser(name)
        command.add_argument("file")
        if name == "run":
            command.add_argument("inputs", nargs="*")
        command.set_defaults(run=function)
    options = parser.parse_args()
    try:
        return options.run(options)
    except (ImportError, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        print("%s: %s" % (options.command, error), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
