// weft_context_*, weft_option_*, weft_cancel and the release version.
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "src/c_api/context.h"
#include "src/c_api/options.h"
#include "weft.h"

using namespace weft;
using namespace weft::c_api;

namespace {

// Releases the hooks of options that make no context: each release runs exactly once, whatever fails.
void ReleaseHooks(const weft_context_options& o) {
  RunRelease(o.log_release, o.log_user_data);
  RunRelease(o.allocator_release, o.allocator_user_data);
  RunRelease(o.pressure_release, o.pressure_user_data);
}

bool IsOfThisProcess(const weft_context* ctx) {
  const Pin<Context> context = Find(ctx);
  return context && context->IsOfThisProcess();
}

absl::StatusOr<Pin<Context>> GetQueued(weft_context* ctx) {
  WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
  WEFT_RETURN_IF_ERROR(context->Usable());
  if (context->queue() != nullptr) return context;
  return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                     "callbacks do not wait in this context: make it with the option callbacks=queued");
}

}  // namespace

void weft::c_api::ReleaseContext(weft_context* context) {
  // Whoever calls from a callback cannot wait for the call that it is in; and nobody can for what is not in this process.
  const bool waits = !CallingOut::Now() && IsOfThisProcess(context);
  ReleaseHandle(context, HandleType::kContext, waits ? LastOne::kWaits : LastOne::kUnpins);
}

extern "C" {

const char* weft_release_version(void) noexcept { return "0.1.0"; }

weft_error* weft_context_create(const weft_context_options* options, weft_context** out) noexcept {
  return Guard([&]() -> absl::Status {
    weft_context_options o = {};
    absl::Cleanup hooks = [&] { ReleaseHooks(o); };
    WEFT_RETURN_IF_ERROR(ReadOptions(options, sizeof(o), "weft_context_options", &o));
    WEFT_NOT_NULL(out);
    std::move(hooks).Cancel();  // whose they are now
    WEFT_ASSIGN_OR_RETURN(Ref<Context> context, Context::Create(o));
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_context>(std::move(context)));
    return absl::OkStatus();
  });
}

void weft_context_retain(weft_context* context) noexcept { RetainHandle(context, HandleType::kContext); }
void weft_context_release(weft_context* context) noexcept { ReleaseContext(context); }

weft_error* weft_context_option(weft_context* ctx, const char* name, size_t length, weft_blob** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    WEFT_ASSIGN_OR_RETURN(const size_t option, KnownOption(text));
    return MakeBlob(context->settings().text(option), out);
  });
}

weft_error* weft_context_option_source(weft_context* ctx, const char* name, size_t length,
                                       weft_option_source* out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(name, length, "name"));
    WEFT_ASSIGN_OR_RETURN(const size_t option, KnownOption(text));
    *out = context->settings().source(option);
    return absl::OkStatus();
  });
}

weft_error* weft_option_list(weft_option_info* out, size_t capacity, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_count);
    if (capacity > 0) WEFT_NOT_NULL(out);
    for (size_t i = 0; i < std::min(capacity, std::size(kOptions)); ++i) out[i] = kOptions[i].info;
    *out_count = std::size(kOptions);
    return absl::OkStatus();
  });
}

const char* weft_option_detail(const char* name, size_t length, const char* key, size_t key_length) noexcept {
  if (name == nullptr || key == nullptr) return nullptr;
  const std::optional<size_t> option = FindOption({name, length == WEFT_STRLEN ? std::strlen(name) : length});
  if (!option) return nullptr;
  const OptionRow& row = kOptions[*option];
  const std::string_view wanted(key, key_length == WEFT_STRLEN ? std::strlen(key) : key_length);
  return wanted == "choices"      ? row.choices
         : wanted == "most"       ? row.most
         : wanted == "least"      ? row.least
         : wanted == "also"       ? row.also
         : wanted == "since"      ? row.since
         : wanted == "deprecated" ? row.deprecated
                                  : nullptr;
}

weft_error* weft_context_set_log(weft_context* ctx, weft_log_level min_level, weft_log_fn log, void* user_data,
                                 weft_release_fn release) noexcept {
  return Guard([&]() -> absl::Status {
    auto sink = MakeLogSink(log, user_data, release, min_level);
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    context->log().Set(std::move(sink));
    return absl::OkStatus();
  });
}

weft_error* weft_context_queue_fd(weft_context* ctx, int32_t* out_fd) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_fd);
    WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, GetQueued(ctx));
    *out_fd = context->queue()->fd();
    return absl::OkStatus();
  });
}

weft_error* weft_context_run_queue(weft_context* ctx, size_t* out_count) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, GetQueued(ctx));
    const size_t count = context->RunQueue();
    if (out_count != nullptr) *out_count = count;
    return absl::OkStatus();
  });
}

weft_error* weft_context_live_bytes(weft_context* ctx, uint64_t* out_bytes) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out_bytes);
    WEFT_ASSIGN_OR_RETURN(const Pin<Context> context, Get(ctx, "ctx"));
    *out_bytes = static_cast<uint64_t>(context->device()->live->bytes.load(std::memory_order_relaxed));
    return absl::OkStatus();
  });
}

void weft_cancel(weft_context* ctx) noexcept {
  Pin<Context> context = Find(ctx);
  if (!context) return;
  context->Cancel();
  UnpinInSignal(context.Release());
}

}  // extern "C"
