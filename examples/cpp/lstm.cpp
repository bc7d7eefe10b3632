// An LSTM by scan: it learns to say, after the last of 20 numbers, the sum of those that were marked.
//   c++ -std=c++20 lstm.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o lstm
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <libweft.hpp>
#include <vector>

namespace {

constexpr std::int64_t kLength = 20, kBatch = 64, kWidth = 32;

struct lstm {
  weft::tensor input, state, bias, out;  // [2, 4 width], [width, 4 width], [4 width], [width, 1]

  explicit lstm(const weft::context& ctx) {
    const auto drawn = [&](std::int64_t rows, std::int64_t columns) {
      return weft::normal(ctx, {rows, columns}, {.deviation = 1 / std::sqrt(static_cast<double>(rows))})
          .requires_grad();
    };
    input = drawn(2, 4 * kWidth);
    state = drawn(kWidth, 4 * kWidth);
    bias = weft::full(ctx, {4 * kWidth}, 0).requires_grad();
    out = drawn(kWidth, 1);
  }
  [[nodiscard]] std::vector<weft::tensor> parameters() const { return {input, state, bias, out}; }

  // xs [length, batch, 2] -> [batch]
  [[nodiscard]] weft::tensor operator()(const weft::context& ctx, const weft::tensor& xs) const {
    const weft::tensor zero = weft::full(ctx, {kBatch, kWidth}, 0);
    const auto cell = [this](weft::tensor h, weft::tensor c, weft::tensor x) {
      const weft::tensors gates = weft::chunk(weft::matmul(x, input) + weft::matmul(h, state) + bias, 4, 1);
      c = weft::sigmoid(gates[0] + 1) * c + weft::sigmoid(gates[1]) * weft::tanh(gates[2]);
      h = weft::sigmoid(gates[3]) * weft::tanh(c);
      return std::array{h, c};
    };
    return weft::squeeze(weft::matmul(weft::scan(cell, {zero, zero}, {xs}).carried[0], out), {.dims = {1}});
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 300;
  const weft::context ctx;
  ctx.seed(1);
  const lstm model(ctx);
  const weft::optimizer adam = weft::adam(model.parameters());
  ctx.sync();
  double first = 0, last = 0;
  for (int i = 0; i < steps; ++i) {
    last = ctx.step([&] {
                const weft::tensor numbers = weft::uniform(ctx, {kLength, kBatch, 1});
                const weft::tensor marks =
                    weft::convert(weft::bernoulli(ctx, {kLength, kBatch, 1}, {.probability = 0.1}), weft::f32);
                const weft::tensor wanted = weft::sum(numbers * marks, {.dims = {0, 2}});
                const weft::tensor loss =
                    weft::mse(model(ctx, weft::concatenate({numbers, marks}, {.dimension = 2})), wanted);
                adam.step(weft::grad(loss, model.parameters()), 0.01);
                return loss;
              })
               .item();
    if (i == 0) first = last;
  }
  std::printf("mean squared error %.4f at first, %.4f after %d steps; %d programs\n", first, last, steps,
              static_cast<int>(ctx.metric("programs_compiled")));
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "lstm: %s\n", failed.what());
  return 1;
}
