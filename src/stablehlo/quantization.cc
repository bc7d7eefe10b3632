// See quantization.h.
#include "src/stablehlo/quantization.h"

#include <algorithm>

#include "src/ops/build.h"
#include "src/ops/registry.h"

namespace weft::stablehlo {
namespace {

using ir::Builder;
using ir::Value;

constexpr auto kRefused = QuantizedUse::kRefused, kBits = QuantizedUse::kBits, kPasses = QuantizedUse::kPasses,
               kMoves = QuantizedUse::kMoves, kBody = QuantizedUse::kBody, kComputes = QuantizedUse::kComputes;
constexpr size_t kAll = SIZE_MAX;

struct Row {
  std::string_view name;
  QuantizedUse use;
  size_t begin = 0, end = 1;  // of kMoves: the operands whose elements are moved; the others are plain
};

// The use by name. Operations that the specification defines by dequantising, computing and quantising compute; so do
// those that look at no element, and those that make each of a number.
constexpr Row kRows[] = {
    {"func.call", kPasses},
    {"sdy.manual_computation", kPasses},
    {"sdy.sharding_constraint", kPasses},
    {"stablehlo.abs", kComputes},
    {"stablehlo.add", kComputes},
    {"stablehlo.all_gather", kMoves, 0, kAll},
    {"stablehlo.all_reduce", kBody},
    {"stablehlo.all_to_all", kMoves, 0, kAll},
    {"stablehlo.atan2", kComputes},
    {"stablehlo.batch_norm_grad", kComputes},
    {"stablehlo.batch_norm_inference", kComputes},
    {"stablehlo.batch_norm_training", kComputes},
    {"stablehlo.bitcast_convert", kBits},
    {"stablehlo.broadcast", kMoves},
    {"stablehlo.broadcast_in_dim", kMoves},
    {"stablehlo.case", kPasses},
    {"stablehlo.cbrt", kComputes},
    {"stablehlo.ceil", kComputes},
    {"stablehlo.cholesky", kComputes},
    {"stablehlo.clamp", kComputes},
    {"stablehlo.collective_broadcast", kMoves, 0, kAll},
    {"stablehlo.collective_permute", kMoves},
    {"stablehlo.compare", kComputes},
    {"stablehlo.composite", kPasses},
    {"stablehlo.concatenate", kMoves, 0, kAll},
    {"stablehlo.constant", kBits},
    {"stablehlo.convolution", kComputes},
    {"stablehlo.cosine", kComputes},
    {"stablehlo.divide", kComputes},
    {"stablehlo.dot", kComputes},
    {"stablehlo.dot_general", kComputes},
    {"stablehlo.dynamic_broadcast_in_dim", kMoves},
    {"stablehlo.dynamic_conv", kComputes},
    {"stablehlo.dynamic_gather", kMoves},
    {"stablehlo.dynamic_iota", kComputes},
    {"stablehlo.dynamic_pad", kMoves, 0, 2},
    {"stablehlo.dynamic_reshape", kMoves},
    {"stablehlo.dynamic_slice", kMoves},
    {"stablehlo.dynamic_update_slice", kMoves, 0, 2},
    {"stablehlo.exponential", kComputes},
    {"stablehlo.exponential_minus_one", kComputes},
    {"stablehlo.floor", kComputes},
    {"stablehlo.gather", kMoves},
    {"stablehlo.get_dimension_size", kComputes},
    {"stablehlo.if", kPasses},
    {"stablehlo.iota", kComputes},
    {"stablehlo.is_finite", kComputes},
    {"stablehlo.log", kComputes},
    {"stablehlo.log_plus_one", kComputes},
    {"stablehlo.logistic", kComputes},
    {"stablehlo.map", kBody},
    {"stablehlo.maximum", kComputes},
    {"stablehlo.minimum", kComputes},
    {"stablehlo.multiply", kComputes},
    {"stablehlo.negate", kComputes},
    {"stablehlo.optimization_barrier", kPasses},
    {"stablehlo.pad", kMoves, 0, 2},
    {"stablehlo.power", kComputes},
    {"stablehlo.real_dynamic_slice", kMoves},
    {"stablehlo.reduce", kBody},
    {"stablehlo.reduce_precision", kComputes},
    {"stablehlo.reduce_scatter", kBody},
    {"stablehlo.reduce_window", kBody},
    {"stablehlo.remainder", kComputes},
    {"stablehlo.reshape", kMoves},
    {"stablehlo.reverse", kMoves},
    {"stablehlo.round_nearest_afz", kComputes},
    {"stablehlo.round_nearest_even", kComputes},
    {"stablehlo.rsqrt", kComputes},
    {"stablehlo.scatter", kBody},
    {"stablehlo.select", kMoves, 1, 3},
    {"stablehlo.select_and_scatter", kBody},
    {"stablehlo.sign", kComputes},
    {"stablehlo.sine", kComputes},
    {"stablehlo.slice", kMoves},
    {"stablehlo.sort", kBody},
    {"stablehlo.sqrt", kComputes},
    {"stablehlo.subtract", kComputes},
    {"stablehlo.tan", kComputes},
    {"stablehlo.tanh", kComputes},
    {"stablehlo.torch_index_select", kMoves},
    {"stablehlo.transpose", kMoves},
    {"stablehlo.triangular_solve", kComputes},
    {"stablehlo.uniform_dequantize", kComputes},
    {"stablehlo.uniform_quantize", kComputes},
    {"stablehlo.while", kPasses},
};
static_assert(std::ranges::is_sorted(kRows, {}, &Row::name));

const Row* RowOf(std::string_view name) {
  const Row* row = std::ranges::lower_bound(kRows, name, {}, &Row::name);
  return row != std::end(kRows) && row->name == name ? row : nullptr;
}

using Quantized = std::shared_ptr<const Quantization>;
bool Same(const Quantized& a, const Quantized& b) { return a == b || (a != nullptr && b != nullptr && *a == *b); }

bool AnyQuantized(std::span<const TypeText> types) {
  return std::ranges::any_of(types, [](const TypeText& type) { return type.quantized != nullptr; });
}

// The first pair that differs. Lists of another number of types fail by their own rule.
absl::Status CheckPairs(std::string_view first, std::span<const TypeText> a, std::string_view second,
                        std::span<const TypeText> b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!SameType(a[i], b[i]))
      return UserError(first, " ", i, " is ", Spell(a[i]), "; ", second, " ", i, " is ", Spell(b[i]));
  }
  return absl::OkStatus();
}

