// Operands and attributes of one call, checked and recorded.
#include "src/c_api/op_call.h"

#include <algorithm>

#include "absl/base/attributes.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "src/c_api/context.h"

namespace weft::c_api {
namespace {

absl::Status Prefix(const ir::OpDef& op, const absl::Status& status) {
  const absl::Status named = WithText(status, absl::StrCat(op.c_name, ": ", status.message()));
  return WithDetail(named, kPayloadOperation, op.c_name);
}

std::string NameOfValueType(int32_t type) {
  switch (type) {
    case WEFT_VALUE_INT: return "an integer (WEFT_VALUE_INT)";
    case WEFT_VALUE_DOUBLE: return "a number (WEFT_VALUE_DOUBLE)";
    case WEFT_VALUE_BOOL: return "a truth value (WEFT_VALUE_BOOL)";
    case WEFT_VALUE_DTYPE: return "a dtype (WEFT_VALUE_DTYPE)";
    case WEFT_VALUE_ENUM: return "an enumerator (WEFT_VALUE_ENUM)";
    case WEFT_VALUE_INTS: return "integers (WEFT_VALUE_INTS)";
    case WEFT_VALUE_DOUBLES: return "numbers (WEFT_VALUE_DOUBLES)";
    case WEFT_VALUE_TEXT: return "text (WEFT_VALUE_TEXT)";
    default: return absl::StrCat("the unknown weft_value_type ", type);
  }
}

}  // namespace

OpCall::OpCall(const ir::OpDef& op, weft_context* ctx) : op_(op), context_(Find(ctx)) {
  if (!context_) {
    status_ = Get(ctx, "ctx").status();
  } else {
    status_ = context_->Usable();
  }
  if (!status_.ok()) status_ = Prefix(op_, status_);
}

absl::Status OpCall::BadOperand(size_t i, const lazy::Engine* owner) const {
  weft_tensor* tensor = HandleAt(i) != Missing() ? HandleAt(i) : nullptr;
  const std::string_view name = i < op_.operands.size() ? op_.operands[i].name : std::string_view("operand");
  // A handle that the engine did not find as its own may belong to another context.
  const HandleType type = TypeOf(tensor);
  if (owner != nullptr && type == HandleType::kTensor && Find(tensor)) {
    return lazy::WithPosition(Prefix(op_, UserError(name, " belongs to another context")), CurrentLocation(*owner));
  }
  const absl::Status status = NoTensor(tensor, name);
  return type == HandleType::kPoison ? status : Prefix(op_, status);
}

absl::Status OpCall::CheckOperand(size_t i) const {
  const bool fits = operands_[i] == nullptr || TypeOf(operands_[i]) == HandleType::kTensor;
  return fits ? absl::OkStatus() : BadOperand(i, nullptr);
}

absl::Status OpCall::FindOperands(size_t count, const lazy::Engine& owner) {
  lazy::Tensor** operands = operands_.data();
  const lazy::Engine* engine = &owner;
  for (size_t i = 0; i < count; ++i) {
    if (operands[i] == nullptr) continue;
    RefCounted* found = Borrow(operands[i], HandleType::kTensor, engine);
    if (found == nullptr) return BadOperand(i, engine);
    operands[i] = static_cast<lazy::Tensor*>(found);
  }
  return absl::OkStatus();
}

void OpCall::Variadic(weft_tensor* const* tensors, size_t count) {
  if (count == 0 || tensors == nullptr) {
    Fail(Prefix(op_, UserError(op_.operands.back().name, " needs at least one tensor")));
    return;
  }
  if (absl::Status status = CheckedLength(op_.operands.back().name, count, kMostEntries); !status.ok()) {
    Fail(Prefix(op_, status));
    return;
  }
  for (size_t i = 0; i < count; ++i) Operand(tensors[i]);
}

absl::Status OpCall::Bad(size_t at, std::string_view what) {
  return Prefix(op_, UserError("attribute ", op_.attrs[at].name, " ", what));
}

void OpCall::SetEnum(size_t at, int32_t value) {
  const auto names = op_.attrs[at].enumerators;
  if (value < 0 || static_cast<size_t>(value) >= names.size()) {
    Fail(Bad(at, absl::StrCat("is ", value, "; there are 0 to ", names.size() - 1)));
    return;
  }
  attrs_.set(at, int64_t{value});
}

void OpCall::SetEnumByName(size_t at, const char* data, size_t length) {
  const ir::AttrDef& attr = op_.attrs[at];
  absl::StatusOr<std::string_view> name = Text(data, length, attr.name);
  if (!name.ok()) return Fail(Prefix(op_, name.status()));
  const auto found = std::ranges::find(attr.enumerators, *name);
  if (found != attr.enumerators.end()) return SetEnum(at, static_cast<int32_t>(found - attr.enumerators.begin()));
  Fail(Bad(at, absl::StrCat("is '", *name, "'; there are ", absl::StrJoin(attr.enumerators, ", "))));
}

void OpCall::SetDType(size_t at, uint32_t value) {
  absl::StatusOr<DType> dtype = CheckedDType(value);
  if (!dtype.ok()) {
    Fail(Prefix(op_, dtype.status()));
    return;
  }
  attrs_.set(at, *dtype);
}

void OpCall::SetInts(size_t at, const int64_t* data, size_t count) {
  if (count > 0 && data == nullptr) {
    Fail(Bad(at, absl::StrCat("is NULL with a count of ", count)));
    return;
  }
  if (count > 4096) {
    Fail(Bad(at, absl::StrCat("has ", count, " entries; 4096 are allowed")));
    return;
  }
  attrs_.set(at, ir::Ints(data, data + count));
}

void OpCall::SetDoubles(size_t at, const double* data, size_t count) {
  if ((count > 0 && data == nullptr) || count > 4096) {
    Fail(Bad(at, data == nullptr ? "is NULL" : "has more than 4096 entries"));
    return;
  }
  attrs_.set(at, std::vector<double>(data, data + count));
}

void OpCall::SetText(size_t at, const char* data, size_t length) {
  absl::StatusOr<std::string_view> text = Text(data, length, op_.attrs[at].name);
  if (!text.ok()) {
    Fail(Prefix(op_, text.status()));
    return;
  }
  attrs_.set(at, std::string(*text));
}

void OpCall::SetAny(size_t at, int32_t type, int64_t i, double d, const void* data, size_t count) {
  const ir::AttrDef& attr = op_.attrs[at];
  if (type == WEFT_VALUE_NONE) return;
  if (attrs_.has(at)) return Fail(Bad(at, "is given twice"));
  switch (attr.type) {
    case ir::AttrType::kInt:
      if (type == WEFT_VALUE_INT) return SetInt(at, i);
      break;
    case ir::AttrType::kDouble:
      if (type == WEFT_VALUE_DOUBLE) return SetDouble(at, d);
      if (type == WEFT_VALUE_INT) {
        // Up to 2^53 in magnitude a double holds every integer; beyond, asking is better than rounding.
        if (static_cast<__int128>(static_cast<double>(i)) == i) return SetDouble(at, static_cast<double>(i));
        return Fail(Bad(at, absl::StrCat("is ", i, ", which no double holds exactly")));
      }
      break;
    case ir::AttrType::kBool:
      if (type == WEFT_VALUE_BOOL || type == WEFT_VALUE_INT) {
        if (i == 0 || i == 1) return SetBool(at, static_cast<int32_t>(i));
        return Fail(Bad(at, absl::StrCat("is ", i, "; it takes 0 or 1")));
      }
      break;
    case ir::AttrType::kDType:
      if (type == WEFT_VALUE_DTYPE || type == WEFT_VALUE_INT) {
        if (i >= 0 && i <= UINT32_MAX) return SetDType(at, static_cast<uint32_t>(i));
        return Fail(Bad(at, absl::StrCat("is 0x", absl::Hex(static_cast<uint64_t>(i)), ", which is no dtype")));
      }
      break;
    case ir::AttrType::kInts:
      if (type == WEFT_VALUE_INTS) return SetInts(at, static_cast<const int64_t*>(data), count);
      break;
    case ir::AttrType::kDoubles:
      if (type == WEFT_VALUE_DOUBLES) return SetDoubles(at, static_cast<const double*>(data), count);
      break;
    case ir::AttrType::kString:
      if (type == WEFT_VALUE_TEXT) return SetText(at, static_cast<const char*>(data), count);
      break;
    case ir::AttrType::kEnum:
      if (type == WEFT_VALUE_TEXT || (type == WEFT_VALUE_ENUM && data != nullptr)) {
        return SetEnumByName(at, static_cast<const char*>(data), count);
      }
      if (type == WEFT_VALUE_ENUM || type == WEFT_VALUE_INT) {
        if (i >= 0 && i <= INT32_MAX) return SetEnum(at, static_cast<int32_t>(i));
        return Fail(Bad(at, absl::StrCat("is ", i, "; there are 0 to ", attr.enumerators.size() - 1)));
      }
      break;
    case ir::AttrType::kLiteral: break;
  }
  static constexpr const char* kKinds[] = {"an integer", "a number", "0 or 1", "an enumerator", "a dtype",
                                           "integers",   "numbers",  "text",   "a literal"};
  Fail(Bad(at, absl::StrCat("takes ", kKinds[static_cast<int>(attr.type)], ", not ", NameOfValueType(type))));
}

void OpCall::CheckPresent(uint64_t present, uint64_t known) {
  if ((present & ~known) == 0) return;
  Fail(Prefix(op_, UserErrorOf(absl::StatusCode::kUnimplemented, "opts->present has bits (0x",
                               absl::Hex(present & ~known), ") that this version does not know")));
}

// Inlined, because recording is a hot path.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline absl::Status OpCall::RunAt(Device* device, lazy::Tensors* results) {
  if (!status_.ok()) {
    for (size_t i = 0; i < before_failure_; ++i) WEFT_RETURN_IF_ERROR(CheckOperand(i));
    return status_;
  }
  // Trailing absent optional operands need not be said.
  size_t count = operands_.size();
  while (count > 0 && operands_[count - 1] == nullptr) --count;
  const auto find = [&] { return FindOperands(count, context_->engine()); };
  return context_->engine().Record(op_, {operands_.data(), count}, find, std::move(attrs_),
                                   CurrentLocation(context_->engine()), results, context_->where(device), regions_);
}

