// weft_op_apply, weft_op_apply_on, weft_op_vjp, weft_op_list and the random state.
#include <cstring>
#include <span>

#include "src/c_api/context.h"
#include "src/c_api/guess.h"
#include "src/c_api/op_call.h"
#include "src/ops/registry.h"
#include "weft.h"

namespace weft::c_api {

absl::StatusOr<const ir::OpDef*> ExportedOp(const char* name, size_t length) {
  WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
  const ir::OpDef* op = ops::FindCalled(text);
  if (op == nullptr || !op->exported) {
    std::vector<std::string_view> names;
    for (const ir::OpDef* known : ops::AllOps()) {
      if (known->exported) names.push_back(known->c_name);
    }
    return UserErrorOf(absl::StatusCode::kNotFound, "there is no operation '", text, "'", DidYouMean(text, names),
                       "weft_op_list names all");
  }
  return op;
}

namespace {

// Names of one thing, ours and StableHLO's: an operation that has the one takes the other.
constexpr std::string_view kAliases[][2] = {{"axis", "dimension"}, {"dims", "dimensions"}};

// The position of an attribute; their count where there is none of that name.
size_t AttrNamed(const ir::OpDef& op, std::string_view key) {
  const auto find = [&](std::string_view name) {
    size_t at = 0;
    while (at < op.attrs.size() && op.attrs[at].name != name) ++at;
    return at;
  };
  size_t at = find(key);
  for (const auto& [ours, theirs] : kAliases) {
    if (at < op.attrs.size()) break;
    if (key == ours || key == theirs) at = find(key == ours ? theirs : ours);
  }
  return at;
}

}  // namespace

absl::Status SetAttrs(OpCall& call, const weft_attr* attrs, size_t count) {
  if (count > 0) WEFT_NOT_NULL(attrs);
  WEFT_RETURN_IF_ERROR(CheckedLength("attrs", count, kMostEntries));
  const ir::OpDef& op = call.op();
  for (size_t i = 0; i < count; ++i) {
    const weft_attr& a = attrs[i];
    WEFT_ASSIGN_OR_RETURN(std::string_view key, Text(a.name, a.name_length, "attrs[].name"));
    const size_t at = AttrNamed(op, key);
    if (at == op.attrs.size()) {
      std::string known;
      for (const ir::AttrDef& attr : op.attrs) absl::StrAppend(&known, known.empty() ? "" : ", ", attr.name);
      const absl::Status status = UserError(op.c_name, ": there is no attribute '", key, "'",
                                            known.empty() ? "; it takes none" : absl::StrCat("; there are ", known));
      return WithDetail(status, kPayloadOperation, op.c_name);
    }
    call.SetAny(at, a.type, a.i, a.d, a.data, a.count);
  }
  return absl::OkStatus();
}

absl::Status Apply(const Applied& applied, weft_tensor** outputs, weft_tensor_info* infos, size_t capacity,
                   size_t* out_count) {
  const std::span<weft_tensor* const> inputs = applied.inputs;
  WEFT_NOT_NULL(out_count);
  WEFT_NOT_NULL(outputs);
  if (!inputs.empty() && inputs.data() == nullptr) return NullArgument("inputs");
  WEFT_ASSIGN_OR_RETURN(const ir::OpDef* op, ExportedOp(applied.name, applied.name_length));
  if (capacity < op->results.size()) {
    return UserErrorOf(absl::StatusCode::kOutOfRange, op->c_name, " has ", op->results.size(), " results; capacity is ",
                       capacity);
  }
  WEFT_RETURN_IF_ERROR(CheckedLength("inputs", inputs.size(), kMostEntries));
  OpCall call(*op, applied.ctx);
  for (weft_tensor* input : inputs) call.Optional(input);
  WEFT_RETURN_IF_ERROR(SetAttrs(call, applied.attrs, applied.attr_count));
  return call.RecordInto(outputs, infos, capacity, out_count, applied.device);
}

}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_op_apply(weft_context* ctx, const char* name, size_t name_length, weft_tensor* const* inputs,
                          size_t input_count, const weft_attr* attrs, size_t attr_count, weft_tensor** outputs,
                          size_t capacity, size_t* out_count) noexcept {
  return Guard([&] {
    return Apply({ctx, nullptr, name, name_length, {inputs, input_count}, attrs, attr_count}, outputs, nullptr,
                 capacity, out_count);
  });
}

