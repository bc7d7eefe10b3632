"""torch_xla.core.xla_model: devices, the barrier, the optimizer's step, collectives and saving.

Collectives are calls that every process of the world makes, in the same order (_world.py). In a world of one process they
give back what they were given; what they are asked is checked all the same.
"""
import functools
import io
import os
import sys
import threading
import time

import torch

from .. import _collectives, _later, _state, _step, _weft, _world
from ..utils import utils as _xu

REDUCE_SUM = "sum"
REDUCE_MUL = "mul"
REDUCE_AND = "and"
REDUCE_OR = "or"
REDUCE_MIN = "min"
REDUCE_MAX = "max"

# torch.xla's state as one number: the seed, and above it how many numbers were drawn.
_STATE_BITS = 192

_replication = threading.local()


# Devices.


def _check_kind(devkind):
    """Whether the devices are of this kind, which may be None, a name or several."""
    kinds = [devkind] if isinstance(devkind, str) else list(devkind or [])
    return not kinds or _state.kind() in [kind.upper() for kind in kinds]


def xla_device(n=None, devkind=None):
    """The device `xla:n`, which is the thread's current one from then on; without n, the current one."""
    _state.prepare()
    if devkind is not None and not _check_kind(devkind):
        raise RuntimeError(f"there is no device of kind {devkind}: the devices are of kind {_state.kind()}")
    if n is None:
        return _state.device()
    index = _state.check_index(n)
    _state.set_current_index(index)
    return _state.device(index)


def get_xla_supported_devices(devkind=None, max_devices=None):
    """Names of the devices of this process, ['xla:0', …]; None where none is of the kind asked for."""
    _state.prepare()
    if not _check_kind(devkind):
        return None
    names = [f"xla:{index}" for index in range(_weft.device_count())]
    return names if max_devices is None else names[:max_devices]


def xla_real_devices(devices=None):
    """What stands behind devices: ['CPU:0']."""
    if devices is None:
        devices = get_xla_supported_devices()
    return [f"{_state.kind()}:{_state.index_of(device)}" for device in devices]


def xla_device_hw(device):
    """'CPU', 'TPU' or what else computes for a device; 'CPU' for PyTorch's own CPU device."""
    if torch.device(device).type == "cpu":
        return "CPU"
    _state.index_of(device)
    return _state.kind()


def set_replication(device, devices):
    """Says that `device` computes together with `devices`: alone, until several devices can."""
    index = _state.index_of(device)
    indices = [_state.index_of(one) for one in devices]
    if len(indices) > 1:
        raise NotImplementedError("set_replication: several devices that compute together come later")
    if indices and indices != [index]:
        raise ValueError(f"set_replication: xla:{index} is not among {[f'xla:{one}' for one in indices]}")
    _state.set_current_index(index)
    _replication.devices = [f"xla:{one}" for one in indices]


def get_memory_info(device=None):
    """Bytes of a device: {'bytes_used', 'bytes_limit', 'peak_bytes_used'}. Without a limit it is the machine's memory."""
    info = dict(_weft.memory_info(_state.index_of(device)))
    info["bytes_limit"] = info["bytes_limit"] or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return info


# The world of processes.


def xrt_world_size(defval=1):
    """Processes that train together."""
    return _world.size()


def get_ordinal(defval=0):
    """The number of this process among all."""
    return _world.rank()


def get_local_ordinal(defval=0):
    """The number of this process among those of its machine."""
    return _world.local_rank()


def is_master_ordinal(local=True):
    """Whether this process is the first, of its machine or of all."""
    return (get_local_ordinal() if local else get_ordinal()) == 0


def master_print(*args, fd=None, local=False, flush=False):
    """Prints in the first process alone."""
    if is_master_ordinal(local=local):
        print(*args, file=sys.stdout if fd is None else fd, flush=flush)


