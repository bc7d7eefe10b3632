"""Makes the files beside it, with expected.json: run with a Python that has torch. Small ones of both generations, for machines where
torch cannot be had (pytorch_files_test.py)."""
import json
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
NAMES = {"float32": "f32", "bfloat16": "bf16", "int64": "i64", "bool": "bool", "complex64": "c64", "float8_e5m2": "f8e5m2"}


def hexed(t):
    dense = t.detach().resolve_conj().resolve_neg().contiguous()
    raw = bytes(dense.reshape(-1).view(torch.uint8).tolist())
    return NAMES[str(t.dtype).removeprefix("torch.")], list(t.shape), raw.hex()


def main():
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    state = {"layer.weight": torch.nn.Parameter(base), "half": (base / 3).bfloat16(), "turned": base.t(), "cut": base[1:, ::2],
             "mask": base > 5, "conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "small": base[0].to(torch.float8_e5m2),
             "optimizer": {"state": {0: {"step": torch.tensor(7)}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]}}
    tensors = {k: hexed(v) for k, v in state.items() if isinstance(v, torch.Tensor)}
    tensors["optimizer.state.0.step"] = hexed(state["optimizer"]["state"][0]["step"])
    expected = {}
    for name, new in (("today.pt", True), ("old.pt", False)):
        torch.save(state, os.path.join(HERE, name), _use_new_zipfile_serialization=new)
        expected[name] = tensors
    with open(os.path.join(HERE, "expected.json"), "w", encoding="utf-8") as f:
        json.dump(expected, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
