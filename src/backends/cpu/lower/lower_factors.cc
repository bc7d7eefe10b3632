// Factors of matrices: one entry, whose numbers are the job's.
#include "src/backends/cpu/lower/lowering.h"
#include "src/ops/linalg/factors.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

absl::Status LowerFactors(Lowering& lowering, const Node& node) {
  std::vector<const ir::Type*> types;
  std::vector<StorageId> reads, writes;
  for (const Value& operand : node.operands()) {
    if (!operand) break;
    types.push_back(&operand.type());
    reads.push_back(lowering.Of(operand));
  }
  WEFT_ASSIGN_OR_RETURN(const linalg::Job job, ops::FactorsJob(node.attrs(), types));
  for (uint32_t r = 0; r < node.results().size(); ++r) {
    writes.push_back(lowering.Define({Ref<const Node>::Share(&node), r}));
  }
  const double rows = static_cast<double>(job.rows), columns = static_cast<double>(job.columns);
  const double work = rows * columns * (rows < columns ? rows : columns) * static_cast<double>(job.batch);
  lowering.Host("matrix_factors", reads, writes,
                {static_cast<int64_t>(job.kind), job.mode, job.wide, job.complex, job.batch, job.rows, job.columns,
                 static_cast<int64_t>(reads.size())},
                50.0 * work + 1e6);
  return absl::OkStatus();
}

constexpr OpRule kRules[] = {{&ops::kOp_matrix_factors, LowerFactors}};

}  // namespace

std::span<const OpRule> FactorsRules() { return kRules; }

}  // namespace weft::cpu