def rendezvous(tag, payload=b"", replicas=()):
    """Waits until every process (or every one of `replicas`) is here, and gives the payloads of all, by ordinal.

    RuntimeError where they came with different tags, or where one of them has ended.
    """
    if not isinstance(payload, (bytes, bytearray)):
        raise TypeError(f"rendezvous '{tag}': the payload has to be bytes, not {type(payload).__name__}")
    members = sorted(set(replicas))
    _world.check_ordinals(members, f"rendezvous '{tag}'")
    if members and get_ordinal() not in members:
        raise ValueError(f"rendezvous '{tag}': process {get_ordinal()} is none of the replicas {members}")
    return _world.gather(tag, bytes(payload), members or None)


def mesh_reduce(tag, data, reduce_fn):
    """reduce_fn of the list of what every process gave, by ordinal, with tensors on the CPU. `data` is what pickle takes."""
    cpu_data = _maybe_convert_to_cpu(data)
    if xrt_world_size() == 1:
        return reduce_fn([cpu_data])
    written = io.BytesIO()
    torch.save(cpu_data, written)
    # The bytes come from processes of the same job; nobody else has its token.
    return reduce_fn([torch.load(io.BytesIO(one), weights_only=False) for one in rendezvous(tag, written.getvalue())])


# Collectives.


def _check_reduce(reduce_type, who):
    if reduce_type not in _collectives.REDUCES:
        raise ValueError(f"{who}: '{reduce_type}' is not one of {', '.join(_collectives.REDUCES)}")


def _check_device_tensor(tensor, who):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{who}: a tensor is needed, not {type(tensor).__name__}")
    if tensor.device.type != "xla":
        raise RuntimeError(f"{who}: Input tensor is not an XLA tensor: {tensor.type()}")


def _check_dim(tensor, dim, who, verb):
    """The dimension from 0 on."""
    if tensor.dim() == 0:
        raise ValueError(f"{who}: a tensor without dimensions cannot be {verb}")
    if not -tensor.dim() <= dim < tensor.dim():
        raise IndexError(f"{who}: dimension {dim} of a tensor with {tensor.dim()}")
    return dim % tensor.dim()


def _check_parts(tensor, dim, count, size, who, name):
    if count != size:
        raise ValueError(f"{who}: {name} is {count}, and {'one process takes' if size == 1 else f'{size} processes take'} part")
    if tensor.shape[dim] % size:
        raise ValueError(f"{who}: {tensor.shape[dim]} elements along dimension {dim} cannot be cut into {size} equal parts")


def _for_each(value, output, one):
    """`one` of a tensor, or of each of a list; into `output` where it is there."""
    if not isinstance(value, torch.Tensor):
        outputs = output if output is not None else [None] * len(value)
        return [_for_each(tensor, into, one) for tensor, into in zip(value, outputs, strict=True)]
    result = one(value)
    return result if output is None else output.copy_(result)


def all_reduce(reduce_type, inputs, scale=1.0, groups=None, cctx=None, pin_layout=True):
    """Reduces over the processes, and multiplies by `scale`. A tensor gives a new one; a list changes in place."""
    _check_reduce(reduce_type, "all_reduce")
    tensors = [inputs] if isinstance(inputs, torch.Tensor) else inputs
    for tensor in tensors:
        _check_device_tensor(tensor, "all_reduce")
    group = _world.group(groups, "all_reduce")
    if isinstance(inputs, torch.Tensor):
        return _collectives.all_reduce(group, reduce_type, inputs, scale)
    _collectives.all_reduce_in_place(group, reduce_type, inputs, scale)
    return inputs


def all_gather(value, dim=0, groups=None, output=None, pin_layout=True):
    """What every process gave, joined along `dim`; into `output` where it is there. A list gives a list."""

    def one(tensor):
        _check_device_tensor(tensor, "all_gather")
        at = _check_dim(tensor, dim, "all_gather", "joined")
        return _collectives.all_gather(_world.group(groups, "all_gather"), tensor, at)

    return _for_each(value, output, one)


