// See lowering.h.
#include "src/backends/cpu/lower/lowering.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/launch/host_kernels.h"
#include "src/backends/cpu/launch/transpose_call.h"
#include "src/backends/cpu/loop/block_loop.h"
#include "src/backends/cpu/loop/side_by_side.h"
#include "src/backends/cpu/lower/lower_region.h"
#include "src/ir/builder.h"
#include "src/ops/generated/attributes.h"
#include "src/ops/parameter.h"
#include "src/ops/registry.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using ir::Node;
using ir::Value;

// Tells whether a kernel may write `out` over `in`: every element is read, for the last time, by the task that writes
// it.
bool SafeInPlace(const LoopKernel& kernel, uint32_t in, uint32_t out) {
  const Store* store = nullptr;
  for (const Store& s : kernel.stores) {
    if (s.access.buffer == in) return false;
    if (s.access.buffer != out) continue;
    if (store != nullptr) return false;
    store = &s;
  }
  if (store == nullptr) return false;
  if (!store->row && store->stage + 1 < kernel.stages) return false;
  for (const Access& load : kernel.loads) {
    if (load.buffer != in) continue;
    if (load.offset != store->access.offset || load.strides != store->access.strides) return false;
    if (BytesOf(load.dtype) != BytesOf(store->access.dtype)) return false;
  }
  // A store with a zero stride along something parallel would repeat; dense results never do.
  return true;
}

// Tells whether the result is the first operand except for some elements.
bool IsUpdate(const ir::OpDef& op) {
  return &op == &ops::kOp_dynamic_update_slice || &op == &ops::kOp_scatter || &op == &ops::kOp_scatter_by;
}

// A region of the node alone.
Ref<const ir::Function> RegionOf(const Node& node) {
  std::vector<Value> parameters;
  ir::Values operands;
  for (const Value& operand : node.operands()) {
    Value p = ops::Parameter(operand.type());
    parameters.push_back(p);
    operands.push_back(p);
  }
  Ref<const Node> copy = Node::Create(node.op(), std::move(operands), node.attrs(), {node.type()});
  return ir::Function::Create("single", std::move(parameters), {Value{copy, 0}});
}

}  // namespace

absl::StatusOr<LoweredModule> LowerModule(const ir::Module& module, const CpuTarget& target,
                                          const ProgramOptions& options) {
  return Lowering(module, target, options).Run();
}

StorageId Lowering::Root(StorageId s) const {
  while (storages_[s].shares >= 0) s = storages_[s].shares;
  return s;
}

StorageId Lowering::Of(const Value& value) const {
  auto found = of_.find(std::pair(value.node.get(), value.result));
  return found == of_.end() ? -1 : found->second;
}

StorageId Lowering::Temporary(int64_t bytes) {
  Storage s;
  s.bytes = bytes;
  storages_.push_back(s);
  return static_cast<StorageId>(storages_.size()) - 1;
}

StorageId Lowering::Define(const Value& value) {
  const StorageId s = Temporary(value.type().bytes());
  of_[std::pair(value.node.get(), value.result)] = s;
  return s;
}

void Lowering::Alias(const Value& value, StorageId storage) {
  of_[std::pair(value.node.get(), value.result)] = storage;
}

