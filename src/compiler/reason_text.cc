// Differences between programs in words: see reasons.h.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/compiler/canonical.h"
#include "src/compiler/reasons.h"
#include "src/ir/attr_text.h"
#include "src/ir/builder.h"
#include "src/ir/location.h"
#include "src/ops/registry.h"

namespace weft::compiler {
namespace {

constexpr std::string_view kNames[] = {"first",   "argument",   "constant", "attribute", "operations",
                                       "outputs", "taken_over", "pending",  "target",    "dropped"};
static_assert(std::size(kNames) == static_cast<size_t>(Reason::kCount));

constexpr std::string_view kHints[] = {
    "",
    "Pad to one shape, or to few, and mask the rest",
    "wf_mul_arg and its kin, or weft_tensor_scalar, would not compile: they take numbers at run time",
    "A value that changes would not compile as an operand",
    "Record the same operations in each step",
    "Release a tensor that is not wanted before the barrier",
    "A tensor that shows the value keeps its memory from being reused",
    "weft_sync after the parameters are made, before the first step, makes one program of both",
    "",
    "A larger program_memory would keep it"};
static_assert(std::size(kHints) == static_cast<size_t>(Reason::kCount));

// The nodes of a program that are told, read back from its canonical form.
class Spelled {
 public:
  Spelled(const Outline& outline, std::string_view canonical) : outline_(outline), canonical_(canonical) {}
  // Null where the bytes are not what they should be.
  Ref<const ir::Node> NodeAt(uint32_t node) const {
    if (node >= outline_.nodes.size()) return nullptr;
    const auto& [begin, end] = outline_.nodes[node].bytes;
    return begin < end && end <= canonical_.size() ? ReadNode(canonical_.substr(begin, end - begin)) : OfWhole(node);
  }
  std::string NameOf(uint32_t node) const {
    const Ref<const ir::Node> found = NodeAt(node);
    return found == nullptr ? "an operation" : std::string(found->op().c_name);
  }
  std::string At(uint32_t node) const {
    const std::string at = node < outline_.nodes.size() ? ir::ToString(outline_.nodes[node].at) : "";
    return at.empty() ? "" : absl::StrCat(" at ", at);
  }
  // "f32[32, 64]", a number's type said as such.
  std::string Argument(uint32_t argument) const {
    const size_t at = argument < outline_.arguments.size() ? outline_.arguments[argument].traced : SIZE_MAX;
    const auto all = ReadArguments(canonical_);
    if (!all.ok() || at >= all->size()) return "of another type";
    return absl::StrCat(ir::ShortType((*all)[at].type), (*all)[at].words ? ", a number of the launch" : "");
  }
  // "operand 1 of matmul at train.c:7"
  std::string User(uint32_t argument) const {
    if (argument >= outline_.arguments.size()) return "an argument";
    const Outline::Argument& known = outline_.arguments[argument];
    return absl::StrCat("operand ", known.operand, " of ", NameOf(known.user), At(known.user));
  }

 private:
  Ref<const ir::Node> OfWhole(uint32_t node) const {
    const absl::StatusOr<Ref<const ir::Function>> read = ReadCanonical(canonical_);
    if (!read.ok()) return nullptr;
    const size_t at = (*read)->parameters().size() + outline_.nodes[node].traced;
    return at < (*read)->nodes().size() ? Ref<const ir::Node>::Share((*read)->nodes()[at]) : nullptr;
  }

