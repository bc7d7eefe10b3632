// See custom_call.h. A call costs what libffi costs, 10 to 30 ns: arguments are pointers that move on.
#include "src/backends/custom_call/custom_call.h"

#include <ffi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>

#include "src/backends/custom_call/guard.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/launch_look.h"
#include "src/runtime/status.h"

namespace weft::custom {
namespace {

using ops::CustomFunction;
using ops::CustomKind;
using ops::CustomParameter;
using ops::CustomReturn;
using Role = CustomParameter::Role;

constexpr size_t kMostParameters = ops::kMostCustomParameters;
constexpr int64_t kElementsAShare = 64;  // fewer are not worth a second thread

ffi_type* TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64: return &ffi_type_double;
    case DType::kF32: return &ffi_type_float;
    case DType::kI8: return &ffi_type_sint8;
    case DType::kI16: return &ffi_type_sint16;
    case DType::kI32: return &ffi_type_sint32;
    case DType::kI64: return &ffi_type_sint64;
    case DType::kU8:
    case DType::kBool: return &ffi_type_uint8;
    case DType::kU16: return &ffi_type_uint16;
    case DType::kU32: return &ffi_type_uint32;
    case DType::kU64: return &ffi_type_uint64;
    default: return nullptr;
  }
}

// A number of the program as the C type in 8 bytes.
uint64_t AsType(DType dtype, int64_t number) {
  if (dtype == DType::kF64) return static_cast<uint64_t>(number);
  if (dtype == DType::kF32) {
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(number)));
  }
  return static_cast<uint64_t>(number);  // little-endian: narrower types are its first bytes
}

bool IsNumber(const CustomParameter& p) { return p.role == Role::kNumber || p.role == Role::kNumberBehind; }
bool IsPointer(const CustomParameter& p) { return p.role != Role::kInputValue && p.role != Role::kNumber; }

// The memory that one call, or one share of a run over elements, hands to libffi.
struct Frame {
  std::array<void*, kMostParameters> values;    // ffi's: where each argument is
  std::array<void*, kMostParameters> pointers;  // arguments that are pointers
  std::array<uint64_t, kMostParameters> numbers;
  std::array<uint64_t, kMostParameters> scratch;  // of functions of elements
};

class Call final : public CustomCall {
 public:
  Call(Ref<const CustomFunction> function, std::shared_ptr<ops::CustomFunctions> registered)
      : function_(std::move(function)), registered_(std::move(registered)) {}

  absl::Status Prepare() {
    const ops::CustomSignature& signature = function_->signature;
    for (const CustomParameter& p : signature.parameters) {
      types_.push_back(IsPointer(p) ? &ffi_type_pointer : TypeOf(p.dtype));
      Place place;
      switch (p.role) {
        case Role::kInput:
        case Role::kInputValue: place.buffer = operands_++; break;
        case Role::kInOut: ++operands_; [[fallthrough]];
        case Role::kResult: place.result = results_++; break;
        case Role::kScratch: place.scratch = scratch_++; break;
        case Role::kNumber:
        case Role::kNumberBehind: place.number = numbers_++; break;
      }
      places_.push_back(place);
    }
    ffi_type* returned = &ffi_type_void;
    if (signature.returns == CustomReturn::kStatus) returned = &ffi_type_sint32;
    if (signature.returns == CustomReturn::kError) returned = &ffi_type_pointer;
    if (signature.returns == CustomReturn::kResult) {
      returned = TypeOf(signature.return_dtype);
      returned_bytes_ = static_cast<size_t>(BytesOf(signature.return_dtype));
    }
    returns_ = returned_bytes_ > 0 ? 1 : 0;
    if (ffi_prep_cif(&cif_, FFI_DEFAULT_ABI, static_cast<unsigned>(types_.size()), returned, types_.data()) != FFI_OK) {
      return InternalError("libffi does not take the signature '", signature.text, "'");
    }
    return absl::OkStatus();
  }