StorageId Lowering::Constant(const HostTensor& tensor) {
  std::string& constants = out_.program.constants;
  constants.resize((constants.size() + 63) / 64 * 64);
  const StorageId id = Temporary(static_cast<int64_t>(tensor.bytes().size()));
  storages_[id].place = BufferRef::Place::kConstant;
  storages_[id].offset = static_cast<int64_t>(constants.size());
  constants.append(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
  constants.append(64, '\0');
  return id;
}

void Lowering::Add(Draft draft) {
  draft.entry.origins = origins_;
  lists_[list_].push_back(std::move(draft));
}

uint32_t Lowering::HostKernelOf(std::string_view name) {
  auto [it, fresh] =
      host_of_name_.try_emplace(std::string(name), static_cast<uint32_t>(out_.program.host_kernels.size()));
  if (fresh) out_.program.host_kernels.emplace_back(name);
  return it->second;
}

Entry& Lowering::Host(std::string_view name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                      std::vector<int64_t> params, double cost, int64_t rows, int64_t columns) {
  Draft draft;
  draft.entry.type = Entry::Type::kHost;
  draft.entry.code = HostKernelOf(name);
  draft.entry.params = std::move(params);
  draft.entry.cost = CostOf(cost);
  draft.rows = rows;
  draft.columns = columns;
  for (StorageId s : reads) {
    draft.storages.push_back(s);
    draft.written.push_back(false);
    draft.entry.reads += storages_[s].bytes;
  }
  for (StorageId s : writes) {
    draft.storages.push_back(s);
    draft.written.push_back(true);
    draft.entry.writes += storages_[s].bytes;
  }
  Add(std::move(draft));
  return lists_[list_].back().entry;
}

Entry& Lowering::HostWith(std::string_view name, const std::vector<StorageId>& reads,
                          const std::vector<StorageId>& writes, std::vector<int64_t> params, double cost,
                          Generated body) {
  Host(name, reads, writes, std::move(params), cost);
  Draft& draft = lists_[list_].back();
  draft.loop = std::make_shared<const LoopKernel>(std::move(body.kernel));
  draft.storages.insert(draft.storages.end(), body.captures.begin(), body.captures.end());
  draft.written.resize(draft.storages.size(), false);
  if (body.space >= 0) {
    draft.storages.push_back(body.space);
    draft.written.push_back(true);
  }
  return draft.entry;
}

void Lowering::Copy(int64_t bytes, StorageId from, StorageId to) {
  if (bytes == 0) return;
  Host("copy", {from}, {to}, {bytes}, static_cast<double>(bytes) * 30);
  Draft& draft = lists_[list_].back();
  draft.copy = true;
  draft.in_place = {{0, 1}};
}

void Lowering::AddLoop(SharedKernel kernel, const std::vector<StorageId>& buffers) {
  Draft draft;
  draft.storages = buffers;
  draft.written.assign(buffers.size(), false);
  for (const Store& s : kernel->stores) {
    draft.written[s.access.buffer] = true;
    draft.entry.writes +=
        kernel->ParallelCount() * (s.row ? 1 : kernel->ReducedCount()) * std::max(BytesOf(s.access.dtype), 1);
  }
  draft.entry.reads = BytesRead(*kernel);
  draft.entry.flops = FlopsOf(*kernel);
  for (uint32_t in = 0; in < buffers.size(); ++in) {
    if (draft.written[in]) continue;
    for (uint32_t out = 0; out < buffers.size(); ++out) {
      if (draft.written[out] && SafeInPlace(*kernel, in, out))
        draft.in_place.push_back({static_cast<int>(in), static_cast<int>(out)});
    }
  }
  draft.loop = std::move(kernel);
  Add(std::move(draft));
}

// A loop that begins with what a product has just written joins it: its blocks are still in cache then (a product's result
// of some megabytes costs a tenth of the product to read again).
const SharedKernel& Lowering::BlockLoop(const SharedKernel& kernel, int64_t rows, int64_t columns, uint32_t product) {
  const auto [known, fresh] = block_loop_of_.try_emplace(std::tuple(kernel.get(), rows, columns, product));
  if (fresh) {
    LoopKernel block = *kernel;
    known->second.whole = kernel;
    if (ToBlockLoop(block, rows, columns, product)) {
      known->second.block = std::make_shared<const LoopKernel>(std::move(block));
    }
  }
  return known->second.block;
}

bool Lowering::RunsBefore(const Draft& loop, const Draft& product) {
  constexpr int64_t kMostBytes = 64 << 10;
  if (loop.entry.writes > kMostBytes) return false;
  for (size_t i = 0; i < loop.storages.size(); ++i) {
    for (size_t j = 0; j < product.storages.size(); ++j) {
      if (loop.storages[i] == product.storages[j] && (loop.written[i] || product.written[j])) return false;
    }
  }
  return true;
}

bool Lowering::ReadsParts(const Draft& product, const LoopKernel& loop, uint32_t buffer, int64_t* parts) const {
  constexpr int64_t kMostParts = 8;
  constexpr int64_t kMostElements = 256 << 10;  // so many stay in a near cache
  if (out_.program.host_kernels[product.entry.code] != "gemm") return false;
  if (product.rows * product.columns > kMostElements) return false;
  const int64_t found = PartsOfProduct(loop, product.rows, product.columns, buffer);
  if (found < 2 || found > kMostParts) return false;
  *parts = found;
  return true;
}

bool Lowering::FindsRow(const Draft& draft) const {
  return draft.entry.type == Entry::Type::kHost && out_.program.host_kernels[draft.entry.code] == "find_run";
}

void Lowering::AddOrigins(const Entry& from, Entry& to) {
  for (const uint32_t origin : from.origins) {
    if (std::find(to.origins.begin(), to.origins.end(), origin) == to.origins.end()) to.origins.push_back(origin);
  }
}

void Lowering::FuseEpilogues(Drafts& list) {
  Drafts drafts;
  for (Draft& next : list) {
    Draft* product = drafts.empty() ? nullptr : &drafts.back();
    const bool loop = next.loop != nullptr && next.entry.type == Entry::Type::kLoop;
    if (product != nullptr && (loop || FindsRow(next)) && product->rows * product->columns > 0 &&
        product->product < 0 && RunsBefore(next, *product)) {
      drafts.insert(drafts.end() - 1, std::move(next));
      continue;
    }
    if (product == nullptr || product->rows * product->columns == 0 || product->product >= 0 || !loop) {
      drafts.push_back(std::move(next));
      continue;
    }
    const StorageId written = product->storages.back();
    const auto at = std::find(next.storages.begin(), next.storages.end(), written);
    SharedKernel block;
    int64_t parts = 1;
    if (std::count(next.storages.begin(), next.storages.end(), written) == 1) {
      const auto buffer = static_cast<uint32_t>(at - next.storages.begin());
      block = BlockLoop(next.loop, product->rows, product->columns, buffer);
      if (block == nullptr && ReadsParts(*product, *next.loop, buffer, &parts)) block = next.loop;
    }
    if (block == nullptr) {
      drafts.push_back(std::move(next));
      continue;
    }
    product->product = static_cast<int>(product->storages.size()) - 1;
    product->parts = parts;
    product->entry.epilogue_buffers = static_cast<uint32_t>(next.storages.size());
    const int first = static_cast<int>(product->storages.size());
    product->storages.insert(product->storages.end(), next.storages.begin(), next.storages.end());
    product->written.insert(product->written.end(), next.written.begin(), next.written.end());
    for (const auto& [in, out] : next.in_place) product->in_place.push_back({first + in, first + out});
    LoopEnding ending;
    if (out_.program.host_kernels[product->entry.code] == "conv" &&
        ToEnding(*block, static_cast<uint32_t>(at - next.storages.begin()), &ending)) {
      AppendEnding(ending, &product->entry.params);
      // Tiles leave the memory of their sums alone: rather what they add is written over, which is in a cache by then.
      std::ranges::stable_partition(product->in_place,
                                    [&](const auto& pair) { return pair.first == first + ending.added; });
    }
    product->loop = std::move(block);
    product->entry.writes += next.entry.writes;
    product->entry.reads += next.entry.reads;
    AddOrigins(next.entry, product->entry);
    JoinProducts(drafts);
  }
  list = std::move(drafts);
}

const Lowering::PlannedLoop& Lowering::Planned(const SharedKernel& kernel) {
  const auto [known, fresh] = planned_.try_emplace(kernel.get());
  if (fresh) {
    known->second = {kernel, 0, PlanLoop(*kernel, target_)};
    const std::string& key = known->second.plan.key;
    const auto [code, is_new] = loop_of_key_.try_emplace(key, static_cast<uint32_t>(out_.program.loops.size()));
    if (is_new) {
      out_.program.loops.push_back(key);
      out_.loops.push_back(kernel);
    }
    known->second.code = code->second;
  }
  return known->second;
}

void Lowering::PlanLoops(Drafts& list) {
  for (Draft& draft : list) {
    if (draft.loop == nullptr) continue;
    const auto& [kernel, code, plan] = Planned(draft.loop);
    draft.loop.reset();
    draft.entry.cost = CostOf(static_cast<double>(draft.entry.cost) + plan.cost);
    if (draft.entry.type == Entry::Type::kHost) {
      draft.entry.epilogue = static_cast<int32_t>(code);
      draft.entry.epilogue_params = plan.params;
      continue;
    }
    draft.entry.code = code;
    draft.entry.params = plan.params;
    draft.entry.tasks = plan.tasks;
    draft.entry.scratch_bytes = plan.scratch_bytes;
  }
}

// Counts tasks as if memory ran along the rows, so that additions are cut alike in every layout.
int64_t Lowering::TasksOfRows(const LoopKernel& kernel) const {
  if (!kernel.turned) return PlanLoop(kernel, target_).tasks;
  LoopKernel rows = kernel;
  rows.turned = false;
  rows.vector_reduces = true;
  rows.vector_dim = static_cast<int>(rows.dims.size()) - 1;
  return PlanLoop(rows, target_).tasks;
}

void Lowering::Loop(SharedKernel kernel, const std::vector<StorageId>& buffers) {
  // Few long reductions: pieces of a fixed size first, so that all threads have work and the order of additions is a
  // matter of the shape alone.
  if (!kernel->reductions.empty() && kernel->stages == 1 && !IsGuarded(*kernel)) {
    const int64_t elements = kernel->ParallelCount() * kernel->ReducedCount();
    const int64_t outermost = kernel->dims[kernel->parallel_dims()].size;
    const int64_t chunks = std::min<int64_t>({elements / 16384, 32, outermost / 4});
    if (chunks >= 2 && !kernel->dims[kernel->parallel_dims()].total && TasksOfRows(*kernel) < kFewTasks) {
      SplitKernel split = SplitReduction(*kernel, chunks);
      std::vector<StorageId> partials;
      for (DType dtype : split.partial_types)
        partials.push_back(Temporary(split.partial_count * std::max(BytesOf(dtype), 1)));
      const auto resolve = [&](const std::vector<uint32_t>& refs) {
        std::vector<StorageId> resolved;
        for (uint32_t r : refs) resolved.push_back(r < buffers.size() ? buffers[r] : partials[~0u - r]);
        return resolved;
      };
      AddLoop(std::make_shared<const LoopKernel>(std::move(split.first)), resolve(split.first_buffers));
      AddLoop(std::make_shared<const LoopKernel>(std::move(split.second)), resolve(split.second_buffers));
      return;
    }
  }
  AddLoop(std::move(kernel), buffers);
}

bool Lowering::IsArgumentReadOnce(const Value& value) const {
  const ir::Function& main = module_.main();
  int64_t reads = std::ranges::count(main.results(), value);
  for (const Node* node : main.nodes()) reads += std::ranges::count(node->operands(), value);
  return reads == 1 && std::ranges::count(main.parameters(), value) == 1;
}

StorageId Lowering::Transposed(const Value& value, const ir::Ints& permutation) {
  return Permuted(Of(value), value.dtype(), value.dims(), permutation);
}

StorageId Lowering::Permuted(StorageId from, DType dtype, const Dims& dims, const ir::Ints& permutation) {
  bool identity = true;
  for (size_t i = 0; i < permutation.size(); ++i) identity = identity && permutation[i] == static_cast<int64_t>(i);
  if (identity) return from;
  const Dims strides = StridesOf(dims);
  Dims sizes, from_strides;
  for (int64_t d : permutation) {
    sizes.push_back(dims[d]);
    from_strides.push_back(strides[d]);
  }
  const StorageId result = Temporary(CountOf(dims) * BytesOf(dtype));
  LoopKernel kernel = BoxKernel(dtype, sizes, {from, 0, from_strides}, {result, 0, StridesOf(sizes)});
  if (!Turn(kernel, from, result)) Loop(std::move(kernel), {from, result});
  return result;
}

bool Lowering::Turn(const LoopKernel& kernel, StorageId from, StorageId to) {
  constexpr int64_t kLeastBytes = 16 << 10;
  if (kernel.reduces() || kernel.buffers != 2 || kernel.loads.size() != 1 || kernel.stores.size() != 1) return false;
  const Access &load = kernel.loads[0], &store = kernel.stores[0].access;
  const int64_t bytes = BytesOf(load.dtype);
  if (kernel.exprs.size() != 1 || load.dtype != store.dtype || kernel.ParallelCount() * bytes < kLeastBytes)
    return false;
  TransposeCall call;
  call.bytes = bytes;
  call.from_offset = load.offset;
  call.to_offset = store.offset;
  bool reads = false, writes = false;
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    const TransposeCall::Along along = {kernel.dims[d].size, load.strides[d], store.strides[d]};
    const bool runs = along.from == 1 && along.to > 1, fills = along.to == 1 && along.from > 1;
    if ((runs && reads) || (fills && writes)) return false;
    if (!runs && !fills) call.others.push_back(along);
    if (runs) call.reads = along;
    if (fills) call.writes = along;
    reads = reads || runs;
    writes = writes || fills;
  }
  if (!reads || !writes) return false;
  Host("transpose", {from}, {to}, EncodeTranspose(call), 1e3 + 100.0 * bytes * kernel.ParallelCount());
  return true;
}

