// The list of shared passes.
#include "src/passes/pipeline.h"

#include "absl/strings/str_cat.h"
#include "src/ir/verify.h"
#include "src/ops/collective/processes.h"
#include "src/passes/passes.h"
#include "src/runtime/memory_reserve.h"
#include "src/runtime/trace.h"

namespace weft::passes {
namespace {

struct Pass {
  constexpr Pass(std::string_view name, absl::StatusOr<ir::Module> (*run)(const ir::Module&, const PipelineOptions&))
      : name{.text = name, .kind = SpanKind::kCompile}, run(run) {}
  SpanName name;
  absl::StatusOr<ir::Module> (*run)(const ir::Module& module, const PipelineOptions& options);
};

constexpr Pass kPasses[] = {
    // Before everything that knows programs of one process.
    {"unfold_devices", UnfoldDevices},
    // Before calls are written out: functions that draw random numbers are told apart.
    {"hold_types", HoldTypes},
    {"merge_calls", MergeCalls},
    {"inline_calls", InlineCalls},
    {"expand_composites", ExpandComposites},
    {"split_complex", SplitComplex},
    {"widen_narrow", WidenNarrow},
    // Behind what makes products of two real types out of products of others.
    {"convert_factors", ConvertFactors},
    // Gradients keep what scans carry; where none is taken nobody reads it.
    {"prune_loops", PruneLoops},
    {"simplify", Simplify},
    // After simplifying, which moves widening converts behind what only moves elements.
    {"absorb_converts", AbsorbConverts},
    // Before merging: transposed operands of two dots become one operand.
    {"canonicalize_dots", CanonicalizeDots},
    {"fold_constants", FoldConstants},
    {"merge_equal", MergeEqual},
    // Folding and merging make new equal arms and unit factors; nothing after this needs another round.
    {"simplify", Simplify},
};

absl::Status Check(std::string_view after, const ir::Module& module, const PipelineOptions& options) {
  if (options.dump) options.dump(after, module);
  if (!options.verify_between) return absl::OkStatus();
  absl::Status status = ir::Verify(module);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "\n  after pass: ", after));
}

}  // namespace

absl::StatusOr<ir::Module> RunPipeline(ir::Module module, const PipelineOptions& options) {
  WEFT_RETURN_IF_ERROR(Check("input", module, options));
  if (!module.participants.alone()) WEFT_RETURN_IF_ERROR(ops::CheckProcesses(module));
  for (const Pass& pass : kPasses) {
    {
      const SpanScope span(pass.name);
      WEFT_ASSIGN_OR_RETURN(module, pass.run(module, options));
    }
    WEFT_RETURN_IF_ERROR(CheckReserve());
    WEFT_RETURN_IF_ERROR(Check(pass.name.text, module, options));
  }
  return module;
}

}  // namespace weft::passes
