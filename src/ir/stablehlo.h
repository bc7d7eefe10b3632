// Modules as StableHLO text in generic form, for PJRT plugins and for the oracle outside. An operation whose StableHLO
// differs from `"stablehlo.<name>"` with the schema's attributes spells itself through this writer (OpDef::stablehlo).
#pragma once

#include <string>
#include <string_view>

#include "src/ir/function.h"
#include "src/ir/mesh.h"
#include "src/runtime/hash_map.h"
#include "src/runtime/status.h"

namespace weft::ir {

struct StableHloOptions {
  bool locations = false;
  std::string_view precision =
      "HIGHEST";  // of products and convolutions: HIGHEST, where f32 means f32, HIGH or DEFAULT
  // How values that were read lie on several devices, as the text said; where the module has a mesh, its own word counts.
  bool shardings = true;
};

// Composites must have been expanded: a name StableHLO does not know is an error that says which. Parameters in the
// argument block become ordinary scalar arguments. Linear and iterative but for regions.
absl::StatusOr<std::string> ToStableHlo(const Module& module, const StableHloOptions& options = {});

// Attribute texts. `Shlo` marks that the text is MLIR's, not the IR's own.
std::string ShloI64(int64_t value);                      // 3 : i64
std::string ShloBool(bool value);                        // true
std::string ShloArray(std::span<const int64_t> values);  // array<i64: 1, 2>
std::string ShloList(std::span<const int64_t> values);   // [1, 2]
std::string ShloPairs(std::span<const int64_t> low,
                      std::span<const int64_t> high);                 // dense<[[l, h], …]> : tensor<nx2xi64>
std::string ShloEnum(std::string_view kind, std::string_view value);  // #stablehlo<kind value>
std::string ShloDense(const HostTensor& value);                       // dense<…> : tensor<…>
std::string ShloText(std::string_view text);                          // "…", with MLIR's escapes: \0A
// #sdy.sharding<@mesh, [{"data"}, {}]>
std::string ShloSharding(const Mesh& mesh, const Sharding& sharding, size_t rank);

// "name = value" pairs in the order given.
using ShloAttrs = std::vector<std::pair<std::string, std::string>>;

// Thread rule: one thread; lives for one ToStableHlo.
class StableHloWriter {
 public:
  // The usual end of a spelling: one operation with the node's operands (absent ones left out) and results.
  // `name` without a dot gets "stablehlo." in front. `regions`: texts of Reducer, Body, joined by ", ".
  void Emit(std::string_view name, ShloAttrs attrs = {}, std::string_view regions = {});
  // The same on other operands, given as results of Name, Constant or Op.
  void EmitOn(std::string_view name, std::span<const std::string> operands, ShloAttrs attrs = {},
              std::string_view regions = {});

  // Operations beside the node's own: the value's name, for use as an operand.
  std::string Name(const Value& value) const;
  std::string Constant(const HostTensor& value);
  std::string Op(std::string_view name, std::span<const std::string> operands, const Type& result, ShloAttrs attrs = {},
                 std::string_view regions = {});
  // Makes an existing name the node's result (result 0 of a single-result node).
  void Alias(std::string name);

  // A region of two scalars of the dtype and one operation: what reduce and scatter combine with.
  std::string Reducer(std::string_view operation, DType dtype);
  // A region of two scalars that compares: what select_and_scatter selects by.
  std::string Comparer(std::string_view direction, DType dtype);
  // A region of the node's, printed. The last parameters are captures: values of around it, seen by the names that these have
  // there; the others are the region's arguments.
  std::string Body(const Function& function, std::span<const Value> captures = {},
                   std::string_view returns = "stablehlo.return");

  // The symbol, with @, of a function of the module, which is printed once, behind those that call it.
  std::string Symbol(const Function& function);

  void Fail(absl::Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Node& node() const { return *node_; }
  // Returns the processes that run the module.
  const Participants& participants() const { return *participants_; }
  // The handle of a channel that no operation of the module has.
  int64_t FreshChannel() { return ++channels_; }
  // Returns the precision config of a product of two operands, for devices that would rather round f32 to bf16: the
  // product's own, or the options' where it has none.
  std::pair<std::string, std::string> PrecisionConfig(std::string_view own) const;

 private:
  friend absl::StatusOr<std::string> ToStableHlo(const Module& module, const StableHloOptions& options);
  using Names = HashMap<const Node*, std::string>;

  explicit StableHloWriter(const StableHloOptions& options) : options_(options) {}

  std::string Fresh() { return absl::StrCat("%", next_++); }
  void PrintFunction(const Function& function, bool entry);
  // " sdy.sharding = …" of a value of the entry, behind the separator; nothing without a mesh.
  void PrintSharding(const std::vector<Sharding>& shardings, size_t i, const Type& type, const char** separator);
  void FindChannels(const Module& module);
  void PrintNodes(const Function& function);
  void PrintNode(const Node& node);
  void PrintDefault(const Node& node);
  void Line(std::string_view left, std::string_view name, std::span<const std::string> operands,
            std::span<const Type> results, const ShloAttrs& attrs, std::string_view regions);
  // Prints the attributes that the reader kept without understanding them, each behind the separator, which is a comma
  // from then on.
  void PrintExtras(const NodeExtras* extras, const char** separator);

  const StableHloOptions options_;
  absl::Status status_;
  std::string out_;
  int depth_ = 0;
  uint64_t next_ = 0;
  const Node* node_ = nullptr;
  Names names_;                       // of the function being printed
  HashMap<std::string, Type> types_;  // of every name in it
  HashMap<const Function*, std::string> symbols_;
  HashSet<std::string> taken_ = {"main"};
  std::vector<const Function*> called_;  // in order of first use
  const Participants* participants_ = nullptr;
  int64_t channels_ = 0;  // the highest handle so far
};

}  // namespace weft::ir
