// Creation, iterative destruction and positions of nodes.
#include "src/ir/node.h"

#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "src/ir/differentiable.h"
#include "src/ir/function.h"
#include "src/runtime/fork.h"
#include "src/runtime/lasting.h"
#include "src/runtime/mutex.h"

namespace weft::ir {
namespace {

// Process-wide and never torn down: positions outlive contexts in error texts. Bounded by the number of source files.
struct FileTable {
  Mutex mutex;
  std::unordered_map<std::string, uint32_t> index ABSL_GUARDED_BY(mutex);
  std::vector<const std::string*> names ABSL_GUARDED_BY(mutex);

  void HoldOverFork() { weft::HoldOverFork(mutex, ForkOrder::kThen); }
};
constinit Lasting<FileTable> g_files;
FileTable& Files() { return g_files.Get(); }

std::atomic<uint64_t> next_id{1};

}  // namespace

uint32_t InternFile(std::string_view file) {
  if (file.empty()) return 0;
  FileTable& table = Files();
  MutexLock lock(table.mutex);
  std::string name(file);
  if (const auto known = table.index.find(name); known != table.index.end()) return known->second;
  table.names.push_back(nullptr);
  try {
    table.names.back() = &table.index.try_emplace(std::move(name), table.names.size()).first->first;
  } catch (...) {
    table.names.pop_back();
    throw;
  }
  return static_cast<uint32_t>(table.names.size());
}

std::string ToString(Location location) {
  if (location.file == 0) return "";
  FileTable& table = Files();
  MutexLock lock(table.mutex);
  return absl::StrCat(*table.names[location.file - 1], ":", location.line);
}

static_assert(sizeof(Node) <= 256, "recording is mostly the making of nodes: four cache lines");

Node::Node() = default;
Node::~Node() = default;

std::span<const Ref<const Function>> Node::regions() const {
  return regions_ == nullptr ? std::span<const Ref<const Function>>() : regions_->functions;
}

Ref<const Node> Node::Create(const OpDef& op, Values operands, Attrs attrs, Types results,
                             std::unique_ptr<const Regions> regions, Location location,
                             std::unique_ptr<const NodeExtras> extras) {
  Node* node = new Node();
  node->op_ = &op;
  node->id_ = next_id.fetch_add(1, std::memory_order_relaxed);
  for (const Value& operand : operands) {
    if (!operand) continue;
    ++operand.node->users_;
    if (operand.node->needs_gradient()) node->needs_gradient_ = true;
  }
  // Integers and truth values carry no gradient on.
  if (node->needs_gradient_ && !results.empty()) {
    bool flows = false;
    for (const Type& type : results) flows = flows || !type.is_tensor() || CarriesGradient(type.dtype);
    node->needs_gradient_ = flows;
  }
  node->operands_ = std::move(operands);
  node->attrs_ = std::move(attrs);
  node->results_ = std::move(results);
  node->regions_ = std::move(regions);
  node->location_ = location;
  node->extras_ = std::move(extras);
  return Ref<const Node>(node);
}

void Node::ForgetOperands() const {
  Values gone;
  gone.swap(operands_);
  for (const Value& operand : gone) {
    if (operand) --operand.node->users_;
  }
}

void Node::Destroy(const Node* node) {
  // The list is threaded through next_dead_, so that destruction needs neither stack nor heap.
  const Node* dead = node;
  dead->next_dead_ = nullptr;
  while (dead != nullptr) {
    Node* current = const_cast<Node*>(dead);
    dead = current->next_dead_;
    for (Value& operand : current->operands_) {
      const Node* child = operand.node.Release();
      if (child == nullptr) continue;
      --child->users_;
      if (child->DropRef()) {
        child->next_dead_ = dead;
        dead = child;
      }
    }
    delete current;
  }
}

}  // namespace weft::ir
