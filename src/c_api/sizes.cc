// weft_nonzero, weft_masked_select, weft_boolean_mask, weft_unique: results with as many elements as the data say. How many is
// computed and read, once in a call; then the operation that takes the size (src/ops/sizes) is recorded, or what it gave cut.
#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "src/ops/build.h"
#include "src/ops/generated/attributes.h"
#include "weft.h"

namespace weft::c_api {
namespace {

// One call: its context and operands, which stay for its time.
class Exact {
 public:
  // `padded` takes the size; `name` is what the caller calls the exact form.
  static absl::StatusOr<Exact> Begin(const ir::OpDef& padded, std::string_view name, weft_context* ctx,
                                     std::span<weft_tensor* const> handles) {
    Exact call(padded, name);
    WEFT_ASSIGN_OR_RETURN(call.context_, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(call.context_->BeforeWork());
    const lazy::Frame* body = call.context_->frame();
    for (size_t i = 0; i < handles.size(); ++i) {
      const std::string_view operand = padded.operands[i].name;
      WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> tensor, GetTensor(handles[i], operand));
      if (&tensor->engine() != &call.context_->engine()) return UserError(operand, " belongs to another context");
      if (body == nullptr) body = tensor->frame();
      call.operands_.push_back(tensor.get());
      call.pins_.push_back(std::move(tensor));
    }
    if (body == nullptr) return call;
    return UserErrorOf(
        absl::StatusCode::kFailedPrecondition, name, " in ", lazy::NameOf(body),
        ": the size of its result depends on values, and nothing has a value while a function is recorded; ",
        padded.c_name, " takes a size and works there");
  }

  // All results, for so many elements.
  absl::StatusOr<lazy::Tensors> Padded(int64_t size, ir::Attrs attrs) {
    attrs.set(0, size);
    return Record(padded_, operands_, std::move(attrs));
  }
  // The first `size` rows.
  absl::StatusOr<Ref<lazy::Tensor>> Rows(lazy::Tensor* of, int64_t size) {
    using Slice = ops::SliceInDimAttrs;
    ir::Attrs attrs;
    attrs.set(Slice::kAxis, int64_t{0});
    attrs.set(Slice::kStart, int64_t{0});
    attrs.set(Slice::kLimit, size);
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors rows, Record(ops::kOp_slice_in_dim, {&of, 1}, std::move(attrs)));
    return std::move(rows[0]);
  }
  // Waits.
  absl::StatusOr<int64_t> Size(lazy::Tensor* count) {
    const std::string what = absl::StrCat(name_, ": the size of the result");
    return context_->WithPressure(0, [&] { return context_->engine().Size(count, what); });
  }
  // Finishes operations that need no more than a count before: the first result, of its size.
  absl::Status Finish(const ir::Attrs& attrs, weft_tensor** out) {
    WEFT_ASSIGN_OR_RETURN(const lazy::Tensors counted, Padded(0, attrs));
    WEFT_ASSIGN_OR_RETURN(const int64_t size, Size(counted[1].get()));
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors results, Padded(size, attrs));
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors({results.data(), 1}, &made));
    *out = made[0];
    return absl::OkStatus();
  }

  std::span<lazy::Tensor* const> operands() const { return operands_; }

 private:
  Exact(const ir::OpDef& padded, std::string_view name) : padded_(padded), name_(name) {}

  absl::StatusOr<lazy::Tensors> Record(const ir::OpDef& op, std::span<lazy::Tensor* const> operands, ir::Attrs attrs) {
    lazy::Tensors results;
    WEFT_RETURN_IF_ERROR(context_->WithPressure(0, [&] {
      results.clear();
      return context_->engine().Record(op, operands, attrs, CurrentLocation(context_->engine()), &results,
                                       context_->where());
    }));
    return results;
  }

  const ir::OpDef& padded_;
  std::string_view name_;
  Pin<Context> context_;
  std::vector<Pin<lazy::Tensor>> pins_;
  std::vector<lazy::Tensor*> operands_;
};

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_nonzero(weft_context* ctx, weft_tensor* x, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Exact call, Exact::Begin(ops::kOp_nonzero_static, "nonzero", ctx, {&x, 1}));
    return call.Finish({}, out);
  });
}

weft_error* weft_masked_select(weft_context* ctx, weft_tensor* x, weft_tensor* mask, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    weft_tensor* const operands[] = {x, mask};
    WEFT_ASSIGN_OR_RETURN(Exact call, Exact::Begin(ops::kOp_masked_select_static, "masked_select", ctx, operands));
    return call.Finish({}, out);
  });
}

weft_error* weft_boolean_mask(weft_context* ctx, weft_tensor* x, weft_tensor* mask, int64_t axis,
                              weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    weft_tensor* const operands[] = {x, mask};
    WEFT_ASSIGN_OR_RETURN(Exact call, Exact::Begin(ops::kOp_boolean_mask_static, "boolean_mask", ctx, operands));
    ir::Attrs attrs;
    attrs.set(ops::BooleanMaskStaticAttrs::kAxis, axis);
    return call.Finish(attrs, out);
  });
}

weft_error* weft_unique(weft_context* ctx, weft_tensor* x, int32_t equal_nan, weft_tensor** out_values,
                        weft_tensor** out_inverse, weft_tensor** out_counts, weft_tensor** out_indices) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_values);
    WEFT_ASSIGN_OR_RETURN(Exact call, Exact::Begin(ops::kOp_unique_static, "unique", ctx, {&x, 1}));
    ir::Attrs attrs;
    attrs.set(ops::UniqueStaticAttrs::kEqualNan, int64_t{equal_nan != 0});
    // Sorted once: with room for all, what is behind the last value is cut off. Results that are not asked for are not
    // computed.
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors all, call.Padded(CountOf(call.operands()[0]->dims()), attrs));
    weft_tensor** const outs[] = {out_values, nullptr, out_inverse, out_counts, out_indices};
    Ref<lazy::Tensor> count = std::move(all[1]);
    for (size_t i = 0; i < all.size(); ++i) {
      if (outs[i] == nullptr) all[i] = nullptr;
    }
    WEFT_ASSIGN_OR_RETURN(const int64_t size, call.Size(count.get()));
    for (const size_t i : {0, 3, 4}) {
      if (all[i] == nullptr) continue;
      WEFT_ASSIGN_OR_RETURN(all[i], call.Rows(all[i].get(), size));
    }
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors({all.data(), all.size()}, &made));
    for (size_t i = 0; i < all.size(); ++i) {
      if (outs[i] != nullptr) *outs[i] = made[i];
    }
    return absl::OkStatus();
  });
}

}  // extern "C"