absl::Status CheckPasses(const QuantizedCall& call, std::string_view name) {
  const bool branches = name == "stablehlo.case" || name == "stablehlo.if", loops = name == "stablehlo.while";
  for (size_t i = 0; i < call.functions.size(); ++i) {
    const Signature& function = call.functions[i];
    if (!branches) WEFT_RETURN_IF_ERROR(CheckPairs("operand", call.operands, "parameter", function.parameters));
    if (loops && i == 0) continue;  // the condition
    WEFT_RETURN_IF_ERROR(CheckPairs("result", call.results, "the function's result", function.results));
  }
  const bool as_they_are = loops || call.functions.empty();
  return as_they_are ? CheckPairs("operand", call.operands, "result", call.results) : absl::OkStatus();
}

// Wraps where another dimension is 0 and these are huge.
uint64_t Product(std::span<const int64_t> dims) {
  uint64_t product = 1;
  for (int64_t dim : dims) product *= static_cast<uint64_t>(dim);
  return product;
}

// Tells whether the dimensions before the axis, and those behind it, hold as many elements in both.
bool SameAround(const Dims& from, int64_t from_axis, const Dims& to, int64_t to_axis) {
  const std::span<const int64_t> x(from), y(to);
  const auto i = static_cast<size_t>(from_axis), j = static_cast<size_t>(to_axis);
  return Product(x.first(i)) == Product(y.first(j)) && Product(x.subspan(i + 1)) == Product(y.subspan(j + 1));
}