void Lowering::CopyBox(DType dtype, const Dims& sizes, const Layout& from, const Layout& to) {
  Loop(BoxKernel(dtype, sizes, from, to), {from.storage, to.storage});
}

LoopKernel Lowering::BoxKernel(DType dtype, const Dims& sizes, const Layout& from, const Layout& to) {
  LoopKernel kernel;
  LoopBuilder builder(kernel);
  for (int64_t size : sizes) kernel.dims.push_back(Dim{size, false});
  // Bits move as integers of their width, so that NaNs keep theirs and types share code.
  const DType moved = BytesOf(dtype) == 1   ? DType::kU8
                      : BytesOf(dtype) == 2 ? DType::kU16
                      : BytesOf(dtype) == 4 ? DType::kU32
                                            : DType::kU64;
  const ir::ScalarValue x = builder.Load(Access{0, moved, from.offset, {from.strides.begin(), from.strides.end()}});
  kernel.stores.push_back(Store{Access{1, moved, to.offset, {to.strides.begin(), to.strides.end()}}, x.id, false, 0});
  kernel.buffers = 2;
  Finish(kernel);
  return kernel;
}

StorageId Lowering::Converted(StorageId from, DType from_type, DType to_type, int64_t count) {
  LoopKernel kernel;
  LoopBuilder builder(kernel);
  kernel.dims.push_back(Dim{count, false});
  const ir::ScalarValue x = builder.Convert(builder.Load(Access{0, from_type, 0, {1}}), to_type);
  kernel.stores.push_back(Store{Access{1, to_type, 0, {1}}, x.id, false, 0});
  kernel.buffers = 2;
  Finish(kernel);
  const StorageId result = Temporary(count * BytesOf(to_type));
  Loop(std::move(kernel), {from, result});
  return result;
}

