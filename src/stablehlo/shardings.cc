// See shardings.h. Shardings are read from their texts: #sdy.sharding<@mesh, [{"x"}, {"y", ?}]>, in lists without the name in front.
#include "src/stablehlo/shardings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/ops/build.h"
#include "src/ops/registry.h"

namespace weft::stablehlo {
namespace {

using ir::Mesh;
using ir::Sharding;
using ir::Value;
using ir::Values;

// One text from left to right; what is not there is not taken.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}
  bool Take(char c) {
    Skip();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  // Behind the next such character, wherever it is.
  bool Find(char c) {
    const size_t at = rest_.find(c);
    if (at == rest_.npos) return false;
    rest_.remove_prefix(at + 1);
    return true;
  }
  std::optional<std::string_view> Quoted() {
    if (!Take('"')) return std::nullopt;
    return Until(rest_.find('"'), 1);
  }
  std::string_view Digits() {
    Skip();
    return *Until(std::min(rest_.find_first_not_of("0123456789"), rest_.size()), 0);
  }
  // A name behind '@', in quotes or not.
  std::string_view Symbol() {
    if (const auto quoted = Quoted()) return *quoted;
    return *Until(std::min(rest_.find_first_of(" ,>"), rest_.size()), 0);
  }
  // Returns the text from '<' to the '>' that closes it, both with it.
  std::optional<std::string_view> Angles() {
    Skip();
    int open = 0;
    for (size_t i = 0; i < rest_.size(); ++i) {
      open += rest_[i] == '<' ? 1 : rest_[i] == '>' ? -1 : 0;
      if (open == 0) return i == 0 ? std::nullopt : Until(i + 1, 0);
    }
    return std::nullopt;
  }

 private:
  void Skip() { rest_ = absl::StripLeadingAsciiWhitespace(rest_); }
  std::optional<std::string_view> Until(size_t end, size_t behind) {
    if (end > rest_.size()) return std::nullopt;
    const std::string_view taken = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + behind, rest_.size()));
    return taken;
  }
  std::string_view rest_;
};

absl::Status Unclear(std::string_view text, std::string_view why) {
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the sharding ", text, " ", why);
}

// A dimension's axes: {"x", "y"}, {?}, {"x", ?}p1. The brace has been taken.
absl::StatusOr<Sharding::Dimension> Dimension(Words& words, const Mesh& mesh, std::string_view text) {
  Sharding::Dimension dimension;
  for (bool first = true; !words.Take('}'); first = false) {
    if (!first && !words.Take(',')) return Unclear(text, "is not of axes joined by commas");
    if (words.Take('?')) {
      dimension.open = true;
      continue;
    }
    const std::optional<std::string_view> name = words.Quoted();
    if (!name) return Unclear(text, "has something else than the name of an axis");
    if (words.Take(':')) return Unclear(text, "cuts along a part of an axis");
    const auto found = std::ranges::find(mesh.axes, *name, &Mesh::Axis::name);
    if (found == mesh.axes.end())
      return UserError("the sharding ", text, " names the axis '", *name, "'; the mesh is ", ir::ToString(mesh));
    dimension.axes.push_back(static_cast<uint32_t>(found - mesh.axes.begin()));
  }
  if (words.Take('p')) words.Digits();  // of its priority
  return dimension;
}

bool IsFree(const Sharding& sharding) {
  return std::ranges::all_of(sharding.dimensions,
                             [](const Sharding::Dimension& d) { return d.axes.empty() && d.open; });
}

// A value that is cut says of every dimension how; a dimension that a text leaves open is whole then.
std::string Spec(const Mesh& mesh, Sharding sharding, size_t rank) {
  for (Sharding::Dimension& dimension : sharding.dimensions) dimension.open = false;
  return ir::ToString(mesh, sharding, rank);
}

Sharding Open(const ir::Type& type) {
  Sharding open;
  open.dimensions.assign(type.is_tensor() ? type.rank() : 0, {.axes = {}, .open = true});
  return open;
}

}  // namespace