  absl::Status Check(size_t buffers, std::span<const int64_t> params) const override {
    const bool elements = function_->signature.kind == CustomKind::kElements;
    const size_t written = returns_ + results_ + (elements ? 0 : scratch_);
    if (params.size() == 2 + written + numbers_ && params[0] >= 0 && params[1] == static_cast<int64_t>(written) &&
        buffers == operands_ + written) {
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat("compiled program is damaged: a call of '", function_->name,
                                            "' that its signature '", function_->signature.text, "' does not have"));
  }

  absl::Status Run(std::span<void* const> buffers, std::span<const int64_t> params, ThreadPool& pool) const override {
    const int64_t count = params[0];
    const auto written = params.subspan(2, static_cast<size_t>(params[1]));
    const auto numbers = params.subspan(2 + written.size());
    if (function_->many_threads) return RunNow(buffers, count, written, numbers, pool);
    MutexLock turn(*function_->turn);
    return RunNow(buffers, count, written, numbers, pool);
  }

 private:
  // Where a parameter's value comes from: one of them is there.
  struct Place {
    int buffer = -1;   // of an operand
    int result = -1;   // behind operands and what is returned
    int scratch = -1;  // behind results
    int number = -1;
  };

  absl::Status RunNow(std::span<void* const> buffers, int64_t count, std::span<const int64_t> written,
                      std::span<const int64_t> numbers, ThreadPool& pool) const {
    const bool guarded = registered_->guarded.load(std::memory_order_relaxed);
    if (function_->signature.kind == CustomKind::kBuffers) {
      if (guarded) return RunGuarded(buffers, written, numbers);
      return RunBuffers(buffers, numbers);
    }
    if (guarded || !function_->many_threads || count < 2 * kElementsAShare) {
      return RunElements(buffers, numbers, 0, count, guarded);
    }
    Mutex mutex;  // of `first`, which shares of the region set
    absl::Status first;
    pool.ParallelRanges(count, [&](int64_t begin, int64_t end, int) {
      absl::Status status = RunElements(buffers, numbers, begin, end, false);
      if (status.ok()) return;
      MutexLock lock(mutex);
      if (first.ok()) first = std::move(status);
    });
    return first;
  }

