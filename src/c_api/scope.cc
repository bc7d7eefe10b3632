// weft_scope_*: owners of intermediates, and where the fluent layer's errors are kept.
#include <algorithm>
#include <atomic>
#include <optional>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "src/c_api/context.h"
#include "src/c_api/op_call.h"
#include "weft.h"

namespace weft::c_api {

// Thread rule: any thread, though it is meant for one: what several do in one scope is all kept, but positions may be of
// another's call.
class Scope final : public RefCounted {
 public:
  // Takes over a reference of the context's handle.
  Scope(weft_context* ctx, Ref<lazy::Engine> engine) : ctx(ctx), engine_(std::move(engine)), held_(ctx) {}

  // Lets go of the context, which may wait for it to end: the call that ends the scope does, not another call that
  // happens to be the last one in it.
  void EndContext() {
    if (weft_context* const held = held_.exchange(nullptr)) ReleaseContext(held);
  }

  // Interns the file once per file in a row, not once per call.
  void Mark(const char* file, int32_t line) {
    if (file != file_.load(std::memory_order_relaxed)) {
      uint32_t id = 0;
      try {
        if (file != nullptr) id = ir::InternFile(ir::FileBelow(engine_->options().positions_root, file));
      } catch (const std::bad_alloc&) {
        file = nullptr;  // operations without a position, rather than none
      }
      file_id_.store(id, std::memory_order_relaxed);
      file_.store(file, std::memory_order_relaxed);
    }
    const ir::Location location{file_id_.load(std::memory_order_relaxed), line > 0 ? static_cast<uint32_t>(line) : 0};
    location_.store(location, std::memory_order_relaxed);
    SetCurrentLocation(location);
  }

  // False if it is no tensor.
  bool Adopt(weft_tensor* tensor) {
    const auto find = [&] {
      auto* found = static_cast<lazy::Tensor*>(Borrow(tensor, HandleType::kTensor, engine_.get()));
      if (found != nullptr) tensors_.push_back(tensor);
      return found;
    };
    if (engine_->AdoptByScope(find)) return true;
    const Pin<lazy::Tensor> foreign = Find(tensor);
    if (!foreign) return false;
    engine_->Locked([&] { tensors_.push_back(tensor); });
    foreign->engine().AdoptByScope(foreign.get());
    return true;
  }

  // Adopt with a reference of the scope's own.
  absl::Status Share(weft_tensor* tensor) {
    if (!RetainHandle(tensor, HandleType::kTensor)) return NoTensor(tensor, "tensor");
    absl::Cleanup release = [&] { ReleaseHandle(tensor, HandleType::kTensor); };
    if (!Adopt(tensor)) return NoTensor(tensor, "tensor");
    std::move(release).Cancel();
    return absl::OkStatus();
  }
  // Makes room, so that as many more tensors need no memory.
  void Reserve(size_t more) {
    engine_->Locked([&] {
      const size_t size = tensors_.size() + more;
      if (size > tensors_.capacity()) tensors_.reserve(std::max(size, 2 * tensors_.capacity()));
    });
  }

  // Forgets the tensor; tells whether it was this scope's.
  bool LetGo(weft_tensor* tensor) {
    bool ours = false;
    engine_->Locked([&] {
      // Usually among the newest.
      const auto found = std::find(tensors_.rbegin(), tensors_.rend(), tensor);
      ours = found != tensors_.rend();
      if (ours) tensors_.erase(std::next(found).base());
    });
    return ours;
  }

  // The first failure, with the marked position, and the tensor that stands for it.
  weft_tensor* Fail(absl::Status status) {
    const std::string position = ir::ToString(location_.load(std::memory_order_relaxed));
    MutexLock lock(mutex_);
    if (error_.ok()) {
      // Another scope's failure came in as a poisoned tensor: it says where it happened already.
      const std::optional<absl::Cord> known = status.GetPayload(kPayloadPosition);
      if (known && absl::StartsWith(status.message(), absl::StrCat(std::string(*known), ": "))) {
        error_ = std::move(status);
      } else {
        const absl::Status placed = WithText(status, absl::StrCat(position, ": ", status.message()));
        error_ = position.empty() ? std::move(status) : WithDetail(placed, kPayloadPosition, position);
      }
    }
    if (poison_ == nullptr) poison_ = MakePoison(error_);
    return poison_;
  }
  weft_tensor* poison() {
    MutexLock lock(mutex_);
    return poison_;
  }
  absl::Status error() {
    MutexLock lock(mutex_);
    return error_;
  }

  lazy::Engine& engine() const { return *engine_; }
  weft_context* const ctx;

 private:
  ~Scope() override {
    for (weft_tensor* tensor : tensors_) ReleaseHandle(tensor, HandleType::kTensor);
    ReleaseHandle(poison_, HandleType::kTensor);
    EndContext();
  }

  const Ref<lazy::Engine> engine_;  // of the context, which somebody may release once too often
  std::atomic<weft_context*> held_;
  std::atomic<const char*> file_{nullptr};
  std::atomic<uint32_t> file_id_{0};
  std::atomic<ir::Location> location_{ir::Location()};
  std::vector<weft_tensor*> tensors_;  // under the engine's lock, which adopting takes in any case
  Mutex mutex_;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);
  weft_tensor* poison_ ABSL_GUARDED_BY(mutex_) = nullptr;
};
template <>
struct HandleTraits<weft_scope> {
  using Object = Scope;
  static constexpr HandleType kType = HandleType::kScope;
  static const ForkGuard* ForkOf(const Scope& object) { return &object.engine().services().fork(); }
};