std::string TextShardings::TextOf(ir::StableHloOp& op, std::string_view attribute) const {
  const ir::ShloAttr* const found = op.Find(attribute);
  return found == nullptr ? "" : parser_.TextOf(*found);
}

absl::Status TextShardings::AddMesh(const Operation& op) {
  const ir::ShloAttr *const name = op.Find("sym_name"), *const said = op.Find("mesh");
  if (name == nullptr || said == nullptr) return UserError("a mesh has a name and axes");
  const std::string text = parser_.TextOf(*said);
  Words words(text);
  Mesh mesh;
  if (!words.Find('[')) return UserError("the mesh ", text, " has no list of axes");
  for (bool first = true; !words.Take(']'); first = false) {
    const bool next = first || words.Take(',');
    const std::optional<std::string_view> axis = next ? words.Quoted() : std::nullopt;
    int64_t size = 0;
    if (!axis || !words.Take('=') || !absl::SimpleAtoi(words.Digits(), &size)) {
      return UserError("the mesh ", text, " has an axis that is no name, '=' and size");
    }
    mesh.axes.push_back({std::string(*axis), size});
  }
  if (mesh.none()) {
    empty_.push_back(name->string);
    return absl::OkStatus();
  }
  if (words.Find('[')) {  // device_ids=[…]
    while (!words.Take(']')) {
      uint32_t slot = 0;
      if (!absl::SimpleAtoi(words.Digits(), &slot))
        return UserError("the mesh ", text, " has a device that is no number");
      mesh.slots.push_back(slot);
      words.Take(',');
    }
  }
  WEFT_RETURN_IF_ERROR(ir::Check(mesh));
  if (mesh_.none()) mesh_ = mesh;
  if (mesh_ == mesh) return absl::OkStatus();
  return UserErrorOf(absl::StatusCode::kUnimplemented, "the text has two meshes, ", ir::ToString(mesh_), " and ",
                     ir::ToString(mesh), "; one is supported");
}

absl::StatusOr<Sharding> TextShardings::Parse(std::string_view text) const {
  Words words(text);
  if (!words.Find('<')) return Unclear(text, "cannot be read");
  if (!words.Take('@')) return Unclear(text, "has a mesh of its own");
  const std::string_view name = words.Symbol();
  if (std::ranges::find(empty_, name) != empty_.end()) return Sharding();
  Sharding sharding;
  if (!words.Find('[')) return Unclear(text, "has no list of dimensions");
  for (bool first = true; !words.Take(']'); first = false) {
    if ((!first && !words.Take(',')) || !words.Take('{')) return Unclear(text, "has a dimension without braces");
    WEFT_ASSIGN_OR_RETURN(sharding.dimensions.emplace_back(), Dimension(words, mesh_, text));
  }
  return sharding;
}

absl::Status TextShardings::Entry(const Operation& function, ir::Participants* who) const {
  if (mesh_.none()) return absl::OkStatus();
  const auto sharding_of = [&](const ir::ShloAttr::Fields& attributes,
                               const TypeText& type) -> absl::StatusOr<Sharding> {
    for (const auto& [name, value] : attributes) {
      if (name != "sdy.sharding") continue;
      WEFT_ASSIGN_OR_RETURN(Sharding sharding, Parse(parser_.TextOf(value)));
      WEFT_RETURN_IF_ERROR(ir::Check(mesh_, sharding, type.type, "a value of the entry"));
      return sharding;
    }
    return Open(type.type);
  };
  const auto listed = [](const ir::ShloAttr* all, size_t i) {
    return all != nullptr && i < all->list.size() ? all->list[i].fields : ir::ShloAttr::Fields();
  };
  const ir::ShloAttr *const of_arguments = function.Find("arg_attrs"), *const of_results = function.Find("res_attrs");
  ir::Participants found = *who;
  found.mesh = mesh_;
  const std::vector<Argument>& arguments = function.regions[0].arguments;
  bool tensors = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    tensors = tensors && arguments[i].type.type.is_tensor();
    const bool generic = of_arguments != nullptr;
    WEFT_ASSIGN_OR_RETURN(found.parameters.emplace_back(),
                          sharding_of(generic ? listed(of_arguments, i) : arguments[i].attributes, arguments[i].type));
  }
  for (size_t i = 0; i < function.result_types.size(); ++i) {
    tensors = tensors && function.result_types[i].type.is_tensor();
    WEFT_ASSIGN_OR_RETURN(found.results.emplace_back(), sharding_of(listed(of_results, i), function.result_types[i]));
  }
  if (!tensors)
    return UserErrorOf(absl::StatusCode::kUnimplemented, "an entry on a mesh takes and gives tensors alone");
  *who = std::move(found);
  return absl::OkStatus();
}

