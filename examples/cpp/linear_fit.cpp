// Fits a line to 200 noisy points by gradient descent: the points, the steps and the numbers of linear_fit.c.
//   c++ -std=c++20 linear_fit.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o linear_fit
#include <cstdio>
#include <libweft.hpp>

int main() try {
  constexpr int kPoints = 200, kSteps = 120;
  const weft::context ctx;
  ctx.seed(1);
  const weft::tensor x = weft::uniform(ctx, {kPoints}, {.low = -1});
  const weft::tensor noise = weft::normal(ctx, {kPoints}, {.deviation = 0.3});
  const weft::tensor y = x * weft::arg(1.7) + weft::arg(-0.4) + noise;
  const weft::tensor slope = weft::tensor(ctx, 0.f).requires_grad(), offset = weft::tensor(ctx, 0.f).requires_grad();
  const weft::optimizer sgd = weft::sgd({slope, offset});
  weft::tensor loss;
  for (int i = 0; i < kSteps; ++i) {
    loss = ctx.step([&] {  // recorded, then computed by one program, which is compiled once
      const weft::tensor error = weft::mean(weft::square(x * slope + offset - y));
      sgd.step(weft::grad(error, {slope, offset}), 0.1);
      return error;
    });
  }
  std::printf("y = %.3f x %+.3f after %d steps, mean squared error %.4f\n", slope.item(), offset.item(), kSteps,
              loss.item());
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "linear_fit: %s\n", failed.what());
  return 1;
}
