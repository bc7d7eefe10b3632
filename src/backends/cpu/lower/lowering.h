// Lowers a fused module to a tree of launch lists: values get storages, nodes become entries, storages get places.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "src/backends/cpu/launch/program.h"
#include "src/backends/cpu/loop/codegen.h"
#include "src/backends/cpu/loop/loop.h"
#include "src/backends/cpu/lower/views.h"
#include "src/ir/function.h"
#include "src/runtime/generated/program_options.h"

namespace weft::cpu {

// Nodes of a function that is called again have theirs again, so what is found out of one is looked up after that.
using SharedKernel = std::shared_ptr<const LoopKernel>;

// A program without code yet: the kernels whose code it wants, by Program::loops.
struct LoweredModule {
  Program program;
  std::deque<SharedKernel> loops;
};

absl::StatusOr<LoweredModule> LowerModule(const ir::Module& module, const CpuTarget& target,
                                          const ProgramOptions& options = {});

// Numbers the memory that a value lies in; several values may share one (a reshape and its operand).
using StorageId = int;

struct Storage {
  BufferRef::Place place = BufferRef::Place::kArena;
  uint32_t index = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
  int list = -1;              // the innermost that holds all its uses; the first for what is not the arena's
  int first = -1, last = -1;  // entries of that list, uses within a control being the control's: written, last used
  StorageId shares = -1;      // in place of another storage
  StorageId row_of = -1;      // of another storage a part, which an entry finds: of a carried place, and without memory
};

// Thread rule: one thread. Rules of operations (lower_ops.cc) see this much of the lowering.
class Lowering {
 public:
  Lowering(const ir::Module& module, const CpuTarget& target, const ProgramOptions& options)
      : module_(module), target_(target), options_(options) {}

  absl::StatusOr<LoweredModule> Run();
  // The steps of Run, for code that lowers by hand: parameters get storages, then entries are added, then results and
  // places are bound.
  absl::Status BindParameters();
  absl::StatusOr<LoweredModule> Plan();

  // Entries for one node whose operands have storages.
  absl::Status LowerNode(const ir::Node& node);

  const CpuTarget& target() const { return target_; }
  const ProgramOptions& options() const { return options_; }
  StorageId Of(const ir::Value& value) const;
  StorageId Define(const ir::Value& value);  // a new storage for a result
  void Alias(const ir::Value& value, StorageId storage);
  // The one result of an operation that takes strides (OpRule::reads), as it is to be written.
  View Written(const ir::Node& node) const { return views_.Written(node); }
  StorageId Temporary(int64_t bytes);
  // Returns a storage for a part of a stack, to be read where it is; -1 where the part may be overwritten meanwhile.
  StorageId RowOf(StorageId stack, int64_t bytes);
  StorageId Constant(const HostTensor& tensor);
  // Tells whether a value is the program's argument and one node alone reads it, once.
  bool IsArgumentReadOnce(const ir::Value& value) const;
  // The function's nodes, where `arguments` are its parameters; the storages of its results.
  absl::StatusOr<std::vector<StorageId>> Body(const ir::Function& function, std::span<const StorageId> arguments);
  void Copy(int64_t bytes, StorageId from, StorageId to);
  // An operand that its user does not read: loops that fill it for nobody else go.
  void Lose(StorageId storage) { lost_.push_back(storage); }
  // `buffers` as the kernel numbers them; which are written follows from its stores.
  void Loop(SharedKernel kernel, const std::vector<StorageId>& buffers);
  void Loop(LoopKernel kernel, const std::vector<StorageId>& buffers) {
    Loop(std::make_shared<const LoopKernel>(std::move(kernel)), buffers);
  }
  // `rows` x `columns`: the shape of the one written storage, if the kernel lets a loop follow on finished blocks of it. The
  // entry, until the next is added; it is taken to write all of `writes`.
  Entry& Host(std::string_view name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
              std::vector<int64_t> params, double cost, int64_t rows = 0, int64_t columns = 0);
  // Generated code that a kernel calls, whose dimensions are rows and columns: the kernel's epilogue without buffers of its own.
  struct Generated {
    LoopKernel kernel;
    std::vector<StorageId> captures;  // read by it alone
    StorageId space = -1;             // of the kernel's own; -1: none
  };
  // Buffers: what the kernel reads and writes, the body's captures, and its space.
  Entry& HostWith(std::string_view name, const std::vector<StorageId>& reads, const std::vector<StorageId>& writes,
                  std::vector<int64_t> params, double cost, Generated body);
  // Repeats the entries that `body` adds. A storage that a run reads before it writes has the value of the run before,
  // or the initial value written before the repeat. Runs find a carried value in `now`, where it was written before the
  // repeat, and leave the next one in `next`, any storage (it is asked for after `body`); in the end the value is in
  // `now`. The plan makes the two one where it can.
  struct Carry {
    StorageId now = -1, next = -1;
  };
  using Fill = absl::FunctionRef<absl::Status()>;
  Carry Carried(int64_t bytes);  // two that change places after each run
  absl::Status Repeat(int64_t trips, std::span<const Carry> carries, Fill body);
  // Repeats `body` as long as `condition` leaves a byte other than 0 in `flag`.
  absl::Status RepeatWhile(StorageId flag, std::span<const Carry> carries, Fill condition, Fill body,
                           bool ends = false);
  // Runs the case that the i32 in `index` counts, the last if there is none such.
  absl::Status Branch(StorageId index, int cases, absl::FunctionRef<absl::Status(int)> fill);
  // The value with its dimensions in another order, densely: a copy, or the value's own storage where nothing moves.
  StorageId Transposed(const ir::Value& value, const ir::Ints& permutation);
  StorageId Permuted(StorageId from, DType dtype, const Dims& dims, const ir::Ints& permutation);
  // Copies a box of `sizes` elements between two layouts; from_strides all 0 repeats one element.
  struct Layout {
    StorageId storage = -1;
    int64_t offset = 0;
    Dims strides;
  };
  void CopyBox(DType dtype, const Dims& sizes, const Layout& from, const Layout& to);
  static LoopKernel BoxKernel(DType dtype, const Dims& sizes, const Layout& from, const Layout& to);
  StorageId Converted(StorageId from, DType from_type, DType to, int64_t count);

