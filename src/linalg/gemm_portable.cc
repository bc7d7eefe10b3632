// Tiles of products on vectors of 16 bytes, which every machine has.
#include "src/linalg/gemm.h"
#include "src/linalg/gemm_lanes.h"

namespace weft::linalg {
namespace {

template <typename R>
struct Lanes {
  using Element = R;
  typedef R Vector __attribute__((vector_size(16)));
  typedef R Unaligned __attribute__((vector_size(16), aligned(alignof(R)), may_alias));
  static constexpr int kCount = 16 / sizeof(R);
  static Vector Load(const R* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static void Store(R* to, Vector x) { *reinterpret_cast<Unaligned*>(to) = x; }
  static Vector Spread(R x) { return Vector{} + x; }
  static Vector MultiplyAdd(Vector x, Vector y, Vector sum) { return x * y + sum; }
};

}  // namespace

TileKernel<float> PortableTileF32() { return {8, 4, RunTile<Lanes<float>, 2, 4>}; }
TileKernel<double> PortableTileF64() { return {4, 4, RunTile<Lanes<double>, 2, 4>}; }
ColumnKernels<float> PortableColumnsF32() {
  return {AddColumns<Lanes<float>>, DotColumns<Lanes<float>>, AddAndDotColumns<Lanes<float>>};
}
ColumnKernels<double> PortableColumnsF64() {
  return {AddColumns<Lanes<double>>, DotColumns<Lanes<double>>, AddAndDotColumns<Lanes<double>>};
}

}  // namespace weft::linalg
