// A scan of many examples at once: one scan, each run of which takes and gives all of them.
#include <algorithm>

#include "src/ops/batching.h"
#include "src/ops/control/scan.h"

namespace weft::ops {

using namespace ir;

absl::Status ScanBatching(const BatchCall& call, std::span<Value> results) {
  const Function& body = *call.node.regions()[0];
  WEFT_ASSIGN_OR_RETURN(const ScanParts p, PartsOf(call.node.attrs(), body));
  // Examples that run different numbers of times go one after the other: what is kept for gradients has one number of rows.
  if (p.counted != 0 && call.batched[0]) return absl::OkStatus();
  // These flags belong to the body's parameters. A carried value has examples as soon as one value that it is made of
  // has.
  absl::InlinedVector<bool, 8> batched(p.indexed, false), wanted;
  const auto given = call.batched.subspan(p.counted, p.carried + p.scanned + p.captures);
  batched.insert(batched.end(), given.begin(), given.end());
  Ref<const Function> all;
  for (bool more = true; more;) {
    wanted.assign(batched.begin() + static_cast<ptrdiff_t>(p.indexed),
                  batched.begin() + static_cast<ptrdiff_t>(p.indexed + p.carried));
    wanted.resize(body.results().size(), false);
    WEFT_ASSIGN_OR_RETURN(all,
                          call.region_batch(body, {batched.data(), batched.size()}, {wanted.data(), wanted.size()}));
    more = false;
    for (size_t i = 0; i < p.carried; ++i) {
      const bool differs = HasExamples(all->results()[i].type(), body.results()[i].type());
      more = more || differs != batched[p.indexed + i];
      batched[p.indexed + i] = differs;
    }
  }
  Values operands(call.operands.begin(), call.operands.begin() + static_cast<ptrdiff_t>(p.counted + given.size()));
  for (size_t i = 0; i < p.carried; ++i) {
    if (batched[p.indexed + i]) operands[p.counted + i] = Batched(call, p.counted + i);
  }
  for (size_t i = p.counted + p.carried; i < p.counted + p.carried + p.scanned; ++i) {
    if (call.batched[i]) operands[i] = Moved(call.b, operands[i], 0, 1);
  }
  const Values found = CallAll(call.b, kOp_scan, std::move(operands), call.node.attrs(), {&all, 1});
  WEFT_RETURN_IF_ERROR(call.b.status());
  // Behind what is carried stand stacks of what each run gives.
  for (size_t i = 0; i < results.size(); ++i) {
    const bool moves = i >= p.carried && HasExamples(found[i].type(), call.node.type(i));
    results[i] = moves ? Moved(call.b, found[i], 1, 0) : found[i];
  }
  return absl::OkStatus();
}

}  // namespace weft::ops
