// A model that JAX wrote as StableHLO runs here, beside the same model in operations of Weft, and is differentiated.
//   c++ -std=c++20 stablehlo_model.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
//   ./a.out ../stablehlo/mlp.mlir
#include <cstdio>
#include <fstream>
#include <iterator>
#include <libweft.hpp>

int main(int argc, char** argv) try {
  std::ifstream file(argc > 1 ? argv[1] : "../stablehlo/mlp.mlir");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text.empty()) return std::fprintf(stderr, "usage: stablehlo_model FILE\n"), 2;
  const weft::context ctx;
  const weft::function model = weft::function::from_stablehlo(ctx, text);
  for (const weft::tensor_type& input : model.inputs())
    std::printf("input of rank %zu, %s\n", input.shape.size(), weft::name_of(input.dtype).data());
  ctx.seed(2);
  const weft::tensor x = weft::normal(ctx, {2, 3}), w = weft::normal(ctx, {3, 4}), b = weft::normal(ctx, {4});
  const weft::tensor theirs = model(x, w, b), ours = weft::softmax(weft::relu(weft::matmul(x, w) + b));
  std::printf("largest difference %.1e\n", weft::max(weft::abs(theirs - ours)).item());
  const auto loss = [&](weft::tensor weights) {
    return -weft::sum(weft::log(weft::at(model(x, weights, b).one(), 0, 1)));
  };
  const weft::tensor gradient = weft::grad(loss)(w);
  std::printf("loss %.4f, and %.4f one step further\n", loss(w).item(), loss(w - 0.1 * gradient).item());
  return 0;
} catch (const weft::error& failed) {
  std::fprintf(stderr, "stablehlo_model: %s\n", failed.what());
  return 1;
}