absl::StatusOr<SharedKernel> Lowering::KernelOf(const Node& node) {
  const auto known = kernel_of_.find(&node);
  if (known != kernel_of_.end()) return known->second.kernel;
  const bool fusion = &node.op() == &ops::kOp_fusion;
  absl::StatusOr<LoopKernel> lowered = LowerRegion(fusion ? *node.regions()[0] : *RegionOf(node));
  KernelOfNode& made = kernel_of_[&node];
  made.node = Ref<const Node>::Share(&node);
  if (lowered.ok()) {
    made.kernel = std::make_shared<const LoopKernel>(*std::move(lowered));
  } else {
    made.kernel = lowered.status();
  }
  return made.kernel;
}

absl::Status Lowering::LowerFusion(const Node& node) {
  const ir::Function& region = *node.regions()[0];
  std::vector<StorageId> buffers;
  for (const Value& operand : node.operands()) buffers.push_back(Of(operand));
  absl::StatusOr<SharedKernel> kernel = KernelOf(node);
  if (kernel.ok()) {
    for (uint32_t r = 0; r < node.results().size(); ++r)
      buffers.push_back(Define(Value{Ref<const Node>::Share(&node), r}));
    if (buffers.size() == 2 && Turn(**kernel, buffers[0], buffers[1])) return absl::OkStatus();
    Loop(*std::move(kernel), buffers);
    return absl::OkStatus();
  }
  if (region.nodes().size() <= region.parameters().size() + 1) return kernel.status();
  // Not one kernel after all: its nodes one by one.
  for (size_t i = 0; i < region.parameters().size(); ++i) Alias(region.parameters()[i], buffers[i]);
  for (size_t i = region.parameters().size(); i < region.nodes().size(); ++i) {
    const Node& inner = *region.nodes()[i];
    WEFT_RETURN_IF_ERROR(LowerNode(inner));
  }
  for (uint32_t r = 0; r < node.results().size(); ++r) {
    Alias(Value{Ref<const Node>::Share(&node), r}, Of(region.results()[r]));
  }
  return absl::OkStatus();
}

