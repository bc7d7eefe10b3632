// Moves that combine elements: reductions, products, convolutions and windows, normalisations, losses.
#include <algorithm>

#include "tests/support/random_moves.h"

namespace weft::test {
namespace {

using ir::Ints;

Ints SomeAxes(ProgramMaker& m, size_t rank, double p = 0.5) {
  Ints axes;
  for (size_t i = 0; i < rank; ++i) {
    if (m.rng.Chance(p)) axes.push_back(m.rng.Chance(0.8) ? static_cast<int64_t>(i) : static_cast<int64_t>(i) - static_cast<int64_t>(rank));
  }
  return axes;
}

int Reduction(ProgramMaker& m) {
  static const ir::OpDef* const kOps[] = {&ops::kOp_sum, &ops::kOp_sum, &ops::kOp_mean, &ops::kOp_max, &ops::kOp_min, &ops::kOp_prod,
                                          &ops::kOp_logsumexp, &ops::kOp_var, &ops::kOp_std, &ops::kOp_all, &ops::kOp_any};
  const ir::OpDef& op = *m.rng.Pick(kOps);
  const bool bools = &op == &ops::kOp_all || &op == &ops::kOp_any;
  int x = bools ? m.Find([](const ir::Type& t) { return IsBool(t.dtype); }) : m.rng.Chance(0.8) ? FloatValue(m) : AnyValue(m);
  if (x < 0) x = m.Leaf(DType::kBool, Shape(m));
  ir::AttrValue dims;
  if (m.rng.Chance(0.85)) dims = SomeAxes(m, m.dims(x).size());
  const int64_t keep = m.rng.Below(2);
  if (&op == &ops::kOp_std) {  // has no slope at zero
    const int variance = m.Call(ops::kOp_var, {x}, {{"dims", dims}, {"keepdims", keep}});
    for (int64_t i = 0; variance >= 0 && i < m.type(variance).count(); ++i) {
      if (!(m.host(variance).GetDouble(i) > 1e-3)) return variance;
    }
  }
  return m.Call(op, {x}, {{"dims", dims}, {"keepdims", keep}});
}

int ArgReduction(ProgramMaker& m) {
  const int x = AnyValue(m, 1);
  return m.Call(m.rng.Chance(0.5) ? ops::kOp_argmax : ops::kOp_argmin, {x},
                {{"axis", m.rng.Below(static_cast<int64_t>(m.dims(x).size()))}, {"keepdims", m.rng.Below(2)}});
}

// Reduces, and spreads the result over the same shape again: along the dimensions it came from, or others of equal size.
int ReduceAndSpread(ProgramMaker& m) {
  static const ir::OpDef* const kReductions[] = {&ops::kOp_sum, &ops::kOp_mean, &ops::kOp_max};
  static const ir::OpDef* const kBetween[] = {&ops::kOp_tanh, &ops::kOp_sigmoid, &ops::kOp_square};
  static const ir::OpDef* const kCombine[] = {&ops::kOp_add, &ops::kOp_sub, &ops::kOp_mul};
  const int x = FloatValue(m, 1);
  const Dims dims = m.dims(x);
  int r = m.Call(*m.rng.Pick(kReductions), {x}, {{"dims", SomeAxes(m, dims.size())}});
  if (r >= 0 && m.rng.Chance(0.5)) r = m.Call(*m.rng.Pick(kBetween), {r});
  if (r < 0) return r;
  Ints at;
  for (int64_t size : m.dims(r)) {
    Ints places;
    for (size_t d = 0; d < dims.size(); ++d) {
      const auto place = static_cast<int64_t>(d);
      if (dims[d] == size && std::find(at.begin(), at.end(), place) == at.end()) places.push_back(place);
    }
    at.push_back(m.rng.Pick(places));
  }
  r = m.Call(ops::kOp_broadcast_in_dim, {r}, {{"shape", ops::ToInts(dims)}, {"broadcast_dimensions", at}});
  return r < 0 ? r : m.Call(*m.rng.Pick(kCombine), {x, r});
}

// Products shrink what they give, or magnitudes grow with every layer.
int Calm(ProgramMaker& m, int x) {
  if (x < 0 || !IsFloat(m.type(x).dtype) || m.rng.Chance(0.5)) return x;
  return m.Call(ops::kOp_mul, {x, Number(m, m.type(x).dtype, 0.25)});
}

// What follows a product in networks: what went in is combined with what came out.
int Residual(ProgramMaker& m, int x, int product) {
  static const ir::OpDef* const kCombine[] = {&ops::kOp_add, &ops::kOp_sub, &ops::kOp_mul, &ops::kOp_maximum};
  if (product < 0 || m.dims(x) != m.dims(product) || m.type(x).dtype != m.type(product).dtype || m.rng.Chance(0.3)) return product;
  return m.Call(*m.rng.Pick(kCombine), {product, x});
}

// Factors of a product: floats mostly.
int Factor(ProgramMaker& m, size_t low_rank, size_t high_rank = 4) {
  if (m.options.smooth || m.rng.Chance(0.8)) return FloatValue(m, low_rank, high_rank);
  const int x = m.Find([&](const ir::Type& t) { return IsInteger(t.dtype) && t.rank() >= low_rank && t.rank() <= high_rank; });
  return x >= 0 && m.rng.Chance(0.7) ? x : m.Leaf(m.rng.Pick(kIntegers), Shape(m, low_rank, high_rank));
}

// The type of a product's result: absent, or any that can hold it.
ir::AttrValue ResultType(ProgramMaker& m, DType factors) {
  if (m.options.smooth || IsBool(factors) || m.rng.Chance(0.6)) return {};
  if (IsHalf(factors) && m.rng.Chance(0.5)) return DType::kF32;
  return IsFloat(factors) ? m.rng.Pick(kFloats) : m.rng.Pick(kIntegers);
}

int Matmul(ProgramMaker& m) {
  const int x = Factor(m, 1);
  Dims dims = m.dims(x);
  const int64_t inner = dims.back();
  Dims other = {inner, m.rng.Chance(0.3) ? inner : Size(m)};
  if (dims.size() > 2 && m.rng.Chance(0.5)) other.insert(other.begin(), dims.begin(), dims.end() - 2);
  if (m.rng.Chance(0.1)) other = {inner};
  const int y = Like(m, m.type(x).dtype, other);
  if (other.size() == 2 && m.rng.Chance(0.3)) {
    const int bias = m.rng.Chance(0.7) ? Like(m, m.type(x).dtype, {other[1]}) : -1;
    return Calm(m, Residual(m, x, m.Call(ops::kOp_linear, {x, y, bias}, {{"dtype", ResultType(m, m.type(x).dtype)}})));
  }
  return Calm(m, Residual(m, x, m.Call(ops::kOp_matmul, {x, y}, {{"dtype", ResultType(m, m.type(x).dtype)}})));
}

int Dot(ProgramMaker& m) {
  const int x = m.rng.Chance(0.9) ? Factor(m, 1) : AnyValue(m, 1);
  const Dims dims = m.dims(x);
  // Each dimension of x: batch, contracted or kept; the other operand has them in any order, with dimensions of its own.
  std::vector<std::pair<int64_t, int64_t>> plan;  // size, dimension of x or -1
  Ints batch, contracted;
  for (size_t i = 0; i < dims.size(); ++i) {
    const double p = m.rng.Uniform();
    if (p < 0.6) {
      (p < 0.2 ? batch : contracted).push_back(static_cast<int64_t>(i));
      plan.emplace_back(dims[i], static_cast<int64_t>(i));
    }
  }
  for (int64_t n = m.rng.Below(3); n > 0; --n) plan.emplace_back(Size(m), -1);
  for (size_t i = plan.size(); i > 1; --i) std::swap(plan[i - 1], plan[static_cast<size_t>(m.rng.Below(static_cast<int64_t>(i)))]);
  Dims other;
  for (const auto& entry : plan) other.push_back(entry.first);
  auto places = [&](const Ints& of) {
    Ints found;
    for (int64_t d : of) found.push_back(std::ranges::find(plan, d, &std::pair<int64_t, int64_t>::second) - plan.begin());
    return found;
  };
  const int y = Like(m, m.type(x).dtype, other);
  return Calm(m, m.Call(ops::kOp_dot_general, {x, y}, {{"lhs_batching_dimensions", batch}, {"rhs_batching_dimensions", places(batch)}, {"lhs_contracting_dimensions", contracted}, {"rhs_contracting_dimensions", places(contracted)}, {"dtype", ResultType(m, m.type(x).dtype)}}));
}

int Convolution(ProgramMaker& m) {
  const int64_t groups = m.rng.Chance(0.8) ? 1 : 2;
  const bool integers = !m.options.smooth && m.rng.Chance(0.2);
  int x = m.Find([&](const ir::Type& t) { return (integers ? IsInteger(t.dtype) : IsAcceptableFloat(m, t)) && t.rank() == 4 && t.dims[3] % groups == 0; });
  if (x < 0 || m.rng.Chance(0.3)) {
    constexpr int64_t kChannels[] = {1, 2, 3, 4, 8, 16, 17};
    const auto side = [&] { return m.hollow ? m.rng.Below(4) : m.rng.Between(3, 10); };
    x = Like(m, integers ? m.rng.Pick(kIntegers) : AnyFloat(m), {m.rng.Between(m.hollow ? 0 : 1, 4), side(), side(), m.rng.Pick(kChannels) * groups});
    if (x < 0) return x;  // too large
  }
  if (x < 0) return x;  // more elements than this program may have
  const int64_t in = m.dims(x)[3];
  constexpr int64_t kOut[] = {1, 2, 3, 5, 8, 16, 17, 33};
  const int w = Like(m, m.type(x).dtype, {m.rng.Between(1, 4), m.rng.Between(1, 4), in / groups, m.rng.Pick(kOut) * groups});
  const Ints strides = {m.rng.Between(1, 3), m.rng.Between(1, 3)}, dilation = {m.rng.Chance(0.8) ? 1 : 2, m.rng.Chance(0.8) ? 1 : 2};
  ir::AttrValue pads;
  const int64_t padding = m.rng.Below(3);
  if (padding == 2) pads = Ints{m.rng.Below(3), m.rng.Below(3), m.rng.Below(3), m.rng.Below(3)};
  int y = Calm(m, m.Call(ops::kOp_conv, {x, w}, {{"strides", strides}, {"padding", padding}, {"pads", pads}, {"dilation", dilation}, {"groups", groups}, {"dtype", ResultType(m, m.type(x).dtype)}}));
  if (y >= 0 && m.rng.Chance(0.5)) {  // what follows a convolution in networks, which backends fuse into it
    if (m.rng.Chance(0.7)) y = m.Call(ops::kOp_add, {y, Like(m, m.type(y).dtype, {m.dims(y)[3]})});
    if (y >= 0) y = m.Call(m.rng.Chance(0.7) ? ops::kOp_relu : ops::kOp_gelu, {y});
  }
  return y;
}

// The layer that spreads windows, and the general form in an order of dimensions of its own, groups of the batch among them.
int Transposed(ProgramMaker& m) {
  int x = Factor(m, 4, 4);
  if (x < 0) return x;
  const int64_t groups = m.dims(x)[3] % 2 == 0 && m.rng.Chance(0.3) ? 2 : 1;
  const int w = Like(m, m.type(x).dtype, {m.rng.Between(1, 4), m.rng.Between(1, 4), m.dims(x)[3] / groups, m.rng.Between(1, 6) * groups});
  const Ints strides = {m.rng.Between(1, 3), m.rng.Between(1, 3)}, dilation = {m.rng.Chance(0.8) ? 1 : 2, 1};
  ir::AttrValue pads, more;
  if (m.rng.Chance(0.4)) pads = Ints{m.rng.Below(2), m.rng.Below(2), m.rng.Below(2), m.rng.Below(2)};
  if (m.rng.Chance(0.4)) more = Ints{m.rng.Below(strides[0]), m.rng.Below(strides[1])};
  return Calm(m, m.Call(ops::kOp_conv_transpose, {x, w}, {{"strides", strides}, {"dilation", dilation}, {"pads", pads}, {"output_padding", more}, {"groups", groups}, {"dtype", ResultType(m, m.type(x).dtype)}}));
}

int GeneralConvolution(ProgramMaker& m) {
  int x = Factor(m, 3, 4);
  if (x < 0) return x;
  const size_t spatial = m.dims(x).size() - 2;
  Ints in = ops::Axes(spatial + 2), kernel = in, out = in;
  for (Ints* order : {&in, &kernel, &out}) {
    for (size_t i = order->size(); i > 1; --i) std::swap((*order)[i - 1], (*order)[static_cast<size_t>(m.rng.Below(static_cast<int64_t>(i)))]);
  }
  const int64_t batch = m.dims(x)[static_cast<size_t>(in[0])], features = m.dims(x)[static_cast<size_t>(in[1])];
  const int64_t groups = m.rng.Chance(0.4) ? 2 : 1;
  const int64_t feature_groups = groups > 1 && features % 2 == 0 && (batch % 2 != 0 || m.rng.Chance(0.5)) ? 2 : 1;
  const int64_t batch_groups = groups > 1 && feature_groups == 1 && batch % 2 == 0 ? 2 : 1;
  Dims w(spatial + 2);
  w[static_cast<size_t>(kernel[0])] = features / feature_groups;
  w[static_cast<size_t>(kernel[1])] = m.rng.Between(1, 6) * feature_groups * batch_groups;
  Ints strides, padding, base, dilation, turned;
  for (size_t d = 0; d < spatial; ++d) {
    w[static_cast<size_t>(kernel[d + 2])] = m.rng.Between(1, 4);
    strides.push_back(m.rng.Between(1, 3));
    padding.push_back(m.rng.Between(-1, 3));
    padding.push_back(m.rng.Between(-1, 3));
    base.push_back(m.rng.Chance(0.8) ? 1 : 2);
    dilation.push_back(m.rng.Chance(0.8) ? 1 : 2);
    turned.push_back(m.rng.Below(2));
  }
  ir::AttrValue reversal;
  if (m.rng.Chance(0.4)) reversal = turned;
  return Calm(m, m.Call(ops::kOp_convolution, {x, Like(m, m.type(x).dtype, w)},
                        {{"window_strides", strides}, {"padding", padding}, {"lhs_dilation", base}, {"rhs_dilation", dilation}, {"input_dimensions", in}, {"kernel_dimensions", kernel}, {"output_dimensions", out},
                         {"feature_group_count", feature_groups}, {"batch_group_count", batch_groups}, {"window_reversal", reversal}, {"dtype", ResultType(m, m.type(x).dtype)}}));
}

int Pool(ProgramMaker& m) {
  const int x = FloatValue(m, 3, 4);
  Ints window, strides;
  for (size_t i = 0; i + 2 < m.dims(x).size(); ++i) {
    window.push_back(m.rng.Between(1, 4));
    strides.push_back(m.rng.Chance(0.6) ? window.back() : m.rng.Between(1, 3));
  }
  return m.Call(m.rng.Chance(0.6) ? ops::kOp_max_pool : ops::kOp_avg_pool, {x}, {{"window", window}, {"strides", strides}, {"padding", m.rng.Below(2)}});
}

int Window(ProgramMaker& m) {
  const int x = m.rng.Chance(0.8) ? FloatValue(m, 1) : AnyValue(m, 1, 4);
  Ints window, strides, base, dilation, padding;
  for (size_t i = 0; i < m.dims(x).size(); ++i) {
    window.push_back(m.rng.Chance(0.5) ? 1 : m.rng.Between(1, 4));
    strides.push_back(m.rng.Chance(0.6) ? 1 : m.rng.Between(1, 3));
    base.push_back(m.rng.Chance(0.9) ? 1 : 2);
    dilation.push_back(m.rng.Chance(0.9) ? 1 : 2);
    padding.push_back(m.rng.Chance(0.7) ? 0 : m.rng.Between(-1, 3));
    padding.push_back(m.rng.Chance(0.7) ? 0 : m.rng.Between(-1, 3));
  }
  return m.Call(ops::kOp_reduce_window, {x}, {{"window_dimensions", window}, {"reducer", m.rng.Below(4)}, {"window_strides", strides}, {"base_dilations", base}, {"window_dilations", dilation}, {"padding", padding}});
}

int Normalize(ProgramMaker& m) {
  static const ir::OpDef* const kOps[] = {&ops::kOp_softmax, &ops::kOp_log_softmax, &ops::kOp_layer_norm, &ops::kOp_rms_norm, &ops::kOp_batch_norm};
  const ir::OpDef& op = *m.rng.Pick(kOps);
  const int x = FloatValue(m, 1);
  const DType dtype = m.type(x).dtype;
  const int64_t axis = &op == &ops::kOp_rms_norm ? -1 : m.rng.Below(static_cast<int64_t>(m.dims(x).size()));
  const int64_t features = m.dims(x)[axis < 0 ? m.dims(x).size() - 1 : static_cast<size_t>(axis)];
  std::vector<int> operands = {x};
  for (size_t i = 1; i < op.operands.size(); ++i) {
    operands.push_back(op.operands[i].optional && m.rng.Chance(0.3) ? -1 : Like(m, dtype, {features}));
  }
  return m.Call(op, operands, {{"axis", axis}, {"epsilon", 0.01}});
}

int Loss(ProgramMaker& m) {
  const int x = FloatValue(m, 1);
  const Dims dims = m.dims(x);
  if (m.rng.Chance(0.4)) return m.Call(ops::kOp_mse, {x, Like(m, m.type(x).dtype, dims)}, {{"reduction", m.rng.Below(3)}});
  HostTensor labels(m.rng.Chance(0.5) ? DType::kI32 : DType::kI64, Dims(dims.begin(), dims.end() - 1));
  for (int64_t i = 0; i < labels.count(); ++i) labels.SetInt(i, m.rng.Below(dims.back()));
  return m.Call(ops::kOp_cross_entropy, {x, m.LeafOf(std::move(labels))}, {{"reduction", m.rng.Below(3)}});
}

template <int (*make)(ProgramMaker&)>
void Do(ProgramMaker& m) {
  make(m);
}

constexpr Move kMoves[] = {{12, Do<Reduction>}, {3, Do<ArgReduction>}, {6, Do<ReduceAndSpread>}, {9, Do<Matmul>}, {4, Do<Dot>}, {5, Do<Convolution>}, {2, Do<Transposed>}, {2, Do<GeneralConvolution>}, {4, Do<Pool>}, {2, Do<Window>}, {7, Do<Normalize>}, {3, Do<Loss>}};

}  // namespace

std::span<const Move> NetworkMoves() { return kMoves; }

}  // namespace weft::test