 private:
  struct Draft {
    Entry entry;
    std::vector<StorageId> storages;
    std::vector<bool> written;
    // Pairs (read, written) of positions that may be one buffer.
    std::vector<std::pair<int, int>> in_place;
    SharedKernel loop;              // of a loop, or of a product's epilogue
    int64_t rows = 0, columns = 0;  // of a product whose result may have an epilogue
    int product = -1;               // position of a product's result once it has an epilogue
    int64_t parts = 1;              // of the result, which the epilogue reads side by side
    std::vector<int> lists;         // of a control
    std::vector<Carry> carries;     // of a repeat
    bool copy = false;              // of the whole of one storage to another
  };
  using Drafts = std::vector<Draft>;
  // The entry of another list that a list belongs to; of none.
  struct Parent {
    int list = -1, entry = -1;
  };

  // The storages that were made while a list was filled: from `first` to before `end`.
  struct OwnStorages {
    StorageId first = 0, end = 0;
  };

  // Remembers the kernel of a node. Each entry keeps the node that its key points to.
  struct KernelOfNode {
    Ref<const ir::Node> node;
    absl::StatusOr<SharedKernel> kernel;
  };
  struct BlockLoopOf {
    SharedKernel whole, block;  // no block: it is none
  };
  class OperandPacker;
  class SumJoiner;
  class RowJoiner;
  struct PlannedLoop {
    SharedKernel kernel;
    uint32_t code;
    LoopPlan plan;
  };

  absl::StatusOr<SharedKernel> KernelOf(const ir::Node& node);
  const SharedKernel& BlockLoop(const SharedKernel& kernel, int64_t rows, int64_t columns, uint32_t product);
  // A finished kernel that only turns a box round, as tiles of the library; false if it is something else.
  bool Turn(const LoopKernel& kernel, StorageId from, StorageId to);
  int64_t TasksOfRows(const LoopKernel& kernel) const;
  const PlannedLoop& Planned(const SharedKernel& kernel);
  absl::Status LowerFusion(const ir::Node& node);
  void AddLoop(SharedKernel kernel, const std::vector<StorageId>& buffers);
  void DropLost();
  void PackOutside();
  // Tells whether a small loop behind a product may as well run before it, so that what follows the product becomes its
  // epilogue.
  static bool RunsBefore(const Draft& loop, const Draft& product);
  bool FindsRow(const Draft& draft) const;
  // The last two of a list, products whose results the second's epilogue reads, as one entry, where they are alike.
  void JoinProducts(Drafts& drafts);
  // How many buffers of entries lie in each storage; results and what loops carry count as very many.
  using Uses = absl::flat_hash_map<StorageId, int>;
  Uses CountUses();
  // Products of runs that are added to what the runs carry, as one entry where they read the same factor.
  void JoinSums();
  // Scatters to zeros, and of gathered rows, as one entry.
  void JoinRows();
  uint32_t HostKernelOf(std::string_view name);
  // Tells whether a loop reads a small product's result in parts, and in how many (Epilogue::parts).
  bool ReadsParts(const Draft& product, const LoopKernel& loop, uint32_t buffer, int64_t* parts) const;
  void FuseEpilogues(Drafts& list);
  void PlanLoops(Drafts& list);
  void PlanCosts();
  void Add(Draft draft);
  absl::StatusOr<int> NewList(Fill fill);
  class CarryPlanner;
  class ChangingScope;