absl::StatusOr<Values> TextShardings::Constraint(ir::StableHloOp& op) const {
  if (op.operands.size() != 1) return UserError(op.operands.size(), " operands; 1 is expected");
  WEFT_ASSIGN_OR_RETURN(const Sharding sharding, Parse(TextOf(op, "sharding")));
  const Value& x = op.operands[0];
  WEFT_RETURN_IF_ERROR(ir::Check(mesh_, sharding, x.type(), "the operand"));
  if (IsFree(sharding) && !sharding.dimensions.empty()) return op.operands;
  return Values{ops::Call(op.b, ops::kOp_shard, {x}, {Spec(mesh_, sharding, x.dims().size())})};
}

// [<@mesh, [{"x"}]>, <@mesh, [{}]>] as Weft writes it, a text for each value.
absl::StatusOr<std::string> TextShardings::Specs(std::string_view list, std::span<const ir::Type> types) const {
  Words words(list);
  std::string specs;
  if (!words.Find('[')) return UserError("in_shardings and out_shardings are lists");
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0 && !words.Take(','))
      return UserError("the list ", list, " is for ", i, " values; there are ", types.size());
    const std::optional<std::string_view> text = words.Angles();
    if (!text) return UserError("the list ", list, " has something else than shardings");
    WEFT_ASSIGN_OR_RETURN(const Sharding sharding, Parse(*text));
    absl::StrAppend(&specs, i == 0 ? "" : ";", Spec(mesh_, sharding, types[i].rank()));
  }
  return specs;
}

absl::StatusOr<Values> TextShardings::Manual(ir::StableHloOp& op) const {
  const std::string in_list = TextOf(op, "in_shardings"), out_list = TextOf(op, "out_shardings"),
                    axes = TextOf(op, "manual_axes");
  Words words(axes);
  size_t manual = 0;
  if (words.Find('{')) {
    while (words.Quoted().has_value()) manual += 1, words.Take(',');
  }
  if (manual != mesh_.axes.size()) {
    return UserErrorOf(absl::StatusCode::kUnimplemented, "manual_axes names ", manual, " axes of the mesh ",
                       ir::ToString(mesh_), "; all must be manual");
  }
  if (!mesh_.in_order())
    return UserErrorOf(absl::StatusCode::kUnimplemented, "the mesh ", ir::ToString(mesh_),
                       " has its devices in another order");
  if (op.regions.size() != 1) return UserError("one region is expected");
  if (op.regions[0].draws)
    return UserErrorOf(absl::StatusCode::kUnimplemented, "each device would draw the same random numbers");
  std::vector<ir::Type> types;
  for (const Value& operand : op.operands) types.push_back(operand.type());
  WEFT_ASSIGN_OR_RETURN(const std::string in, Specs(in_list, types));
  WEFT_ASSIGN_OR_RETURN(const std::string out, Specs(out_list, op.results));
  return ops::CallAll(op.b, ops::kOp_per_device, op.OperandsAndCaptures(), {ir::ToString(mesh_), in, out},
                      op.Functions());
}

std::optional<Values> TextShardings::Read(ir::StableHloOp& op) const {
  const bool constrains = op.name == "sdy.sharding_constraint";
  if (mesh_.none() || (!constrains && op.name != "sdy.manual_computation")) return std::nullopt;
  absl::StatusOr<Values> results = constrains ? Constraint(op) : Manual(op);
  if (results.ok()) return *std::move(results);
  op.b.Fail(results.status());
  return Values();
}

}  // namespace weft::stablehlo