absl::Status Lowering::LowerNode(const Node& node) {
  if (views_.LeavesOut(node)) return absl::OkStatus();
  origins_ = OriginsOf(node);
  const Value self{Ref<const Node>::Share(&node), 0};
  const ir::OpDef& op = node.op();
  absl::Status status;
  if (&op == &ops::kOp_fusion) {
    status = LowerFusion(node);
  } else if (op.alias) {
    Alias(self, Of(node.operands()[0]));
  } else if (&op == &ops::kOp_constant) {
    Alias(self, Constant(ops::ConstantAttrs{node.attrs()}.value()));
  } else if (LowerRule rule = FindLowerRule(op); rule != nullptr) {
    status = rule(*this, node);
  } else if (IsLoopNode(node)) {
    absl::StatusOr<SharedKernel> kernel = KernelOf(node);
    if (kernel.ok()) {
      std::vector<StorageId> buffers;
      for (const Value& operand : node.operands()) buffers.push_back(Of(operand));
      buffers.push_back(Define(self));
      Loop(*std::move(kernel), buffers);
    } else {
      status = kernel.status();
    }
  } else {
    status = UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend cannot run ", op.name, " yet");
  }
  if (status.ok()) return status;
  std::string where = ir::ToString(node.location());
  return absl::Status(status.code(), absl::StrCat(status.message(), where.empty() ? "" : " (recorded at ", where,
                                                  where.empty() ? "" : ")"));
}

