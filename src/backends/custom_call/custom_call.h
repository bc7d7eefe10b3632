// A custom operation of a launch list: its function, called through libffi with the buffers where they lie.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/ops/custom/functions.h"
#include "src/runtime/thread_pool.h"

namespace weft::custom {

// Begins a kernel's name in a program: "custom:e:lgamma_r:double(double, int*)", so that cached programs know functions
// by name and signature, never by an address.
inline constexpr std::string_view kCustomPrefix = "custom:";
std::string CustomKernelName(std::string_view function, const ops::CustomSignature& signature);

// The numbers of a call: how many elements, how many buffers are written and their bytes, then the signature's own numbers.
struct CustomNumbers {
  int64_t count = 0;
  std::span<const int64_t> written;
  std::span<const int64_t> numbers;
};
std::vector<int64_t> EncodeCustom(const CustomNumbers& numbers);

// Ready to be called. Holds the function as long as it lives. Thread rule: any thread; whether several at once is the
// function's own rule, which it keeps.
class CustomCall {
 public:
  // The registered function of a kernel's name; NOT_FOUND by name, INVALID_ARGUMENT if it has another signature now.
  static absl::StatusOr<std::shared_ptr<const CustomCall>> Find(
      std::string_view kernel, const std::shared_ptr<ops::CustomFunctions>& registered);
  virtual ~CustomCall() = default;
  // DATA_LOSS if a program's entry does not fit the signature.
  virtual absl::Status Check(size_t buffers, std::span<const int64_t> params) const = 0;
  // Buffers: operands, results (what the function returns first), scratch.
  virtual absl::Status Run(std::span<void* const> buffers, std::span<const int64_t> params, ThreadPool& pool) const = 0;
};

}  // namespace weft::custom
