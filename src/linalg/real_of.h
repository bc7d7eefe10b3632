// The real type of a real or complex number, for templates over both.
#pragma once

#include <complex>
#include <type_traits>

namespace weft::linalg {

template <typename S>
inline constexpr bool kIsComplex = !std::is_floating_point_v<S>;

template <typename S>
struct RealOf {
  using Type = S;
};
template <typename R>
struct RealOf<std::complex<R>> {
  using Type = R;
};

}  // namespace weft::linalg