std::vector<uint32_t> Lowering::OriginsOf(const Node& node) {
  std::vector<uint32_t> origins;
  const auto add = [&](const Node& from) {
    if (from.op().parameter || &from.op() == &ops::kOp_constant) return;
    const ir::Location at = from.location();
    auto [it, fresh] = origin_of_.try_emplace({&from.op(), uint64_t{at.file} << 32 | at.line},
                                              static_cast<uint32_t>(out_.program.origins.size()));
    if (fresh) out_.program.origins.push_back({std::string(from.op().name), ir::ToString(at)});
    if (std::find(origins.begin(), origins.end(), it->second) == origins.end()) origins.push_back(it->second);
  };
  const bool fusion = &node.op() == &ops::kOp_fusion;
  if (!fusion) add(node);
  for (const Ref<const ir::Function>& region : node.regions()) {
    if (!fusion) break;  // other regions' nodes become entries of their own
    for (const Node* inner : region->nodes()) add(*inner);
  }
  return origins;
}

absl::StatusOr<std::vector<StorageId>> Lowering::Body(const ir::Function& function,
                                                      std::span<const StorageId> arguments) {
  views_.Find(function, ReadsOf);
  for (size_t i = 0; i < arguments.size(); ++i) Alias(function.parameters()[i], arguments[i]);
  // Updates wait until somebody needs them: what else reads the old value comes first, and they can be made in its place.
  std::vector<const Node*> updates;
  absl::flat_hash_map<const Node*, size_t> place;
  size_t done = 0;
  const auto catch_up = [&](size_t until) -> absl::Status {
    while (done < until) WEFT_RETURN_IF_ERROR(LowerNode(*updates[done++]));
    return absl::OkStatus();
  };
  for (const Node* node : function.nodes()) {
    if (node->op().parameter) continue;
    if (IsUpdate(node->op())) {
      place.emplace(node, updates.size());
      updates.push_back(node);
      continue;
    }
    for (const Value& operand : node->operands()) {
      const auto update = place.find(operand.node.get());
      if (update != place.end()) WEFT_RETURN_IF_ERROR(catch_up(update->second + 1));
    }
    WEFT_RETURN_IF_ERROR(LowerNode(*node));
  }
  WEFT_RETURN_IF_ERROR(catch_up(updates.size()));
  std::vector<StorageId> results;
  for (const Value& result : function.results()) results.push_back(Of(result));
  return results;
}

