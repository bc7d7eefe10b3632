// An outside program in C++: the installed header and the library are all that it needs.
#include <libweft.hpp>
#include <iostream>

int main() {
  const weft::context ctx;
  std::cout << weft::tensor(ctx, {1.f, 2.f}) * 2 << "\n";
}
