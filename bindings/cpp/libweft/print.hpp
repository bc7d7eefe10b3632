/* Tensors and errors on streams of libweft.hpp. std::format is in libweft/format.hpp, whose header is dear to
 * include. */
#ifndef LIBWEFT_PRINT_HPP
#define LIBWEFT_PRINT_HPP

#include <iosfwd>
#include "tensor.hpp"

namespace weft {
#if defined(__cpp_exceptions)
inline namespace throwing {
#else
inline namespace returning {
#endif

/* Writes the values as text for people: evaluates and waits. The program includes <ostream>. Since 1.2. */
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const tensor& x) {
  const std::string text = x.to_string();
  out.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  return out;
}
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, const error& failure) {
  const std::string_view text = failure.what();
  out.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  return out;
}
template <class Traits>
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out, dtype type) {
  const std::string_view text = name_of(type);
  out.write(text.data(), static_cast<std::ptrdiff_t>(text.size()));
  return out;
}

}  // namespace throwing or returning
}  // namespace weft

#endif  // LIBWEFT_PRINT_HPP
