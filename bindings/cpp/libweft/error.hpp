/* Errors and results of libweft.hpp: weft::error, weft::result, and the owner of a reference that all handles share. */
#ifndef LIBWEFT_ERROR_HPP
#define LIBWEFT_ERROR_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <version>

#include "weft.h"

namespace weft {

/* Files of one program may be compiled with and without exceptions: their inline functions differ, and so do their
 * names. */
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* The kind of a failure: the numbers of weft_code, which are those of gRPC. A newer library may give others. Since
 * 1.2. */
enum class code : std::int32_t {
  ok = WEFT_OK,
  cancelled = WEFT_CANCELLED,
  unknown = WEFT_UNKNOWN,
  invalid_argument = WEFT_INVALID_ARGUMENT,
  deadline_exceeded = WEFT_DEADLINE_EXCEEDED,
  not_found = WEFT_NOT_FOUND,
  already_exists = WEFT_ALREADY_EXISTS,
  permission_denied = WEFT_PERMISSION_DENIED,
  resource_exhausted = WEFT_RESOURCE_EXHAUSTED,
  failed_precondition = WEFT_FAILED_PRECONDITION,
  aborted = WEFT_ABORTED,
  out_of_range = WEFT_OUT_OF_RANGE,
  unimplemented = WEFT_UNIMPLEMENTED,
  internal = WEFT_INTERNAL,
  unavailable = WEFT_UNAVAILABLE,
  data_loss = WEFT_DATA_LOSS,
  unauthenticated = WEFT_UNAUTHENTICATED,
};

namespace detail {

/* One reference to an object of the library. Copying adds a reference, the destructor drops it; both may run on any
 * thread. */
template <class T, auto Retain, auto Release>
class handle {
 public:
  handle() noexcept = default;
  handle(const handle& other) noexcept : raw_(other.raw_) {
    if (raw_ != nullptr) Retain(raw_);
  }
  handle(handle&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  handle& operator=(const handle& other) noexcept {
    handle copy(other);
    std::swap(raw_, copy.raw_);
    return *this;
  }
  handle& operator=(handle&& other) noexcept {
    handle moved(std::move(other));
    std::swap(raw_, moved.raw_);
    return *this;
  }
  ~handle() {
    if (raw_ != nullptr) Release(raw_);
  }

  /* The C handle, borrowed: it is good as long as this object is. NULL where the object is empty. Since 1.2. */
  [[nodiscard]] T* get() const noexcept { return raw_; }
  /* Gives the reference to the caller, who releases it; the object is empty then. Since 1.2. */
  [[nodiscard]] T* release() noexcept { return std::exchange(raw_, nullptr); }
  /* True where there is something; a moved-from object and a default one are empty. Since 1.2. */
  explicit operator bool() const noexcept { return raw_ != nullptr; }

 protected:
  /* Takes over a reference. */
  explicit handle(T* raw) noexcept : raw_(raw) {}
  T* raw_ = nullptr;
};

}  // namespace detail

/* A failure: code, message, and what it is about. An exception where a program has exceptions, and in any case the
 * second half of a weft::result. Copies share the library's error; any thread may read it. Since 1.2. */
class error : public std::exception {
 public:
  /* An error of the caller's own, say in the body of a function. The message is copied. Since 1.2. */
  error(weft::code code, std::string_view message) noexcept
      : raw_(weft_error_new(static_cast<weft_code>(code), message.data(), message.size())) {}
  /* Takes over a reference of the C interface. Since 1.2. */
  explicit error(weft_error* raw) noexcept : raw_(raw) {}
  error(const error& other) noexcept : std::exception(other), raw_(other.raw_) { weft_error_retain(raw_); }
  error(error&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  error& operator=(error other) noexcept {
    std::swap(raw_, other.raw_);
    return *this;
  }
  ~error() override { weft_error_release(raw_); }

  /* The kind of the failure. Since 1.2. */
  [[nodiscard]] weft::code code() const noexcept { return static_cast<weft::code>(weft_error_code(raw_)); }
  /* The message in UTF-8: what was wrong, the values, what would be right. Good as long as this object. Since 1.2. */
  [[nodiscard]] const char* what() const noexcept override {
    const char* text = raw_ != nullptr ? weft_error_message(raw_, nullptr) : nullptr;
    return text != nullptr ? text : "";
  }
  /* A detail by its key ("weft.operands", "weft.call", "weft.reason"), empty where there is none. Good as long as
   * this object. Since 1.2. */
  [[nodiscard]] std::string_view payload(std::string_view key) const noexcept {
    std::size_t length = 0;
    const char* text = weft_error_payload(raw_, key.data(), key.size(), &length);
    return text != nullptr ? std::string_view(text, length) : std::string_view();
  }
  /* The operation that failed by its name ("matmul"), empty where none did. Since 1.2. */
  [[nodiscard]] std::string_view operation() const noexcept { return payload("weft.operation"); }
  /* The place in the program that recorded the operation, "file:line" or an address; empty where it is unknown.
   * Since 1.2. */
  [[nodiscard]] std::string_view position() const noexcept { return payload("weft.position"); }

  /* The C error, borrowed, and with the reference. Since 1.2. */
  [[nodiscard]] weft_error* get() const noexcept { return raw_; }
  [[nodiscard]] weft_error* release() noexcept { return std::exchange(raw_, nullptr); }

 private:
  weft_error* raw_;
};

/* A value or a weft::error: what each try_ function returns. It is read like std::expected. Moves, but has no
 * copies. Since 1.2. */
template <class T>
class [[nodiscard]] result {
 public:
  using value_type = T;