  void Fill(Frame& frame, std::span<const int64_t> numbers) const {
    const std::vector<CustomParameter>& parameters = function_->signature.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const CustomParameter& p = parameters[i];
      frame.values[i] = &frame.pointers[i];
      if (!IsNumber(p)) continue;
      frame.numbers[i] = AsType(p.dtype, numbers[places_[i].number]);
      frame.pointers[i] = &frame.numbers[i];
      if (p.role == Role::kNumber) frame.values[i] = &frame.numbers[i];
    }
  }

  // Handles the function's return value: keeps it as the first result, or reads from it whether the function failed.
  absl::Status Returned(const ffi_arg (&returned)[2], void* result, int64_t element) const {
    switch (function_->signature.returns) {
      case CustomReturn::kVoid: return absl::OkStatus();
      case CustomReturn::kResult: std::memcpy(result, returned, returned_bytes_); return absl::OkStatus();
      case CustomReturn::kStatus: {
        const auto code = static_cast<int32_t>(returned[0]);
        return code == 0 ? absl::OkStatus() : Failed(absl::UnknownError(absl::StrCat("returned ", code)), element);
      }
      case CustomReturn::kError: {
        void* error;
        std::memcpy(&error, returned, sizeof(error));
        return error == nullptr ? absl::OkStatus() : Failed(function_->take_error(error), element);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Failed(const absl::Status& status, int64_t element) const {
    return absl::Status(status.code(),
                        absl::StrCat("custom operation '", function_->name, "'",
                                     element < 0 ? "" : absl::StrCat(", element ", element), ": ", status.message()));
  }

  absl::Status RunBuffers(std::span<void* const> buffers, std::span<const int64_t> numbers) const {
    Frame frame;
    Fill(frame, numbers);
    const std::vector<CustomParameter>& parameters = function_->signature.parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Place& place = places_[i];
      if (place.number >= 0) continue;
      const size_t at = place.buffer >= 0   ? static_cast<size_t>(place.buffer)
                        : place.result >= 0 ? operands_ + returns_ + static_cast<size_t>(place.result)
                                            : operands_ + returns_ + results_ + static_cast<size_t>(place.scratch);
      frame.pointers[i] = buffers[at];
      if (parameters[i].role == Role::kInputValue) frame.values[i] = buffers[at];
    }
    ffi_arg returned[2] = {};
    {
      const FloatScope floats;
      const ops::CallingCustom calling(registered_->owner.load(std::memory_order_relaxed), function_->name);
      ffi_call(&cif_, FFI_FN(function_->address), returned, frame.values.data());
    }
    return Returned(returned, returns_ > 0 ? buffers[operands_] : nullptr, -1);
  }

  // The same on memory of its own with guards around, copied where it belongs if they are as they were.
  absl::Status RunGuarded(std::span<void* const> buffers, std::span<const int64_t> written,
                          std::span<const int64_t> numbers) const {
    std::vector<void*> all(buffers.begin(), buffers.end());
    std::vector<GuardedMemory> guards;
    for (size_t w = 0; w < written.size(); ++w) {
      WEFT_ASSIGN_OR_RETURN(GuardedMemory memory, GuardedMemory::Allocate(static_cast<size_t>(written[w])));
      if (written[w] > 0) std::memcpy(memory.data(), buffers[operands_ + w], static_cast<size_t>(written[w]));
      all[operands_ + w] = memory.data();
      guards.push_back(std::move(memory));
    }
    WEFT_RETURN_IF_ERROR(RunBuffers(all, numbers));
    for (size_t w = 0; w < written.size(); ++w) {
      const bool result = w < returns_ + results_;
      const std::optional<int64_t> broken = guards[w].Broken();
      if (broken) {
        return Failed(
            OutsideOf(result ? "result" : "scratch", result ? w : w - returns_ - results_, written[w], *broken), -1);
      }
      if (result && written[w] > 0)
        std::memcpy(buffers[operands_ + w], guards[w].data(), static_cast<size_t>(written[w]));
    }
    return absl::OkStatus();
  }

  absl::Status RunElements(std::span<void* const> buffers, std::span<const int64_t> numbers, int64_t begin, int64_t end,
                           bool guarded) const {
    Frame frame;
    Fill(frame, numbers);
    const std::vector<CustomParameter>& parameters = function_->signature.parameters;
    // The pointers that go on from element to element, and by how much.
    struct Moving {
      void** at;
      int64_t bytes;
    };
    std::array<Moving, kMostParameters> moving;
    size_t moves = 0;
    std::array<GuardedElement, kMostParameters> guards;
    const auto start = [&](size_t buffer, DType dtype) {
      return static_cast<void*>(static_cast<char*>(buffers[buffer]) + begin * BytesOf(dtype));
    };
    for (size_t i = 0; i < parameters.size(); ++i) {
      const CustomParameter& p = parameters[i];
      const Place& place = places_[i];
      if (place.number >= 0) continue;
      if (place.scratch >= 0) {
        frame.pointers[i] = guarded ? static_cast<void*>(guards[i].data()) : &frame.scratch[i];
        continue;
      }
      const size_t buffer = place.buffer >= 0 ? static_cast<size_t>(place.buffer)
                                              : operands_ + returns_ + static_cast<size_t>(place.result);
      void** const at = p.role == Role::kInputValue ? &frame.values[i] : &frame.pointers[i];
      *at = start(buffer, p.dtype);
      moving[moves++] = {at, BytesOf(p.dtype)};
    }
    void* result = returns_ > 0 ? start(operands_, function_->signature.return_dtype) : nullptr;
    ffi_arg returned[2] = {};
    const FloatScope floats;
    const ops::CallingCustom calling(registered_->owner.load(std::memory_order_relaxed), function_->name);
    const auto function = FFI_FN(function_->address);
    PieceLook look(1e5);
    for (int64_t element = begin; element < end && !look.Ends(); ++element) {
      if (guarded) {
        WEFT_RETURN_IF_ERROR(OneGuarded(frame, guards, function, returned, element));
      } else {
        ffi_call(&cif_, function, returned, frame.values.data());
      }
      if (function_->signature.returns != CustomReturn::kVoid) {
        WEFT_RETURN_IF_ERROR(Returned(returned, result, element));
        result = static_cast<char*>(result) + returned_bytes_;
      }
      for (size_t m = 0; m < moves; ++m) *moving[m].at = static_cast<char*>(*moving[m].at) + moving[m].bytes;
    }
    return absl::OkStatus();
  }

  // One element with what it writes in guarded places.
  absl::Status OneGuarded(Frame& frame, std::array<GuardedElement, kMostParameters>& guards, void (*function)(),
                          ffi_arg (&returned)[2], int64_t element) const {
    const std::vector<CustomParameter>& parameters = function_->signature.parameters;
    std::array<void*, kMostParameters> home;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (places_[i].result < 0) continue;
      home[i] = std::exchange(frame.pointers[i], guards[i].data());
    }
    ffi_call(&cif_, function, returned, frame.values.data());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Place& place = places_[i];
      if (place.result < 0 && place.scratch < 0) continue;
      const int64_t bytes = BytesOf(parameters[i].dtype);
      if (const std::optional<int64_t> broken = guards[i].Broken(bytes)) {
        const bool is_result = place.result >= 0;
        const size_t number =
            is_result ? returns_ + static_cast<size_t>(place.result) : static_cast<size_t>(place.scratch);
        return Failed(OutsideOf(is_result ? "result" : "scratch", number, bytes, *broken), element);
      }
      if (place.result < 0) continue;
      std::memcpy(home[i], guards[i].data(), static_cast<size_t>(bytes));
      frame.pointers[i] = home[i];
    }
    return absl::OkStatus();
  }

  const Ref<const CustomFunction> function_;
  const std::shared_ptr<ops::CustomFunctions> registered_;
  std::vector<ffi_type*> types_;
  std::vector<Place> places_;       // per parameter
  int operands_ = 0, scratch_ = 0;  // counts
  int results_ = 0, numbers_ = 0;   // without what is returned
  size_t returns_ = 0;              // 1 if a result is returned
  size_t returned_bytes_ = 0;
  mutable ffi_cif cif_ = {};  // ffi_call does not change it, and does not say so
};

}  // namespace