def reduce_scatter(reduce_type, input, scale, scatter_dim, shard_count, groups=None, output=None, pin_layout=True):
    """This process's part, along `scatter_dim`, of the reduction times `scale`; it goes into `output` where that is there.

    `shard_count` is the number of processes that take part. A list gives a list.
    """
    _check_reduce(reduce_type, "reduce_scatter")

    def one(tensor):
        _check_device_tensor(tensor, "reduce_scatter")
        at = _check_dim(tensor, scatter_dim, "reduce_scatter", "cut")
        group = _world.group(groups, "reduce_scatter")
        _check_parts(tensor, at, shard_count, group[1], "reduce_scatter", "shard_count")
        return _collectives.reduce_scatter(group, reduce_type, tensor, scale, at)

    return _for_each(input, output, one)


def all_to_all(value, split_dimension, concat_dimension, split_count, groups=None, pin_layout=True):
    """Cuts a tensor into `split_count` parts along a dimension, gives part k to process k, and joins what comes along another."""
    _check_device_tensor(value, "all_to_all")
    split = _check_dim(value, split_dimension, "all_to_all", "cut")
    concat = _check_dim(value, concat_dimension, "all_to_all", "joined")
    group = _world.group(groups, "all_to_all")
    _check_parts(value, split, split_count, group[1], "all_to_all", "split_count")
    return _collectives.all_to_all(group, value, split, concat)


def collective_broadcast(tensors, root_ordinal=0, groups=None, pin_layout=True):
    """Gives every process the tensors of process `root_ordinal`, in place. With groups, of that place in each group."""
    for tensor in tensors:
        _check_device_tensor(tensor, "collective_broadcast")
    group = _world.group(groups, "collective_broadcast")
    if not groups:
        _world.check_ordinals([root_ordinal], "collective_broadcast")
    elif not 0 <= root_ordinal < group[1]:
        raise ValueError(f"collective_broadcast: root_ordinal {root_ordinal} is no place in a group of {group[1]}")
    _collectives.broadcast_in_place(group, tensors, root_ordinal)


def broadcast_master_param(model):
    """Gives every process the parameters and buffers of the first, and evaluates them."""
    tensors = [tensor.data for tensor in (*model.parameters(), *model.buffers())]
    collective_broadcast(tensors)
    mark_step()


def _fetch_gradients(optimizer):
    """The gradients of an optimizer, in the order of its parameters."""
    return [
        parameter.grad for group in optimizer.__getstate__()["param_groups"] for parameter in group["params"]
        if parameter.grad is not None
    ]


def reduce_gradients(optimizer, groups=None, pin_layout=True):
    """Makes each gradient the mean over the processes, or over the threads of DataParallel, in place."""
    count = _world.group(groups, "reduce_gradients")[1]
    if count > 1 or _state.truth("XLA_ALWAYS_ALLREDUCE"):
        gradients = _fetch_gradients(optimizer)
        all_reduce(REDUCE_SUM, gradients, scale=1.0 / count, groups=groups, pin_layout=pin_layout)


# Steps.


def mark_step(wait=False, reset_scope=True):
    """The barrier: see torch_xla.sync."""
    _step.sync(wait=wait)


def optimizer_step(optimizer, barrier=False, optimizer_args=None, groups=None, pin_layout=True):
    """Reduces the gradients, steps, and with `barrier` evaluates. Gives what the optimizer's step gave."""
    reduce_gradients(optimizer, groups=groups, pin_layout=pin_layout)
    result = optimizer.step(**(optimizer_args or {}))
    if barrier:
        mark_step()
    return result


def add_step_closure(closure, args=(), run_async=False):
    """Calls closure(*args) after this thread's next barrier, when tensors among the arguments have values.

    With `run_async` another thread calls it; what it raises, the barrier after that raises.
    """
    _step.add_closure(closure, args, run_async)


def wait_device_ops(devices=None):
    """Until the work of these devices, or of all, is done; what was recorded is launched first."""
    if not _weft.context_made():
        return
    indices = [_state.index_of(device) for device in devices] if devices else range(_weft.device_count())
    for index in indices:
        _weft.wait(index)


