"""PyTorch's sums by labels, bags of embeddings, alignments and counts of equal elements in Weft: more of mapping.py, which importing this
fills."""
import torch

from mapping import Refused, argument, maps
from mapping_networks import dropped
from mapping_sequences import any_equal, typed


@maps("einsum", sums=True)
def einsum(t, s):
    return t.op("einsum", [t(x, s.result.dtype) for x in s.input], equation=s.args[0])


@maps("nn.functional.embedding_bag", sums=True)
def embedding_bag(t, s):
    """OpInfo gives the table first."""
    if s.kwargs.get("max_norm") is not None or s.kwargs.get("scale_grad_by_freq"):
        raise Refused("max_norm" if s.kwargs.get("max_norm") is not None else "scale_grad_by_freq")
    t.no_gradient = bool(s.kwargs.get("sparse"))
    rest = [None if (x := s.kwargs.get(name)) is None else t(x) for name in ("offsets", "per_sample_weights")]
    return t.op("embedding_bag", t(s.input), t(s.args[0]), *rest, mode=s.kwargs.get("mode", "mean"), padding=s.kwargs.get("padding_idx"),
                include_last_offset=bool(s.kwargs.get("include_last_offset")))


@maps("nn.functional.ctc_loss", sums=True)
def ctc_loss(t, s):
    t.no_gradient = True  # PyTorch's has log_softmax's in it
    whole = lambda x: t(torch.as_tensor(x))
    return t.op("ctc_loss", t(s.input), *map(whole, s.args[:3]), reduction=s.kwargs.get("reduction", "mean"), blank=s.kwargs.get("blank", 0),
                zero_infinity=bool(s.kwargs.get("zero_infinity")))


@maps("histogram", sums=True)
def histogram(t, s):
    """The edges are PyTorch's own, where it makes them."""
    edges, weight = s.result[1], s.kwargs.get("weight")
    return [t.op("histogram", t(s.input), t(edges), None if weight is None else t(weight), density=bool(s.kwargs.get("density"))), t(edges)]


@maps("mode")
def mode(t, s):
    dim = argument(s, 0, "dim", -1)
    values, indices = t.op("most_frequent", t(s.input), axis=dim, keepdims=bool(argument(s, 1, "keepdim", False)))
    if s.input.ndim == 1 and len(s.input) > 1000 and any_equal(s.input, dim):  # PyTorch takes the last one of short rows, as we do
        t.no_gradient, s.process = True, lambda r: [r[0], r[0]]
        return [values, t.op("take", t(s.input), typed(indices, "i32"))]
    return [values, typed(indices, "i32")]


@maps("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout/with_train", "nn.functional.feature_alpha_dropout/without_train")
def alpha_dropout(t, s):
    return dropped(t, s, alpha=True)
