// A function is saved by one context and loaded by another, which calls it, differentiates it and maps it over many
// examples.
//   c++ -std=c++20 saved_function.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft)
//   ./a.out energy.weft
#include <iostream>
#include <libweft.hpp>

int main(int argc, char** argv) try {
  const std::string path = argc > 1 ? argv[1] : "energy.weft";
  {
    const weft::context ctx;
    const weft::function energy(
        ctx, {{weft::f64, {3}}, {weft::f64}},
        [](weft::tensor x, weft::tensor k) { return k * weft::sum(weft::square(x)) / 2; }, "energy");
    energy.save(path);
  }
  const weft::context ctx;
  const weft::function energy = weft::function::load(ctx, path);
  const weft::tensor x(ctx, {1.0, 2.0, 3.0}), k(ctx, 10.0);
  std::cout << "energy   " << energy(x, k).one() << "\n";                      // 70
  std::cout << "force    " << -energy.grad({.wrt = {0}})(x, k).one() << "\n";  // -10 x
  const weft::tensor many(ctx, {1.0, 0.0, 0.0, 0.0, 2.0, 0.0}, {2, 3});
  const weft::function of_many = energy.vmap(2, {.in_axes = {0, weft::not_mapped}});
  std::cout << "energies " << of_many(many, k).one() << "\n";  // 5, 20
  const weft::function forces = energy.grad({.wrt = {0}}).vmap(2, {.in_axes = {0, weft::not_mapped}});
  std::cout << "forces   " << (-forces(many, k).one()).to_string() << "\n";
  return 0;
} catch (const weft::error& failed) {
  std::cerr << "saved_function: " << failed << "\n";
  return 1;
}
