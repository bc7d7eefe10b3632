// What random programs consist of: a table of moves, each of which adds a call or a few. Operations that only need
// operands of the right types come from their samples, so that a new operation joins by itself; those where shapes make
// the difference have a move of their own.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "src/ops/build.h"
#include "src/ops/sample.h"
#include "tests/support/random_program.h"

namespace weft::test {
namespace {

using ir::Ints;

constexpr DType kFloats[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16};
constexpr DType kOthers[] = {DType::kI32, DType::kI8, DType::kU8, DType::kBool, DType::kI64, DType::kI32, DType::kBool, DType::kU32};
constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64, 65};

int64_t Size(ProgramMaker& m) {
  if (m.rng.Chance(0.01)) return 0;
  if (m.rng.Chance(0.15)) return 1;
  return m.rng.Chance(0.85) ? m.rng.Pick(m.sizes) : m.rng.Pick(kSizes);
}

Dims Shape(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 4) {
  Dims dims;
  const auto rank = static_cast<size_t>(m.rng.Between(static_cast<int64_t>(low_rank), static_cast<int64_t>(high_rank) + 1));
  int64_t count = 1;
  while (dims.size() < rank) {
    int64_t size = Size(m);
    if (count * size > 3'000) size = m.rng.Between(1, 3);
    dims.push_back(size);
    count *= size;
  }
  return dims;
}

DType AnyFloat(ProgramMaker& m) { return m.options.smooth || m.rng.Chance(0.8) ? m.main : m.rng.Pick(kFloats); }

bool IsAcceptableFloat(ProgramMaker& m, const ir::Type& type) {
  return IsFloat(type.dtype) && (!m.options.smooth || type.dtype == DType::kF64);
}

// A float value of a rank, a new leaf if there is none.
int FloatValue(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 4) {
  int found = -1;
  if (m.rng.Chance(0.93)) {
    found = m.Find([&](const ir::Type& t) { return IsAcceptableFloat(m, t) && t.rank() >= low_rank && t.rank() <= high_rank; });
  }
  return found >= 0 ? found : m.Leaf(AnyFloat(m), Shape(m, low_rank, high_rank));
}

int AnyValue(ProgramMaker& m, size_t low_rank = 0, size_t high_rank = 5) {
  const int found = m.Find([&](const ir::Type& t) { return t.rank() >= low_rank && t.rank() <= high_rank; });
  return found >= 0 ? found : FloatValue(m, low_rank, std::min<size_t>(high_rank, 4));
}

int Flatten(ProgramMaker& m, int x) { return m.Call(ops::kOp_reshape, {x}, {{"shape", Ints{m.type(x).count()}}}); }

int Reshape(ProgramMaker& m, int x, const Dims& dims) {
  return m.Call(ops::kOp_reshape, {x}, {{"shape", ops::ToInts(dims)}});
}

// x in other dimensions: broadcast where that works, else its first elements, repeated as far as need be.
int Coerce(ProgramMaker& m, int x, const Dims& dims) {
  if (x < 0 || m.dims(x) == dims) return x;
  const auto broadcast = ops::BroadcastDims(m.dims(x), dims);
  if (broadcast.ok() && *broadcast == dims && m.rng.Chance(0.8)) {
    return m.Call(ops::kOp_broadcast_to, {x}, {{"shape", ops::ToInts(dims)}});
  }
  const int64_t count = CountOf(dims), have = m.type(x).count();
  if (have == 0 && count > 0) return m.Leaf(m.type(x).dtype, dims);
  int flat = Flatten(m, x);
  if (flat >= 0 && count < have) {
    const int64_t start = m.rng.Between(0, have - count + 1);
    flat = m.Call(ops::kOp_slice, {flat}, {{"start_indices", Ints{start}}, {"limit_indices", Ints{start + count}}, {"strides", Ints{1}}});
  } else if (flat >= 0 && count > have) {
    if (count > 8 * have) return m.Leaf(m.type(x).dtype, dims);
    std::vector<int> parts(static_cast<size_t>((count + have - 1) / have), flat);
    flat = m.Call(ops::kOp_concatenate, parts, {{"dimension", int64_t{0}}});
    if (flat >= 0) {
      flat = m.Call(ops::kOp_slice, {flat}, {{"start_indices", Ints{0}}, {"limit_indices", Ints{count}}, {"strides", Ints{1}}});
    }
  }
  return flat < 0 ? flat : Reshape(m, flat, dims);
}

// A value of the type: one that is there, made to fit, or a new leaf.
int Like(ProgramMaker& m, DType dtype, const Dims& dims) {
  int x = m.rng.Chance(0.7) ? m.Find([&](const ir::Type& t) { return t.dtype == dtype && t.dims == dims; }) : -1;
  if (x < 0 && m.rng.Chance(0.4)) x = Coerce(m, m.Find([&](const ir::Type& t) { return t.dtype == dtype; }), dims);
  return x >= 0 ? x : m.Leaf(dtype, dims);
}

// Something that broadcasts with `dims` under NumPy's rules and does not make it larger, mostly.
int Partner(ProgramMaker& m, DType dtype, const Dims& dims) {
  int x = -1;
  if (m.rng.Chance(0.75)) {
    x = m.Find([&](const ir::Type& t) {
      const auto both = ops::BroadcastDims(t.dims, dims);
      return t.dtype == dtype && both.ok() && CountOf(*both) <= 4'000;
    });
  }
  if (x >= 0) return x;
  Dims smaller = dims;
  if (m.rng.Chance(0.5)) smaller.erase(smaller.begin(), smaller.begin() + m.rng.Below(static_cast<int64_t>(dims.size()) + 1));
  for (int64_t& d : smaller) {
    if (m.rng.Chance(0.15)) d = 1;
  }
  if (m.rng.Chance(0.15)) {
    return m.Call(ops::kOp_full, {}, {{"shape", ops::ToInts(smaller)}, {"value", m.rng.Chance(0.5) ? double(m.rng.Between(-1, 3)) : m.rng.Uniform(-2, 2)}, {"dtype", dtype}});
  }
  return Like(m, dtype, smaller);
}

// Into [low, high], smoothly.
int Squash(ProgramMaker& m, int x, double low, double high) {
  const HostTensor& value = m.host(x);
  bool inside = true;
  for (int64_t i = 0; i < value.count(); ++i) inside = inside && value.GetDouble(i) >= low && value.GetDouble(i) <= high;
  if (inside) return x;
  const DType dtype = m.type(x).dtype;
  auto number = [&](double v) { return m.Call(ops::kOp_full, {}, {{"shape", Ints{}}, {"value", v}, {"dtype", dtype}}); };
  x = m.Call(ops::kOp_sigmoid, {x});
  if (x >= 0) x = m.Call(ops::kOp_mul, {x, number(high - low)});
  return x < 0 ? x : m.Call(ops::kOp_add, {x, number(low)});
}

// Whether the operation may be there at all under the program's options.
bool Allowed(ProgramMaker& m, const ir::OpDef& op) {
  if (op.kind != ir::Kind::kComposite && op.lowering == ir::Lowering::kStructural) return false;
  if (op.random && !m.options.random) return false;
  return !m.options.smooth || (&op != &ops::kOp_stop_gradient && &op != &ops::kOp_bitcast_convert);
}

// An operation with its attributes and operand types from one of its samples; operands come from the program.
int FromSample(ProgramMaker& m, const ir::OpDef& op, bool pointwise, int chained = -1) {
  if (op.samples.empty() || !Allowed(m, op)) return -1;
  const ir::Sample& sample = m.rng.Pick(op.samples);
  if (m.options.smooth && !sample.gradient) return -1;
  const std::vector<DType> types = ops::SampleTypes(op, sample);
  if (types.empty()) return -1;
  auto takes = [&](const ir::Type& t) { return std::ranges::find(types, t.dtype) != types.end() && (!m.options.smooth || !IsFloat(t.dtype) || t.dtype == DType::kF64); };
  int x = chained >= 0 && takes(m.type(chained)) ? chained : m.Find(takes);
  if (x < 0) {
    const DType wanted = std::ranges::find(types, m.main) != types.end() ? m.main : m.rng.Pick(types);
    if (m.options.smooth && IsFloat(wanted) && wanted != DType::kF64) return -1;
    x = m.Leaf(wanted, Shape(m));
  }
  const DType dtype = m.type(x).dtype;
  const auto parsed = ops::ParseSample(op, sample, dtype);
  if (!parsed.ok()) return -1;
  const bool narrow = sample.low >= 0 || sample.high <= 1.5;
  const size_t place = static_cast<size_t>(m.rng.Below(static_cast<int64_t>(parsed->operands.size())));
  std::vector<int> operands;
  for (size_t i = 0; i < parsed->operands.size(); ++i) {
    const ops::SampleOperand& operand = parsed->operands[i];
    if (operand.absent) {
      operands.push_back(-1);
      continue;
    }
    int value;
    if (operand.bounded) {
      value = m.LeafOf(ops::FillSample(sample, operand, m.rng.Next()));
    } else if (pointwise) {
      value = operand.generic && i == place ? x : Partner(m, operand.type.dtype, m.dims(x));
    } else {
      value = operand.generic && i == place ? Coerce(m, x, operand.type.dims) : Like(m, operand.type.dtype, operand.type.dims);
    }
    if (value >= 0 && narrow && IsFloat(m.type(value).dtype)) value = Squash(m, value, sample.low, sample.high);
    if (value < 0) return -1;
    operands.push_back(value);
  }
  return m.Call(op, operands, parsed->attrs);
}

const std::vector<const ir::OpDef*>& PointwiseOps() {
  static const auto* ops = [] {
    auto* found = new std::vector<const ir::OpDef*>;
    for (const ir::OpDef* op : ops::AllOps()) {
      const bool plain = op->infer == ops::kOp_add.infer || op->rule == ir::OperandRule::kBroadcast;
      if (op->scalar != nullptr || (plain && op->kind == ir::Kind::kMacro)) found->push_back(op);
    }
    return found;
  }();
  return *ops;
}

int Pointwise(ProgramMaker& m) { return FromSample(m, *m.rng.Pick(PointwiseOps()), true); }

int Chain(ProgramMaker& m) {
  int x = FloatValue(m);
  for (int64_t n = m.rng.Between(2, 8); n > 0 && x >= 0; --n) {
    const int next = FromSample(m, *m.rng.Pick(PointwiseOps()), true, x);
    if (next >= 0) x = next;
  }
  return x;
}

int Arithmetic(ProgramMaker& m) {
  static const ir::OpDef* const kOps[] = {&ops::kOp_add, &ops::kOp_sub, &ops::kOp_mul, &ops::kOp_maximum, &ops::kOp_minimum};
  const int x = m.rng.Chance(0.8) ? FloatValue(m) : AnyValue(m);
  const int y = Partner(m, m.type(x).dtype, m.dims(x));
  return m.rng.Chance(0.5) ? m.Call(*m.rng.Pick(kOps), {x, y}) : m.Call(*m.rng.Pick(kOps), {y, x});
}

int SampleOfAny(ProgramMaker& m) { return FromSample(m, *m.rng.Pick(ops::AllOps()), false); }

int Cast(ProgramMaker& m) {
  if (m.options.smooth) return -1;
  const int x = AnyValue(m);
  return m.Call(ops::kOp_convert, {x}, {{"dtype", m.rng.Chance(0.6) ? m.rng.Pick(kFloats) : m.rng.Pick(kOthers)}});
}

int Transpose(ProgramMaker& m) {
  const int x = AnyValue(m, 2);
  Ints order = ops::Axes(m.dims(x).size());
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[static_cast<size_t>(m.rng.Below(static_cast<int64_t>(i)))]);
  return m.Call(ops::kOp_transpose, {x}, {{"permutation", order}});
}

int Regroup(ProgramMaker& m) {
  const int x = AnyValue(m);
  Dims dims = m.dims(x);
  // Merge neighbours, split a dimension, add and drop ones.
  for (int i = 0; i < 3; ++i) {
    const auto n = static_cast<int64_t>(dims.size());
    const int64_t at = m.rng.Below(n);
    if (n >= 2 && at + 1 < n && m.rng.Chance(0.4)) {
      dims[at] *= dims[at + 1];
      dims.erase(dims.begin() + at + 1);
    } else if (n > 0 && n < 5 && dims[at] > 1 && m.rng.Chance(0.5)) {
      int64_t factor = m.rng.Between(2, 9);
      if (dims[at] % factor != 0) continue;
      dims[at] /= factor;
      dims.insert(dims.begin() + at + m.rng.Below(2), factor);
    } else if (n < 5 && m.rng.Chance(0.5)) {
      dims.insert(dims.begin() + m.rng.Below(n + 1), 1);
    }
  }
  return Reshape(m, x, dims);
}

int Broadcast(ProgramMaker& m) {
  const int x = AnyValue(m, 0, 3);
  Dims dims;
  Ints at;
  for (int64_t d : m.dims(x)) {
    if (m.rng.Chance(0.4) && dims.size() < 4) dims.push_back(m.rng.Pick(m.sizes));
    at.push_back(static_cast<int64_t>(dims.size()));
    dims.push_back(d == 1 && m.rng.Chance(0.5) ? m.rng.Pick(m.sizes) : d);
  }
  if (m.rng.Chance(0.4)) dims.push_back(Size(m));
  return m.Call(ops::kOp_broadcast_in_dim, {x}, {{"shape", ops::ToInts(dims)}, {"broadcast_dimensions", at}});
}

int Slice(ProgramMaker& m) {
  const int x = AnyValue(m, 1);
  Ints start, limit, strides;
  for (int64_t d : m.dims(x)) {
    const bool whole = m.rng.Chance(0.4);
    start.push_back(whole ? 0 : m.rng.Between(0, std::max<int64_t>(d / 2, 1)));
    limit.push_back(whole ? d : m.rng.Between(std::min(start.back() + 1, d), d + 1));
    strides.push_back(m.rng.Chance(0.75) ? 1 : m.rng.Between(1, 4));
    start.back() = std::min(start.back(), limit.back());
  }
  return m.Call(ops::kOp_slice, {x}, {{"start_indices", start}, {"limit_indices", limit}, {"strides", strides}});
}

int Pad(ProgramMaker& m) {
  const int x = AnyValue(m, 1);
  Ints low, high, interior;
  for (size_t i = 0; i < m.dims(x).size(); ++i) {
    low.push_back(m.rng.Chance(0.5) ? 0 : m.rng.Between(-2, 4));
    high.push_back(m.rng.Chance(0.5) ? 0 : m.rng.Between(-2, 4));
    interior.push_back(m.rng.Chance(0.8) ? 0 : m.rng.Between(1, 3));
  }
  return m.Call(ops::kOp_pad, {x, Partner(m, m.type(x).dtype, {})}, {{"edge_padding_low", low}, {"edge_padding_high", high}, {"interior_padding", interior}});
}

int Reverse(ProgramMaker& m) {
  const int x = AnyValue(m, 1);
  Ints at;
  for (size_t i = 0; i < m.dims(x).size(); ++i) {
    if (m.rng.Chance(0.5)) at.push_back(static_cast<int64_t>(i));
  }
  return m.Call(ops::kOp_reverse, {x}, {{"dimensions", at}});
}

int Concatenate(ProgramMaker& m) {
  const int x = AnyValue(m, 1);
  const int64_t at = m.rng.Below(static_cast<int64_t>(m.dims(x).size()));
  std::vector<int> parts = {x};
  for (int64_t n = m.rng.Between(1, 4); n > 0; --n) {
    const int other = m.Find([&](const ir::Type& t) {
      if (t.dtype != m.type(x).dtype || t.rank() != m.dims(x).size()) return false;
      for (size_t i = 0; i < t.rank(); ++i) {
        if (static_cast<int64_t>(i) != at && t.dims[i] != m.dims(x)[i]) return false;
      }
      return true;
    });
    parts.insert(parts.begin() + m.rng.Below(static_cast<int64_t>(parts.size()) + 1), other);
  }
  return m.Call(m.rng.Chance(0.8) ? ops::kOp_concatenate : ops::kOp_stack, parts, {{"dimension", at}, {"axis", at}});
}

int Source(ProgramMaker& m) {
  Dims dims = Shape(m);
  const DType dtype = m.options.smooth ? DType::kF64 : m.rng.Chance(0.7) ? m.main : m.rng.Pick(kOthers);
  if (m.rng.Chance(0.4)) return m.Call(ops::kOp_full, {}, {{"shape", ops::ToInts(dims)}, {"value", double(m.rng.Between(-2, 3))}, {"dtype", dtype}});
  if (m.rng.Chance(0.5) && !dims.empty() && !IsBool(dtype)) {
    return m.Call(ops::kOp_iota, {}, {{"shape", ops::ToInts(dims)}, {"dimension", m.rng.Below(static_cast<int64_t>(dims.size()))}, {"dtype", dtype}});
  }
  HostTensor value(dtype, dims);
  for (int64_t i = 0; i < value.count(); ++i) {
    if (IsFloat(dtype)) {
      value.SetDouble(i, m.rng.Uniform(-2, 2));
    } else {
      value.SetInt(i, m.rng.Between(0, 5));
    }
  }
  return m.Call(ops::kOp_constant, {}, {{"value", Ref<const Literal>(MakeRef<Literal>(std::move(value)))}});
}

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

// Products shrink what they give, or magnitudes grow with every layer.
int Calm(ProgramMaker& m, int x) {
  if (x < 0 || m.rng.Chance(0.5)) return x;
  const double scale = 1 / std::sqrt(16.0);
  return m.Call(ops::kOp_mul, {x, m.Call(ops::kOp_full, {}, {{"shape", Ints{}}, {"value", scale}, {"dtype", m.type(x).dtype}})});
}

int Matmul(ProgramMaker& m) {
  const int x = FloatValue(m, 1);
  Dims dims = m.dims(x);
  const int64_t inner = dims.back();
  Dims other = {inner, Size(m)};
  if (dims.size() > 2 && m.rng.Chance(0.5)) other.insert(other.begin(), dims.begin(), dims.end() - 2);
  if (m.rng.Chance(0.1)) other = {inner};
  const int y = Like(m, m.type(x).dtype, other);
  if (other.size() == 2 && m.rng.Chance(0.3)) {
    return Calm(m, m.Call(ops::kOp_linear, {x, y, m.rng.Chance(0.7) ? Like(m, m.type(x).dtype, {other[1]}) : -1}));
  }
  ir::AttrValue wide;
  if (!m.options.smooth && BitsOf(m.type(x).dtype) == 16 && m.rng.Chance(0.4)) wide = DType::kF32;
  return Calm(m, m.Call(ops::kOp_matmul, {x, y}, {{"dtype", wide}}));
}

int Dot(ProgramMaker& m) {
  const int x = m.rng.Chance(0.9) ? FloatValue(m, 1) : AnyValue(m, 1);
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
  return Calm(m, m.Call(ops::kOp_dot_general, {x, y}, {{"lhs_batching_dimensions", batch}, {"rhs_batching_dimensions", places(batch)}, {"lhs_contracting_dimensions", contracted}, {"rhs_contracting_dimensions", places(contracted)}}));
}

int Convolution(ProgramMaker& m) {
  const int64_t groups = m.rng.Chance(0.8) ? 1 : 2;
  int x = m.Find([&](const ir::Type& t) { return IsAcceptableFloat(m, t) && t.rank() == 4 && t.dims[3] % groups == 0; });
  if (x < 0 || m.rng.Chance(0.3)) {
    constexpr int64_t kChannels[] = {1, 2, 3, 4, 8, 16, 17};
    x = Like(m, AnyFloat(m), {m.rng.Between(1, 4), m.rng.Between(3, 10), m.rng.Between(3, 10), m.rng.Pick(kChannels) * groups});
  }
  const int64_t in = m.dims(x)[3];
  constexpr int64_t kOut[] = {1, 2, 3, 5, 8, 16, 17, 33};
  const int w = Like(m, m.type(x).dtype, {m.rng.Between(1, 4), m.rng.Between(1, 4), in / groups, m.rng.Pick(kOut) * groups});
  const Ints strides = {m.rng.Between(1, 3), m.rng.Between(1, 3)}, dilation = {m.rng.Chance(0.8) ? 1 : 2, m.rng.Chance(0.8) ? 1 : 2};
  ir::AttrValue wide, pads;
  if (!m.options.smooth && BitsOf(m.type(x).dtype) == 16 && m.rng.Chance(0.4)) wide = DType::kF32;
  const int64_t padding = m.rng.Below(3);
  if (padding == 2) pads = Ints{m.rng.Below(3), m.rng.Below(3), m.rng.Below(3), m.rng.Below(3)};
  int y = Calm(m, m.Call(ops::kOp_conv, {x, w}, {{"strides", strides}, {"padding", padding}, {"pads", pads}, {"dilation", dilation}, {"groups", groups}, {"dtype", wide}}));
  if (y >= 0 && m.rng.Chance(0.5)) {  // what follows a convolution in networks, which backends fuse into it
    if (m.rng.Chance(0.7)) y = m.Call(ops::kOp_add, {y, Like(m, m.type(y).dtype, {m.dims(y)[3]})});
    if (y >= 0) y = m.Call(m.rng.Chance(0.7) ? ops::kOp_relu : ops::kOp_gelu, {y});
  }
  return y;
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

int Indices(ProgramMaker& m, const Dims& dims, int64_t limit) {
  const int found = m.rng.Chance(0.3) ? m.Find([&](const ir::Type& t) { return IsInteger(t.dtype) && t.dims == dims; }) : -1;
  if (found >= 0) return found;  // whatever it holds: outside is held to the edge
  constexpr DType kTypes[] = {DType::kI32, DType::kI64, DType::kU8};
  HostTensor value(m.rng.Pick(kTypes), dims);
  for (int64_t i = 0; i < value.count(); ++i) value.SetInt(i, m.rng.Between(m.rng.Chance(0.05) ? -3 : 0, limit + m.rng.Below(2)));
  return m.LeafOf(std::move(value));
}

int Take(ProgramMaker& m) {
  const int x = AnyValue(m, 1, 4);
  const int64_t axis = m.rng.Below(static_cast<int64_t>(m.dims(x).size()));
  return m.Call(ops::kOp_take, {x, Indices(m, Shape(m, 0, 2), m.dims(x)[static_cast<size_t>(axis)])}, {{"axis", axis}});
}

int ScatterRows(ProgramMaker& m) {
  const int x = AnyValue(m, 2, 3);
  const int64_t rows = m.rng.Between(0, 9);
  Dims updates = m.dims(x);
  updates[0] = rows;
  Ints window;
  for (size_t i = 1; i < updates.size(); ++i) window.push_back(static_cast<int64_t>(i));
  return m.Call(ops::kOp_scatter, {x, Indices(m, {rows}, m.dims(x)[0]), Like(m, m.type(x).dtype, updates)},
                {{"update_window_dims", window}, {"inserted_window_dims", Ints{0}}, {"scatter_dims_to_operand_dims", Ints{0}}, {"index_vector_dim", int64_t{1}}, {"reducer", m.rng.Below(6)}});
}

int DynamicBox(ProgramMaker& m) {
  const int x = AnyValue(m, 1, 3);
  Dims box = m.dims(x);
  for (int64_t& d : box) d = m.rng.Chance(0.4) ? d : m.rng.Between(std::min<int64_t>(1, d), d + 1);
  const bool update = m.rng.Chance(0.5);
  std::vector<int> operands = {x};
  if (update) operands.push_back(Like(m, m.type(x).dtype, box));
  const DType type = m.rng.Chance(0.5) ? DType::kI32 : DType::kI64;
  for (int64_t d : m.dims(x)) {
    HostTensor start(type, {});
    start.SetInt(0, m.rng.Between(-2, d + 2));
    operands.push_back(m.LeafOf(std::move(start)));
  }
  return update ? m.Call(ops::kOp_dynamic_update_slice, operands) : m.Call(ops::kOp_dynamic_slice, operands, {{"slice_sizes", ops::ToInts(box)}});
}

struct Move {
  int weight;
  int (*make)(ProgramMaker& m);
};
constexpr Move kMoves[] = {{16, Pointwise}, {10, Chain},      {14, Arithmetic}, {12, SampleOfAny}, {4, Cast},    {8, Transpose},
                           {7, Regroup},    {7, Broadcast},   {7, Slice},       {5, Pad},         {3, Reverse}, {6, Concatenate},
                           {4, Source},     {12, Reduction},  {3, ArgReduction}, {7, Matmul},     {4, Dot},     {5, Convolution},
                           {4, Pool},       {2, Window},      {7, Normalize},   {3, Loss},        {4, Take},    {3, ScatterRows},
                           {3, DynamicBox}};

// A float scalar of the value: its elements weighted, so that errors in different ones cannot cancel.
int ToScalar(ProgramMaker& m, int x) {
  const int weighted = m.Call(ops::kOp_mul, {x, m.Leaf(m.type(x).dtype, m.dims(x), -1, 1)});
  return weighted < 0 ? weighted : m.Call(ops::kOp_sum, {weighted});
}

void Differentiate(ProgramMaker& m) {
  int loss = -1;
  for (int64_t n = m.rng.Between(1, 4); n > 0; --n) {
    const int x = m.Find([&](const ir::Type& t) { return IsAcceptableFloat(m, t) && t.count() > 0 && (loss < 0 || t.dtype == m.type(loss).dtype); });
    const int part = x < 0 ? -1 : ToScalar(m, x);
    if (part < 0) continue;
    const int sum = loss < 0 ? part : m.Call(ops::kOp_add, {loss, part});
    if (sum >= 0) loss = sum;
  }
  std::vector<int> wrt;
  for (int leaf : m.leaves()) {
    if (IsAcceptableFloat(m, m.type(leaf)) && m.rng.Chance(0.7)) wrt.push_back(leaf);
  }
  if (loss >= 0 && !wrt.empty()) m.Gradient(loss, wrt);
}

}  // namespace

RandomProgram MakeRandomProgram(uint64_t seed, const RandomOptions& options) {
  ProgramMaker m(seed, options);
  constexpr DType kMain[] = {DType::kF32, DType::kF32, DType::kF32, DType::kF32, DType::kF64, DType::kF64, DType::kBF16, DType::kF16};
  m.main = options.smooth ? DType::kF64 : m.rng.Pick(kMain);
  m.wild = !options.smooth && m.rng.Chance(options.wild);
  for (int i = 0; i < 4; ++i) m.sizes.push_back(m.rng.Pick(kSizes));
  for (int64_t n = m.rng.Between(1, 4); n > 0; --n) m.Leaf(m.main, Shape(m));
  if (!options.smooth && m.rng.Chance(0.3)) m.Leaf(m.rng.Pick(kOthers), Shape(m));
  const int total = std::accumulate(std::begin(kMoves), std::end(kMoves), 0, [](int sum, const Move& move) { return sum + move.weight; });
  // Each program has a taste of its own: it makes some moves more often than others.
  int64_t favourite = m.rng.Below(static_cast<int64_t>(std::size(kMoves)));
  const size_t start = m.size();
  const int64_t calls = m.rng.Between(2, options.calls + 1);
  for (int64_t tries = 0; static_cast<int64_t>(m.size() - start) < calls && tries < 4 * calls; ++tries) {
    int64_t at = m.rng.Below(total);
    size_t move = 0;
    while (at >= kMoves[move].weight) at -= kMoves[move++].weight;
    kMoves[m.rng.Chance(0.15) ? static_cast<size_t>(favourite) : move].make(m);
  }
  if (options.gradients) {
    for (int64_t n = m.rng.Below(3); n > 0; --n) Differentiate(m);
  }
  // What nothing uses, all or in part, and some of what is used too.
  std::vector<int> outputs = {static_cast<int>(m.size()) - 1};
  const double share = m.rng.Chance(0.5) ? 1 : m.rng.Uniform();
  for (int i = 0; i + 1 < static_cast<int>(m.size()); ++i) {
    if (!m.is_used(i) && m.rng.Chance(share)) outputs.push_back(i);
  }
  for (int64_t n = m.rng.Below(4); n > 0; --n) outputs.push_back(static_cast<int>(m.rng.Below(static_cast<int64_t>(m.size()))));
  if (m.rng.Chance(0.3)) outputs.push_back(m.rng.Pick(outputs));
  return m.Finish(std::move(outputs));
}

}  // namespace weft::test
