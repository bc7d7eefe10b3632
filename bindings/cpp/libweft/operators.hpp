/* Operators of tensors: x * w + b, -x, x < 0, x[2]. */
#ifndef LIBWEFT_OPERATORS_HPP
#define LIBWEFT_OPERATORS_HPP

#include "operations.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Elementwise with NumPy broadcasting; where both are tensors their dtypes promote as PyTorch's do. A number beside
 * a tensor takes its dtype and is part of the program: one that changes from step to step is weft::arg(rate).
 * Comparisons give tensors of bool, so neither tensors nor what holds them can be compared as values. Errors and
 * threads are those of the operations that they are: weft::add and its kin; try_ forms are these. Since 1.2. */
[[nodiscard]] inline tensor operator+(const tensor& x, const tensor& y) { return add(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator+(const tensor& x, N y) {
  return add(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator+(N x, const tensor& y) {
  return add(x, y);
}
[[nodiscard]] inline tensor operator-(const tensor& x, const tensor& y) { return sub(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator-(const tensor& x, N y) {
  return sub(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator-(N x, const tensor& y) {
  return sub(x, y);
}
[[nodiscard]] inline tensor operator*(const tensor& x, const tensor& y) { return mul(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator*(const tensor& x, N y) {
  return mul(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator*(N x, const tensor& y) {
  return mul(x, y);
}
[[nodiscard]] inline tensor operator/(const tensor& x, const tensor& y) { return div(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator/(const tensor& x, N y) {
  return div(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator/(N x, const tensor& y) {
  return div(x, y);
}
[[nodiscard]] inline tensor operator%(const tensor& x, const tensor& y) { return rem(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator%(const tensor& x, N y) {
  return rem(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator%(N x, const tensor& y) {
  return rem(x, y);
}
[[nodiscard]] inline tensor operator<(const tensor& x, const tensor& y) { return lt(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator<(const tensor& x, N y) {
  return lt(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator<(N x, const tensor& y) {
  return lt(x, y);
}
[[nodiscard]] inline tensor operator<=(const tensor& x, const tensor& y) { return le(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator<=(const tensor& x, N y) {
  return le(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator<=(N x, const tensor& y) {
  return le(x, y);
}
[[nodiscard]] inline tensor operator>(const tensor& x, const tensor& y) { return gt(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator>(const tensor& x, N y) {
  return gt(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator>(N x, const tensor& y) {
  return gt(x, y);
}
[[nodiscard]] inline tensor operator>=(const tensor& x, const tensor& y) { return ge(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator>=(const tensor& x, N y) {
  return ge(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator>=(N x, const tensor& y) {
  return ge(x, y);
}
[[nodiscard]] inline tensor operator==(const tensor& x, const tensor& y) { return eq(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator==(const tensor& x, N y) {
  return eq(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator==(N x, const tensor& y) {
  return eq(x, y);
}
[[nodiscard]] inline tensor operator!=(const tensor& x, const tensor& y) { return ne(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator!=(const tensor& x, N y) {
  return ne(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator!=(N x, const tensor& y) {
  return ne(x, y);
}
[[nodiscard]] inline tensor operator&(const tensor& x, const tensor& y) { return bitwise_and(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator&(const tensor& x, N y) {
  return bitwise_and(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator&(N x, const tensor& y) {
  return bitwise_and(x, y);
}
[[nodiscard]] inline tensor operator|(const tensor& x, const tensor& y) { return bitwise_or(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator|(const tensor& x, N y) {
  return bitwise_or(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator|(N x, const tensor& y) {
  return bitwise_or(x, y);
}
[[nodiscard]] inline tensor operator^(const tensor& x, const tensor& y) { return bitwise_xor(x, y); }
template <operand_number N>
[[nodiscard]] tensor operator^(const tensor& x, N y) {
  return bitwise_xor(x, y);
}
template <operand_number N>
[[nodiscard]] tensor operator^(N x, const tensor& y) {
  return bitwise_xor(x, y);
}
[[nodiscard]] inline tensor operator-(const tensor& x) { return neg(x); }
[[nodiscard]] inline tensor operator~(const tensor& x) { return bitwise_not(x); }

/* x += y is x = x + y: the variable holds a new tensor, and copies of the old one stay as they are. Since 1.2. */
inline tensor& operator+=(tensor& x, const tensor& y) { return x = add(x, y); }
template <operand_number N>
tensor& operator+=(tensor& x, N y) {
  return x = add(x, y);
}
inline tensor& operator-=(tensor& x, const tensor& y) { return x = sub(x, y); }
template <operand_number N>
tensor& operator-=(tensor& x, N y) {
  return x = sub(x, y);
}
inline tensor& operator*=(tensor& x, const tensor& y) { return x = mul(x, y); }
template <operand_number N>
tensor& operator*=(tensor& x, N y) {
  return x = mul(x, y);
}
inline tensor& operator/=(tensor& x, const tensor& y) { return x = div(x, y); }
template <operand_number N>
tensor& operator/=(tensor& x, N y) {
  return x = div(x, y);
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_OPERATORS_HPP
