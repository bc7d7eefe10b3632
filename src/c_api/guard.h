// The wall between C++ and C: every fallible body runs inside Guard, which turns statuses and anything thrown into
// weft_error. Nothing is allocated on the way of success.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "src/c_api/handles.h"
#include "src/runtime/float_environment.h"
#include "src/runtime/status.h"

namespace weft::c_api {

// Immutable once it has a handle.
class Error final : public RefCounted {
 public:
  explicit Error(const absl::Status& status);
  const absl::Status& status() const { return status_; }
  weft_code code() const { return static_cast<weft_code>(status_.raw_code()); }
  const std::string& message() const { return message_; }
  // Null if there is no such detail.
  const std::string* payload(std::string_view key) const;

 private:
  absl::Status status_;
  std::string message_;
  std::vector<std::pair<std::string, std::string>> payloads_;
};
template <>
struct HandleTraits<weft_error> {
  using Object = Error;
  static constexpr HandleType kType = HandleType::kError;
};

// Text or bytes that the library made; a NUL stands after the last byte.
class Blob final : public RefCounted {
 public:
  explicit Blob(std::string bytes) : bytes(std::move(bytes)) {}
  const std::string bytes;
};
template <>
struct HandleTraits<weft_blob> {
  using Object = Blob;
  static constexpr HandleType kType = HandleType::kBlob;
};
absl::Status MakeBlob(std::string bytes, weft_blob** out);

// Null for OK. Falls back to the static out-of-memory error.
weft_error* ToError(const absl::Status& status) noexcept;
// The same, and the text begins with the C function unless it names an operation or a function already.
weft_error* ToErrorOf(std::string_view function, const absl::Status& status) noexcept;
// The status behind an error of the caller's, borrowed.
absl::Status FromError(const weft_error* error);
weft_error* OutOfMemory() noexcept;
weft_error* FromException() noexcept;  // within a catch block

// Where the exported function that is being called returns to, and its frame: the position of what has no other. As default arguments
// of Guard they are those of the function that calls it.
struct CalledFrom {
  const void* address = nullptr;
  const void* frame = nullptr;
};
extern constinit thread_local CalledFrom t_called_from;

// The innermost call's, for calls that a callback makes.
class CallScope {
 public:
  explicit CallScope(const CalledFrom& from) : before_(t_called_from) { t_called_from = from; }
  ~CallScope() { t_called_from = before_; }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  const CalledFrom before_;
};

// `function` is who calls this.
template <typename Body>
weft_error* Guard(Body&& body, const char* function = __builtin_FUNCTION(),
                  const CalledFrom& from = {__builtin_return_address(0), __builtin_frame_address(0)}) noexcept {
  const CallScope call(from);
  const CallFloats floats;
  try {
    const absl::Status status = body();
    return status.ok() ? nullptr : ToErrorOf(function, status);
  } catch (...) {
    return FromException();
  }
}

// Checks of pointers that must not be null.
absl::Status NullArgument(std::string_view parameter);
#define WEFT_NOT_NULL(parameter) \
  if ((parameter) == nullptr) return weft::c_api::NullArgument(#parameter)

// A count or length that no caller can mean: a negative number or garbage, whose memory must not be touched.
absl::Status CheckedLength(std::string_view parameter, uint64_t length, uint64_t most);
inline constexpr uint64_t kMostEntries = 1 << 24;          // handles or settings in one call
inline constexpr uint64_t kMostBytes = uint64_t{1} << 48;  // of text; more than any address space holds

// A text argument: pointer and length, WEFT_STRLEN for NUL-terminated; must be UTF-8.
absl::StatusOr<std::string_view> Text(const char* data, size_t length, std::string_view parameter);
bool IsUtf8(std::string_view text);
// A file's name: a text that is neither empty nor has a NUL inside.
absl::StatusOr<std::string> Path(const char* path, size_t length);

}  // namespace weft::c_api
