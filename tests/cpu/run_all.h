// A function everywhere: what the backends must agree on.
#pragma once

#include <algorithm>

#include "src/backends/reference/interpreter.h"
#include "src/backends/reference/reference_backend.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "src/runtime/narrow.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/run_on_backend.h"

namespace weft::cpu {

// Results of a backend, which knows narrow types only as bytes, in the types of the function.
inline std::vector<HostTensor> InTypesOf(const ir::Function& function, std::vector<HostTensor> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const DType dtype = function.results()[i].dtype();
    EXPECT_EQ(values[i].dtype(), StorageOf(dtype)) << "result " << i;
    if (IsNarrow(dtype)) values[i] = HostTensor(dtype, values[i].dims(), values[i].bytes());
  }
  return values;
}

inline bool TakesOrGivesNarrow(const ir::Function& function) {
  const auto narrow = [](const ir::Value& value) { return value.type().is_tensor() && IsNarrow(value.dtype()); };
  return std::ranges::any_of(function.parameters(), narrow) || std::ranges::any_of(function.results(), narrow);
}

// Verified, through its text, on the reference and on every instruction set: all must agree, bit for bit. What passes make of narrow
// types is compared with the interpreter on the function as it is, too, which computes with the types themselves.
inline std::vector<HostTensor> RunAll(const Ref<const ir::Function>& function, const std::vector<HostTensor>& arguments) {
  ir::Module module;
  module.functions.push_back(function);
  EXPECT_TRUE(ir::Verify(module).ok()) << ir::Verify(module);
  const std::string text = ir::Print(module);
  const absl::StatusOr<ir::Module> again = ir::Parse(text, ops::FindOp);
  EXPECT_TRUE(again.ok()) << again.status() << "\n" << text;
  if (again.ok()) {
    EXPECT_EQ(ir::Print(*again), text);
  }
  const std::unique_ptr<Backend> reference = NewReferenceBackend();
  auto want = test::RunOnBackend(*reference, module, arguments);
  EXPECT_TRUE(want.ok()) << want.status();
  if (!want.ok()) {
    std::vector<HostTensor> zeros;
    for (const ir::Value& result : function->results()) zeros.emplace_back(result.dtype(), result.dims());
    return zeros;
  }
  if (TakesOrGivesNarrow(*function)) {
    const auto itself = reference::Interpret(*function, arguments);
    EXPECT_TRUE(itself.ok()) << itself.status();
    for (size_t r = 0; itself.ok() && r < want->size(); ++r) {
      EXPECT_TRUE(std::ranges::equal((*want)[r].bytes(), (*itself)[r].bytes())) << "widened: result " << r;
    }
  }
  for (const std::string& isa : TestIsas()) {
    auto have = RunOnCpu(TestBackend(), function, arguments, isa);
    EXPECT_TRUE(have.ok()) << isa << ": " << have.status();
    if (!have.ok()) continue;
    for (size_t r = 0; r < want->size(); ++r) {
      EXPECT_TRUE(std::ranges::equal((*have)[r].bytes(), (*want)[r].bytes())) << isa << ": result " << r;
    }
  }
  return InTypesOf(*function, *std::move(want));
}

}  // namespace weft::cpu
