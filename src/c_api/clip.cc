// weft_clip_by_global_norm, whose operations src/lazy/clip.h has.
#include <algorithm>

#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "src/ir/differentiable.h"
#include "src/lazy/clip.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_clip_by_global_norm(weft_context* ctx, weft_tensor* const* grads, size_t count, double max_norm,
                                     weft_tensor** out_grads, weft_tensor** out_norm) noexcept {
  return Guard([&]() -> absl::Status {
    const FloatScope floats;  // constants are computed here
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    if (!(max_norm >= 0)) return UserError("max_norm is ", max_norm, "; it must be 0 or more");
    WEFT_NOT_NULL(out_grads);
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetOptionalTensors(grads, count, "grads", &list));
    bool any = false;
    for (size_t i = 0; i < count; ++i) {
      if (list[i] == nullptr) continue;
      any = true;
      if (&list[i]->engine() != &context->engine()) return UserError("grads[", i, "] belongs to another context");
      if (ir::CarriesGradient(list[i]->dtype())) continue;
      return UserError("grads[", i, "] is ", ir::ShortType(list[i]->type()), "; it must be a float or complex");
    }
    if (!any)
      return UserError("there is no gradient: count is ", count, count == 0 ? "" : " and every grads[i] is NULL");
    const std::span<lazy::Tensor* const> all = list;
    lazy::Engine& engine = context->engine();
    const auto first = std::ranges::find_if(all, [](const lazy::Tensor* grad) { return grad != nullptr; });
    const lazy::Where where =
        context->frame() != nullptr ? context->where() : lazy::Where(&(*first)->sharding().mesh());
    WEFT_ASSIGN_OR_RETURN(std::vector<Ref<lazy::Tensor>> results,
                          lazy::ClipByGlobalNorm(engine, where, all, max_norm, CurrentLocation(engine)));
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors(results, &made));
    size_t next = 1;
    for (size_t i = 0; i < count; ++i) out_grads[i] = list[i] == nullptr ? nullptr : made[next++];
    if (out_norm != nullptr) {
      *out_norm = made[0];
    } else {
      weft_tensor_release(made[0]);
    }
    return absl::OkStatus();
  });
}

}  // extern "C"