std::string CustomKernelName(std::string_view function, const ops::CustomSignature& signature) {
  return absl::StrCat(kCustomPrefix, signature.kind == CustomKind::kElements ? "e:" : "b:", function, ":",
                      signature.text);
}

std::vector<int64_t> EncodeCustom(const CustomNumbers& numbers) {
  std::vector<int64_t> params = {numbers.count, static_cast<int64_t>(numbers.written.size())};
  params.insert(params.end(), numbers.written.begin(), numbers.written.end());
  params.insert(params.end(), numbers.numbers.begin(), numbers.numbers.end());
  return params;
}

absl::StatusOr<std::shared_ptr<const CustomCall>> CustomCall::Find(
    std::string_view kernel, const std::shared_ptr<ops::CustomFunctions>& registered) {
  const std::string_view rest = kernel.substr(kCustomPrefix.size());
  const size_t colon = rest.find(':', 2);
  const std::string_view name =
      rest.substr(std::min<size_t>(2, rest.size()), colon == std::string_view::npos ? 0 : colon - 2);
  if (registered == nullptr)
    return UserErrorOf(absl::StatusCode::kNotFound, "no custom operation '", name, "' is registered");
  WEFT_ASSIGN_OR_RETURN(Ref<const CustomFunction> function, registered->Get(name));
  if (CustomKernelName(name, function->signature) != kernel) {
    return UserError("the custom operation '", name, "' is registered with the signature '", function->signature.text,
                     "'; the program calls it with '", rest.substr(std::min(rest.size(), colon + 1)), "'");
  }
  auto call = std::make_shared<Call>(std::move(function), registered);
  WEFT_RETURN_IF_ERROR(call->Prepare());
  return call;
}

}  // namespace weft::custom
