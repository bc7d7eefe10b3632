// Walks a region from its results to its parameters, carrying for every value the affine map from the kernel's index
// space to the value's own indices: shape operations only change the map.
#include "src/backends/cpu/lower/lower_region.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "src/ir/op_def.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Ints;
using ir::Node;
using ir::ScalarValue;
using ir::Value;

// In the kernel's dimensions.
using Affine = ir::AffineIndex;
using Map = std::vector<Affine>;  // one entry for each dimension of the value

// Negative dimensions count from the end.
Ints AxesOf(Ints axes, size_t rank) {
  for (int64_t& axis : axes) axis += axis < 0 ? static_cast<int64_t>(rank) : 0;
  return axes;
}

bool IsSplat(const HostTensor& t) {
  const size_t bytes = BytesOf(t.dtype());
  for (int64_t i = 1; i < t.count(); ++i) {
    if (!std::equal(t.bytes().begin(), t.bytes().begin() + bytes, t.bytes().begin() + i * bytes)) return false;
  }
  return t.count() > 0;
}

bool IsReduce(const Node& node) { return node.op().lowering == ir::Lowering::kReduction; }

const HostTensor& LiteralOf(const Node& node) { return ops::ConstantAttrs{node.attrs()}.value(); }

// Tries the rule in a kernel of its own.
bool NeedsF64(const Node& node, std::span<const ScalarValue> operands) {
  LoopKernel scratch;
  LoopBuilder builder(scratch);
  absl::InlinedVector<ScalarValue, 4> stand_ins;
  for (size_t i = 0; i < operands.size(); ++i) {
    Access access;
    access.buffer = static_cast<uint32_t>(i);
    access.dtype = operands[i].dtype;
    stand_ins.push_back(builder.Load(access));
  }
  node.op().scalar(ir::ScalarCall{builder, stand_ins, node.attrs(), node.type().dtype});
  return NeedsF64For16Bits(scratch.exprs);
}

ScalarValue LiteralValue(LoopBuilder& builder, const HostTensor& t) {
  return IsFloat(t.dtype()) ? builder.Constant(t.dtype(), t.GetDouble(0)) : builder.IntConstant(t.dtype(), t.GetInt(0));
}

// The node's rule on scalars, rounded to its element type.
ScalarValue EvalScalar(LoopBuilder& builder, const Node& node, std::span<const ScalarValue> operands) {
  const ir::OpDef& op = node.op();
  const DType dtype = node.type().dtype;
  if (dtype != DType::kF16 || !NeedsF64(node, operands)) {
    return builder.Round(op.scalar(ir::ScalarCall{builder, operands, node.attrs(), dtype}), dtype);
  }
  absl::InlinedVector<ScalarValue, 4> wide(operands.begin(), operands.end());
  for (ScalarValue& x : wide) {
    if (x.dtype == DType::kF32) x = builder.Convert(x, DType::kF64);
  }
  builder.set_for_16_bits(true);
  const ScalarValue result = op.scalar(ir::ScalarCall{builder, wide, node.attrs(), dtype});
  builder.set_for_16_bits(false);
  return builder.Convert(result, dtype);
}

class RegionLowering {
 public:
  explicit RegionLowering(const ir::Function& region) : region_(region), builder_(kernel_) {}

  absl::StatusOr<LoopKernel> Run() {
    WEFT_RETURN_IF_ERROR(ChooseDims());
    for (const Value& result : region_.results()) WEFT_RETURN_IF_ERROR(AddResult(result));
    const bool reduces = !kernel_.reductions.empty();
    if (kernel_.exprs.size() > 400) return absl::UnimplementedError("region too large for one kernel");
    // The vector dimension is where memory runs: the last dimension of the widest shape.
    kernel_.vector_reduces = reduces && last_reduced_;
    Finish(kernel_);
    if (reduces && !kernel_.vector_reduces && kernel_.stages > 1) {
      return absl::UnimplementedError("column reductions of column reductions");
    }
    const std::vector<Dependence> deps = Analyze(kernel_);
    for (const Store& s : kernel_.stores) {
      if (s.row && deps[s.expr].reduced) return absl::UnimplementedError("a row result that changes along the row");
    }
    return std::move(kernel_);
  }

 private:
  // Tells whether the reduced dimension d has a kept one between it and the reduced one before.
  bool KeptBefore(size_t d) const {
    bool kept = false;
    while (d-- > 0) {
      if (full_[d] == 1) continue;
      if (reduced_[d]) return kept;
      kept = true;
    }
    return false;
  }

