"""The fused attention layers that torch calls for in evaluation, put together from operations that have kernels."""
import torch
from torch.nn import functional as F

from .table import lower


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