  result(T value) noexcept : value_(std::move(value)) {}
  result(weft::error error) noexcept : error_(error.release()) {}
  /* Takes over an error of the C interface, which may not be NULL. Since 1.2. */
  explicit result(weft_error* raw) noexcept : error_(raw) {}
  result(result&& other) noexcept : error_(std::exchange(other.error_, nullptr)) {
    if (error_ == nullptr) ::new (static_cast<void*>(&value_)) T(std::move(other.value_));
  }
  result& operator=(result&& other) noexcept {
    if (this != &other) {
      this->~result();
      ::new (static_cast<void*>(this)) result(std::move(other));
    }
    return *this;
  }
  ~result() {
    if (error_ == nullptr) {
      value_.~T();
    } else {
      weft_error_release(error_);
    }
  }

  [[nodiscard]] bool has_value() const noexcept { return error_ == nullptr; }
  explicit operator bool() const noexcept { return error_ == nullptr; }
  /* The value, which must be there: ask has_value first. Since 1.2. */
  [[nodiscard]] T& operator*() & noexcept { return value_; }
  [[nodiscard]] const T& operator*() const& noexcept { return value_; }
  [[nodiscard]] T&& operator*() && noexcept { return std::move(value_); }
  [[nodiscard]] T* operator->() noexcept { return &value_; }
  [[nodiscard]] const T* operator->() const noexcept { return &value_; }
  template <class U>
  [[nodiscard]] T value_or(U&& otherwise) && {
    return has_value() ? std::move(value_) : static_cast<T>(std::forward<U>(otherwise));
  }
  /* The failure, which must be there. Since 1.2. */
  [[nodiscard]] weft::error error() const noexcept {
    weft_error_retain(error_);
    return weft::error(error_);
  }
  /* The result of f at the value, or the failure: f returns a result. Since 1.2. */
  template <class F>
  [[nodiscard]] auto and_then(F&& f) && -> std::invoke_result_t<F, T&&> {
    if (has_value()) return std::forward<F>(f)(std::move(value_));
    return std::invoke_result_t<F, T&&>(take_error());
  }
  /* The C error with its reference; NULL where there is a value. Since 1.2. */
  [[nodiscard]] weft_error* take_error() noexcept {
    if (error_ == nullptr) return nullptr;
    weft_error_retain(error_);
    return error_;
  }

 private:
  union {
    T value_;
  };
  weft_error* error_ = nullptr;
};

/* The result of what gives nothing. Since 1.2. */
template <>
class [[nodiscard]] result<void> {
 public:
  using value_type = void;