// Tells whether elements of x, moved, are elements of y: the same integers mean the same. Where scales go along a
// dimension, that is one dimension of both, whole.
bool SameMoved(const TypeText& x, const TypeText& y, ir::StableHloOp& op) {
  const Quantized &from = x.quantized, &to = y.quantized;
  if (from == nullptr || to == nullptr || (from->axis < 0 && to->axis < 0)) return Same(from, to);
  if (from->axis < 0 || to->axis < 0) return false;
  const auto entry = [&](std::string_view attribute, int64_t i) {
    const ir::Ints dims = op.Ints(attribute);
    return i < std::ssize(dims) ? dims[static_cast<size_t>(i)] : -1;
  };
  Quantization moved = *from;
  moved.axis = to->axis;
  if (op.name == "stablehlo.transpose") {
    if (entry("permutation", to->axis) != from->axis) return false;
  } else if (op.name == "stablehlo.reshape" || op.name == "stablehlo.dynamic_reshape") {
    if (!SameAround(x.type.dims, from->axis, y.type.dims, to->axis)) return false;
  } else if (op.name == "stablehlo.broadcast_in_dim" || op.name == "stablehlo.dynamic_broadcast_in_dim") {
    if (entry("broadcast_dimensions", from->axis) != to->axis) return false;
    if (from->scales.size() == 1) {
      moved.scales.resize(to->scales.size(), from->scales[0]);
      moved.zero_points.resize(to->scales.size(), from->zero_points[0]);
    }
  } else {
    return false;
  }
  return moved == *to;
}

absl::Status CheckMoves(const QuantizedCall& call, const Row& row, ir::StableHloOp& op) {
  if (call.operands.size() <= row.begin) return absl::OkStatus();  // fails by its own rule
  const TypeText& first = call.operands[row.begin];
  const auto differ = [&](const TypeText& other) {
    return UserError("elements of ", Spell(first), " do not go where the type is ", Spell(other));
  };
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const TypeText& operand = call.operands[i];
    const bool moved = i >= row.begin && i < row.end;
    if (i == row.begin) continue;
    if (!(moved ? SameMoved(first, operand, op) : operand.quantized == nullptr)) return differ(operand);
  }
  for (const TypeText& result : call.results) {
    if (!SameMoved(first, result, op)) return differ(result);
  }
  return absl::OkStatus();
}

// All that is around and in the function has one type of elements, but for indices and what a comparator says.
absl::Status CheckBody(const QuantizedCall& call, std::string_view name) {
  std::vector<const TypeText*> types;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    const bool indices = name == "stablehlo.scatter" && i == call.operands.size() / 2;
    if (!indices) types.push_back(&call.operands[i]);
  }
  for (const TypeText& type : call.results) types.push_back(&type);
  for (const Signature& function : call.functions) {
    for (const TypeText& type : function.parameters) types.push_back(&type);
    for (const TypeText& type : function.results) {
      if (!IsBool(type.type.dtype)) types.push_back(&type);
    }
  }
  for (const TypeText* type : types) {
    if (Same(types[0]->quantized, type->quantized) && type->quantized != nullptr && type->quantized->axis < 0) continue;
    return UserErrorOf(
        absl::StatusCode::kUnimplemented,
        "this version of Weft has it for quantised values where all are of one type without an axis; here are ",
        Spell(*types[0]), " and ", Spell(*type));
  }
  return absl::OkStatus();
}

