// See code_text.h.
#include "src/backends/cpu/code_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/kernels/tiles/micro.h"
#include "src/backends/cpu/launch/program.h"
#include "src/backends/cpu/loop/codegen.h"
#include "src/backends/cpu/loop_names.h"
#include "src/runtime/status.h"

namespace weft::cpu {

absl::StatusOr<std::string> CodeTextOf(const LoweredModule& lowered, std::span<const int> micro,
                                       const CpuTarget& target, CodeForm form) {
  const std::vector<std::string> names = LoopNames(lowered);
  std::string text;
  if (form == CodeForm::kLoops) {
    text = absl::StrCat(ToString(lowered.program), "arena ", lowered.program.arena_bytes, "\n");
    for (size_t i = 0; i < lowered.loops.size(); ++i)
      absl::StrAppend(&text, "loop ", i, ", ", names[i], ": ", ToString(*lowered.loops[i]));
    return text;
  }
  const Jit jit(target);
  const Jit::Form written = form == CodeForm::kLlvm ? Jit::Form::kLlvm : Jit::Form::kAssembly;
  if (!lowered.loops.empty()) {
    std::vector<const LoopKernel*> kernels;
    for (const SharedKernel& loop : lowered.loops) kernels.push_back(loop.get());
    WEFT_ASSIGN_OR_RETURN(text, CompileLoops(jit, kernels, names, written));
  }
  for (const int index : micro) {
    WEFT_ASSIGN_OR_RETURN(const std::string tile, CompileMicro(jit, MicroSpec::FromIndex(index), written));
    text += tile;
  }
  return text.empty() ? "no code is generated for this program\n" : text;
}

}  // namespace weft::cpu
