// Logistic regression: two clouds of points, a line between them, AdamW, and how often it is right on points that it
// has not seen.
//   c++ -std=c++20 logistic_regression.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
#include <cstdio>
#include <libweft.hpp>
#include <utility>

namespace {

// Half of the points around (1, 1), the other half around (-1, -1): coordinates [n, 2] and labels [n] of 0 and 1.
std::pair<weft::tensor, weft::tensor> clouds(const weft::context& ctx, std::int64_t n) {
  const weft::tensor labels = weft::convert(weft::iota(ctx, {n}, 0) % 2, weft::f32);
  const weft::tensor centre = weft::expand_dims(2 * labels - 1, 1);
  return {centre + weft::normal(ctx, {n, 2}, {.deviation = 0.8}), labels};
}

}  // namespace

int main() try {
  const weft::context ctx;
  ctx.seed(3);
  const auto [x, y] = clouds(ctx, 512);
  const auto [x_new, y_new] = clouds(ctx, 512);
  const weft::tensor w = weft::full(ctx, {2}, 0).requires_grad(), b = weft::tensor(ctx, 0.f).requires_grad();
  const weft::optimizer adamw = weft::adamw({w, b}, {.weight_decay = 0.001});
  ctx.sync();
  double loss = 0;
  for (int i = 0; i < 100; ++i) {
    loss = ctx.step([&] {
                const weft::tensor entropy = weft::bce_with_logits(weft::matmul(x, w) + b, y);
                adamw.step(weft::grad(entropy, {w, b}), 0.1);
                return entropy;
              })
               .item();
  }
  const weft::tensor right = ((weft::matmul(x_new, w) + b) > 0) == (y_new > 0.5);
  std::printf("loss %.4f, right on %.1f %% of new points\n", loss,
              100 * weft::mean(weft::convert(right, weft::f32)).item());
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "logistic_regression: %s\n", failed.what());
  return 1;
}
