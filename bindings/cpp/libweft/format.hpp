/* std::format of libweft.hpp, where the standard library has it: std::format("{:.2}", x) shows two digits. This
 * header includes <format>, which is dear, so libweft.hpp does not include it. Without <format> it declares nothing. */
#ifndef LIBWEFT_FORMAT_HPP
#define LIBWEFT_FORMAT_HPP

#include "print.hpp"

#if defined(__cpp_lib_format) || (defined(__has_include) && __cplusplus >= 202002L && __has_include(<format>))
#include <format>

/* A tensor's values as text; a precision says the digits after the point, as of a float. Evaluates and waits. Since
 * 1.2. */
template <>
struct std::formatter<weft::tensor, char> {
  weft::print_options options = {};

  constexpr auto parse(std::format_parse_context& context) {
    auto at = context.begin();
    if (at != context.end() && *at == '.') {
      std::int64_t digits = 0;
      for (++at; at != context.end() && *at >= '0' && *at <= '9'; ++at) digits = 10 * digits + (*at - '0');
      options.precision = digits;
    }
    return at;
  }
  auto format(const weft::tensor& x, std::format_context& context) const {
    return std::format_to(context.out(), "{}", x.to_string(options));
  }
};
/* An element type by its name. Since 1.2. */
template <>
struct std::formatter<weft::dtype, char> : std::formatter<std::string_view, char> {
  auto format(weft::dtype type, std::format_context& context) const {
    return std::formatter<std::string_view, char>::format(weft::name_of(type), context);
  }
};
/* An error's message. Since 1.2. */
template <>
struct std::formatter<weft::error, char> : std::formatter<std::string_view, char> {
  auto format(const weft::error& failure, std::format_context& context) const {
    return std::formatter<std::string_view, char>::format(failure.what(), context);
  }
};
#endif

#endif  // LIBWEFT_FORMAT_HPP
