"""What a thread and the process know about devices: the current device, notices that are given once, the environment.

The context is made by the first tensor, not here, so that variables and `configure` count until then.
"""
import os
import threading
import warnings

import torch

from . import _weft

XRT_VARIABLES = ("XRT_TPU_CONFIG", "XRT_DEVICE_MAP", "XRT_WORKERS")
# Variables of PyTorch/XLA that choose something this package has no part for yet.
_WITHOUT_EFFECT = ("XLA_METRICS_SAMPLES", "XLA_METRICS_PERCENTILES")

_KINDS = {"cpu": "CPU", "reference": "CPU", "tpu": "TPU", "gpu": "GPU", "cuda": "GPU", "rocm": "GPU"}

# Variables by which plugins learn which devices of a machine they may use.
_VISIBLE = {"TPU": ("TPU_VISIBLE_CHIPS",), "GPU": ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")}

_cpu_devices = ""
_said = set()
_said_lock = threading.Lock()


def say_once(key, message):
    """Warns with `message` the first time that `key` comes."""
    with _said_lock:
        if key in _said:
            return
        _said.add(key)
    warnings.warn(message, stacklevel=3)


def truth(name):
    """Whether the variable is set to something else than 0, false or nothing."""
    return os.environ.get(name, "").strip().lower() not in ("", "0", "false", "no", "off")


def prepare():
    """Reads the variables that this package, not the library, understands; called before the context is made."""
    if truth("XLA_USE_F16"):  # Trainers set it late, so it is looked for also when the context is there.
        raise RuntimeError("XLA_USE_F16 is set: there is no mode that holds float32 tensors as float16. XLA_USE_BF16 holds "
                           "them as bfloat16 (a trainer's precision bf16-true), and float16 tensors are computed as such")
    if _weft.context_made():
        return
    here = [name for name in XRT_VARIABLES if os.environ.get(name)]
    platform = os.environ.get("WEFT_PLATFORM") or os.environ.get("PJRT_DEVICE", "")
    if here and platform.lower() == "tpu":
        # The library refuses these variables on TPUs, where they once chose the machine. Old programs set them first
        # of all, so they go on without the address.
        for name in here:
            del os.environ[name]
        say_once("xrt", f"{', '.join(here)} is set, and the address in it is not used: the TPUs of this machine are")
    _count_cpus()
    for name in _WITHOUT_EFFECT:
        if os.environ.get(name):
            say_once(name, f"{name} is set, and has no effect yet (docs/pytorch.md)")


def _count_cpus():
    """CPU_NUM_DEVICES says how many devices the CPU is, as PyTorch/XLA has it."""
    global _cpu_devices
    count = os.environ.get("CPU_NUM_DEVICES", "")
    if count == _cpu_devices or "WEFT_DEVICES" in os.environ or kind() != "CPU":
        return
    if count and (not count.isdigit() or int(count) < 1):
        raise ValueError(f"CPU_NUM_DEVICES='{count}' is not a number of devices")
    _weft.configure(devices=int(count or 1))
    _cpu_devices = count


def take_one_device(rank):
    """Leaves this process one device of its machine's, the one of its rank; before the context is made."""
    global _cpu_devices
    if kind() == "CPU":
        os.environ["WEFT_DEVICES"] = "1"
        _weft.configure(devices=1)
        return
    for name in _VISIBLE[kind()]:
        chosen = [one for one in os.environ.get(name, "").split(",") if one]
        os.environ[name] = chosen[rank] if rank < len(chosen) else str(rank)
    if kind() == "TPU":  # A process is then a machine of one chip to the plugin.
        os.environ.update({"TPU_PROCESS_BOUNDS": "1,1,1", "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1"})


def current_index():
    return torch.xla.current_device()


def set_current_index(index):
    torch.xla.set_device(index)


def kind():
    """'CPU', 'TPU' or 'GPU', without making the context where the environment says it."""
    if not _weft.context_made():
        platform = (os.environ.get("WEFT_PLATFORM") or os.environ.get("PJRT_DEVICE") or "cpu").lower()
        if platform in _KINDS:
            return _KINDS[platform]
    return _weft.device_kind()


def index_of(device):
    """The index of a device given as torch.device, text, number or None (the thread's current one)."""
    if device is None or device == "":
        return current_index()
    if isinstance(device, int):
        return check_index(device)
    device = torch.device(device)
    if device.type != "xla":
        raise ValueError(f"'{device}' is not an XLA device")
    return current_index() if device.index is None else check_index(device.index)


def check_index(index):
    """The index of the device that number `index` means; RuntimeError where there is none."""
    if index == 0:
        return 0
    count = _weft.device_count()
    if 0 <= index < count:
        return index
    if index == 1 and count == 1 and any(os.environ.get(name) for name in XRT_VARIABLES):
        say_once("xla:1", "xla:1 is what XRT called the first device: it is xla:0 here")
        return 0
    raise RuntimeError(f"device index {index} is out of range: there {'is' if count == 1 else 'are'} {count} XLA "
                       f"device{'' if count == 1 else 's'}, xla:0{'' if count == 1 else f' to xla:{count - 1}'}")


def device(index=None):
    """The device of a number, or the thread's current one."""
    return torch.device("xla", current_index() if index is None else index)
