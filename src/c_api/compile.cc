// weft_sync, weft_eval, weft_compile, weft_program_*, weft_grad.
#include "src/c_api/context.h"
#include "src/c_api/event_object.h"
#include "src/c_api/guess.h"
#include "src/c_api/op_call.h"
#include "src/compiler/plan_text.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// Adds to the error of a call that computes what a cancel has left. A call that needs a value of a cancelled launch has
// nothing left.
absl::Status SaysWhatIsLeft(const absl::Status& status) {
  if (!absl::IsCancelled(status) || status.message() == kLaunchCancelled) return status;
  return UserErrorOf(absl::StatusCode::kCancelled, status.message(),
                     "; nothing of it was launched: what was assigned shows its new value, which the next barrier or "
                     "read computes, or its old one where a launch before was ended, too");
}

// All formats but the plan.
absl::StatusOr<lazy::Engine::TextFormat> FormatOf(weft_text_format format) {
  using Format = lazy::Engine::TextFormat;
  switch (format) {
    case WEFT_TEXT_IR: return Format::kIr;
    case WEFT_TEXT_STABLEHLO: return Format::kStableHlo;
    case WEFT_TEXT_DOT: return Format::kDot;
    case WEFT_TEXT_OPTIMISED: return Format::kOptimised;
    case WEFT_TEXT_LOOPS: return Format::kLoops;
    case WEFT_TEXT_LLVM: return Format::kLlvm;
    case WEFT_TEXT_ASSEMBLY: return Format::kAssembly;
    default: break;
  }
  return UserError("format is ", static_cast<int>(format), "; weft_text_format has 0 to ", WEFT_TEXT_ASSEMBLY);
}

absl::StatusOr<std::string> TextOf(const Context& context, const TensorList& tensors, weft_text_format format) {
  if (format == WEFT_TEXT_PLAN) return context.engine().PlanText(tensors);
  WEFT_ASSIGN_OR_RETURN(const lazy::Engine::TextFormat known, FormatOf(format));
  return context.engine().GraphText(tensors, known);
}

absl::StatusOr<std::string> TextOf(const Context& context, const lazy::Engine::KnownProgram& known,
                                   weft_text_format format) {
  if (format == WEFT_TEXT_PLAN) return compiler::PlanText(*known.program, context.device()->name);
  WEFT_ASSIGN_OR_RETURN(const lazy::Engine::TextFormat form, FormatOf(format));
  return context.engine().KnownText(known, form);
}

absl::StatusOr<lazy::Engine::KnownProgram> ProgramOf(lazy::Engine& engine, std::string_view key) {
  const std::vector<lazy::Engine::KnownProgram> all = engine.Programs();
  std::vector<std::string_view> keys;
  for (const auto& known : all) {
    if (known.program->name == key) return known;
    keys.push_back(known.program->name);
  }
  return UserErrorOf(absl::StatusCode::kNotFound, "there is no program '", key, "' in memory", DidYouMean(key, keys),
                     "weft_program_list has them all");
}

}  // namespace

absl::StatusOr<bool> weft::c_api::IsStableHlo(weft_text_format format) {
  if (format == WEFT_TEXT_STABLEHLO) return true;
  if (format == WEFT_TEXT_IR) return false;
  return UserError("format is ", static_cast<int>(format),
                   "; of a function it is WEFT_TEXT_IR (0) or WEFT_TEXT_STABLEHLO (1)");
}

extern "C" {

weft_error* weft_sync(weft_context* ctx, weft_device* device, weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(SaysWhatIsLeft(context->BeforeWork()));
    WEFT_ASSIGN_OR_RETURN(lazy::Where place, PlaceOr(device, context->engine()));
    place.frame = context->frame();
    absl::StatusOr<Ref<Event>> event =
        context->WithPressure(0, [&] { return context->engine().Sync(place, CurrentLocation(context->engine())); });
    WEFT_RETURN_IF_ERROR(SaysWhatIsLeft(event.status()));
    WEFT_RETURN_IF_ERROR(context->AfterBarrier(**event));
    return MakeEvent(*context, *std::move(event), out_event);
  });
}

