// Applies a signature to operands' types: names get sizes, results get types, parameters get numbers.
#include "src/ops/custom/signature.h"

#include <algorithm>
#include <bit>

#include "src/ir/builder.h"

namespace weft::ops {
namespace {

using Role = CustomParameter::Role;
using Op = CustomExpression::Op;

bool IsOperand(Role role) { return role == Role::kInput || role == Role::kInputValue || role == Role::kInOut; }
bool IsResult(Role role) { return role == Role::kResult || role == Role::kInOut; }

// The values of a signature's names in one call.
class Bound {
 public:
  explicit Bound(const CustomSignature& signature)
      : signature_(signature), sizes_(signature.names.size()), rests_(signature.names.size()) {}

  // Gives every name a size that a dimension of this tensor alone says.
  absl::Status Bind(const CustomParameter& p, const Dims& dims, std::string_view what, size_t i) {
    const size_t rest = dims.size() - std::min(p.dims.size(), dims.size());
    if (dims.size() < p.dims.size() || (p.rest < 0 && rest > 0)) {
      return UserError(what, " ", i, " has ", dims.size(), " dimensions, ", DimsToString(dims), "; ", Says(p), " has ",
                       p.dims.size(), p.rest < 0 ? "" : " or more");
    }
    if (p.rest >= 0 && !sizes_[p.rest]) {
      rests_[p.rest] = Dims(dims.begin(), dims.begin() + static_cast<ptrdiff_t>(rest));
      sizes_[p.rest] = CheckedCount(*rests_[p.rest]);
    }
    for (size_t d = 0; d < p.dims.size(); ++d) {
      const int64_t name = p.dims[d].LoneName();
      if (name >= 0 && !sizes_[name]) sizes_[name] = dims[rest + d];
    }
    return absl::OkStatus();
  }

  // Checks that the tensor has the shape that the signature says, now that names are bound.
  absl::Status Check(const CustomParameter& p, const Dims& dims, std::string_view what, size_t i) const {
    WEFT_ASSIGN_OR_RETURN(const Dims wanted, ShapeOf(p));
    if (wanted == dims) return absl::OkStatus();
    return UserError(what, " ", i, " is ", DimsToString(dims), "; ", Says(p), " is ", DimsToString(wanted), " here");
  }

  absl::StatusOr<Dims> ShapeOf(const CustomParameter& p) const {
    Dims dims;
    if (p.rest >= 0) {
      if (rests_[p.rest]) {
        dims = *rests_[p.rest];
      } else {
        WEFT_ASSIGN_OR_RETURN(const int64_t size, Evaluate({{{Op::kName, p.rest}}, p.position}));
        dims.push_back(size);
      }
    }
    for (const CustomExpression& dim : p.dims) {
      WEFT_ASSIGN_OR_RETURN(const int64_t size, Evaluate(dim));
      if (size < 0) return UserError("the signature's ", Says(p), " would have a dimension of ", size);
      dims.push_back(size);
    }
    return dims;
  }

  absl::StatusOr<int64_t> Evaluate(const CustomExpression& expression) const {
    std::vector<int64_t> stack;
    for (const CustomExpression::Step& step : expression.steps) {
      if (step.op == Op::kNumber) {
        stack.push_back(step.value);
        continue;
      }
      if (step.op == Op::kName) {
        const std::optional<int64_t>& size = sizes_[static_cast<size_t>(step.value)];
        if (!size) return Unknown(step.value, expression.position);
        stack.push_back(*size);
        continue;
      }
      const int64_t y = stack.back();
      stack.pop_back();
      const std::optional<int64_t> value = Apply(step.op, stack.back(), y);
      if (!value) {
        return UserError("signature '", signature_.text, "', character ", expression.position + 1,
                         ": the number divides by zero or does not fit 64 bits with these operands");
      }
      stack.back() = *value;
    }
    return stack.back();
  }

  absl::Status Unknown(int64_t name, size_t position) const {
    return UserError("signature '", signature_.text, "', character ", position + 1,
                     ": no shape of an operand says what '", signature_.names[static_cast<size_t>(name)], "' is");
  }
  void Pretend(int64_t name) { sizes_[static_cast<size_t>(name)] = 1; }
  bool Knows(int64_t name) const { return sizes_[static_cast<size_t>(name)].has_value(); }

 private:
  static std::optional<int64_t> Apply(Op op, int64_t x, int64_t y) {
    int64_t out = 0;
    bool wrong = false;
    switch (op) {
      case Op::kAdd: wrong = __builtin_add_overflow(x, y, &out); break;
      case Op::kSubtract: wrong = __builtin_sub_overflow(x, y, &out); break;
      case Op::kMultiply: wrong = __builtin_mul_overflow(x, y, &out); break;
      case Op::kDivide:
      case Op::kRemainder:
        wrong = y == 0 || (x == INT64_MIN && y == -1);
        if (!wrong) out = op == Op::kDivide ? x / y : x % y;
        break;
      case Op::kMin: out = std::min(x, y); break;
      case Op::kMax: out = std::max(x, y); break;
      case Op::kNumber:
      case Op::kName: wrong = true; break;
    }
    return wrong ? std::nullopt : std::optional(out);
  }
  // "[m, k]" as the text has it.
  std::string Says(const CustomParameter& p) const {
    const size_t open = signature_.text.find('[', p.position), close = signature_.text.find(']', open);
    return signature_.text.substr(open, close - open + 1);
  }

