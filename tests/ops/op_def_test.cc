// Every operation's description is whole: each part is there or says why not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "src/ops/registry.h"
#include "src/ops/sample.h"

namespace weft {
namespace {

using ir::Kind;
using ir::OpDef;
using ir::Part;
using ir::Reason;

// Which reason may excuse which part: the closed list, closed a second time.
constexpr std::pair<Part, Reason> kExcuses[] = {
    {Part::kGradient, Reason::kNotDifferentiable}, {Part::kGradient, Reason::kExpands},
    {Part::kGradient, Reason::kStructural},        {Part::kStableHlo, Reason::kExpands},
    {Part::kStableHlo, Reason::kStructural},       {Part::kLowering, Reason::kStructural},
    {Part::kReference, Reason::kExpands},          {Part::kReference, Reason::kStructural},
    {Part::kSamples, Reason::kStructural},         {Part::kExample, Reason::kStructural},
    {Part::kSamples, Reason::kCarriesFunctions},   {Part::kExample, Reason::kCarriesFunctions},
    {Part::kExample, Reason::kFromStableHlo},      {Part::kGradient, Reason::kNoComplexGradient},
    {Part::kExample, Reason::kMovedByExpansionOf},
};

// What the description lacks without a reason, or excuses without need; empty for a whole one.
std::vector<std::string> Problems(const OpDef& op) {
  std::vector<std::string> problems;
  std::set<Part> excused;
  for (const ir::Absent& absent : op.absent) {
    if (!excused.insert(absent.part).second) problems.push_back("a part is excused twice");
    if (std::find(std::begin(kExcuses), std::end(kExcuses), std::pair(absent.part, absent.reason)) == std::end(kExcuses)) {
      problems.push_back("a part is excused by a reason that does not fit it");
    }
  }
  const auto part = [&](Part part, bool present, std::string_view what) {
    if (present == !excused.contains(part)) return;
    problems.push_back(absl::StrCat(what, present ? " is there and excused" : " is missing without reason"));
  };
  const bool structural = op.lowering == ir::Lowering::kStructural;
  part(Part::kGradient, op.gradient != nullptr, "gradient");
  part(Part::kReference, op.reference != nullptr, "reference");
  part(Part::kSamples, !op.samples.empty(), "samples");
  part(Part::kExample, !op.example.empty(), "example");
  // A primitive without a spelling of its own prints in the generic form.
  if (!structural) part(Part::kStableHlo, op.stablehlo != nullptr || op.kind == Kind::kPrimitive, "StableHLO spelling");
  if (!structural) part(Part::kLowering, true, "lowering");
  const auto rule = [&](bool holds, std::string_view otherwise) {
    if (!holds) problems.emplace_back(otherwise);
  };
  if (!structural) {
    rule((op.lowering == ir::Lowering::kScalar) == (op.scalar != nullptr || op.c_name == "constant"),
         "lowering and scalar rule disagree");
  }
  rule(op.lowering != ir::Lowering::kExpand || op.expand != nullptr, "lowered by an expansion that is missing");
  rule((op.kind == Kind::kPrimitive) == (op.expand == nullptr), "primitives have no expansion, all others have one");
  rule(op.random == std::any_of(op.operands.begin(), op.operands.end(), [](const ir::OperandDef& x) { return x.supplied; }),
       "random, or an operand that recording supplies, but not both");
  rule(!op.alias || op.operands.size() == 1, "an alias of something else than its one operand");
  rule(op.cost == ir::Cost::kCheap || op.scalar != nullptr, "costs by the element and has no scalar rule");
  rule(op.infer != nullptr || (structural && !op.exported), "shape rule is missing");
  // What passes ask (src/ir/op_def.h).
  rule(std::ranges::none_of(op.operands, [](const ir::OperandDef& x) { return (x.types & ir::kC) != 0; }) || op.planes != nullptr ||
           op.expand != nullptr || structural,
       "takes complex numbers, and nothing says what it is on their planes");
  rule((op.index_map != nullptr) == (op.lowering == ir::Lowering::kIndexMap && !op.operands.empty()),
       "moves elements by an index map that is missing, or has one and does not");
  rule(op.along.size() <= op.attrs.size(), "more attributes go along with the dimensions than there are");
  for (size_t i = 0; i < op.attrs.size() && !op.along.empty(); ++i) {
    const ir::Along along = i < op.along.size() ? op.along[i] : ir::Along::kNothing;
    const bool list = op.attrs[i].type == ir::AttrType::kInts;
    rule(along == ir::Along::kNothing || list || (along == ir::Along::kNumbers && op.attrs[i].type == ir::AttrType::kInt),
         "an attribute that goes along with the dimensions is no list of integers");
    rule(along != ir::Along::kNothing || !list,
         "works in any order of dimensions, and a list of integers does not say what it has to do with them");
  }
  rule(!op.on_bytes || !op.as_seen, "only moves elements, and looks at their bits");
  // Tolerances are for floats to be compared by: a looser narrow type, nothing negative.
  const ir::Tolerance& t = op.tolerance;
  rule(t.f32 >= 0 && t.f64 >= 0 && t.absolute >= 0 && t.f64 <= t.f32 && t.f32 <= t.f16 && t.f16 <= t.bf16 && t.bf16 < 0.1,
       "tolerances do not narrow with the type");
  return problems;
}

TEST(OpDef, HasEveryPartOrAReason) {
  for (const OpDef* op : ops::AllOps()) {
    EXPECT_THAT(Problems(*op), testing::IsEmpty()) << op->c_name;
  }
}

TEST(OpDef, IsFoundWantingWhenAPartIsTakenAway) {
  const auto broken = [](const OpDef& op, auto change) {
    OpDef copy = op;
    change(copy);
    return Problems(copy);
  };
  using testing::ElementsAre;
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.gradient = nullptr; }), ElementsAre("gradient is missing without reason"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.reference = nullptr; }), ElementsAre("reference is missing without reason"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.samples = {}; }), ElementsAre("samples is missing without reason"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.example = {}; }), ElementsAre("example is missing without reason"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.infer = nullptr; }), ElementsAre("shape rule is missing"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.scalar = nullptr; }), ElementsAre("lowering and scalar rule disagree"));
  EXPECT_THAT(broken(ops::kOp_floor, [](OpDef& op) { op.absent = {}; }), ElementsAre("gradient is missing without reason"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.tolerance.f64 = 1; }), ElementsAre("tolerances do not narrow with the type"));
  EXPECT_THAT(broken(ops::kOp_dropout, [](OpDef& op) { op.random = false; }), ElementsAre("random, or an operand that recording supplies, but not both"));
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.alias = true; }), ElementsAre("an alias of something else than its one operand"));
  EXPECT_THAT(broken(ops::kOp_softmax, [](OpDef& op) { op.cost = ir::Cost::kFunction; }), ElementsAre("costs by the element and has no scalar rule"));
  EXPECT_THAT(broken(ops::kOp_softmax, [](OpDef& op) { op.expand = nullptr; }).size(), 2u);
  static constexpr ir::Absent kUnfit[] = {{Part::kGradient, Reason::kRandom}};
  EXPECT_THAT(broken(ops::kOp_floor, [](OpDef& op) { op.absent = kUnfit; }),
              testing::Contains("a part is excused by a reason that does not fit it"));
  static constexpr ir::Absent kNeedless[] = {{Part::kReference, Reason::kExpands}};
  EXPECT_THAT(broken(ops::kOp_add, [](OpDef& op) { op.absent = kNeedless; }), ElementsAre("reference is there and excused"));
}

