// Errors and blobs: the objects, and their C functions.
#include <cstring>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "src/c_api/guard.h"

namespace weft::c_api {

// A caller's text may have NULs, at which a reader of C would take a message that quotes it to end.
Error::Error(const absl::Status& status)
    : status_(status), message_(absl::StrReplaceAll(status.message(), {{std::string_view("\0", 1), "\\0"}})) {
  status.ForEachPayload([this](std::string_view key, const absl::Cord& value) {
    payloads_.emplace_back(std::string(key), std::string(value));
  });
}

const std::string* Error::payload(std::string_view key) const {
  for (const auto& [name, value] : payloads_) {
    if (name == key) return &value;
  }
  return nullptr;
}

namespace {

constexpr char kOutOfMemoryText[] = "out of memory";
constexpr char kNoErrorText[] = "this is no live weft_error";
constexpr std::string_view kPayloadData = "weft.data";
// The address of this variable is the error that needs no memory. Handles never look like addresses.
constinit char g_out_of_memory = 0;

}  // namespace

weft_error* OutOfMemory() noexcept { return reinterpret_cast<weft_error*>(&g_out_of_memory); }

weft_error* ToError(const absl::Status& status) noexcept {
  if (status.ok()) return nullptr;
  try {
    absl::StatusOr<weft_error*> made = Make<weft_error>(MakeRef<Error>(status));
    return made.ok() ? *made : OutOfMemory();
  } catch (...) {
    return OutOfMemory();
  }
}

weft_error* ToErrorOf(std::string_view function, const absl::Status& status) noexcept {
  constexpr std::string_view kOurs = "weft_";
  std::string_view text = status.message();
  if (!function.starts_with(kOurs) || text.starts_with(kOurs) || status.GetPayload(kPayloadOperation).has_value()) {
    return ToError(status);
  }
  try {
    // Parts below say "assign: …" where they know no more.
    const size_t colon = text.find(": ");
    if (colon != std::string_view::npos && function.ends_with(absl::StrCat("_", text.substr(0, colon)))) {
      text.remove_prefix(colon + 2);
    }
    return ToError(WithText(status, absl::StrCat(function, ": ", text)));
  } catch (...) {
    return OutOfMemory();
  }
}

absl::Status FromError(const weft_error* error) {
  if (error == OutOfMemory()) return absl::ResourceExhaustedError(kOutOfMemoryText);
  const Pin<Error> found = Find(error);
  return found ? found->status() : UserError(kNoErrorText);
}

weft_error* FromException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (const std::exception& e) {
    try {
      return ToError(InternalError("unexpected exception: ", e.what()));
    } catch (...) {
      return OutOfMemory();
    }
  } catch (...) {
    return ToError(absl::InternalError("internal error (please report): unexpected exception"));
  }
}

namespace {

// Without a function's name: what the caller says is the whole text.
absl::Status Made(weft_code code, std::string_view parameter, const char* message, size_t length,
                  const uint64_t* data) {
  WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(message, length, parameter));
  absl::Status made = code < WEFT_CANCELLED || code > WEFT_UNAUTHENTICATED
                          ? absl::UnknownError(absl::StrCat("code ", static_cast<int>(code), ": ", text))
                          : absl::Status(static_cast<absl::StatusCode>(code), text);
  return data != nullptr ? WithDetail(made, kPayloadData, absl::StrCat(*data)) : made;
}

}  // namespace

absl::Status NullArgument(std::string_view parameter) { return UserError(parameter, " is NULL"); }

bool IsUtf8(std::string_view text) {
  const auto* p = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = p + text.size();
  while (p < end) {
    const unsigned c = *p++;
    if (c < 0x80) continue;
    const int more = c >= 0xF0 && c < 0xF5 ? 3 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xC2 && c < 0xE0 ? 1 : 0;
    if (more == 0 || end - p < more) return false;
    uint32_t point = c & (0x3F >> more);
    for (int i = 0; i < more; ++i, ++p) {
      if ((*p & 0xC0) != 0x80) return false;
      point = point << 6 | (*p & 0x3F);
    }
    if ((more == 2 && point < 0x800) || (more == 3 && (point < 0x10000 || point > 0x10FFFF)) ||
        (point >= 0xD800 && point < 0xE000)) {
      return false;
    }
  }
  return true;
}

absl::Status CheckedLength(std::string_view parameter, uint64_t length, uint64_t most) {
  if (length <= most) return absl::OkStatus();
  return UserError(parameter, " has a length of ", length, "; at most ", most, " is possible");
}

