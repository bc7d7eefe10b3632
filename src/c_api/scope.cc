// weft_scope_*: owners of intermediates, and where the fluent layer's errors are kept.
#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "src/c_api/context.h"
#include "weft.h"

namespace weft::c_api {

// Thread rule: one thread at a time.
class Scope final : public RefCounted {
 public:
  // Takes over a reference of the context's handle.
  explicit Scope(weft_context* ctx) : ctx(ctx) {}

  // Interns the file once per file in a row, not once per call.
  void Mark(const char* file, int32_t line) {
    if (file != file_) {
      file_ = file;
      file_id_ = file == nullptr ? 0 : ir::InternFile(file);
    }
    location_ = {file_id_, line > 0 ? static_cast<uint32_t>(line) : 0};
    SetCurrentLocation(location_);
  }

  // The first failure, with the marked position, and the tensor that stands for it.
  weft_tensor* Fail(absl::Status status) {
    if (error.ok()) {
      // Another scope's failure came in as a poisoned tensor: it says where it happened already.
      const std::optional<absl::Cord> known = status.GetPayload(kPayloadPosition);
      if (known && absl::StartsWith(status.message(), absl::StrCat(std::string(*known), ": "))) {
        error = std::move(status);
        if (poison == nullptr) poison = MakePoison(error);
        return poison;
      }
      const std::string position = ir::ToString(location_);
      error = absl::Status(status.code(), position.empty() ? std::string(status.message())
                                                           : absl::StrCat(position, ": ", status.message()));
      status.ForEachPayload([this](std::string_view key, const absl::Cord& value) { error.SetPayload(key, value); });
      if (!position.empty()) error.SetPayload(kPayloadPosition, absl::Cord(position));
    }
    if (poison == nullptr) poison = MakePoison(error);
    return poison;
  }

  weft_context* const ctx;
  std::vector<weft_tensor*> tensors;
  absl::Status error;
  weft_tensor* poison = nullptr;

 private:
  ~Scope() override {
    for (weft_tensor* tensor : tensors) ReleaseHandle(tensor, HandleType::kTensor);
    ReleaseHandle(poison, HandleType::kTensor);
    ReleaseHandle(ctx, HandleType::kContext);
  }

  const char* file_ = nullptr;
  uint32_t file_id_ = 0;
  ir::Location location_;
};
template <>
struct HandleTraits<weft_scope> {
  using Object = Scope;
  static constexpr HandleType kType = HandleType::kScope;
};

namespace {

// What operations of a scope that never was return: never NULL, and it says why.
weft_tensor* NoScope() {
  static weft_tensor* const poison = MakePoison(UserError("scope is no live weft_scope; did weft_scope_begin fail?"));
  return poison;
}

}  // namespace
}  // namespace weft::c_api

using namespace weft;
using namespace weft::c_api;

extern "C" {

weft_error* weft_scope_begin(weft_context* ctx, weft_scope** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_RETURN_IF_ERROR(Get(ctx, "ctx").status());
    RetainHandle(ctx, HandleType::kContext);
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_scope>(MakeRef<Scope>(ctx)));
    return absl::OkStatus();
  });
}

weft_context* weft_scope_mark(weft_scope* scope, const char* file, int32_t line) noexcept {
  Scope* object = Find(scope);
  if (object == nullptr) return nullptr;
  object->Mark(file, line);
  return object->ctx;
}

weft_tensor* weft_scope_adopt(weft_scope* scope, weft_error* error, weft_tensor* tensor) noexcept {
  SetCurrentLocation({});
  Scope* object = Find(scope);
  try {
    if (object == nullptr) {
      weft_error_release(error);
      weft_tensor_release(tensor);
      return NoScope();
    }
    lazy::Tensor* found = error == nullptr ? Find(tensor) : nullptr;
    if (found != nullptr) {
      object->tensors.push_back(tensor);
      found->engine().AdoptByScope(found);
      return tensor;
    }
    absl::Status status = error != nullptr ? FromError(error) : GetTensor(tensor, "tensor").status();
    weft_error_release(error);
    weft_tensor_release(tensor);
    return object->Fail(std::move(status));
  } catch (...) {
    weft_tensor_release(tensor);
    return object == nullptr ? nullptr : object->poison;
  }
}

weft_error* weft_scope_keep(weft_scope* scope, weft_tensor* tensor, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Scope * object, Get(scope, "scope"));
    WEFT_ASSIGN_OR_RETURN(lazy::Tensor * t, GetTensor(tensor, "tensor"));
    // Usually among the newest.
    auto found = std::find(object->tensors.rbegin(), object->tensors.rend(), tensor);
    if (found == object->tensors.rend()) return UserError("weft_scope_keep: the scope does not own this tensor");
    object->tensors.erase(std::next(found).base());
    t->engine().Keep(t);
    *out = tensor;
    return absl::OkStatus();
  });
}

weft_error* weft_scope_check(weft_scope* scope) noexcept {
  // The error says which call it is of, which is not this one.
  const auto check = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Scope * object, Get(scope, "weft_scope_check: scope"));
    return object->error;
  };
  return Guard(check, "");
}

weft_error* weft_scope_end(weft_scope* scope) noexcept {
  const auto end = [&]() -> absl::Status {
    if (scope == nullptr) {
      return UserError(
          "weft_scope_end: scope is NULL: weft_scope_begin or wf_begin failed; its context was NULL or had been "
          "released");
    }
    WEFT_ASSIGN_OR_RETURN(Scope * object, Get(scope, "weft_scope_end: scope"));
    absl::Status error = std::move(object->error);
    ReleaseHandle(scope, HandleType::kScope);
    return error;
  };
  return Guard(end, "");
}

}  // extern "C"
