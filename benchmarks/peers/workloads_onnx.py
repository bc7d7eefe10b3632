"""The inference workloads of benchmarks/workloads on ONNX Runtime or OpenVINO, exported from workloads_torch.py's models.

usage: workloads_onnx.py --only NAME --runtime ort|openvino [--seconds S] [--bf16]
Prints one JSON object: best and median milliseconds, seconds of the first run with its compilation, peak megabytes.
"""
import argparse
import json
import os
import resource
import sys
import tempfile
import time

import torch
import torch.nn as nn
import workloads_torch as models

parser = argparse.ArgumentParser()
parser.add_argument("--only", required=True)
parser.add_argument("--seconds", type=float, default=4)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--runtime", choices=("ort", "openvino"), required=True)
options = parser.parse_args()

bert = lambda: nn.Sequential(*[models.Block(768, 12, False, False, False) for _ in range(12)])
gpt = lambda: models.Block(768, 12, True, True, True)
WORKLOADS = {
    "rn50-infer-b1": (models.resnet50, (1, 3, 224, 224)), "rn50-infer-b8": (models.resnet50, (8, 3, 224, 224)),
    "mobilenetv2-infer-b4": (models.mobilenet, (4, 3, 224, 224)), "bert-infer-b1": (bert, (1, 128, 768)),
    "gpt2b-fwd-b1": (gpt, (1, 128, 768)), "gpt2b-fwd-b8": (gpt, (8, 128, 768)),
}
WORKLOADS["rn50-infer-b1-nchw"] = WORKLOADS["rn50-infer-b1"]  # ONNX knows no other layout


def onnx_runtime(path, x):
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})


def openvino(path, x):
    import openvino

    precision = "bf16" if options.bf16 else "f32"
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 2})
    request = compiled.create_infer_request()
    return lambda: request.infer({0: x})


if __name__ == "__main__":
    if options.only not in WORKLOADS:
        sys.exit(77)  # this peer does not run it
    make, shape = WORKLOADS[options.only]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(make().eval(), (torch.rand(*shape),), path, dynamo=False, input_names=["x"], output_names=["y"])
        start = time.perf_counter()
        step = (onnx_runtime if options.runtime == "ort" else openvino)(path, torch.rand(*shape).numpy())
        made = time.perf_counter() - start
        found = models.measure(step, options.seconds)
        found["first_s"] += made
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"name": options.only, **found}))