  absl::Status ChooseDims() {
    const Node* reduce = nullptr;
    for (const Node* node : region_.nodes()) {
      if (IsReduce(*node) && reduce == nullptr) reduce = node;
    }
    if (reduce == nullptr) {
      full_ = ComputedDims(region_.results()[0]);
      for (const Value& r : region_.results()) {
        if (r.dims().size() > full_.size()) full_ = ComputedDims(r);
      }
      reduced_.assign(full_.size(), false);
    } else {
      full_ = reduce->operands()[0].dims();
      reduced_.assign(full_.size(), false);
      for (int64_t d : AxesOf(ops::ReduceAttrs{reduce->attrs()}.dimensions(), full_.size())) reduced_[d] = true;
    }
    // Parallel dimensions first. place_[d] is where dimension d of the full shape went.
    place_.resize(full_.size());
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t d = 0; d < full_.size(); ++d) {
        if (reduced_[d] != (pass == 1)) continue;
        place_[d] = kernel_.dims.size();
        kernel_.dims.push_back(Dim{full_[d], reduced_[d]});
        kernel_.dims.back().apart = pass == 1 && KeptBefore(d);
      }
    }
    for (size_t d = full_.size(); d-- > 0;) {
      if (full_[d] == 1) continue;
      last_reduced_ = reduced_[d];
      break;
    }
    kernel_.buffers = static_cast<uint32_t>(region_.parameters().size() + region_.results().size());
    for (uint32_t i = 0; i < region_.parameters().size(); ++i) parameters_[region_.parameters()[i].node.get()] = i;
    return absl::OkStatus();
  }

  Affine Zero() const { return Affine{0, std::vector<int64_t>(kernel_.dims.size(), 0)}; }
  Affine Index(size_t d) const {
    Affine a = Zero();
    a.coefficients[d] = 1;
    return a;
  }

  // Matches the dimensions that are not 1 with those of `shape`, in order.
  absl::StatusOr<Map> MapOnto(const Dims& dims, bool with_reduced) const {
    std::vector<size_t> candidates;
    for (size_t d = 0; d < full_.size(); ++d) {
      if ((with_reduced || !reduced_[d]) && full_[d] != 1) candidates.push_back(d);
    }
    Map map;
    size_t next = 0;
    for (int64_t size : dims) {
      if (size == 1) {
        map.push_back(Zero());
        continue;
      }
      if (next == candidates.size() || full_[candidates[next]] != size) {
        return absl::UnimplementedError("shapes of the region do not fit one index space");
      }
      map.push_back(Index(place_[candidates[next++]]));
    }
    if (next != candidates.size()) return absl::UnimplementedError("shapes of the region do not fit one index space");
    return map;
  }

  // Parts are written one beside the other.
  static const Dims& ComputedDims(const Value& result) {
    return (JoinsParts(*result.node) ? result.node->operands()[0] : result).dims();
  }

  absl::Status AddParts(const Value& result) {
    const Node& node = *result.node;
    const Ints axis = AxesOf({ops::ConcatenateAttrs{node.attrs()}.dimension()}, result.dims().size());
    const int64_t apart = StridesOf(result.dims())[axis[0]] * ComputedDims(result)[axis[0]];
    WEFT_ASSIGN_OR_RETURN(const Map map, MapOnto(ComputedDims(result), true));
    for (size_t i = 0; i < node.operands().size(); ++i) {
      WEFT_ASSIGN_OR_RETURN(const ScalarValue value, Eval(node.operands()[i], map));
      Store store;
      store.access = AccessOf(result.dims(), result.dtype(), map);
      store.access.offset += static_cast<int64_t>(i) * apart;
      store.access.buffer = static_cast<uint32_t>(parameters_.size() + stored_);
      store.expr = value.id;
      kernel_.stores.push_back(store);
    }
    ++stored_;
    return absl::OkStatus();
  }

  absl::Status AddResult(const Value& result) {
    if (JoinsParts(*result.node)) return AddParts(result);
    bool row = false;
    absl::StatusOr<Map> map = MapOnto(result.dims(), true);
    const bool reduces = std::find(reduced_.begin(), reduced_.end(), true) != reduced_.end() || HasReduce();
    if (!map.ok() || (reduces && Squeezed(result.dims()) == Kept())) {
      absl::StatusOr<Map> row_map = MapOnto(result.dims(), false);
      if (row_map.ok() && reduces) {
        map = row_map;
        row = true;
      }
    }
    if (!map.ok()) return map.status();
    WEFT_ASSIGN_OR_RETURN(ScalarValue value, Eval(result, *map));
    Store store;
    store.access = AccessOf(result.dims(), result.dtype(), *map);
    store.access.buffer = static_cast<uint32_t>(parameters_.size() + stored_++);
    store.expr = value.id;
    store.row = row;
    kernel_.stores.push_back(store);
    return absl::OkStatus();
  }

  bool HasReduce() const {
    for (const Node* node : region_.nodes()) {
      if (IsReduce(*node)) return true;
    }
    return false;
  }
  Dims Kept() const {
    Dims kept;
    for (size_t d = 0; d < full_.size(); ++d) {
      if (!reduced_[d] && full_[d] != 1) kept.push_back(full_[d]);
    }
    return kept;
  }

  Access AccessOf(const Dims& dims, DType dtype, const Map& map) const {
    Access access;
    access.dtype = dtype;
    access.strides.assign(kernel_.dims.size(), 0);
    const Dims strides = StridesOf(dims);
    for (size_t i = 0; i < dims.size(); ++i) {
      access.offset += map[i].offset * strides[i];
      for (size_t d = 0; d < access.strides.size(); ++d) access.strides[d] += map[i].coefficients[d] * strides[i];
    }
    return access;
  }

  static std::string KeyOf(const Value& value, const Map& map) {
    std::string key = absl::StrCat(reinterpret_cast<uintptr_t>(value.node.get()), ":", value.result);
    for (const Affine& a : map) {
      absl::StrAppend(&key, "|", a.offset);
      for (int64_t c : a.coefficients) absl::StrAppend(&key, ",", c);
    }
    return key;
  }

  absl::StatusOr<ScalarValue> Eval(const Value& value, const Map& map) {
    std::string key = KeyOf(value, map);
    auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    WEFT_ASSIGN_OR_RETURN(ScalarValue result, EvalNew(value, map));
    known_.emplace(std::move(key), result);
    return result;
  }

  absl::StatusOr<ScalarValue> EvalNew(const Value& value, const Map& map) {
    const Node& node = *value.node;
    const ir::OpDef& op = node.op();
    auto parameter = parameters_.find(&node);
    if (parameter != parameters_.end()) {
      Access access = AccessOf(value.dims(), value.dtype(), map);
      access.buffer = parameter->second;
      return builder_.Load(std::move(access));
    }
    if (&op == &ops::kOp_constant) {
      const HostTensor& t = LiteralOf(node);
      if (!IsSplat(t)) return absl::UnimplementedError("a literal of different elements inside a kernel");
      return LiteralValue(builder_, t);
    }
    if (&op == &ops::kOp_iota) {
      const int64_t counted = ops::IotaAttrs{node.attrs()}.dimension();
      const Affine& index = map[counted < 0 ? counted + static_cast<int64_t>(map.size()) : counted];
      Access access;
      access.offset = index.offset;
      access.strides = index.coefficients;
      return builder_.Convert(builder_.Index(std::move(access)), value.dtype());
    }
    if (IsReduce(node)) return EvalReduce(node, map);
    if (op.lowering == ir::Lowering::kIndexMap) {
      if (op.index_map == nullptr) return absl::UnimplementedError(absl::StrCat("no index map for ", op.name));
      WEFT_ASSIGN_OR_RETURN(const Map operand_map, op.index_map({node, map, Zero()}));
      return Eval(node.operands()[0], operand_map);
    }
    if (op.scalar == nullptr) return absl::UnimplementedError(absl::StrCat("no scalar code for ", op.name));
    absl::InlinedVector<ScalarValue, 4> operands;
    for (const Value& operand : node.operands()) {
      if (operand.dims().size() != map.size() && !operand.dims().empty()) {
        return absl::UnimplementedError(absl::StrCat("operands of ", op.name, " differ in rank"));
      }
      WEFT_ASSIGN_OR_RETURN(ScalarValue x, Eval(operand, operand.dims().empty() ? Map() : map));
      operands.push_back(x);
    }
    return EvalScalar(builder_, node, {operands.data(), operands.size()});
  }

  absl::StatusOr<ScalarValue> EvalReduce(const Node& node, const Map& map) {
    const Value& operand = node.operands()[0];
    const ops::ReduceAttrs reduce{node.attrs()};
    const Ints dimensions = AxesOf(reduce.dimensions(), operand.dims().size());
    for (const Affine& a : map) {
      for (size_t d = 0; d < a.coefficients.size(); ++d) {
        if (kernel_.dims[d].reduce && kernel_.dims[d].size != 1 && a.coefficients[d] != 0) {
          return absl::UnimplementedError("a reduction inside a reduction");
        }
      }
    }
    std::vector<size_t> loops;  // reduced dimensions of the kernel
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      if (kernel_.dims[d].reduce && kernel_.dims[d].size != 1) loops.push_back(d);
    }
    Map operand_map;
    size_t kept = 0, next = 0;
    for (size_t d = 0; d < operand.dims().size(); ++d) {
      const int64_t size = operand.dims()[d];
      if (std::find(dimensions.begin(), dimensions.end(), static_cast<int64_t>(d)) == dimensions.end()) {
        operand_map.push_back(map[kept++]);
      } else if (size == 1) {
        operand_map.push_back(Zero());
      } else {
        if (next == loops.size() || kernel_.dims[loops[next]].size != size) {
          return absl::UnimplementedError("reductions over different shapes in one kernel");
        }
        operand_map.push_back(Index(loops[next++]));
      }
    }
    if (next != loops.size()) return absl::UnimplementedError("reductions over different shapes in one kernel");
    WEFT_ASSIGN_OR_RETURN(ScalarValue x, Eval(operand, operand_map));
    ScalarValue r = builder_.Reduce(static_cast<ops::Reducer>(reduce.reducer()), x);
    return builder_.Round(r, node.type().dtype);
  }

  const ir::Function& region_;
  LoopKernel kernel_;
  LoopBuilder builder_;
  Dims full_;
  std::vector<bool> reduced_;
  std::vector<size_t> place_;
  bool last_reduced_ = false;
  size_t stored_ = 0;
  std::map<const Node*, uint32_t> parameters_;
  std::map<std::string, ScalarValue> known_;
};

}  // namespace

