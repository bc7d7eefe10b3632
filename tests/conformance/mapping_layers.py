"""PyTorch's sums by labels, bags of embeddings, alignments and counts of equal elements in Weft: more of mapping.py, which importing this
fills."""
import torch

from mapping import Refused, argument, maps
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
    if s.input.ndim and s.input.shape[argument(s, 0, "dim", -1)] > 1000 and any_equal(s.input, argument(s, 0, "dim", -1)):
        raise Refused("equal elements")  # of short rows PyTorch takes the last one, as we do
    values, indices = t.op("most_frequent", t(s.input), axis=argument(s, 0, "dim", -1), keepdims=bool(argument(s, 1, "keepdim", False)))
    return [values, typed(indices, "i32")]


@maps("unique_consecutive")
def unique_consecutive(t, s):
    if s.kwargs.get("dim") is not None:
        raise Refused("slices")
    results = s.result if isinstance(s.result, list) else [s.result]
    values, _, inverse, counts = t.op("unique_consecutive_static", t(s.input), size=results[0].numel())
    wanted = [values] + ([typed(inverse, "i32")] if s.kwargs.get("return_inverse") else [])
    return wanted + ([typed(counts, "i32")] if s.kwargs.get("return_counts") else [])


@maps("nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout/with_train", "nn.functional.feature_alpha_dropout/without_train")
def alpha_dropout(t, s):
    if s.kwargs.get("p", 0.5) != 0 or not s.kwargs.get("training", s.name == "nn.functional.feature_alpha_dropout"):
        raise Refused("random")
    return t.op("dropout", t(s.input), rate=0.0, alpha=True)
