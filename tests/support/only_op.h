// WEFT_TEST_OP=NAME: tests over every operation look at this one alone, by its C name. For work on one, and for the test that adds one.
#pragma once

#include <cstdlib>
#include <string_view>

#include "src/ir/op_def.h"

namespace weft::test {

inline bool LeftOut(const ir::OpDef& op) {
  const char* const only = std::getenv("WEFT_TEST_OP");
  return only != nullptr && *only != 0 && op.c_name != std::string_view(only);
}

}  // namespace weft::test