absl::StatusOr<LoopKernel> LowerRegion(const ir::Function& region) {
  if (region.results().empty()) return absl::UnimplementedError("a region without results");
  return RegionLowering(region).Run();
}

absl::StatusOr<std::vector<ScalarValue>> EvalBody(LoopBuilder& builder, const ir::Function& body,
                                                  std::span<const ScalarValue> arguments) {
  std::map<std::pair<const Node*, uint32_t>, ScalarValue> known;
  for (size_t i = 0; i < arguments.size(); ++i) known[{body.parameters()[i].node.get(), 0}] = arguments[i];
  for (const Node* node : body.nodes().subspan(arguments.size())) {
    const ir::OpDef& op = node->op();
    std::vector<ScalarValue> operands;
    for (const Value& operand : node->operands()) operands.push_back(known.at({operand.node.get(), operand.result}));
    ScalarValue& result = known[{node, 0}];
    if (&op == &ops::kOp_fusion) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<ScalarValue> made, EvalBody(builder, *node->regions()[0], operands));
      for (uint32_t r = 0; r < made.size(); ++r) known[{node, r}] = made[r];
    } else if (&op == &ops::kOp_constant && IsSplat(LiteralOf(*node))) {
      result = LiteralValue(builder, LiteralOf(*node));
    } else if (&op == &ops::kOp_bitcast_convert && IsHalf(node->operands()[0].dtype())) {
      const DType from = node->operands()[0].dtype(), to = node->type().dtype;
      result = builder.BitsOfHalf(operands[0], from, IsHalf(to) ? DType::kU16 : to);
      if (IsHalf(to)) result = builder.Bitcast(result, to);
    } else if (op.scalar != nullptr && node->type().count() == 1) {
      result = EvalScalar(builder, *node, operands);
    } else if (op.lowering == ir::Lowering::kIndexMap && operands.size() == 1 && node->type().count() == 1) {
      result = operands[0];
    } else {
      return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend cannot run ", op.name,
                         " in a function of scalars");
    }
  }
  std::vector<ScalarValue> results;
  for (const Value& result : body.results()) results.push_back(known.at({result.node.get(), result.result}));
  return results;
}

bool IsLoopNode(const ir::Node& node) {
  if (node.results().size() != 1 || !node.type().is_tensor()) return false;
  const ir::OpDef& op = node.op();
  if (&op == &ops::kOp_constant) return IsSplat(LiteralOf(node));
  if (op.alias) return false;
  switch (op.lowering) {
    case ir::Lowering::kScalar: return op.scalar != nullptr;
    case ir::Lowering::kIndexMap:
    case ir::Lowering::kReduction: return true;
    default: return false;
  }
}

bool JoinsParts(const ir::Node& node) {
  constexpr int64_t kMostBytes = 256 << 10;  // what is larger is split over the threads as it is
  if (&node.op() != &ops::kOp_concatenate || node.operands().size() < 2) return false;
  const int64_t bytes = node.type().bytes();
  return bytes > 0 && bytes <= kMostBytes && std::ranges::all_of(node.operands(), [&](const Value& part) {
           return part.dims() == node.operands()[0].dims();
         });
}

}  // namespace weft::cpu