class RateTracker:
    """Counts what is added, and tells how many came per second: lately (smoothed) and since the beginning."""

    def __init__(self, smooth_factor=None):
        if smooth_factor is None:
            smooth_factor = float(os.environ.get("RATE_TRACKER_SMOOTHING", "0.4"))
        self._smooth_factor = smooth_factor
        self._begin = self._last_time = time.time()
        self._counted = 0.0
        self._new = 0.0
        self._last_rate = None

    def add(self, count):
        self._new += count

    def rate(self):
        """Per second since the last call, mixed with what that call gave by the smoothing factor."""
        now = time.time()
        passed = now - self._last_time
        if passed <= 0:
            return 0.0
        rate = self._new / passed
        if self._last_rate is not None:
            rate = (1 - self._smooth_factor) * rate + self._smooth_factor * self._last_rate
        self._counted += self._new
        self._new, self._last_time, self._last_rate = 0.0, now, rate
        return rate

    def global_rate(self):
        passed = time.time() - self._begin
        return (self._counted + self._new) / passed if passed > 0 else 0.0


# Copies between host and devices.


def _walk(data, select, convert):
    """`data` with what `select` chose put through `convert`, all of it together; containers become new ones."""
    chosen = []
    rebuild = _xu.take_apart(data, select, chosen)
    return rebuild(convert(chosen))


class ToXlaTensorArena:
    """Walks nested containers, and converts together what `select_fn` chooses among what is in them."""

    def __init__(self, convert_fn, select_fn):
        self._convert_fn = convert_fn
        self._select_fn = select_fn

    def transform(self, inputs):
        return _walk(inputs, self._select_fn, lambda chosen: self._convert_fn(chosen) if chosen else [])


def _is_device_tensor(value):
    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def _is_cpu_tensor(value):
    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _maybe_convert_to_cpu(data, convert=True):
    """`data` with tensors of devices copied to the CPU, evaluated together; as it is without `convert`."""
    return ToXlaTensorArena(_weft.download, _is_device_tensor).transform(data) if convert else data


def send_cpu_data_to_device(datas, device, input_sharding=None):
    """A list of what was in `datas`, with CPU tensors on the device, uploaded together."""
    if input_sharding is not None:
        raise NotImplementedError("input_sharding: torch_xla.distributed.spmd comes later")
    index = _state.index_of(device)
    if isinstance(datas, torch.Tensor):
        datas = [datas]
    return ToXlaTensorArena(functools.partial(_upload, index=index), _is_cpu_tensor).transform(datas)


def _upload(tensors, index):
    return _weft.upload(tensors, index)


def save(data, file_or_path, master_only=True, global_master=False):
    """torch.save of `data` with its tensors on the CPU; with `master_only`, in the first process alone.

    A file by name is whole or as it was: the new one takes its place when it is on the disk. All processes call it, and it
    returns when all have: then the file is there. RuntimeError where another process could not write.
    """
    writes = not master_only or is_master_ordinal(local=not global_master)

    def write():
        cpu_data = _maybe_convert_to_cpu(data)
        if isinstance(file_or_path, (str, os.PathLike)):
            _xu.replace_file(file_or_path, lambda file: torch.save(cpu_data, file))
        else:
            torch.save(cpu_data, file_or_path)

    _world.together("save", write if writes else None)


# Random numbers.


def get_rng_state(device=None):
    """The state of a device's random numbers, an integer: what set_rng_state was given, until numbers are drawn."""
    return int.from_bytes(bytes(torch.xla.get_rng_state(_state.index_of(device)).tolist()), "little")


def set_rng_state(seed, device=None):
    """Sets the state of a device's random numbers, to what get_rng_state gave or to any integer."""
    index, seed = _state.index_of(device), int(seed)
    if not _weft.context_made() and 0 <= seed < 2**63:
        torch.xla.manual_seed(seed)  # The context starts with it, and is not made for it.
        return
    state = (seed % 2**_STATE_BITS).to_bytes(_STATE_BITS // 8, "little")
    torch.xla.set_rng_state(torch.tensor(list(state), dtype=torch.uint8), index)


def __getattr__(name):
    raise _later.missing(__name__, name)
