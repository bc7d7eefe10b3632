// See op_facts.h.
#include "src/tools/op_facts.h"

#include <algorithm>
#include <functional>
#include <map>

#include "absl/strings/str_cat.h"
#include "src/autodiff/gradient.h"
#include "src/ir/differentiable.h"
#include "src/ops/build.h"
#include "src/ops/call.h"
#include "src/ops/sample.h"

namespace weft {
namespace {

ir::Value Parameter(const ir::Type& type) { return ir::Value{ir::Node::Create(ops::kOp_parameter, {}, {}, {type}), 0}; }

// A sample recorded in one type: operands (absent ones empty), attributes and the types of the results.
struct Recorded {
  ir::Values operands;
  ir::Attrs attrs;
  std::vector<ir::Type> results;
};

std::optional<Recorded> Record(const ir::OpDef& op, const ir::Sample& sample, DType dtype) {
  const absl::StatusOr<ops::ParsedSample> parsed = ops::ParseSample(op, sample, dtype);
  if (!parsed.ok()) return std::nullopt;
  Recorded recorded{.attrs = parsed->attrs};
  for (const ops::SampleOperand& operand : parsed->operands) {
    recorded.operands.push_back(operand.absent ? ir::Value() : Parameter(operand.type));
  }
  ir::Builder b;
  for (const ir::Value& result : ops::CallAll(b, op, recorded.operands, parsed->attrs)) {
    if (result) recorded.results.push_back(result.type());
  }
  if (!b.status().ok()) return std::nullopt;
  return recorded;
}

std::vector<Recorded> EverySample(const ir::OpDef& op) {
  std::vector<Recorded> all;
  for (const ir::Sample& sample : op.samples) {
    for (const DType dtype : ops::SampleTypes(op, sample)) {
      if (std::optional<Recorded> recorded = Record(op, sample, dtype)) all.push_back(*std::move(recorded));
    }
  }
  return all;
}

std::string Quoted(std::string_view text) { return absl::StrCat("\"", text, "\""); }

// The rule of one result over these samples; empty where none holds.
std::string Rule(const ir::OpDef& op, const std::vector<const Recorded*>& samples, size_t result) {
  const auto holds = [&](const auto& expected) {
    return std::ranges::all_of(samples, [&](const Recorded* s) { return expected(*s) == s->results[result].dtype; });
  };
  const auto given = [&](size_t i) {
    return std::ranges::all_of(samples, [&](const Recorded* s) {
      return i < s->operands.size() && s->operands[i] && s->operands[i].type().is_tensor();
    });
  };
  const DType first = samples[0]->results[result].dtype;
  const bool same = holds([&](const Recorded&) { return first; });
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!given(i)) continue;
    const auto type = [i](const Recorded& s) { return s.operands[i].dtype(); };
    const bool one_type =
        std::ranges::all_of(samples, [&](const Recorded* s) { return type(*s) == type(*samples[0]); });
    if (one_type && same) continue;  // says nothing of the operand
    if (holds(type)) return absl::StrCat("{\"as\": ", Quoted(op.operands[i].name), "}");
    if (holds([&](const Recorded& s) { return PartOf(type(s)); })) {
      return absl::StrCat("{\"part_of\": ", Quoted(op.operands[i].name), "}");
    }
  }
  if (same) return absl::StrCat("{\"is\": ", Quoted(NameOf(first)), "}");
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (!given(i)) continue;
    std::map<DType, DType> by;
    for (const Recorded* s : samples) by.emplace(s->operands[i].dtype(), s->results[result].dtype);
    if (!holds([&](const Recorded& s) { return by[s.operands[i].dtype()]; })) continue;
    std::string pairs;
    for (const auto& [from, to] : by) {
      absl::StrAppend(&pairs, pairs.empty() ? "" : ", ", Quoted(NameOf(from)), ": ", Quoted(NameOf(to)));
    }
    return absl::StrCat("{\"of\": ", Quoted(op.operands[i].name), ", \"by\": {", pairs, "}}");
  }
  return "";
}

}  // namespace

std::vector<std::string> ResultTypeRules(const ir::OpDef& op) {
  const std::vector<Recorded> all = EverySample(op);
  std::vector<std::string> rules;
  for (size_t result = 0; result < op.results.size(); ++result) {
    std::vector<const Recorded*> samples;
    for (const Recorded& one : all) {
      if (result < one.results.size() && one.results[result].is_tensor()) samples.push_back(&one);
    }
    std::string rule = samples.empty() ? "" : Rule(op, samples, result);
    for (size_t a = 0; a < op.attrs.size(); ++a) {
      if (op.attrs[a].type != ir::AttrType::kDType || samples.empty()) continue;
      std::vector<const Recorded*> without;
      bool follows = true, some = false;
      for (const Recorded* one : samples) {
        if (!one->attrs.has(a)) {
          without.push_back(one);
          continue;
        }
        some = true;
        follows = follows && one->attrs.Type(a) == one->results[result].dtype;
      }
      if (!some || !follows) continue;
      const std::string otherwise = without.empty() ? "" : Rule(op, without, result);
      rule = absl::StrCat("{\"attribute\": ", Quoted(op.attrs[a].name),
                          otherwise.empty() ? "" : absl::StrCat(", \"else\": ", otherwise), "}");
    }
    rules.push_back(rule.empty() ? "null" : rule);
  }
  return rules;
}

namespace {

// Marks the operands that a gradient of a sample reaches, of those in [first, last); false where a rule refuses.
bool MarkFlows(const ir::OpDef& op, const Recorded& one, size_t first, size_t last, std::vector<bool>* flows) {
  ir::Builder b;
  std::vector<ir::Value> seeds, wrt;
  std::vector<size_t> of;  // the operand of each wrt; of a list of them the last
  ir::Values operands;
  for (size_t i = 0; i < one.operands.size(); ++i) {
    const ir::Value& operand = one.operands[i];
    operands.push_back(operand ? Parameter(operand.type()) : ir::Value());
    if (!operand || !ir::CarriesGradient(operand.type()) || i < first || i >= last) continue;
    operands.back().node->set_needs_gradient();
    wrt.push_back(operands.back());
    of.push_back(std::min(operands.size(), op.operands.size()) - 1);
  }
  const ir::Values outputs = ops::CallAll(b, op, operands, one.attrs);
  for (const ir::Value& output : outputs) {
    seeds.push_back(ir::CarriesGradient(output.type()) ? Parameter(output.type()) : ir::Value());
  }
  std::vector<ir::Value> slopes(wrt.size());
  if (wrt.empty()) return true;
  if (!autodiff::Gradients(b, outputs, seeds, wrt, slopes).ok()) return false;
  for (size_t i = 0; i < wrt.size(); ++i) {
    if (slopes[i]) (*flows)[of[i]] = true;
  }
  return true;
}

}  // namespace

// A rule may refuse one operand and have a gradient of another.
std::vector<bool> GradientFlows(const ir::OpDef& op) {
  std::vector<bool> flows(op.operands.size(), false);
  for (const Recorded& one : EverySample(op)) {
    if (MarkFlows(op, one, 0, one.operands.size(), &flows)) continue;
    for (size_t i = 0; i < one.operands.size(); ++i) MarkFlows(op, one, i, i + 1, &flows);
  }
  return flows;
}

}  // namespace weft
