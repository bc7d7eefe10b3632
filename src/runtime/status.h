// Errors as values. User errors are written for the caller (what was wrong, the values, what would be right);
// internal errors are Weft's own bugs. Everything in src/ returns these; only src/c_api turns them into weft_error.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace weft {

// The caller's mistake. Usually INVALID_ARGUMENT; other codes through the overload.
template <typename... Args>
absl::Status UserError(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}
template <typename... Args>
absl::Status UserErrorOf(absl::StatusCode code, const Args&... args) {
  return absl::Status(code, absl::StrCat(args...));
}

// A broken invariant of ours. The text asks for a report, because no caller can mend it.
template <typename... Args>
absl::Status InternalError(const Args&... args) {
  return absl::InternalError(absl::StrCat("internal error (please report): ", args...));
}

// Keys under which a status carries details that the C API hands out one by one.
inline constexpr std::string_view kPayloadOperation = "weft.operation";
inline constexpr std::string_view kPayloadPosition = "weft.position";
inline constexpr std::string_view kPayloadOperands = "weft.operands";
// "1" of a shortage of memory that released tensors may mend: a caller that collects garbage does so, and calls again.
inline constexpr std::string_view kPayloadRetry = "weft.retry_after_release";

// The status with one more detail; OK stays OK. Nobody else calls absl::Status::SetPayload: where several share a status it gives
// up this one's share before it asks for memory, and the share is given up once more when there is none (Abseil 20240722).
absl::Status WithDetail(const absl::Status& status, std::string_view key, std::string_view value);
// The same code and details with another text.
absl::Status WithText(const absl::Status& status, std::string_view text);

// Says so of a status that is RESOURCE_EXHAUSTED; any other stays as it is.
inline absl::Status RetryAfterRelease(absl::Status status) {
  return absl::IsResourceExhausted(status) ? WithDetail(status, kPayloadRetry, "1") : status;
}

}  // namespace weft

#define WEFT_RETURN_IF_ERROR(expression)                                                   \
  do {                                                                                     \
    if (absl::Status weft_status_ = (expression); !weft_status_.ok()) return weft_status_; \
  } while (0)

#define WEFT_CONCAT_INNER_(a, b) a##b
#define WEFT_CONCAT_(a, b) WEFT_CONCAT_INNER_(a, b)

// WEFT_ASSIGN_OR_RETURN(auto x, F()): declares or assigns x, or returns F's error.
#define WEFT_ASSIGN_OR_RETURN(target, expression) \
  WEFT_ASSIGN_OR_RETURN_IMPL_(WEFT_CONCAT_(weft_or_, __LINE__), target, expression)
#define WEFT_ASSIGN_OR_RETURN_IMPL_(temporary, target, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  target = *std::move(temporary)
