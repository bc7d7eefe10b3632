// The tree behind weft_tree: structure from serialization, values beside it.
#pragma once

#include <atomic>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "serialization/tree.h"
#include "src/c_api/context.h"
#include "src/runtime/mutex.h"

namespace weft::c_api {

// Thread rule: one thread at a time while it changes.
class TensorTree {
 public:
  Tree tree;
  std::vector<Ref<lazy::Tensor>> values;  // of leaf i of tree.tensors(); null in a checkpoint's structure

  absl::StatusOr<Tree::NodeId> AddTensor(Tree::NodeId parent, std::string_view key, Ref<lazy::Tensor> tensor);
  // Checks that every tensor has a value; FAILED_PRECONDITION names the first without.
  absl::Status HasValues() const;
  // The size of the values; a tensor that stands there twice counts twice.
  uint64_t Bytes() const;
  // The tree with a tensor's second and further places as aliases of the first, and the positions in `values` of its leaves.
  absl::StatusOr<std::pair<Tree, std::vector<uint32_t>>> Tied() const;
  // Everything of another tree, as one child.
  absl::StatusOr<Tree::NodeId> AddTree(Tree::NodeId parent, std::string_view key, const TensorTree& other);
  // The node, through an alias; OUT_OF_RANGE if there is none of that number.
  absl::StatusOr<const Tree::Node*> Node(Tree::NodeId id) const;
  // The tensor of a node.
  absl::StatusOr<Ref<lazy::Tensor>> Tensor(Tree::NodeId id) const;

 private:
  absl::Status NoValue(Tree::NodeId id) const;
};

// Thread rule: any thread; one after the other.
class TreeObject final : public RefCounted {
 public:
  TreeObject() = default;
  explicit TreeObject(TensorTree tree) : tree_(std::move(tree)) { Noted(); }

  // Runs `use`, which gives a status or has one if it fails, on the tree, alone. It may not call the engine, which may call
  // back, nor use another tree.
  template <typename F>
  auto With(F&& use) -> decltype(use(std::declval<TensorTree&>())) {
    WEFT_RETURN_IF_ERROR(Lock());
    const absl::Cleanup unlock = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { Noted(), mutex_.Unlock(); };
    return Use(use);
  }
  absl::StatusOr<TensorTree> Copy() {
    return With([](const TensorTree& tree) -> absl::StatusOr<TensorTree> { return tree; });
  }
  // Returns the guard of the context of its first tensors; null while it has none.
  const ForkGuard* fork() const { return fork_.load(std::memory_order_acquire); }

 private:
  // In the child of a fork, a tree without tensors can still be used: but not one that a thread of the parent's was using.
  absl::Status Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (process_.load(std::memory_order_relaxed) == ForkGeneration()) {
      mutex_.Lock();
    } else if (!mutex_.TryLock()) {
      return UserErrorOf(absl::StatusCode::kFailedPrecondition,
                         "tree was in use when the process forked; make a new one in the child");
    }
    process_.store(ForkGeneration(), std::memory_order_relaxed);
    return absl::OkStatus();
  }
  template <typename F>
  auto Use(F& use) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return use(tree_);
  }
  void Noted() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (; engine_ == nullptr && noted_ < tree_.values.size(); ++noted_) {
      const Ref<lazy::Tensor>& value = tree_.values[noted_];
      if (value == nullptr) continue;
      engine_ = Ref<lazy::Engine>::Share(&value->engine());
      fork_.store(&engine_->services().fork(), std::memory_order_release);
    }
  }

  Mutex mutex_;
  TensorTree tree_ ABSL_GUARDED_BY(mutex_);
  Ref<lazy::Engine> engine_ ABSL_GUARDED_BY(mutex_);  // stays, so that its guard does
  size_t noted_ ABSL_GUARDED_BY(mutex_) = 0;          // values looked at
  std::atomic<const ForkGuard*> fork_{nullptr};
  std::atomic<uint64_t> process_{ForkGeneration()};  // in which nobody can have left it locked
};
template <>
struct HandleTraits<weft_tree> {
  using Object = TreeObject;
  static constexpr HandleType kType = HandleType::kTree;
  static const ForkGuard* ForkOf(const TreeObject& object) { return object.fork(); }
};

}  // namespace weft::c_api
