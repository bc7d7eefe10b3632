// weft_op_apply, weft_op_list and the random state.
#include <cstring>

#include "src/c_api/context.h"
#include "src/c_api/guess.h"
#include "src/c_api/op_call.h"
#include "src/ops/registry.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

absl::StatusOr<const ir::OpDef*> ExportedOp(std::string_view name) {
  const ir::OpDef* op = ops::FindOp(name);
  if (op == nullptr || !op->exported) {
    std::vector<std::string_view> names;
    for (const ir::OpDef* known : ops::AllOps()) {
      if (known->exported) names.push_back(known->c_name);
    }
    return UserErrorOf(absl::StatusCode::kNotFound, "there is no operation '", name, "'", DidYouMean(name, names),
                       "weft_op_list names all");
  }
  return op;
}

}  // namespace

extern "C" {

weft_error* weft_op_apply(weft_context* ctx, const char* name, size_t name_length, weft_tensor* const* inputs,
                          size_t input_count, const weft_attr* attrs, size_t attr_count, weft_tensor** outputs,
                          size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    WEFT_NOT_NULL(outputs);
    if (input_count > 0) WEFT_NOT_NULL(inputs);
    if (attr_count > 0) WEFT_NOT_NULL(attrs);
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, name_length, "name"));
    WEFT_ASSIGN_OR_RETURN(const ir::OpDef* op, ExportedOp(text));
    if (capacity < op->results.size()) {
      return UserErrorOf(absl::StatusCode::kOutOfRange, op->c_name, " has ", op->results.size(),
                         " results; capacity is ", capacity);
    }
    WEFT_RETURN_IF_ERROR(CheckedLength("inputs", input_count, kMostEntries));
    WEFT_RETURN_IF_ERROR(CheckedLength("attrs", attr_count, kMostEntries));
    OpCall call(*op, ctx);
    for (size_t i = 0; i < input_count; ++i) call.Optional(inputs[i]);
    for (size_t i = 0; i < attr_count; ++i) {
      const weft_attr& a = attrs[i];
      WEFT_ASSIGN_OR_RETURN(std::string_view key, Text(a.name, a.name_length, "attrs[].name"));
      size_t at = 0;
      while (at < op->attrs.size() && op->attrs[at].name != key) ++at;
      if (at == op->attrs.size()) {
        std::string known;
        for (const ir::AttrDef& attr : op->attrs) absl::StrAppend(&known, known.empty() ? "" : ", ", attr.name);
        absl::Status status = UserError(op->c_name, ": there is no attribute '", key, "'",
                                        known.empty() ? "; it takes none" : absl::StrCat("; there are ", known));
        status.SetPayload(kPayloadOperation, absl::Cord(op->c_name));
        return status;
      }
      call.SetAny(at, a.type, a.i, a.d, a.data, a.count);
    }
    return call.RecordInto(outputs, capacity, out_count);
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
