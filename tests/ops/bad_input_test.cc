// Calls bent out of shape: every operation's samples with one attribute or operand replaced by something extreme. Each
// must be accepted and then run, or be refused in words that name the operation; nothing may crash, overflow or be called
// an internal error. The exact words stand in tests/c_api/bad_input*.c.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>

#include "absl/strings/match.h"
#include "tests/ops/op_matrix.h"
#include "tests/support/only_op.h"

namespace weft {
namespace {

using ir::AttrType;
using ir::AttrValue;
using ir::OpDef;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min(), kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kHuge = int64_t{1} << 40;  // two of them overflow a count, one of them an allocation
constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kI8, DType::kI32, DType::kU64, DType::kBool};

struct Call {
  std::string change;  // "axis = -1000"
  ir::Values operands;
  ir::Attrs attrs;
};

std::vector<AttrValue> Extremes(const ir::AttrDef& def, const AttrValue* given) {
  std::vector<AttrValue> values;
  switch (def.type) {
    case AttrType::kInt:
    case AttrType::kEnum:
      for (int64_t v : {kMin, int64_t{-1000}, int64_t{-2}, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{3}, int64_t{1000}, kMax}) {
        values.emplace_back(v);
      }
      break;
    case AttrType::kDouble: {
      constexpr double kInf = std::numeric_limits<double>::infinity();
      for (double v : {std::nan(""), kInf, -kInf, -1.0, 0.0, 1.0, 1e308, -1e308, 1e-320}) values.emplace_back(v);
      break;
    }
    case AttrType::kInts: {
      const ir::Ints list = given != nullptr && given->index() != 0 ? std::get<ir::Ints>(*given) : ir::Ints{0};
      for (size_t i = 0; i < list.size(); ++i) {
        for (int64_t v : {kMin, int64_t{-1}, int64_t{0}, int64_t{2}, int64_t{100}, kHuge, kMax}) {
          ir::Ints changed = list;
          changed[i] = v;
          values.emplace_back(std::move(changed));
        }
      }
      ir::Ints longer = list, shorter = list;
      longer.push_back(list.empty() ? 0 : list.back());
      if (!shorter.empty()) shorter.pop_back();
      values.emplace_back(std::move(longer));
      values.emplace_back(std::move(shorter));
      values.emplace_back(ir::Ints{});
      values.emplace_back(ir::Ints(list.size(), kHuge));
      values.emplace_back(ir::Ints(list.size(), kMax));
      values.emplace_back(ir::Ints(40, 1));  // more than any rank
      break;
    }
    case AttrType::kDType:
      for (DType v : kTypes) values.emplace_back(v);
      break;
    default:
      break;
  }
  return values;
}

std::string ShowAttr(const AttrValue& value) {
  if (const auto* v = std::get_if<int64_t>(&value)) return absl::StrCat(*v);
  if (const auto* v = std::get_if<double>(&value)) return absl::StrCat(*v);
  if (const auto* v = std::get_if<DType>(&value)) return std::string(NameOf(*v));
  if (const auto* v = std::get_if<ir::Ints>(&value)) return DimsToString(*v);
  return "?";
}

std::vector<Call> BentCalls(const OpDef& op, const ops::ParsedSample& sample) {
  ir::Values operands;
  for (const ops::SampleOperand& operand : sample.operands) {
    operands.push_back(operand.absent ? ir::Value() : test::NewParameter(operand.type));
  }
  std::vector<Call> calls;
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrValue* given = sample.attrs.has(i) ? &sample.attrs.at(i) : nullptr;
    for (AttrValue& value : Extremes(op.attrs[i], given)) {
      Call call{absl::StrCat(op.attrs[i].name, " = ", ShowAttr(value)), operands, sample.attrs};
      call.attrs.set(i, std::move(value));
      calls.push_back(std::move(call));
    }
    if (given != nullptr) {
      calls.push_back({absl::StrCat("without ", op.attrs[i].name), operands, sample.attrs});
      calls.back().attrs.set(i, AttrValue());
    }
  }
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto with = [&](ir::Value operand) {
      calls.push_back({absl::StrCat("operand ", i, " is ", operand ? ir::ShortType(operand.type()) : "none"), operands, sample.attrs});
      calls.back().operands[i] = std::move(operand);
    };
    with({});
    if (!operands[i]) continue;
    const ir::Type& type = operands[i].type();
    for (DType dtype : kTypes) with(test::NewParameter(ir::Type::Tensor(dtype, type.dims)));
    const auto shaped = [&](Dims dims) { with(test::NewParameter(ir::Type::Tensor(type.dtype, std::move(dims)))); };
    shaped({});
    shaped({0});
    shaped(Dims(8, 2));
    shaped(Dims(std::max<size_t>(type.dims.size(), 1), 0));
    Dims more = type.dims;
    more.insert(more.begin(), 3);
    shaped(more);
    for (size_t d = 0; d < type.dims.size(); ++d) {
      for (int64_t size : {int64_t{0}, int64_t{1}, type.dims[d] + 1, kHuge, int64_t{1} << 58}) {
        Dims dims = type.dims;
        dims[d] = size;
        if (CheckedCount(dims) && *CheckedCount(dims) <= (int64_t{1} << 58)) shaped(dims);  // tensors that can exist
      }
    }
  }
  Call fewer{"one operand less", operands, sample.attrs}, more{"one operand more", operands, sample.attrs};
  if (!operands.empty()) {
    fewer.operands.pop_back();
    calls.push_back(std::move(fewer));
  }
  more.operands.push_back(test::NewParameter(ir::Type::Tensor(DType::kF32, {2})));
  calls.push_back(std::move(more));
  return calls;
}