absl::StatusOr<LoweredModule> Lowering::Run() {
  WEFT_RETURN_IF_ERROR(BindParameters());
  views_.Find(module_.main(), ReadsOf);
  for (const Node* node : module_.main().nodes()) {
    if (node->op().parameter) continue;
    WEFT_RETURN_IF_ERROR(LowerNode(*node));
  }
  return Plan();
}

absl::Status Lowering::BindParameters() {
  const ir::Function& main = module_.main();
  Program& program = out_.program;
  program.words = module_.argument_words;
  for (size_t i = 0; i < main.parameters().size(); ++i) {
    const Value& p = main.parameters()[i];
    const ir::ParameterInfo& info = main.parameter_infos()[i];
    if (!p.type().is_tensor())
      return UserErrorOf(absl::StatusCode::kUnimplemented, "the CPU backend takes tensors as arguments only");
    const StorageId s = Define(p);
    if (info.role == ir::ParameterInfo::Role::kWords) {
      storages_[s].place = BufferRef::Place::kWords;
      storages_[s].offset = int64_t{info.word} * 4;
      if (p.type().count() != 1 && BytesOf(p.dtype()) < 4) {
        return UserErrorOf(absl::StatusCode::kUnimplemented, "an argument block entry of several ", NameOf(p.dtype()));
      }
    } else {
      storages_[s].place = BufferRef::Place::kArgument;
      storages_[s].index = static_cast<uint32_t>(program.arguments.size());
      program.arguments.push_back(ValueSpec{p.dtype(), p.dims()});
    }
  }
  return absl::OkStatus();
}

Lowering::Uses Lowering::CountUses() {
  constexpr int kMany = 1 << 20;
  Uses uses;
  for (const Drafts& list : lists_) {
    for (const Draft& draft : list) {
      for (const StorageId s : draft.storages) ++uses[s];
      for (const Carry& carry : draft.carries) uses[carry.now] = uses[carry.next] = kMany;
    }
  }
  for (const ir::Value& result : module_.main().results()) uses[Of(result)] = kMany;
  return uses;
}

absl::StatusOr<LoweredModule> Lowering::Plan() {
  Program& program = out_.program;
  DropLost();
  PackOutside();
  JoinSums();
  JoinRows();
  for (Drafts& list : lists_) {
    FuseEpilogues(list);
    PlanLoops(list);
  }
  FindParents();
  PlanCarries();
  origins_.clear();
  BindResults();
  Lifetimes();
  AssignDonors();
  for (int list = 0; list < static_cast<int>(lists_.size()); ++list) ShareInPlace(list);
  AssignOffsets();
  // Copies of what lies where it is wanted.
  for (Drafts& list : lists_) {
    std::erase_if(list, [&](const Draft& d) { return d.copy && Root(d.storages[0]) == Root(d.storages[1]); });
  }
  PlanCosts();
  program.lists.clear();
  for (Drafts& list : lists_) {
    EntryList& entries = program.lists.emplace_back();
    for (Draft& draft : list) {
      for (StorageId s : draft.storages) {
        const Storage& storage = storages_[Root(s)];
        const bool placed = storage.place != BufferRef::Place::kCarried;  // which lie where the program says
        draft.entry.buffers.push_back(BufferRef{storage.place, storage.index, placed ? storage.offset : 0});
      }
      entries.push_back(std::move(draft.entry));
    }
  }
  DropEarlyDonors();
  return std::move(out_);
}

void Lowering::BindResults() {
  for (const Value& result : module_.main().results()) {
    const auto r = static_cast<uint32_t>(out_.program.results.size());
    out_.program.results.push_back(ValueSpec{result.dtype(), result.dims()});
    const StorageId s = Root(Of(result));
    if (storages_[s].place == BufferRef::Place::kArena) {
      storages_[s].place = BufferRef::Place::kResult;
      storages_[s].index = r;
      continue;
    }
    // An argument, a literal or another result handed out again.
    const StorageId copy = Temporary(result.type().bytes());
    storages_[copy].place = BufferRef::Place::kResult;
    storages_[copy].index = r;
    Copy(result.type().bytes(), s, copy);
  }
}

}  // namespace weft::cpu
