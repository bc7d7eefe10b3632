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
  // The work partitioning, which depends on the shape alone: a line is a block of columns that one pass scans, and each line is cut into
  // pieces() of piece() elements.
  int64_t lines() const;
  int64_t pieces() const;
  int64_t piece() const;
  // The scratch memory that holds the pieces' totals.
  int64_t space_bytes() const;
};

std::vector<int64_t> EncodeRunning(const RunningCall& call);

}  // namespace weft::cpu
