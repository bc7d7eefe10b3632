// Every operation's description is whole: each part is there or says why not.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "src/ops/registry.h"
#include "src/ops/sample.h"

namespace weft {
namespace {

using ir::Kind;
using ir::OpDef;
using ir::Part;
using ir::Reason;

bool IsAbsent(const OpDef& op, Part part) {
  for (const ir::Absent& absent : op.absent) {
    if (absent.part == part) return absent.reason != Reason::kNone;
  }
  return false;
}

TEST(OpDef, HasEveryPartOrAReason) {
  for (const OpDef* op : ops::AllOps()) {
    SCOPED_TRACE(std::string(op->c_name));
    auto check = [&](Part part, bool present, const char* what) {
      EXPECT_NE(present, IsAbsent(*op, part))
          << what << (present ? " is there and excused" : " is missing without reason");
    };
    check(Part::kGradient, op->gradient != nullptr, "gradient");
    check(Part::kReference, op->reference != nullptr, "reference");
    check(Part::kSamples, !op->samples.empty(), "samples");
    check(Part::kExample, !op->example.empty(), "example");
    if (op->lowering != ir::Lowering::kStructural) {
      EXPECT_FALSE(IsAbsent(*op, Part::kLowering));
      EXPECT_EQ(op->lowering == ir::Lowering::kScalar, op->scalar != nullptr || op->c_name == "constant");
    }
    if (op->lowering == ir::Lowering::kExpand) EXPECT_NE(op->expand, nullptr);
    if (op->kind == Kind::kPrimitive)
      EXPECT_EQ(op->expand, nullptr) << "a primitive that expands is a composite";
    if (op->kind != Kind::kPrimitive) EXPECT_NE(op->expand, nullptr);
    if (op->exported || op->lowering != ir::Lowering::kStructural) EXPECT_NE(op->infer, nullptr);
  }
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
    EXPECT_EQ(ops::FindOp(op->c_name), op) << op->c_name;
    // Composites and macros have no StableHLO operation; a dot keeps their names apart.
    if (op->name != "rng_bit_generator") {  // StableHLO has it, and it expands all the same
      EXPECT_EQ(op->name.starts_with("weft."), op->kind != Kind::kPrimitive) << op->name;
    }
  }
  EXPECT_EQ(ops::FindOp("no such operation"), nullptr);
}

TEST(OpDef, OptionalOperandsComeLast) {
  for (const OpDef* op : ops::AllOps()) {
    bool optional = false;
    for (const ir::OperandDef& operand : op->operands) {
      EXPECT_TRUE(operand.optional || !optional || op->random) << op->c_name << " " << operand.name;
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
