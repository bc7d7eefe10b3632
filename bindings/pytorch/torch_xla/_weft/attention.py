"""Attention: the layers that torch calls for in evaluation, put together from operations that have kernels, and the one that
torch puts together in Python for training, from fewer operations.
"""
import functools
import types

import torch
from torch.nn import functional as F

from .nn import gradient
from .runtime import C
from .table import layer, lower


def _heads(x, count):
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


def _hidden(mask, mask_type, batch):
    """The mask, true where nothing is seen, as [batch or 1, heads or 1, queries or 1, keys]."""
    if mask_type == 1:
        return mask.view(batch, 1, 1, mask.shape[-1])
    return mask.view(1, 1, *mask.shape) if mask.dim() == 2 else mask.view(batch, -1, *mask.shape[-2:])


@lower("_native_multi_head_attention")
def native_multi_head_attention(query, key, value, embed_dim, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias,
                                mask=None, need_weights=True, average_attn_weights=True, mask_type=None):
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (_heads(F.linear(x, w, b), num_head) for x, w, b in zip((query, key, value), weights, biases))
    scores = (q * (q.shape[-1] ** -0.5)) @ k.transpose(-2, -1)
    if mask is not None:
        hidden = _hidden(mask, mask_type, query.shape[0])
        scores = scores.masked_fill(hidden, float("-inf")) if hidden.dtype == torch.bool else scores + hidden
    shares = scores.softmax(-1)
    mixed = (shares @ v).transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    out = F.linear(mixed, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, shares.mean(1) if average_attn_weights else shares


@lower("_transformer_encoder_layer_fwd")
def transformer_encoder_layer(src, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu,
                              norm_first, eps, norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2, ffn_weight_1, ffn_bias_1, ffn_weight_2,
                              ffn_bias_2, mask=None, mask_type=None):
    def attend(x):
        return native_multi_head_attention(x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
                                           False, False, mask_type)[0]

    def first(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x):
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def feed(x):
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attend(first(src))
        return x + feed(second(x))
    x = first(src + attend(src))
    return second(x + feed(x))


_attention = torch.ops.aten.scaled_dot_product_attention.default
_fused = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default


@layer("scaled_dot_product_attention")
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    """One operation where nothing is dropped and the mask has no gradient; torch's own way otherwise."""
    fused = dropout_p == 0.0 and not enable_gqa and C.attention_fits(query, key, value)
    if fused and attn_mask is not None:
        fused = not is_causal and attn_mask.device.type == "xla" and attn_mask.dim() <= query.dim()
        fused = fused and not attn_mask.requires_grad and attn_mask.dtype in (torch.bool, query.dtype)
    if not fused:
        return _attention.decompose(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return _fused(query, key, value, attn_mask, 0.0, is_causal, False, scale=scale)[0]


def _values(query, key, value, mask):
    values = C.read(query), C.read(key), C.read(value)
    return values if mask is None else (*values, C.read(mask))


@lower("_scaled_dot_product_fused_attention_overrideable")
def fused_attention(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    if dropout_p != 0.0:
        raise NotImplementedError("fused attention that drops out is not there on the device xla")
    out = C.op("scaled_dot_product_attention", *_values(query, key, value, attn_bias), causal=bool(is_causal), scale=scale)
    return C.wrap(out), None, None, None, query.shape[-2], key.shape[-2], None, None, None


@lower("_scaled_dot_product_fused_attention_overrideable_backward")
def fused_attention_backward(grad_out, query, key, value, attn_bias, grad_input_mask, out, logsumexp, cum_seq_q, cum_seq_k,
                             max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, *, scale=None):
    inputs = _values(query, key, value, attn_bias)
    wanted = [bool(want) for want in grad_input_mask[:3]] + [False] * (len(inputs) - 3)
    found = gradient("scaled_dot_product_attention", inputs, [C.read(grad_out)], wanted, causal=bool(is_causal), scale=scale)
    return (*(None if grad is None else C.wrap(grad) for grad in found), None)[:4]


def _fits(query, key, value, width, heads, weight, bias_k, bias_v, zero_attention, options):
    """Self-attention of one projection that nobody wants the shares of: PyTorch's other cases are its own."""
    if query is not key or key is not value or type(query) is not torch.Tensor or query.device.type != "xla":
        return False
    if query.dim() != 3 or query.shape[2] != width or heads < 1 or width % heads or weight is None or weight.shape != (3 * width, width):
        return False
    if bias_k is not None or bias_v is not None or zero_attention or options.get("need_weights", True):
        return False
    if any(options.get(name) is not None for name in ("static_k", "static_v")) or options.get("use_separate_proj_weight"):
        return False
    length, batch = query.shape[:2]
    mask, padding = options.get("attn_mask"), options.get("key_padding_mask")
    if mask is not None and (mask.dtype != query.dtype or mask.shape not in ((length, length), (batch * heads, length, length))):
        return False
    if padding is not None and (padding.dtype != query.dtype or padding.shape != (batch, length)):
        return False
    return mask is not None or not options.get("is_causal")  # torch has an error for causal attention without a mask


def _merged(mask, padding, batch, heads):
    """The masks of pairs and of keys as one that broadcasts to [batch, heads, queries, keys]."""
    if mask is not None and mask.dim() == 3:
        mask = mask.view(batch, heads, *mask.shape[1:])
    if padding is None:
        return mask
    padding = padding.view(batch, 1, 1, padding.shape[1])
    return padding if mask is None else mask + padding


def _self_attention(original):
    """torch's function for nn.MultiheadAttention. Its own way to part a projection into queries, keys and values has 25 nodes of
    autograd, with its parameters' left out, for the 10 that are here.
    """
    fits, merged, functional = _fits, _merged, F

    def multi_head_attention_forward(
            query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
            out_proj_weight, out_proj_bias, training=True, *others, **options):
        if others or not fits(query, key, value, embed_dim_to_check, num_heads, in_proj_weight, bias_k, bias_v, add_zero_attn, options):
            return original(
                query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, bias_v, add_zero_attn, dropout_p,
                out_proj_weight, out_proj_bias, training, *others, **options)
        length, batch, width = query.shape
        padding = options.get("key_padding_mask")
        causal = padding is None and bool(options.get("is_causal"))
        mask = None if causal else merged(options.get("attn_mask"), padding, batch, num_heads)
        parts = functional.linear(query, in_proj_weight, in_proj_bias).view(length, batch, 3, num_heads, width // num_heads)
        q, k, v = parts.permute(2, 1, 3, 0, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(q, k, v, mask, dropout_p if training else 0.0, causal)
        joined = mixed.permute(2, 0, 1, 3).reshape(length, batch, width)
        return functional.linear(joined, out_proj_weight, out_proj_bias), None

    # torch.jit.script reads the original's source, and looks up the names in it where this function has its globals.
    found = multi_head_attention_forward
    found = types.FunctionType(found.__code__, F.__dict__, argdefs=found.__defaults__, closure=found.__closure__)
    return functools.wraps(original)(found)


def install():
    F.multi_head_attention_forward = _self_attention(F.multi_head_attention_forward)