namespace {

// Returns the result of operations in a scope that never was: never NULL, and it says why.
weft_tensor* NoScope() {
  static weft_tensor* const poison = MakePoison(UserError("scope is no live weft_scope; did weft_scope_begin fail?"));
  return poison;
}
// The same of a scope that stayed behind when the process forked.
weft_tensor* ScopeBeforeFork() {
  static weft_tensor* const poison = MakePoison(ForkGuard::Refusal());
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
    WEFT_ASSIGN_OR_RETURN(Pin<Context> context, Get(ctx, "ctx"));
    if (!RetainHandle(ctx, HandleType::kContext)) return BadHandle(ctx, HandleType::kContext, "ctx");
    absl::Cleanup release = [&] { ReleaseHandle(ctx, HandleType::kContext); };
    Ref<Scope> scope = MakeRef<Scope>(ctx, Ref<lazy::Engine>::Share(&context->engine()));
    std::move(release).Cancel();  // the scope's now
    WEFT_ASSIGN_OR_RETURN(*out, Make<weft_scope>(std::move(scope)));
    return absl::OkStatus();
  });
}

weft_context* weft_scope_mark(weft_scope* scope, const char* file, int32_t line) noexcept {
  const Pin<Scope> object = FindAs<Scope>(scope, HandleType::kScope);
  if (!object) return nullptr;
  // One that stayed behind when the process forked gives its context, too: that says so to the operation.
  if (!StayedBehind<weft_scope>(*object)) object->Mark(file, line);
  return object->ctx;
}

weft_tensor* weft_scope_adopt(weft_scope* scope, weft_error* error, weft_tensor* tensor) noexcept {
  SetCurrentLocation({});
  const Pin<Scope> object = FindAs<Scope>(scope, HandleType::kScope);
  absl::Cleanup release = [&] {
    weft_error_release(error);
    weft_tensor_release(tensor);
  };
  try {
    if (!object) return NoScope();
    if (StayedBehind<weft_scope>(*object)) return ScopeBeforeFork();
    if (error == nullptr && object->Adopt(tensor)) {
      std::move(release).Cancel();
      return tensor;
    }
    return object->Fail(error != nullptr ? FromError(error) : NoTensor(tensor, "tensor"));
  } catch (...) {
    return object ? object->poison() : nullptr;
  }
}

weft_error* weft_scope_share(weft_scope* scope, weft_tensor* tensor) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Scope> object, Get(scope, "scope"));
    WEFT_RETURN_IF_ERROR(GetTensor(tensor, "tensor").status());
    return object->Share(tensor);
  });
}

weft_error* weft_op_apply_in(weft_scope* scope, const char* file, int32_t line, weft_device* device, const char* name,
                             size_t name_length, weft_tensor* const* inputs, size_t input_count, const weft_attr* attrs,
                             size_t attr_count, weft_tensor** outputs, weft_tensor_info* infos, size_t capacity,
                             size_t* out_count) noexcept {
  const absl::Cleanup forget = [] { SetCurrentLocation({}); };
  return Guard([&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Scope> object, Get(scope, "scope"));
    object->Mark(file, line);
    // Nothing fails once there are results: no operation has so many.
    object->Reserve(std::min<size_t>(capacity, 64));
    const Applied applied = {object->ctx, device, name, name_length, {inputs, input_count}, attrs, attr_count};
    size_t count = 0;
    WEFT_RETURN_IF_ERROR(Apply(applied, outputs, infos, capacity, out_count != nullptr ? &count : nullptr));
    for (size_t i = 0; i < count; ++i) WEFT_RETURN_IF_ERROR(object->Share(outputs[i]));
    *out_count = count;
    return absl::OkStatus();
  });
}

weft_error* weft_scope_keep(weft_scope* scope, weft_tensor* tensor, weft_tensor** out) noexcept {
  return Guard([&]() -> absl::Status {
    WEFT_NOT_NULL(out);
    WEFT_ASSIGN_OR_RETURN(Pin<Scope> object, Get(scope, "scope"));
    WEFT_ASSIGN_OR_RETURN(Pin<lazy::Tensor> t, GetTensor(tensor, "tensor"));
    if (!object->LetGo(tensor)) return UserError("weft_scope_keep: the scope does not own this tensor");
    t->engine().Keep(t.get());
    *out = tensor;
    return absl::OkStatus();
  });
}

weft_error* weft_scope_check(weft_scope* scope) noexcept {
  // The error says which call it is of, which is not this one.
  const auto check = [&]() -> absl::Status {
    WEFT_ASSIGN_OR_RETURN(Pin<Scope> object, Get(scope, "weft_scope_check: scope"));
    return object->error();
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
    const Pin<Scope> object = FindAs<Scope>(scope, HandleType::kScope);
    // If two threads end the scope, one of them does.
    if (!object || !ReleaseHandle(scope, HandleType::kScope)) {
      return BadHandle(scope, HandleType::kScope, "weft_scope_end: scope");
    }
    object->EndContext();
    return StayedBehind<weft_scope>(*object) ? ForkGuard::Refusal() : object->error();
  };
  return Guard(end, "");
}

}  // extern "C"
