// Short ways to read a text in tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/stablehlo/read.h"

namespace weft::stablehlo {

// The IR's own text of what was read, or the error.
inline std::string Read(std::string_view text) {
  auto module = ReadStableHlo(text);
  if (!module.ok()) return std::string(module.status().message());
  if (absl::Status status = ir::Verify(*module); !status.ok()) return std::string(status.message());
  return ir::Print(*module, {.locations = false});
}

// The same of one function's body: `body` ends in a return.
inline std::string ReadBody(std::string_view arguments, std::string_view results, std::string_view body) {
  return Read(absl::StrCat("func.func public @main(", arguments, ") -> (", results, ") {\n", body, "\n}\n"));
}

}  // namespace weft::stablehlo
