// Moves that compute element by element or move elements: from the samples of operations, and with shapes drawn here.
#include <algorithm>

#include "src/ops/sample.h"
#include "tests/support/random_moves.h"

namespace weft::test {
namespace {

using ir::Ints;

// Whether the operation may be there at all under the program's options.
bool Allowed(ProgramMaker& m, const ir::OpDef& op) {
  if (op.kind != ir::Kind::kComposite && op.lowering == ir::Lowering::kStructural) return false;
  if (op.lowering == ir::Lowering::kPlanes) return false;  // of complex values, which these programs have none of
  if (op.random && !m.options.random) return false;
  // The standard deviation of equal numbers has no slope; the move for reductions looks out for that.
  return !m.options.smooth || (&op != &ops::kOp_stop_gradient && &op != &ops::kOp_bitcast_convert && &op != &ops::kOp_std);
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
  if (!op.attrs.empty() && m.rng.Chance(0.5)) {
    if (const int varied = m.Call(op, operands, Varied(m, op, parsed->attrs)); varied >= 0) return varied;
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

int SampleOfAny(ProgramMaker& m) { return SampleCall(m, *m.rng.Pick(ops::AllOps())); }

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

int SliceOf(ProgramMaker& m, int x) {
  Ints start, limit, strides;
  for (int64_t d : m.dims(x)) {
    const bool whole = m.rng.Chance(0.4);
    const int64_t least = m.hollow ? 0 : 1;
    start.push_back(whole ? 0 : m.rng.Between(0, m.hollow ? d + 1 : std::max<int64_t>(d / 2, 1)));
    limit.push_back(whole ? d : m.rng.Between(std::min(start.back() + least, d), d + 1));
    strides.push_back(m.rng.Chance(m.hollow ? 0.4 : 0.75) ? 1 : m.rng.Between(1, 4));
    start.back() = std::min(start.back(), limit.back());
  }
  return m.Call(ops::kOp_slice, {x}, {{"start_indices", start}, {"limit_indices", limit}, {"strides", strides}});
}

int Slice(ProgramMaker& m) {
  int x = SliceOf(m, AnyValue(m, 1));
  // Of what is left over, too: a few elements, one or none.
  while (m.hollow && x >= 0 && m.rng.Chance(0.5)) x = SliceOf(m, x);
  return x;
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
  for (int64_t& d : box) d = m.rng.Chance(0.4) ? d : m.rng.Between(std::min<int64_t>(m.hollow ? 0 : 1, d), d + 1);
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

template <int (*make)(ProgramMaker&)>
void Do(ProgramMaker& m) {
  make(m);
}

constexpr Move kMoves[] = {{16, Do<Pointwise>}, {10, Do<Chain>}, {14, Do<Arithmetic>}, {12, Do<SampleOfAny>}, {4, Do<Cast>}, {8, Do<Transpose>}, {7, Do<Regroup>}, {7, Do<Broadcast>}, {7, Do<Slice>}, {5, Do<Pad>}, {3, Do<Reverse>}, {6, Do<Concatenate>}, {4, Do<Source>}, {4, Do<Take>}, {3, Do<ScatterRows>}, {3, Do<DynamicBox>}};

}  // namespace

int SampleCall(ProgramMaker& m, const ir::OpDef& op) { return FromSample(m, op, false); }

std::span<const Move> ElementMoves() { return kMoves; }

}  // namespace weft::test
