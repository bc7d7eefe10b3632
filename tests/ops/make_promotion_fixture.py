"""What PyTorch makes of two element types, and of a tensor and a Python number: the judge of src/ops/promotion.cc, written down because
tests run without PyTorch. Needs a Python with PyTorch:

    python tests/ops/make_promotion_fixture.py > tests/ops/promotion_fixture.txt

A line is "first second result" in Weft's names, "-" where PyTorch refuses, "c32" for complex numbers of two 16-bit parts; second is a type, or "int", "float", "complex" or "truth"
for a Python number.
"""
import torch

TYPES = {"bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8,
         "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16,
         "f32": torch.float32, "f64": torch.float64, "c64": torch.complex64, "c128": torch.complex128,
         "f8e4m3fn": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2, "f8e4m3fnuz": torch.float8_e4m3fnuz,
         "f8e5m2fnuz": torch.float8_e5m2fnuz, "f8e8m0fnu": torch.float8_e8m0fnu}
NAMES = {dtype: name for name, dtype in TYPES.items()}
NUMBERS = {"int": 1, "float": 1.5, "complex": 1j, "truth": True}


def answer(ask):
    try:
        found = ask()
    except RuntimeError:
        return "-"
    return NAMES.get(found) or {"torch.complex32": "c32", "torch.bcomplex32": "c32"}[str(found)]


def main():
    print(f"# PyTorch {torch.__version__.split('+')[0]}")
    for a, first in TYPES.items():
        for b, second in TYPES.items():
            print(a, b, answer(lambda: torch.promote_types(first, second)))
        for kind, number in NUMBERS.items():
            print(a, kind, answer(lambda: torch.result_type(torch.empty(1, dtype=first), number)))


if __name__ == "__main__":
    main()
