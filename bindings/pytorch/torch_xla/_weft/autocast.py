"""Autocast: which operations compute in the lower type, which in f32, which in the widest of their operands' types."""
import torch

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_library = torch.library.Library("aten", "IMPL")
_rest = torch.library.Library("_", "IMPL")

# The lists of pytorch/xla.
LOWER = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "_convolution",
         "matmul", "mm", "mv", "bmm", "addmm", "addmv", "addbmm", "baddbmm", "linear", "einsum", "chain_matmul",
         "linalg_multi_dot", "scaled_dot_product_attention", "prelu")
FULL = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "log_softmax.int", "softmax.int", "nll_loss", "nll_loss_nd",
        "cross_entropy_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss",
        "smooth_l1_loss", "kl_div", "cosine_embedding_loss", "cosine_similarity", "cumsum", "cumprod", "prod", "prod.dim_int",
        "exp", "expm1", "log", "log10", "log2", "log1p", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "reciprocal",
        "rsqrt", "acos", "asin", "cosh", "sinh", "tan", "softplus", "dist", "pdist", "cdist", "norm.Scalar",
        "norm.ScalarOpt_dim", "renorm", "logsumexp", "upsample_nearest2d", "upsample_bilinear2d", "grid_sampler_2d")
WIDEST = ("stack", "cat", "index_copy", "addcmul", "addcdiv", "atan2", "bilinear", "cross", "dot", "vdot", "index_put")


def _eligible(value):
    return (isinstance(value, torch.Tensor) and value.device.type == "xla" and value.is_floating_point()
            and value.dtype != torch.float64)


def _map(function, value):
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(function, item) for item in value)
    return value


def _cast(dtype):
    return lambda value: value.to(dtype) if _eligible(value) and value.dtype != dtype else value


def _kernel(overload, target):
    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            cast = _cast(target(args))
            args = tuple(_map(cast, value) for value in args)
            return overload(*args, **{name: _map(cast, value) for name, value in kwargs.items()})

    return kernel


def _lower(args):
    return torch.get_autocast_dtype("xla")


def _full(args):
    return torch.float32


def _widest(args):
    found = []
    _map(lambda value: found.append(value.dtype) if _eligible(value) else None, list(args))
    return torch.float32 if torch.float32 in found else found[0] if found else torch.float32


def install():
    _rest.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, target in ((LOWER, _lower), (FULL, _full), (WIDEST, _widest)):
        for name in names:
            packet, _, rest = name.partition(".")
            overload = getattr(getattr(torch.ops.aten, packet, None), rest or "default", None)
            if overload is not None:
                _library.impl(name, _kernel(overload, target), "AutocastPrivateUse1")
