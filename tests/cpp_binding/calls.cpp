// a + b * 2 in C++, without and within a scope, and in C, against the library of calls.c that writes down each call.
#include <cstdio>
#include <libweft.hpp>

extern "C" weft_tensor* in_c(weft_context* ctx, weft_tensor* a, weft_tensor* b);

int main() {
  auto* const ctx = reinterpret_cast<weft_context*>(std::uintptr_t{1});
  {
    weft::tensor a = weft::tensor::adopt(ctx, reinterpret_cast<weft_tensor*>(std::uintptr_t{11}));
    weft::tensor b = weft::tensor::adopt(ctx, reinterpret_cast<weft_tensor*>(std::uintptr_t{12}));
    std::puts("== c");
    weft_tensor* const sum = in_c(ctx, a.get(), b.get());
    std::puts("== c++");
    weft::tensor c = a + b * 2;
    std::puts("== end");
    (void)sum, (void)c.release(), (void)a.release(), (void)b.release();
  }
  weft::tensor a = weft::tensor::adopt(ctx, reinterpret_cast<weft_tensor*>(std::uintptr_t{11}));
  weft::context borrowed = weft::context::adopt(ctx);
  weft::scope s(borrowed);
  std::puts("== scope");
  weft::tensor c = a + a;
  std::puts("== end");
  (void)c.release(), (void)a.release(), (void)borrowed.release();
  return 0;
}