weft_error* weft_eval(weft_context* ctx, weft_tensor* const* tensors, size_t count, weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(SaysWhatIsLeft(context->BeforeWork()));
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(tensors, count, "tensors", &list));
    absl::StatusOr<Ref<Event>> event = context->WithPressure(0, [&] { return context->engine().Eval(list); });
    WEFT_RETURN_IF_ERROR(SaysWhatIsLeft(event.status()));
    return MakeEvent(*context, *std::move(event), out_event);
  });
}

weft_error* weft_compile(weft_context* ctx, weft_device* device, weft_tensor* const* tensors, size_t count,
                         weft_event** out_event) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->BeforeWork());
    WEFT_ASSIGN_OR_RETURN(lazy::Where place, PlaceOr(device, context->engine()));
    place.frame = context->frame();
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(tensors, count, "tensors", &list));
    lazy::Engine& engine = context->engine();
    const bool wait = out_event == nullptr;
    WEFT_ASSIGN_OR_RETURN(Ref<Event> event, context->WithPressure(0, [&] {
      return count == 0 ? engine.CompileSync(place, wait) : engine.CompileEval(list, wait);
    }));
    return MakeEvent(*context, std::move(event), out_event);
  });
}

weft_error* weft_program_text(weft_context* ctx, weft_tensor* const* tensors, size_t count, weft_text_format format,
                              weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(tensors, count, "tensors", &list));
    WEFT_ASSIGN_OR_RETURN(std::string text, TextOf(*context, list, format));
    return MakeBlob(std::move(text), out);
  });
}

weft_error* weft_program_list(weft_context* ctx, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    return MakeBlob(context->engine().ListPrograms(), out);
  });
}

weft_error* weft_program_report(weft_context* ctx, const char* key, size_t key_length, weft_text_format format,
                                weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(const std::string_view name, Text(key, key_length, "key"));
    if (format != WEFT_TEXT_PLAN) WEFT_RETURN_IF_ERROR(FormatOf(format).status());
    WEFT_ASSIGN_OR_RETURN(const lazy::Engine::KnownProgram known, ProgramOf(context->engine(), name));
    WEFT_ASSIGN_OR_RETURN(std::string text, TextOf(*context, known, format));
    return MakeBlob(std::move(text), out);
  });
}

weft_error* weft_compiles_settled(weft_context* ctx, int32_t settled) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    if (settled != 0 && settled != 1) return UserError("settled is ", settled, "; it must be 0 or 1");
    context->engine().SettleCompiles(settled == 1);
    return absl::OkStatus();
  });
}

weft_error* weft_grad(weft_context* ctx, weft_tensor* y, weft_tensor* cotangent, weft_tensor* const* xs, size_t count,
                      weft_tensor** out_grads) noexcept {
  return Guard([&]() -> absl::Status {
    if (count > 0) WEFT_NOT_NULL(out_grads);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_RETURN_IF_ERROR(context->Usable());
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> of, GetTensor(y, "y"));
    Pin<lazy::Tensor> seed;
    if (cotangent != nullptr) {
      WEFT_ASSIGN_OR_RETURN(seed, GetTensor(cotangent, "cotangent"));
    }
    TensorList list;
    WEFT_RETURN_IF_ERROR(GetTensors(xs, count, "xs", &list));
    WEFT_ASSIGN_OR_RETURN(lazy::Tensors grads,
                          context->engine().Gradient(of.get(), list, seed.get(), CurrentLocation(context->engine())));
    std::vector<weft_tensor*> made;
    WEFT_RETURN_IF_ERROR(MakeTensors({grads.data(), grads.size()}, &made));
    std::copy(made.begin(), made.end(), out_grads);
    return absl::OkStatus();
  });
}

}  // extern "C"