// One for all elements, or one for each index of the axis.
template <typename T>
Value Parameter(Builder& b, const std::vector<T>& values, DType dtype, const Dims& dims, int64_t axis) {
  if (axis < 0) return ops::Full(b, dtype, dims, static_cast<double>(values[0]));
  HostTensor each(dtype, {std::ssize(values)});
  for (size_t i = 0; i < values.size(); ++i) each.SetDouble(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return ops::BroadcastInDim(b, ops::Constant(b, std::move(each)), dims, {axis});
}

bool HasZeroPoint(const Quantization& quantization) {
  return std::ranges::any_of(quantization.zero_points, [](int64_t zero) { return zero != 0; });
}

}  // namespace

QuantizedUse QuantizedUseOf(std::string_view operation) {
  const Row* row = RowOf(operation);
  return row == nullptr ? kRefused : row->use;
}

absl::StatusOr<QuantizedUse> CheckQuantized(const QuantizedCall& call, ir::StableHloOp& op) {
  if (op.name == "stablehlo.uniform_quantize" && !AnyQuantized(call.results)) {
    return UserError("the result must be quantised");
  }
  if (op.name == "stablehlo.uniform_dequantize" && (!AnyQuantized(call.operands) || AnyQuantized(call.results))) {
    return UserError("the operand must be quantised, and the result not");
  }
  const TypeText* quantised = nullptr;
  const auto look = [&](std::span<const TypeText> types) {
    const auto found = std::ranges::find_if(types, [](const TypeText& type) { return type.quantized != nullptr; });
    if (quantised == nullptr && found != types.end()) quantised = &*found;
  };
  look(call.operands);
  look(call.results);
  for (const Signature& function : call.functions) {
    look(function.parameters);
    look(function.results);
  }
  if (quantised == nullptr) return kBits;
  const Row* row = RowOf(op.name);
  if (row == nullptr) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "this version of Weft does not have it of ",
                       Spell(*quantised));
  }
  if (row->use == kPasses) WEFT_RETURN_IF_ERROR(CheckPasses(call, op.name));
  if (row->use == kMoves) WEFT_RETURN_IF_ERROR(CheckMoves(call, *row, op));
  if (row->use == kBody) WEFT_RETURN_IF_ERROR(CheckBody(call, op.name));
  return row->use;
}

bool SameType(const TypeText& a, const TypeText& b) { return a.type == b.type && Same(a.quantized, b.quantized); }

std::string Spell(const TypeText& type) {
  return type.quantized == nullptr ? ToString(type.type) : std::string(type.text);
}

ir::Type ExpressedType(const TypeText& type) {
  return type.quantized == nullptr ? type.type : ir::Type::Tensor(type.quantized->expressed, type.type.dims);
}

// The difference in wider integers: that of the storage type would wrap.
Value Dequantize(Builder& b, const Value& x, const Quantization& of) {
  Value difference = x;
  if (HasZeroPoint(of)) {
    const DType wide = BitsOf(of.storage) == 32 ? DType::kI64 : DType::kI32;
    difference = ops::Sub(b, ops::Convert(b, x, wide), Parameter(b, of.zero_points, wide, x.dims(), of.axis));
  }
  return ops::Mul(b, ops::Convert(b, difference, of.expressed),
                  Parameter(b, of.scales, of.expressed, x.dims(), of.axis));
}

// Clamped while it is a float: what no integer holds must not be converted.
Value Quantize(Builder& b, const Value& x, const Quantization& to) {
  Value scaled = ops::Div(b, x, Parameter(b, to.scales, to.expressed, x.dims(), to.axis));
  if (HasZeroPoint(to)) scaled = ops::Add(b, scaled, Parameter(b, to.zero_points, to.expressed, x.dims(), to.axis));
  const auto bound = [&](int64_t value) { return ops::FullLike(b, scaled, static_cast<double>(value)); };
  const Value clamped = ops::Call(b, ops::kOp_clamp, {bound(to.min), scaled, bound(to.max)});
  return ops::Convert(b, ops::Unary(b, ops::kOp_round, clamped), to.storage);
}

}  // namespace weft::stablehlo