absl::Status OpCall::Run(lazy::Tensors* results) { return RunAt(nullptr, results); }

absl::Status OpCall::Record(std::initializer_list<weft_tensor**> outs) {
  for (weft_tensor** out : outs) {
    if (out == nullptr) return Prefix(op_, NullArgument("out"));
  }
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(Run(&results));
  if (results.size() != outs.size())
    return InternalError(op_.c_name, " has ", results.size(), " results, not ", outs.size());
  weft_tensor* made[8];
  size_t n = 0;
  for (Ref<lazy::Tensor>& result : results) {
    if (absl::Status status = MakeTensor(std::move(result), &made[n]); !status.ok()) {
      while (n > 0) ReleaseHandle(made[--n], HandleType::kTensor);
      return status;
    }
    ++n;
  }
  n = 0;
  for (weft_tensor** out : outs) *out = made[n++];
  return absl::OkStatus();
}

absl::Status OpCall::Record(std::initializer_list<weft_tensor**> outs, weft_device* device) {
  if (device == nullptr || !status_.ok()) return Record(outs);
  size_t count = 0;
  std::vector<weft_tensor*> made(outs.size());
  WEFT_RETURN_IF_ERROR(RecordInto(made.data(), nullptr, made.size(), &count, device));
  size_t n = 0;
  for (weft_tensor** out : outs) *out = made[n++];
  return absl::OkStatus();
}

