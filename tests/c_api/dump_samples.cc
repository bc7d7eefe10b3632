// Writes the sample calls of every exported operation to standard output, for op_apply_test.py: one JSON array of
// {"op", "inputs": [null | {"dtype", "dims", "bytes" (hex)}], "attrs": {name: value}}, enumerators by number.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "src/ops/registry.h"
#include "src/ops/sample.h"

namespace weft {
namespace {

std::string Json(const ir::AttrValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return absl::StrCat(*i);
  if (const auto* d = std::get_if<double>(&value)) {
    return std::isinf(*d) ? *d < 0 ? "-Infinity" : "Infinity" : absl::StrFormat("%.17g", *d);
  }
  if (const auto* dtype = std::get_if<DType>(&value)) return absl::StrCat(static_cast<uint32_t>(*dtype));
  if (const auto* ints = std::get_if<ir::Ints>(&value)) return absl::StrCat("[", absl::StrJoin(*ints, ", "), "]");
  if (const auto* doubles = std::get_if<std::vector<double>>(&value)) return absl::StrCat("[", absl::StrJoin(*doubles, ", "), "]");
  if (const auto* text = std::get_if<std::string>(&value)) return absl::StrCat("\"", *text, "\"");
  return "\"no such type in a sample yet\"";
}

absl::StatusOr<std::string> SampleCall(const ir::OpDef& op, const ir::Sample& sample, DType dtype) {
  WEFT_ASSIGN_OR_RETURN(const ops::ParsedSample parsed, ops::ParseSample(op, sample, dtype));
  std::vector<std::string> inputs, attrs;
  for (size_t i = 0; i < parsed.operands.size(); ++i) {
    const ops::SampleOperand& operand = parsed.operands[i];
    if (op.operands[std::min(i, op.operands.size() - 1)].supplied) continue;  // the context supplies it
    if (operand.absent) {
      inputs.push_back("null");
      continue;
    }
    const HostTensor value = ops::FillSample(sample, operand, i + 1);
    const std::string_view bytes(reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size());
    inputs.push_back(absl::StrCat("{\"dtype\": ", static_cast<uint32_t>(value.dtype()), ", \"dims\": [",
                                  absl::StrJoin(value.dims(), ", "), "], \"bytes\": \"", absl::BytesToHexString(bytes), "\"}"));
  }
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    if (parsed.attrs.has(i)) attrs.push_back(absl::StrCat("\"", op.attrs[i].name, "\": ", Json(parsed.attrs.at(i))));
  }
  return absl::StrCat("{\"op\": \"", op.c_name, "\", \"inputs\": [", absl::StrJoin(inputs, ", "), "], \"attrs\": {",
                      absl::StrJoin(attrs, ", "), "}}");
}

int Main() {
  std::vector<std::string> calls;
  for (const ir::OpDef* op : ops::AllOps()) {
    if (!op->exported) continue;
    for (const ir::Sample& sample : op->samples) {
      const auto types = ops::SampleTypes(*op, sample);
      const auto call = SampleCall(*op, sample, types.empty() ? DType::kF32 : types.back());
      if (!call.ok()) {
        std::fprintf(stderr, "%s\n", call.status().ToString().c_str());
        return 1;
      }
      calls.push_back(*call);
    }
  }
  std::printf("[%s]\n", absl::StrJoin(calls, ",\n").c_str());
  return 0;
}

}  // namespace
}  // namespace weft

int main() { return weft::Main(); }
