// Running sums and their kin along the middle one of three dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "src/runtime/dtype.h"

namespace weft::cpu {

struct RunningCall {
  enum class Kind : int64_t { kSum, kProduct, kMax, kMin };

  Kind kind = Kind::kSum;
  DType dtype = DType::kInvalid;
  int64_t outer = 0, length = 0, inner = 0;
  bool reverse = false;

  bool extreme() const { return kind == Kind::kMax || kind == Kind::kMin; }
  // What is gone along at once, a block of columns each; the pieces that each is cut into, of so many elements. By shape alone.
  int64_t lines() const;
  int64_t pieces() const;
  int64_t piece() const;
  // Of what pieces combine to.
  int64_t space_bytes() const;
};

std::vector<int64_t> EncodeRunning(const RunningCall& call);

}  // namespace weft::cpu