  void AddControl(Draft draft, int64_t trips, std::span<const Carry> carries);
  std::vector<uint32_t> OriginsOf(const ir::Node& node);
  static void AddOrigins(const Entry& from, Entry& to);
  bool IsOwn(int list, StorageId s) const;
  void MakeCarried(StorageId s);
  void PlanCarries();
  void WriteOutside(int list);
  void BindResults();
  void FindParents();
  void Use(StorageId storage, int list, int entry);
  void Lifetimes();
  void ConsumeProduct(int list, Draft& draft);
  void ShareInPlace(int list);
  void AssignDonors();
  void DropEarlyDonors();
  void AssignOffsets();
  StorageId Root(StorageId s) const;

  const ir::Module& module_;
  const CpuTarget& target_;
  const ProgramOptions& options_;
  LoweredModule out_;
  std::vector<Storage> storages_;
  std::vector<Drafts> lists_ = std::vector<Drafts>(1);  // parents before children
  std::vector<Parent> parents_;
  std::vector<OwnStorages> own_ = std::vector<OwnStorages>(1);  // by list
  std::vector<std::vector<StorageId>> rings_;                   // storages that change places
  std::vector<StorageId> lost_;
  std::vector<StorageId> changing_;  // what the repeats around carry
  int list_ = 0;                     // where entries go
  std::vector<uint32_t> origins_;    // of the node that is being lowered
  Views views_;
  absl::flat_hash_map<std::pair<const ir::Node*, uint32_t>, StorageId> of_;
  absl::flat_hash_map<const ir::Node*, KernelOfNode> kernel_of_;
  absl::flat_hash_map<std::tuple<const LoopKernel*, int64_t, int64_t, uint32_t>, BlockLoopOf> block_loop_of_;
  absl::flat_hash_map<const LoopKernel*, PlannedLoop> planned_;
  absl::flat_hash_map<std::string, uint32_t> loop_of_key_;
  absl::flat_hash_map<std::string, uint32_t> host_of_name_;
  absl::flat_hash_map<std::pair<const ir::OpDef*, uint64_t>, uint32_t> origin_of_;  // by operation and position
};

// The rule of an operation whose code is a kernel of this backend; null if there is none. A dozen: looked for one by one.
using LowerRule = absl::Status (*)(Lowering& lowering, const ir::Node& node);
LowerRule FindLowerRule(const ir::OpDef& op);
struct OpRule {
  const ir::OpDef* op;
  LowerRule rule;
  bool (*serves)(const ir::Node& node,
                 const CpuTarget& target) = nullptr;  // null: every node of a composite, rather than its expansion
  Views::Reads reads = nullptr;                       // null: operands and results are dense
  bool ends_sums = false;                             // what follows it alone is done where its sums are in registers
};
Views::Reads ReadsOf(const ir::OpDef& op);
// Tells whether what follows a node alone may be done where its sums are in registers (passes::FuseOptions).
bool EndsSums(const ir::Node& node);
// Tells whether a composite of this backend's code stays whole.
bool HasLowerRule(const ir::Node& node, const CpuTarget& target);
// One list a file.
#define WEFT_CPU_RULES(name) std::span<const OpRule> name##Rules();
#define WEFT_CPU_KERNELS(name)
#define WEFT_CPU_BOTH(name) WEFT_CPU_RULES(name)
#include "src/backends/cpu/launch/operations.list"
#undef WEFT_CPU_RULES
#undef WEFT_CPU_KERNELS
#undef WEFT_CPU_BOTH

// Storages in one arena so that no two that live at once overlap, large ones first. Returns the arena's size.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;  // inclusive
  int64_t offset = 0;       // out
};
int64_t PlanArena(std::vector<Lifetime>& lifetimes);

}  // namespace weft::cpu