TEST(OpDef, DocumentsEverything) {
  for (const OpDef* op : ops::AllOps()) {
    SCOPED_TRACE(std::string(op->c_name));
    EXPECT_GE(op->doc.size(), 15u);
    EXPECT_EQ(op->doc.back(), '.');
    for (const ir::OperandDef& operand : op->operands) EXPECT_FALSE(operand.doc.empty()) << operand.name;
    for (const ir::AttrDef& attr : op->attrs) {
      EXPECT_FALSE(attr.doc.empty()) << attr.name;
      EXPECT_EQ(attr.type == ir::AttrType::kEnum, !attr.enumerators.empty()) << attr.name;
    }
    if (op->exported) {
      EXPECT_NE(op->example.find("wf_"), std::string_view::npos);
    }
    EXPECT_FALSE(op->results.empty());
  }
}

TEST(OpDef, NamesAreUniqueAndFound) {
  std::set<std::string_view> names;
  for (const OpDef* op : ops::AllOps()) {
    EXPECT_TRUE(names.insert(op->c_name).second) << op->c_name;
    EXPECT_EQ(ops::FindCalled(op->c_name), op) << op->c_name;
    EXPECT_EQ(ops::FindOp(op->name), op) << op->name;
    // Composites and macros have no StableHLO operation; a dot keeps their names apart. Some do and are spelled as that. weft.shard is
    // spelled in Shardy's dialect, weft.matrix_factors as a custom call; operations that carry functions are spelled anyway.
    const bool own = op->name == "weft.shard" || op->name == "weft.matrix_factors";
    if (op->regions.empty() && op->name != "rng" && !own) {
      EXPECT_EQ(op->name.starts_with("weft."), op->kind != Kind::kPrimitive && op->stablehlo == nullptr) << op->name;
    }
  }
  EXPECT_EQ(ops::FindOp("no such operation"), nullptr);
}

TEST(OpDef, OptionalOperandsComeLast) {
  for (const OpDef* op : ops::AllOps()) {
    bool optional = false;
    for (const ir::OperandDef& operand : op->operands) {
      // A list is last whatever there is before it.
      EXPECT_TRUE(operand.optional || !optional || op->random || operand.variadic) << op->c_name << " " << operand.name;
      optional = optional || operand.optional;
      if (operand.variadic) {
        EXPECT_EQ(&operand, &op->operands.back()) << op->c_name;
      }
    }
    bool attr_optional = false;
    for (const ir::AttrDef& attr : op->attrs) {
      EXPECT_TRUE(!attr.required || !attr_optional)
          << op->c_name << ": required attributes come first: " << attr.name;
      attr_optional = attr_optional || !attr.required;
    }
  }
}

TEST(OpDef, SamplesCoverEveryDTypeAndParse) {
  for (const OpDef* op : ops::AllOps()) {
    for (const ir::Sample& sample : op->samples) {
      EXPECT_TRUE(ops::ParseSample(*op, sample, DType::kF32).ok())
          << ops::ParseSample(*op, sample, DType::kF32).status();
      EXPECT_FALSE(ops::SampleTypes(*op, sample).empty()) << op->c_name << " " << sample.call;
    }
  }
}

}  // namespace
}  // namespace weft
