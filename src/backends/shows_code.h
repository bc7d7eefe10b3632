// A backend that can show the code of programs is this, too. Beside Backend, because plugins keep theirs to themselves.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "src/backends/backend.h"

namespace weft {

// A stage of generated code: loops, LLVM's text of them, assembly.
enum class CodeForm : uint8_t { kLoops, kLlvm, kAssembly };

class ShowsCode {
 public:
  virtual ~ShowsCode() = default;
  // The code that Backend::Compile would generate of the module.
  virtual absl::StatusOr<std::string> CodeText(const ir::Module& module, const CompileOptions& options,
                                               CodeForm form) = 0;
};

}  // namespace weft