absl::Status OpCall::RecordSome(std::initializer_list<weft_tensor**> outs) {
  if (std::ranges::all_of(outs, [](weft_tensor** out) { return out == nullptr; })) {
    return Prefix(op_, UserError("every result is NULL; at least one is wanted"));
  }
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(Run(&results));
  size_t n = 0;
  std::vector<weft_tensor*> made;
  for (weft_tensor** out : outs) {
    if (out == nullptr) results[n] = nullptr;
    ++n;
  }
  WEFT_RETURN_IF_ERROR(MakeTensors({results.data(), results.size()}, &made));
  n = 0;
  for (weft_tensor** out : outs) {
    if (out != nullptr) *out = made[n];
    ++n;
  }
  return absl::OkStatus();
}

absl::Status OpCall::RecordInto(weft_tensor** outs, weft_tensor_info* infos, size_t capacity, size_t* out_count,
                                weft_device* device) {
  Device* place = nullptr;
  if (device != nullptr && status_.ok()) {
    absl::StatusOr<Device*> found = DeviceOr(device, context_->engine());
    if (!found.ok()) return Prefix(op_, found.status());
    place = *found;
  }
  lazy::Tensors results;
  WEFT_RETURN_IF_ERROR(RunAt(place, &results));
  WEFT_RETURN_IF_ERROR(CheckDevice({results.data(), results.size()}, place, op_));
  // Most operations have one result, and recording allocates nothing that it need not.
  absl::InlinedVector<const lazy::Tensor*, 4> made;
  absl::InlinedVector<weft_tensor*, 4> handles(results.size());
  for (const Ref<lazy::Tensor>& result : results) made.push_back(result.get());
  WEFT_RETURN_IF_ERROR(MakeTensors({results.data(), results.size()}, handles.data()));
  std::ranges::copy(handles, outs);
  for (size_t i = 0; infos != nullptr && i < made.size(); ++i) Describe(*made[i], &infos[i]);
  *out_count = handles.size();
  return absl::OkStatus();
}