bool Small(const ir::Type& type) { return type.is_tensor() && type.count() <= 2000; }

// Runs an accepted call on the reference where it is small: shape rules and references must agree on every bent call.
void RunIfSmall(const Call& call, const ir::Values& results) {
  std::vector<ir::Value> parameters;
  std::vector<HostTensor> arguments;
  for (const ir::Value& operand : call.operands) {
    if (!operand) continue;
    if (!Small(operand.type())) return;
    parameters.push_back(operand);
    arguments.emplace_back(operand.dtype(), operand.dims());
  }
  const auto whole = ir::Function::Create("bent", parameters, {results.begin(), results.end()});
  for (const ir::Node* node : whole->nodes()) {
    for (const ir::Type& type : node->results()) {
      if (!Small(type)) return;
    }
    for (size_t i = 0; i < node->op().attrs.size(); ++i) {  // windows and paddings cost time, not memory
      if (!node->attrs().has(i)) continue;
      const auto* list = std::get_if<ir::Ints>(&node->attrs().at(i));
      if (list != nullptr && std::any_of(list->begin(), list->end(), [](int64_t v) { return v < -1000 || v > 1000; })) return;
    }
  }
  const auto values = reference::Interpret(*whole, arguments);
  if (absl::IsUnimplemented(values.status())) return;
  ASSERT_TRUE(values.ok()) << values.status();
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ((*values)[i].dims(), results[i].dims());
    EXPECT_EQ((*values)[i].dtype(), results[i].dtype());
  }
}

TEST(BadInput, EveryBentCallIsAcceptedAndRunsOrIsRefusedByName) {
  int accepted = 0, refused = 0;
  for (const OpDef* op : ops::AllOps()) {
    if (weft::test::LeftOut(*op)) continue;
    if (op->infer == nullptr) continue;
    for (size_t s = 0; s < std::min<size_t>(op->samples.size(), 3); ++s) {
      const DType dtype = ops::SampleTypes(*op, op->samples[s])[0];
      auto sample = ops::ParseSample(*op, op->samples[s], dtype);
      ASSERT_TRUE(sample.ok()) << sample.status();
      for (const Call& call : BentCalls(*op, *sample)) {
        SCOPED_TRACE(absl::StrCat(op->c_name, " ", op->samples[s].call, " with ", call.change));
        ir::Builder b;
        const ir::Values results = ops::CallAll(b, *op, call.operands, call.attrs);
        if (b.ok()) {
          ++accepted;
          for (const ir::Value& result : results) EXPECT_TRUE(CheckedCount(result.dims()).has_value());
          RunIfSmall(call, results);
          continue;
        }
        ++refused;
        const std::string_view message = b.status().message();
        EXPECT_TRUE(absl::IsInvalidArgument(b.status()) || absl::IsUnimplemented(b.status())) << b.status();
        const std::string start = absl::StrCat(op->c_name, "(");
        EXPECT_TRUE(absl::StartsWith(message, start)) << message;
        EXPECT_FALSE(absl::StrContains(message, "internal error")) << message;
        EXPECT_LT(message.size(), 1000u) << message;
        const size_t end = message.find("): ");
        EXPECT_TRUE(end != message.npos && message.size() > end + 12) << message;
      }
    }
  }
  EXPECT_GT(accepted, 3000);
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace weft