  const CustomSignature& signature_;
  std::vector<std::optional<int64_t>> sizes_;
  std::vector<std::optional<Dims>> rests_;
};

absl::Status CheckOperand(const CustomParameter& p, const ir::Type& type, size_t i, const CustomSignature& signature) {
  if (!type.is_tensor() || type.dtype != p.dtype) {
    return UserError("operand ", i, " is ", ir::ShortType(type), "; the signature '", signature.text, "' takes ",
                     NameOf(p.dtype));
  }
  if (signature.kind == CustomKind::kBuffers && p.role == Role::kInputValue && type.rank() != 0) {
    return UserError("operand ", i, " is ", ir::ShortType(type), "; the signature '", signature.text,
                     "' takes a scalar, ", NameOf(p.dtype), "[]");
  }
  return absl::OkStatus();
}

absl::Status CheckOperands(const CustomSignature& signature, std::span<const ir::Type* const> operands) {
  if (operands.size() != signature.operands()) {
    return UserError("the signature '", signature.text, "' takes ", signature.operands(), " operands; there are ",
                     operands.size());
  }
  size_t i = 0;
  for (const CustomParameter& p : signature.parameters) {
    if (!IsOperand(p.role)) continue;
    WEFT_RETURN_IF_ERROR(CheckOperand(p, *operands[i], i, signature));
    if (signature.kind == CustomKind::kElements && operands[i]->dims != operands[0]->dims) {
      return UserError("operand ", i, " is ", ir::ShortType(*operands[i]), " and operand 0 ",
                       ir::ShortType(*operands[0]), "; a function of elements takes them in one shape");
    }
    ++i;
  }
  return absl::OkStatus();
}

absl::Status CheckSaid(const CustomSignature& signature, std::span<const ir::Type> said) {
  if (said.empty()) return absl::OkStatus();
  if (said.size() != signature.results()) {
    return UserError("the signature '", signature.text, "' has ", signature.results(), " results; there are ",
                     said.size());
  }
  size_t r = 0;
  const auto check = [&](DType dtype) -> absl::Status {
    const ir::Type& type = said[r];
    if (type.is_tensor() && type.dtype == dtype) return ++r, absl::OkStatus();
    return UserError("result ", r, " is ", ir::ShortType(type), "; the signature '", signature.text, "' gives ",
                     NameOf(dtype));
  };
  if (signature.returns == CustomReturn::kResult) WEFT_RETURN_IF_ERROR(check(signature.return_dtype));
  for (const CustomParameter& p : signature.parameters) {
    if (IsResult(p.role)) WEFT_RETURN_IF_ERROR(check(p.dtype));
  }
  return absl::OkStatus();
}

// Binds all that shapes say, and checks those of operands and, where they are there, results.
absl::Status BindAll(const CustomSignature& signature, std::span<const ir::Type* const> operands,
                     std::span<const ir::Type> said, Bound& bound) {
  const size_t first = signature.returns == CustomReturn::kResult ? 1 : 0;
  for (const bool binding : {true, false}) {
    size_t i = 0, r = first;
    for (const CustomParameter& p : signature.parameters) {
      if (IsOperand(p.role)) {
        const Dims& dims = operands[i]->dims;
        if (p.shaped) {
          WEFT_RETURN_IF_ERROR(binding ? bound.Bind(p, dims, "operand", i) : bound.Check(p, dims, "operand", i));
        }
        ++i;
      }
      if (!IsResult(p.role)) continue;
      if (p.shaped && r < said.size() && p.role == Role::kResult) {
        const Dims& dims = said[r].dims;
        WEFT_RETURN_IF_ERROR(binding ? bound.Bind(p, dims, "result", r) : bound.Check(p, dims, "result", r));
      }
      ++r;
    }
  }
  return absl::OkStatus();
}

}  // namespace

size_t CustomSignature::operands() const {
  return static_cast<size_t>(std::ranges::count_if(parameters, [](const auto& p) { return IsOperand(p.role); }));
}

size_t CustomSignature::results() const {
  return static_cast<size_t>(std::ranges::count_if(parameters, [](const auto& p) { return IsResult(p.role); })) +
         (returns == CustomReturn::kResult ? 1 : 0);
}

absl::Status CustomSignature::CheckShapesFollow() const {
  if (kind == CustomKind::kElements) return absl::OkStatus();
  Bound bound(*this);
  for (const CustomParameter& p : parameters) {
    if (!IsOperand(p.role) || !p.shaped) continue;
    if (p.rest >= 0) bound.Pretend(p.rest);
    for (const CustomExpression& dim : p.dims) {
      if (dim.LoneName() >= 0) bound.Pretend(dim.LoneName());
    }
  }
  const auto check = [&](const CustomExpression& expression) -> absl::Status {
    for (const CustomExpression::Step& step : expression.steps) {
      if (step.op == Op::kName && !bound.Knows(step.value)) return bound.Unknown(step.value, expression.position);
    }
    return absl::OkStatus();
  };
  for (const CustomParameter& p : parameters) {
    if (p.rest >= 0 && !bound.Knows(p.rest)) return bound.Unknown(p.rest, p.position);
    for (const CustomExpression& dim : p.dims) WEFT_RETURN_IF_ERROR(check(dim));
    WEFT_RETURN_IF_ERROR(check(p.number));
    if (!p.shaped && (p.role == Role::kResult || p.role == Role::kScratch)) {
      return UserError("signature '", text, "', character ", p.position + 1,
                       ": nothing says what shape this has; write it behind the pointer, 'T*[n, 2*k]', or give a shape "
                       "callback for results");
    }
  }
  return absl::OkStatus();
}

bool CustomSignature::BatchesItself() const {
  if (kind == CustomKind::kElements) return true;
  if (returns == CustomReturn::kResult) return false;
  int64_t rest = -1;
  for (const CustomParameter& p : parameters) {
    if (p.role == Role::kNumber || p.role == Role::kNumberBehind || p.role == Role::kScratch) continue;
    if (p.rest < 0 || (rest >= 0 && p.rest != rest)) return false;
    rest = p.rest;
  }
  return true;
}

absl::StatusOr<ir::Types> CustomSignature::Results(std::span<const ir::Type* const> operand_types,
                                                   std::span<const ir::Type> said) const {
  WEFT_RETURN_IF_ERROR(CheckOperands(*this, operand_types));
  WEFT_RETURN_IF_ERROR(CheckSaid(*this, said));
  const bool elements = kind == CustomKind::kElements;
  Bound bound(*this);
  if (!elements) WEFT_RETURN_IF_ERROR(BindAll(*this, operand_types, said, bound));
  ir::Types types;
  if (returns == CustomReturn::kResult) {
    types.push_back(ir::Type::Tensor(return_dtype, elements ? operand_types[0]->dims : Dims()));
  }
  size_t i = 0;
  for (const CustomParameter& p : parameters) {
    const size_t operand = IsOperand(p.role) ? i++ : i;
    if (!IsResult(p.role)) continue;
    Dims dims;
    if (elements) {
      dims = operand_types[0]->dims;
    } else if (p.role == Role::kInOut) {
      dims = operand_types[operand]->dims;
    } else if (p.shaped) {
      WEFT_ASSIGN_OR_RETURN(dims, bound.ShapeOf(p));
    } else if (types.size() < said.size()) {
      dims = said[types.size()].dims;
    } else {
      return UserError("result ", types.size(), " has no shape: neither the signature '", text,
                       "' nor a callback says one");
    }
    types.push_back(ir::Type::Tensor(p.dtype, std::move(dims)));
  }
  for (size_t r = 0; r < said.size(); ++r) {
    if (said[r] == types[r]) continue;
    return UserError("result ", r, " is ", ir::ShortType(said[r]), "; with these operands the signature '", text,
                     "' gives ", ir::ShortType(types[r]));
  }
  return types;
}

absl::StatusOr<CustomSignature::Sizes> CustomSignature::SizesFor(std::span<const ir::Type* const> operand_types,
                                                                 std::span<const ir::Type> result_types) const {
  Bound bound(*this);
  if (kind == CustomKind::kBuffers) WEFT_RETURN_IF_ERROR(BindAll(*this, operand_types, result_types, bound));
  Sizes sizes;
  for (const CustomParameter& p : parameters) {
    if (p.role == Role::kScratch) {
      if (!p.shaped) {
        sizes.scratch_bytes.push_back(BytesOf(p.dtype));
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const Dims dims, bound.ShapeOf(p));
      const std::optional<int64_t> count = CheckedCount(dims);
      if (!count || *count > (int64_t{1} << 59)) {
        return UserError("the signature '", text, "' wants scratch of ", DimsToString(dims), " elements");
      }
      sizes.scratch_bytes.push_back(*count * BytesOf(p.dtype));
    }
    if (p.role != Role::kNumber && p.role != Role::kNumberBehind) continue;
    double real = p.real;
    int64_t number = 0;
    if (!p.is_real) {
      WEFT_ASSIGN_OR_RETURN(number, bound.Evaluate(p.number));
      real = static_cast<double>(number);
    }
    if (IsInteger(p.dtype) && BitsOf(p.dtype) < 64) {
      const int64_t most =
          IsSigned(p.dtype) ? (int64_t{1} << (BitsOf(p.dtype) - 1)) - 1 : (int64_t{1} << BitsOf(p.dtype)) - 1;
      if (number > most || number < (IsSigned(p.dtype) ? -most - 1 : 0)) {
        return UserError("signature '", text, "', character ", p.number.position + 1, ": ", number,
                         " is no number of the type ", NameOf(p.dtype));
      }
    }
    sizes.numbers.push_back(IsFloat(p.dtype) ? std::bit_cast<int64_t>(real) : number);
  }
  return sizes;
}

}  // namespace weft::ops