absl::StatusOr<std::string_view> Text(const char* data, size_t length, std::string_view parameter) {
  if (data == nullptr) {
    if (length == 0) return std::string_view();
    return NullArgument(parameter);
  }
  if (length != WEFT_STRLEN) WEFT_RETURN_IF_ERROR(CheckedLength(parameter, length, kMostBytes));
  const std::string_view text(data, length == WEFT_STRLEN ? std::strlen(data) : length);
  if (!IsUtf8(text)) return UserError(parameter, " is not UTF-8");
  return text;
}

absl::StatusOr<std::string> Path(const char* path, size_t length) {
  WEFT_NOT_NULL(path);
  WEFT_ASSIGN_OR_RETURN(std::string_view text, Text(path, length, "path"));
  if (text.empty() || text.find('\0') != std::string_view::npos) return UserError("path is empty or has a NUL inside");
  return std::string(text);
}

absl::Status MakeBlob(std::string bytes, weft_blob** out) {
  WEFT_ASSIGN_OR_RETURN(weft_blob * made, Make<weft_blob>(MakeRef<Blob>(std::move(bytes))));
  *out = made;
  return absl::OkStatus();
}

}  // namespace weft::c_api

using namespace weft::c_api;

extern "C" {

weft_code weft_error_code(const weft_error* error) noexcept {
  if (error == nullptr) return WEFT_OK;
  if (error == OutOfMemory()) return WEFT_RESOURCE_EXHAUSTED;
  const Pin<Error> found = Find(error);
  return found ? found->code() : WEFT_INVALID_ARGUMENT;
}

const char* weft_error_message(const weft_error* error, size_t* out_length) noexcept {
  const char* text = "";
  size_t length = 0;
  if (error == OutOfMemory()) {
    text = kOutOfMemoryText;
    length = sizeof(kOutOfMemoryText) - 1;
  } else if (error != nullptr) {
    const Pin<Error> found = Find(error);
    text = found ? found->message().c_str() : kNoErrorText;
    length = found ? found->message().size() : sizeof(kNoErrorText) - 1;
  }
  if (out_length != nullptr) *out_length = length;
  return text;
}

const char* weft_error_payload(const weft_error* error, const char* key, size_t key_length,
                               size_t* out_length) noexcept {
  if (key == nullptr) return nullptr;
  const std::string_view name(key, key_length == WEFT_STRLEN ? std::strlen(key) : key_length);
  if (error == OutOfMemory() && name == weft::kPayloadRetry) {
    if (out_length != nullptr) *out_length = 1;
    return "1";
  }
  const Pin<Error> found = Find(error);
  if (!found) return nullptr;
  const std::string* value = found->payload(name);
  if (value == nullptr) return nullptr;
  if (out_length != nullptr) *out_length = value->size();
  return value->c_str();
}

weft_error* weft_error_new(weft_code code, const char* message, size_t length) noexcept {
  return Guard([&] { return Made(code, "weft_error_new: message", message, length, nullptr); }, "");
}

weft_error* weft_error_new_with_data(weft_code code, const char* message, size_t length, uint64_t data) noexcept {
  return Guard([&] { return Made(code, "weft_error_new_with_data: message", message, length, &data); }, "");
}

int32_t weft_error_data(const weft_error* error, uint64_t* out) noexcept {
  const Pin<Error> found = Find(error);
  const std::string* const text = found && out != nullptr ? found->payload(kPayloadData) : nullptr;
  return text != nullptr && absl::SimpleAtoi(*text, out) ? 1 : 0;
}

void weft_error_retain(weft_error* error) noexcept {
  if (error != OutOfMemory()) RetainHandle(error, HandleType::kError);
}
void weft_error_release(weft_error* error) noexcept {
  if (error != OutOfMemory()) ReleaseHandle(error, HandleType::kError);
}

const void* weft_blob_data(const weft_blob* blob) noexcept {
  const Pin<Blob> found = Find(blob);
  return found ? found->bytes.c_str() : nullptr;
}
size_t weft_blob_size(const weft_blob* blob) noexcept {
  const Pin<Blob> found = Find(blob);
  return found ? found->bytes.size() : 0;
}
void weft_blob_retain(weft_blob* blob) noexcept { RetainHandle(blob, HandleType::kBlob); }
void weft_blob_release(weft_blob* blob) noexcept { ReleaseHandle(blob, HandleType::kBlob); }

uint32_t weft_abi_version(void) noexcept { return WEFT_ABI_MAJOR << 16 | WEFT_ABI_MINOR; }

}  // extern "C"