void Describe(const lazy::Tensor& tensor, weft_tensor_info* info) {
  info->dtype = static_cast<weft_dtype>(tensor.dtype());
  info->rank = static_cast<uint32_t>(tensor.dims().size());
  std::copy(tensor.dims().begin(), tensor.dims().end(), info->dims);
}

absl::Status CheckDevice(std::span<const Ref<lazy::Tensor>> results, const Device* asked, const ir::OpDef& op) {
  if (asked == nullptr || results.empty()) return absl::OkStatus();
  const lazy::DeviceMesh& mesh = results[0]->sharding().mesh();
  if (mesh.alone() && mesh.devices()[0] == asked) return absl::OkStatus();
  return Prefix(op, UserError("operands are on ", mesh.name(), ", device is ", asked->name,
                              "; copy them there first (weft_tensor_copy_to)"));
}

absl::Status MakeTensors(std::span<Ref<lazy::Tensor>> tensors, weft_tensor** made) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    made[i] = nullptr;
    const absl::Status status = tensors[i] ? MakeTensor(std::move(tensors[i]), &made[i]) : absl::OkStatus();
    if (!status.ok()) {
      while (i > 0) ReleaseHandle(made[--i], HandleType::kTensor);
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status MakeTensors(std::span<Ref<lazy::Tensor>> tensors, std::vector<weft_tensor*>* made) {
  made->resize(tensors.size());
  const absl::Status status = MakeTensors(tensors, made->data());
  if (!status.ok()) made->clear();
  return status;
}

weft_error* RecordPlain(const ir::OpDef& op, weft_context* ctx, std::initializer_list<weft_tensor*> operands,
                        weft_tensor** out, const CalledFrom& from) noexcept {
  const auto body = [&]() -> absl::Status {
    OpCall call(op, ctx);
    for (weft_tensor* operand : operands) call.Operand(operand);
    absl::Status status = call.Record({out});
    if (status.ok() || status.GetPayload(kPayloadOperation).has_value()) return status;
    // A wait for an automatic cut knows of no operation, and here the guard does not know the C function's name. The
    // failure behind a poisoned operand says itself where it was.
    const bool poisoned =
        std::ranges::any_of(operands, [](weft_tensor* x) { return TypeOf(x) == HandleType::kPoison; });
    return poisoned || absl::StartsWith(status.message(), op.c_name) ? status : Prefix(op, status);
  };
  return Guard(body, __builtin_FUNCTION(), from);
}

}  // namespace weft::c_api
