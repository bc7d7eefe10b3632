// The shortest program that learns; README.md shows it.
//   c++ -std=c++20 first.cpp $(pkg-config --cflags --libs weft-cpp) -Wl,-rpath,$(pkg-config --variable=libdir weft) -o first
#include <iostream>
#include <libweft.hpp>

int main() {
  weft::context ctx;
  weft::tensor x(ctx, {1.f, 2.f, 3.f}), w(ctx, 0.f);
  auto loss = [&](weft::tensor w) { return weft::mean(weft::square(w * x - 3 * x)); };
  for (int i = 0; i < 100; ++i) w = ctx.step([&] { return w - 0.05 * weft::grad(loss)(w); });
  std::cout << "w = " << w << "\n";  // w = 3.
}