  const Outline& outline_;
  const std::string_view canonical_;
};

std::string ChangedInside(const ir::Node& was, const ir::Node& is);

std::string ChangedAttribute(const ir::Node& was, const ir::Node& is, const std::string& which) {
  const size_t count = std::max(was.attrs().size(), is.attrs().size());
  const auto text = [](const ir::Node& node, size_t i) {
    return node.attrs().has(i) ? ir::AttrText(node.op(), i, node.attrs().at(i)) : std::string("absent");
  };
  for (size_t i = 0; i < count; ++i) {
    const bool both = was.attrs().has(i) && is.attrs().has(i);
    if (both ? was.attrs().at(i) == is.attrs().at(i) : was.attrs().has(i) == is.attrs().has(i)) continue;
    const std::string now = text(is, i), before = text(was, i);
    if (now == before) continue;
    const bool constant = &is.op() == &ops::kOp_constant;
    const std::string name = i < is.op().attrs.size() ? std::string(is.op().attrs[i].name) : "an attribute";
    return absl::StrCat(constant ? "" : absl::StrCat(name, " of "), which, " is ", now, ", was ", before);
  }
  for (size_t i = 0; i < std::min(was.results().size(), is.results().size()); ++i) {
    if (was.results()[i] == is.results()[i]) continue;
    return absl::StrCat("the result of ", which, " is ", ir::ShortType(is.results()[i]), ", was ",
                        ir::ShortType(was.results()[i]));
  }
  if (!is.regions().empty()) return absl::StrCat("in the function of ", which, ", ", ChangedInside(was, is));
  return absl::StrCat(which, " has another value of ", ir::ShortType(is.results()[0]));
}

// Literals are other objects in each program.
bool IsSame(const ir::AttrValue& was, const ir::AttrValue& is) {
  const auto *a = std::get_if<Ref<const Literal>>(&was), *b = std::get_if<Ref<const Literal>>(&is);
  if (a == nullptr || b == nullptr) return was == is;
  return (*a)->value == (*b)->value;
}

// Tells whether two nodes of functions compute the same from the same operands.
bool IsSame(const ir::Node& was, const ir::Node& is) {
  if (&was.op() != &is.op() || was.operands().size() != is.operands().size()) return false;
  if (!std::ranges::equal(was.results(), is.results()) || was.regions().size() != is.regions().size()) return false;
  for (size_t i = 0; i < std::max(was.attrs().size(), is.attrs().size()); ++i) {
    if (was.attrs().has(i) != is.attrs().has(i)) return false;
    if (was.attrs().has(i) && !IsSame(was.attrs().at(i), is.attrs().at(i))) return false;
  }
  for (size_t r = 0; r < is.regions().size(); ++r) {
    const auto &before = was.regions()[r]->nodes(), &now = is.regions()[r]->nodes();
    const auto same = [](const ir::Node* a, const ir::Node* b) { return IsSame(*a, *b); };
    if (!std::ranges::equal(before, now, same)) return false;
  }
  return true;
}

// The first operation that differs in the functions of two nodes that are equal but for them. Canonical forms have no positions of
// what is in a function. Functions nest at most as deep as the IR lets them.
std::string ChangedInside(const ir::Node& was, const ir::Node& is) {
  for (size_t r = 0; r < std::min(was.regions().size(), is.regions().size()); ++r) {
    const auto &before = was.regions()[r]->nodes(), &now = is.regions()[r]->nodes();
    size_t i = 0;
    while (i < std::min(before.size(), now.size()) && IsSame(*before[i], *now[i])) ++i;
    if (i == before.size() && i == now.size()) continue;
    if (i == now.size()) return absl::StrCat(before[i]->op().c_name, " is gone");
    const std::string name(now[i]->op().c_name);
    if (i == before.size() || before.size() < now.size()) return absl::StrCat(name, " is new");
    if (before.size() > now.size()) return absl::StrCat(before[i]->op().c_name, " is gone");
    if (&before[i]->op() != &now[i]->op()) return absl::StrCat(name, " stands where ", before[i]->op().c_name, " was");
    return ChangedAttribute(*before[i], *now[i], name);
  }
  return "operations have other operands";
}

std::string More(size_t count, std::string_view what) {
  return count == 0 ? "" : absl::StrCat(" and ", count, " more ", what, count == 1 ? "" : "s");
}

std::string Operations(const Difference& d, const Spelled& before, const Spelled& now) {
  if (d.node != Difference::kNone && d.node_before != Difference::kNone)
    return absl::StrCat(now.NameOf(d.node), now.At(d.node), " has other operands");
  if (d.node != Difference::kNone)
    return absl::StrCat(now.NameOf(d.node), now.At(d.node), " is new", More(d.others, "difference"));
  if (d.node_before != Difference::kNone) {
    const std::string at = before.At(d.node_before);
    return absl::StrCat(before.NameOf(d.node_before), at.empty() ? "" : absl::StrCat(", which was", at, ","),
                        " is gone", More(d.others, "difference"));
  }
  return "the same operations in another order";
}

std::string Outputs(const Difference& d, const Spelled& before, const Spelled& now) {
  const bool more = d.node != Difference::kNone;
  const std::string which = more ? absl::StrCat(now.NameOf(d.node), now.At(d.node))
                                 : absl::StrCat(before.NameOf(d.node_before), before.At(d.node_before));
  return absl::StrCat("the result of ", which,
                      more ? " is wanted, too: its handle lives on" : " is wanted no more: its handle is gone");
}

std::string TakenOver(const Difference& d, const Outline& outline, const Spelled& now) {
  if (d.argument == Difference::kNone) return "other results take over the arguments' memory";
  const bool taken = outline.arguments[d.argument].taken_over;
  return absl::StrCat(now.User(d.argument), " (", now.Argument(d.argument), ")",
                      taken ? " can be taken over now" : " can no longer be taken over: its value is still wanted");
}

std::string Cause(const Difference& d, const Outline& outline, const Spelled& before, const Spelled& now) {
  switch (d.reason) {
    case Reason::kArgument:
      return absl::StrCat(now.User(d.argument), " is ", now.Argument(d.argument), ", was ",
                          before.Argument(d.argument_before));
    case Reason::kConstant:
    case Reason::kAttribute: {
      const Ref<const ir::Node> was = before.NodeAt(d.node_before), is = now.NodeAt(d.node);
      const std::string which = absl::StrCat(now.NameOf(d.node), now.At(d.node));
      if (was == nullptr || is == nullptr) return absl::StrCat(which, " is another");
      return ChangedAttribute(*was, *is, which);
    }
    case Reason::kOperations: return Operations(d, before, now);
    case Reason::kOutputs: return Outputs(d, before, now);
    case Reason::kTakenOver: return TakenOver(d, outline, now);
    case Reason::kPending:
      return absl::StrCat(now.User(d.argument), " is known now; before, ", before.NameOf(d.node_before),
                          before.At(d.node_before), " was computed with it", More(d.others, "operation"));
    case Reason::kTarget: return "it is for another target than the machine's";
    case Reason::kDropped: return "memory had let go of it";
    case Reason::kFirst:
    case Reason::kCount: break;
  }
  return "nothing like it is known";
}

}  // namespace

std::string_view NameOf(Reason reason) { return kNames[static_cast<size_t>(reason)]; }
std::string_view HintOf(Reason reason) { return kHints[static_cast<size_t>(reason)]; }

std::string TextOf(const Difference& difference, const Outline& before, std::string_view canonical_before,
                   const Outline& now, std::string_view canonical_now) {
  const Spelled was(before, canonical_before), is(now, canonical_now);
  const std::string cause = Cause(difference, now, was, is);
  const bool follows = difference.reason == Reason::kArgument || difference.reason == Reason::kConstant ||
                       difference.reason == Reason::kAttribute;
  if (difference.reason == Reason::kOperations || difference.reason == Reason::kPending)
    return absl::StrCat(cause, " (of ", difference.nodes, " nodes)");
  if (follows && difference.others > 0) {
    return absl::StrCat(cause, "; ", difference.others, " other of ", difference.nodes, " nodes differ");
  }
  return absl::StrCat(cause, "; all else equal (", difference.nodes, " nodes)");
}

}  // namespace weft::compiler
