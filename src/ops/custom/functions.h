// The custom operations of one context, by name: the caller's functions, which programs refer to by name and signature.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "src/ir/function.h"
#include "src/ops/custom/signature.h"
#include "src/runtime/mutex.h"
#include "src/runtime/ref.h"

namespace weft::ops {

// One registered function. Immutable. Held by the registry and by every program that calls it, which run it on threads of their
// own; what the caller handed over with it ends with the last of them.
class CustomFunction : public RefCounted {
 public:
  std::string name;
  CustomSignature signature;
  void* address = nullptr;
  bool many_threads = false;  // may be called from several threads at once
  bool batches = false;       // takes any number of examples in leading dimensions
  // Functions that may not be called at once take turns by this lock, in whatever contexts they are.
  std::shared_ptr<Mutex> turn;
  // The status behind a `weft_error*` that it returned, which ends.
  absl::Status (*take_error)(void* error) = nullptr;

  // May call the caller's code: not under a lock.
  virtual absl::StatusOr<ir::Types> ResultTypes(std::span<const ir::Type* const> operands) const {
    return signature.Results(operands, {});
  }
  // A function of the operands, the results and the cotangents of float results, which gives those of float operands; null if
  // there is none. May call the caller's code.
  virtual absl::StatusOr<Ref<const ir::Function>> Gradient(std::span<const ir::Type* const> operands,
                                                           std::span<const ir::Type> results) const {
    return Ref<const ir::Function>();
  }
};

// Thread rule: any thread.
class CustomFunctions {
 public:
  // Null if there is none of the name.
  Ref<const CustomFunction> Find(std::string_view name) const;
  // NOT_FOUND that names what there is.
  absl::StatusOr<Ref<const CustomFunction>> Get(std::string_view name) const;
  bool empty() const;
  // ALREADY_EXISTS if another has the name: programs know functions by it.
  absl::Status Add(Ref<const CustomFunction> function);

  // Debug mode: memory around what a function writes is looked at after each call.
  std::atomic<bool> guarded{false};
  // Whose functions these are, for CallingCustom; compared only.
  std::atomic<const void*> owner{nullptr};

 private:
  mutable Mutex mutex_;
  std::map<std::string, Ref<const CustomFunction>, std::less<>> functions_ ABSL_GUARDED_BY(mutex_);
};

// The turn of all who call a function at this address.
std::shared_ptr<Mutex> TurnOf(void* address);

// Open on a thread while it runs a custom function. Such a function may not call its own context: others may wait for it there.
class CallingCustom {
 public:
  CallingCustom(const void* owner, std::string_view name);
  ~CallingCustom();
  CallingCustom(const CallingCustom&) = delete;
  CallingCustom& operator=(const CallingCustom&) = delete;
  // FAILED_PRECONDITION if this thread runs a function of that owner's.
  static absl::Status Check(const void* owner);

 private:
  const void* const owner_;
  const std::string_view name_;
  const CallingCustom* const outer_;
};

}  // namespace weft::ops