  result() noexcept = default;
  result(weft::error error) noexcept : error_(error.release()) {}
  /* Takes over an error of the C interface; NULL is success. Since 1.2. */
  explicit result(weft_error* raw) noexcept : error_(raw) {}
  result(result&& other) noexcept : error_(std::exchange(other.error_, nullptr)) {}
  result& operator=(result&& other) noexcept {
    std::swap(error_, other.error_);
    return *this;
  }
  ~result() { weft_error_release(error_); }

  [[nodiscard]] bool has_value() const noexcept { return error_ == nullptr; }
  explicit operator bool() const noexcept { return error_ == nullptr; }
  void operator*() const noexcept {}
  [[nodiscard]] weft::error error() const noexcept {
    weft_error_retain(error_);
    return weft::error(error_);
  }
  [[nodiscard]] weft_error* take_error() noexcept { return std::exchange(error_, nullptr); }

 private:
  weft_error* error_ = nullptr;
};

namespace detail {

/* The scope that is open on this thread, NULL where none is, and its context. Bodies of functions put it aside. */
struct open_scope {
  weft_scope* scope = nullptr;
  weft_context* context = nullptr;
};
inline thread_local constinit open_scope current_scope;

/* The bodies of functions that this thread is recording, the innermost first. */
struct open_body {
  weft_context* context = nullptr;
  const open_body* around = nullptr;
};
inline thread_local constinit const open_body* current_body = nullptr;

/* The one of two operands' contexts that records: a body rather than what lies around it. */
inline weft_context* inner(weft_context* a, weft_context* b) noexcept {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  for (const open_body* at = current_body; at != nullptr; at = at->around) {
    if (at->context == a) return a;
    if (at->context == b) return b;
  }
  return a;
}
/* Functions that are recorded within a body belong to it, whatever they are called with: they may capture what is
 * there. */
inline weft_context* recording(weft_context* ctx) noexcept {
  return current_body != nullptr ? current_body->context : ctx;
}

#if !defined(__cpp_exceptions)
/* The first failure of this thread that nobody has asked for, where no scope was open to take it. */
struct unread_error {
  weft_error* raw = nullptr;
  ~unread_error() { weft_error_release(raw); }
};
inline thread_local unread_error unread;
#endif

/* Without exceptions: the open scope, or else the thread, keeps the failure, and what is returned is an empty value. */
template <class T>
T failed(weft_error* raw) {
#if defined(__cpp_exceptions)
  throw error(raw);
#else
  if (current_scope.scope != nullptr) {
    weft_tensor* poisoned = weft_scope_adopt(current_scope.scope, raw, nullptr);
    if constexpr (requires { T::poisoned(current_scope.context, poisoned); }) {
      return T::poisoned(current_scope.context, poisoned);
    }
  } else if (unread.raw == nullptr) {
    unread.raw = raw;
  } else {
    weft_error_release(raw);
  }
  if constexpr (requires { T::none(); }) {
    return T::none();
  } else {
    return T();
  }
#endif
}

/* The value of a result: what a function without try_ returns. */
template <class T>
T must(result<T> r) {
  if (!r) [[unlikely]] {
    return failed<T>(r.take_error());
  }
  if constexpr (!std::is_void_v<T>) return *std::move(r);
}

inline std::string take_text(weft_blob* blob) {
  std::string text(static_cast<const char*>(weft_blob_data(blob)), weft_blob_size(blob));
  weft_blob_release(blob);
  return text;
}
inline result<std::string> text_of(weft_error* raw, weft_blob* blob) {
  if (raw != nullptr) return result<std::string>(raw);
  return take_text(blob);
}

}  // namespace detail

/* Without exceptions: the first failure of this thread since the last call that went to no scope. With exceptions
 * there is none. Since 1.2. */
inline result<void> take_failure() noexcept {
#if defined(__cpp_exceptions)
  return {};
#else
  return result<void>(std::exchange(detail::unread.raw, nullptr));
#endif
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_ERROR_HPP
