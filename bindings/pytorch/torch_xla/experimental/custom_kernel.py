"""torch_xla.experimental.custom_kernel: flash_attention; the other kernels come later."""
import torch

from .. import _later


def flash_attention(q, k, v, causal=False, q_segment_ids=None, kv_segment_ids=None, sm_scale=1.0, *, ab=None,
                    partition_spec=None, mesh=None):
    """Attention of tensors [batch, heads, length, width]: softmax(q @ k.T * sm_scale + ab) @ v.

    `ab` is added before the softmax; with segment ids, [batch, length], a query sees the keys of its own segment alone. It is
    computed as torch's scaled_dot_product_attention is.
    """
    if partition_spec is not None or mesh is not None:
        raise NotImplementedError("flash_attention: partition_spec and mesh belong to torch_xla.distributed.spmd, which comes "
                                  "later")
    if (q_segment_ids is None) != (kv_segment_ids is None):
        raise ValueError("flash_attention: either both q_segment_ids and kv_segment_ids are given, or none")
    if ab is None and q_segment_ids is None:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=sm_scale)
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    if causal:
        seen = seen.tril()
    if q_segment_ids is not None:
        seen = seen & (q_segment_ids.unsqueeze(-1) == kv_segment_ids.unsqueeze(-2)).unsqueeze(1)
    mask = seen if ab is None else ab.masked_fill(~seen, float("-inf"))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=sm_scale)


def __getattr__(name):
    raise _later.missing(__name__, name)
