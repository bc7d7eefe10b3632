/* Numbers beside tensors in formulas: x * 0.5, weft::maximum(x, 0), x * weft::arg(rate). */
#ifndef LIBWEFT_NUMBERS_HPP
#define LIBWEFT_NUMBERS_HPP

#include "context.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* A number that changes from step to step: a run-time argument of the program, so that other numbers compile
 * nothing. */
struct argument {
  double value = 0;
};
/* x * weft::arg(rate): rate is no part of the program, as a plain number is. Since 1.2. */
[[nodiscard]] constexpr argument arg(double value) noexcept { return {value}; }

/* A number on one side of an operation: plain, or from weft::arg. Since 1.2. */
template <class N>
concept operand_number = number<N> || std::same_as<N, argument>;

namespace detail {

/* The number as a scalar of the dtype of `like`; an integer that no double holds goes as an argument. */
template <operand_number N>
weft_error* scalar_like(const tensor& like, N value, weft_tensor** out) {
  if constexpr (std::same_as<N, argument>) {
    return weft_tensor_argument_like(like.get(), value.value, out);
  } else {
    if constexpr (std::integral<N> && sizeof(N) == 8) {
      constexpr auto exact = static_cast<N>(std::int64_t{1} << 53);
      bool held = value <= exact;
      if constexpr (std::signed_integral<N>) held = held && value >= -exact;
      if (!held) {
        weft_dtype type{};
        weft_error* raw = weft_tensor_dtype(like.get(), &type);
        if (raw != nullptr) return raw;
        if constexpr (std::signed_integral<N>) return weft_tensor_from_i64(like.context_handle(), type, value, out);
        return weft_tensor_from_u64(like.context_handle(), type, static_cast<std::uint64_t>(value), out);
      }
    }
    return weft_tensor_constant_like(like.get(), static_cast<double>(value), out);
  }
}

/* An operation of two tensors where one of them is a number. */
template <auto Operation, operand_number N>
result<tensor> number_right(const tensor& x, N y) {
  weft_tensor *scalar = nullptr, *out = nullptr;
  weft_error* raw = scalar_like(x, y, &scalar);
  if (raw == nullptr) {
    raw = Operation(x.context_handle(), x.get(), scalar, &out);
    weft_tensor_release(scalar);
  }
  return made(raw, x.context_handle(), out);
}
template <auto Operation, operand_number N>
result<tensor> number_left(N x, const tensor& y) {
  weft_tensor *scalar = nullptr, *out = nullptr;
  weft_error* raw = scalar_like(y, x, &scalar);
  if (raw == nullptr) {
    raw = Operation(y.context_handle(), scalar, y.get(), &out);
    weft_tensor_release(scalar);
  }
  return made(raw, y.context_handle(), out);
}

/* The context that records an operation: that of its operands. */
inline weft_context* context_of() noexcept { return nullptr; }
template <class First, class... More>
weft_context* context_of(const First& x, const More&... more) noexcept {
  return inner(x.context_handle(), context_of(more...));
}

}  // namespace detail
}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_NUMBERS_HPP