weft_error* weft_op_apply_on(weft_context* ctx, weft_device* device, const char* name, size_t name_length,
                             weft_tensor* const* inputs, size_t input_count, const weft_attr* attrs, size_t attr_count,
                             weft_tensor** outputs, weft_tensor_info* infos, size_t capacity,
                             size_t* out_count) noexcept {
  return Guard([&] {
    return Apply({ctx, device, name, name_length, {inputs, input_count}, attrs, attr_count}, outputs, infos, capacity,
                 out_count);
  });
}

weft_error* weft_op_vjp(weft_context* ctx, const char* name, size_t name_length, weft_tensor* const* inputs,
                        size_t input_count, const weft_attr* attrs, size_t attr_count, weft_tensor* const* results,
                        weft_tensor* const* cotangents, size_t result_count, const int32_t* wanted,
                        weft_tensor** out_grads) noexcept {
  return Guard([&]() -> absl::Status {
    if (input_count > 0) WEFT_NOT_NULL(out_grads);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(const ir::OpDef* op, ExportedOp(name, name_length));
    WEFT_RETURN_IF_ERROR(CheckedLength("inputs", input_count, kMostEntries));
    WEFT_RETURN_IF_ERROR(CheckedLength("results", result_count, kMostEntries));
    OpCall call(*op);
    WEFT_RETURN_IF_ERROR(SetAttrs(call, attrs, attr_count));
    WEFT_ASSIGN_OR_RETURN(ir::Attrs said, call.TakeAttrs());
    TensorList x, y, g;
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(inputs, input_count, "inputs", &x));
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(results, results != nullptr ? result_count : 0, "results", &y));
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(cotangents, result_count, "cotangents", &g));
    absl::InlinedVector<bool, 8> asked(input_count, true);
    for (size_t i = 0; wanted != nullptr && i < input_count; ++i) asked[i] = wanted[i] != 0;
    const lazy::Recorder::OpGradientCall gradient{*op, x, y, g, {asked.data(), asked.size()}};
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors grads,
                          context->engine().OpGradient(gradient, std::move(said), CurrentLocation(context->engine())));
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors({grads.data(), grads.size()}, &made));
    std::copy(made.begin(), made.end(), out_grads);
    return absl::OkStatus();
  });
}

weft_error* weft_op_list(const char** out_names, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(out_names);
    size_t n = 0;
    for (const ir::OpDef* op : ops::AllOps()) {
      if (!op->exported) continue;
      if (n < capacity) out_names[n] = op->c_name.data();  // literals: NUL-terminated
      ++n;
    }
    *out_count = n;
    return absl::OkStatus();
  });
}

weft_error* weft_random_seed(weft_context* ctx, uint64_t seed) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    context->engine().set_generator({.key = seed});
    return absl::OkStatus();
  });
}

weft_error* weft_random_get_state(weft_context* ctx, uint64_t* out_key, uint64_t* out_counter_low,
                                  uint64_t* out_counter_high) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_key);
    WEFT_NOT_NULL(out_counter_low);
    WEFT_NOT_NULL(out_counter_high);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    const lazy::GeneratorState state = context->engine().generator();
    *out_key = state.key;
    *out_counter_low = state.counter_low;
    *out_counter_high = state.counter_high;
    return absl::OkStatus();
  });
}

weft_error* weft_random_set_state(weft_context* ctx, uint64_t key, uint64_t counter_low,
                                  uint64_t counter_high) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    context->engine().set_generator({.key = key, .counter_low = counter_low, .counter_high = counter_high});
    return absl::OkStatus();
  });
}

}  // extern "C"
