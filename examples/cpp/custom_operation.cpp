// An operation of one's own: a lambda that programs call, with its gradient; and one of whole tensors.
//   c++ -std=c++20 custom_operation.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
#include <cmath>
#include <iostream>
#include <libweft.hpp>
#include <span>
#include <stdexcept>

int main() try {
  const weft::context ctx;
  const double sharpness = 2;
  // log(1 + exp(k x)) / k, whose derivative is 1 / (1 + exp(-k x)). The gradient gets operands, results and what
  // arrives at them.
  const weft::operation soft = weft::custom(
      ctx, "soft_relu", [sharpness](double x) { return std::log1p(std::exp(sharpness * x)) / sharpness; },
      {.many_threads = true},
      [sharpness](weft::tensor x, weft::tensor, weft::tensor arrives) {
        return arrives * weft::sigmoid(x * sharpness);
      });
  const weft::tensor x(ctx, {-1.0, 0.0, 1.0});
  std::cout << "value    " << soft(x).one() << "\n";
  std::cout << "gradient " << weft::grad([&](weft::tensor v) { return weft::sum(soft(v).one()); })(x) << "\n";

  const weft::operation running =
      weft::custom(ctx, "running_median", [](std::span<const double> in, std::span<double> out) {
        for (std::size_t i = 0; i < in.size(); ++i) {
          const double a = in[i == 0 ? i : i - 1], b = in[i], c = in[i + 1 == in.size() ? i : i + 1];
          out[i] = std::fmax(std::fmin(a, b), std::fmin(std::fmax(a, b), c));
        }
      });
  std::cout << "median   " << running(weft::tensor(ctx, {1.0, 9.0, 2.0, 3.0, -7.0, 4.0})).one() << "\n";

  // An exception of a lambda is the outcome of what was computed with it.
  const weft::operation checked = weft::custom(ctx, "checked", [](double v) {
    if (v > 0.5) throw std::range_error("a value above one half");
    return v;
  });
  if (const auto failed = checked(x).one().try_to_vector<double>(); !failed)
    std::cout << "failed   " << failed.error() << "\n";
  return 0;
} catch (const weft::error& failed) {
  std::cerr << "custom_operation: " << failed << "\n";
  return 1;
}
