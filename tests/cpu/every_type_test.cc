// Every operation in every element type, and with every type for its result: what is recorded runs. What the CPU backend cannot run
// is refused when it is recorded, by name and types; a refusal that comes later takes all of a step with it.
#include <cstdlib>
#include <map>
#include <span>

#include "src/ops/build.h"
#include "tests/cpu/backend_support.h"
#include "tests/support/seeds.h"

namespace weft::cpu {
namespace {

constexpr DType kEveryType[] = {
    DType::kBool,     DType::kI2,      DType::kI4,          DType::kI8,       DType::kI16,      DType::kI32,        DType::kI64,
    DType::kU2,       DType::kU4,      DType::kU8,          DType::kU16,      DType::kU32,      DType::kU64,        DType::kF16,
    DType::kBF16,     DType::kF32,     DType::kF64,         DType::kC64,      DType::kC128,     DType::kF8E3M4,     DType::kF8E4M3,
    DType::kF8E4M3FN, DType::kF8E5M2,  DType::kF8E4M3FNUZ,  DType::kF8E5M2FNUZ, DType::kF8E4M3B11FNUZ, DType::kF8E8M0FNU};

// One of each kind: all of them where one operation is asked for, since every case is compiled.
constexpr DType kOfEveryKind[] = {DType::kBool, DType::kI4,  DType::kI8,   DType::kI16, DType::kI32, DType::kI64, DType::kU8,
                                  DType::kU16,  DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kC64, DType::kF8E4M3FN};

// One operation's C name, for work on it.
const char* Only() { return std::getenv("WEFT_TEST_OP"); }
std::span<const DType> Types() { return Only() != nullptr ? std::span<const DType>(kEveryType) : std::span<const DType>(kOfEveryKind); }

int64_t DTypeAttrOf(const ir::OpDef& op) {
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    if (op.attrs[i].type == ir::AttrType::kDType) return static_cast<int64_t>(i);
  }
  return -1;
}

struct Tally {
  int64_t recorded = 0, refused = 0;
  size_t cases = 0;  // of those that the short tier takes some of
  std::map<std::string, int> failures;  // by what they say
};

// Three does not divide the number of types: each type has its turn.
bool SkipsCase(Tally& tally) { return Only() == nullptr && tally.cases++ % test::OneCaseIn(6) != 0; }

// Records the call on parameters of these types and, if that goes well, runs it on zeros.
void Try(const ir::OpDef& op, std::span<const ops::SampleOperand> operands, const ir::Attrs& attrs, std::string_view isa, Tally& tally) {
  ir::Builder b;
  ir::Values given;
  std::vector<ir::Value> parameters;
  std::vector<HostTensor> arguments;
  std::string types;
  for (const ops::SampleOperand& operand : operands) {
    given.push_back(operand.absent ? ir::Value() : test::NewParameter(operand.type));
    if (operand.absent) continue;
    parameters.push_back(given.back());
    arguments.emplace_back(operand.type.dtype, operand.type.dims);
    absl::StrAppend(&types, " ", NameOf(operand.type.dtype));
  }
  const ir::Values results = ops::CallAll(b, op, given, attrs);
  if (!b.ok()) {
    EXPECT_NE(b.status().code(), absl::StatusCode::kInternal) << op.c_name << types << ": " << b.status();
    ++tally.refused;
    return;
  }
  ++tally.recorded;
  const auto function = ir::Function::Create("test", parameters, {results.begin(), results.end()});
  const auto got = RunOnCpu(TestBackend(), function, arguments, isa);
  if (got.ok()) return;
  absl::StrAppend(&types, " to ", NameOf(results[0].dtype()));
  ++tally.failures[absl::StrCat(op.c_name, ": ", got.status().ToString(), " (", types, " )")];
}

// The sample with `dtype` in the place of T, or of the type of one operand (`place`) beside f32.
void TryType(const ir::OpDef& op, const ir::Sample& sample, size_t place, DType dtype, size_t* turn, Tally& tally) {
  const auto of_f32 = ops::ParseSample(op, sample, DType::kF32);
  const bool one = of_f32.ok() && place < of_f32->operands.size();
  auto parsed = one ? of_f32 : ops::ParseSample(op, sample, dtype);
  if (!parsed.ok()) return;
  if (one) parsed->operands[place].type.dtype = dtype;
  const std::vector<std::string> isas = TestIsas();
  Try(op, parsed->operands, parsed->attrs, isas[++*turn % isas.size()], tally);
  const int64_t at = DTypeAttrOf(op);
  if (at < 0 || (one && parsed->operands.size() > 1)) return;
  for (DType result : Types()) {
    if (SkipsCase(tally)) continue;
    parsed->attrs.set(static_cast<size_t>(at), result);
    Try(op, parsed->operands, parsed->attrs, isas[++*turn % isas.size()], tally);
  }
}

TEST(EveryType, WhatIsRecordedRuns) {
  Tally tally;
  size_t turn = 0;
  const char* const only = Only();
  for (const ir::OpDef* op : ops::AllOps()) {
    if (op->samples.empty() || (only != nullptr && op->c_name != only)) continue;
    const ir::Sample& sample = op->samples[0];
    const auto parsed = ops::ParseSample(*op, sample, DType::kF32);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const size_t none = parsed->operands.size();
    if (parsed->generic) {
      for (DType dtype : Types()) TryType(*op, sample, none, dtype, &turn, tally);
    }
    for (size_t place = 0; place < none; ++place) {
      if (parsed->operands[place].absent) continue;
      for (DType dtype : Types()) {
        if (SkipsCase(tally)) continue;
        TryType(*op, sample, place, dtype, &turn, tally);
      }
    }
    if (none == 0) TryType(*op, sample, none, DType::kF32, &turn, tally);
  }
  for (const auto& [what, times] : tally.failures) ADD_FAILURE() << times << " recorded and not run: " << what;
  if (only == nullptr && !test::kSanitized) {
    EXPECT_GT(tally.recorded, 2000);
    EXPECT_GT(tally.refused, 2000);
  }
}

}  // namespace
}  // namespace weft::cpu
