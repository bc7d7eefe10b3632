// See streams.h.
#include "src/stablehlo/streams.h"

#include <algorithm>

#include "src/ops/control/draws.h"
#include "src/ops/random/bits.h"
#include "src/ops/registry.h"

namespace weft::stablehlo {
namespace {

constexpr std::string_view kCarriers[] = {"func.call",      "stablehlo.composite", "stablehlo.if",
                                          "stablehlo.case", "stablehlo.while",     "sdy.manual_computation"};

bool Draws(const ir::StableHloOp& call) { return call.op != nullptr && call.op->random; }

}  // namespace

absl::Status GiveStreams(ir::StableHloOp& call, Stream& around) {
  const auto state = [&]() -> const ir::Value& {
    if (!around.draws()) {
      around.state = {ir::Node::Create(ops::kOp_parameter, {}, {}, {ir::Type::Tensor(DType::kU64, {3})}), 0};
    }
    return around.state;
  };
  if (Draws(call)) call.operands.push_back(ops::StateAt(call.b, state(), ops::U64(call.b, around.drawn)));
  if (std::ranges::none_of(call.regions, &ir::ShloRegion::draws)) return absl::OkStatus();
  if (std::ranges::find(kCarriers, call.name) == std::end(kCarriers)) {
    return UserError(
        call.name,
        ": its function draws random numbers (stablehlo.rng), which is for functions that are called and for "
        "while, if and case; draw before it");
  }
  for (ir::ShloRegion& region : call.regions) {
    if (region.draws) region.captures.push_back(ops::StreamOf(call.b, state(), ops::U64(call.b, around.drawn++)));
  }
  if (call.name != "stablehlo.while" || call.regions.size() != 2) return absl::OkStatus();
  const size_t carried = call.operands.size();
  for (ir::ShloRegion& region : call.regions) {
    const size_t takes = region.function->parameters().size() - region.captures.size();
    if (takes != carried) return UserError(call.name, " carries ", carried, " values; a region takes ", takes);
    WEFT_ASSIGN_OR_RETURN(region.function,
                          ops::NumberedRun(*region.function, carried, region.draws, &region == &call.regions[1]));
  }
  call.operands.push_back(ops::U64(call.b, 0));
  call.results.push_back(ir::Type::Scalar(DType::kU64));
  return absl::OkStatus();
}

void TakeStreams(const ir::StableHloOp& call, size_t seen, Stream& around, ir::Values& results) {
  if (Draws(call)) around.drawn += ops::RandomBlocks(/*largest=*/1, results);
  if (call.results.size() > seen && !results.empty()) results.pop_back();
}

}  // namespace weft::stablehlo
