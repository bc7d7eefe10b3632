// A function everywhere: what the backends must agree on.
#pragma once

#include <algorithm>

#include "src/backends/reference/reference_backend.h"
#include "src/ir/text.h"
#include "src/ir/verify.h"
#include "src/ops/registry.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/run_on_backend.h"

namespace weft::cpu {

// Verified, through its text, on the reference and on every instruction set: all must agree, bit for bit.
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
  if (!want.ok()) return std::vector<HostTensor>(8);
  for (const std::string& isa : TestIsas()) {
    auto have = RunOnCpu(TestBackend(), function, arguments, isa);
    EXPECT_TRUE(have.ok()) << isa << ": " << have.status();
    if (!have.ok()) continue;
    for (size_t r = 0; r < want->size(); ++r) {
      EXPECT_TRUE(std::ranges::equal((*have)[r].bytes(), (*want)[r].bytes())) << isa << ": result " << r;
    }
  }
  return *std::move(want);
}

}  // namespace weft::cpu
