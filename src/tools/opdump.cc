// Writes the operation table as JSON to standard output: include/c_api/ops.json, from which the C functions, their
// documentation and every binding are generated. Committed; a test compares it with what this program says.
#include <cstdio>
#include <string>
#include <vector>

#include "src/ir/op_def.h"
#include "src/ops/registry.h"
#include "src/runtime/dtype.h"
#include "src/runtime/number_text.h"
#include "src/tools/op_facts.h"

namespace weft {
namespace {

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + "\"";
}

const char* Bool(bool value) { return value ? "true" : "false"; }

// The element types that can be computed with, in DLPack's order of codes and widths.
std::vector<DType> Computable() {
  std::vector<DType> out;
  for (uint32_t code = 0; code < 16; ++code) {
    for (uint32_t bits = 4; bits <= 128; bits *= 2) {
      const DType dtype = static_cast<DType>(code | bits << 8 | 1u << 16);
      if (IsComputable(dtype)) out.push_back(dtype);
    }
  }
  return out;
}

std::string DTypes(ir::TypeSet set) {
  std::string out;
  for (DType dtype : Computable()) {
    if (ir::Contains(set, dtype)) out += (out.empty() ? "" : ", ") + Quote(NameOf(dtype));
  }
  return "[" + out + "]";
}

// The default as a value of JSON; null where the attribute is absent unless given.
std::string Default(const ir::AttrDef& a) {
  if (a.default_text.empty()) return "null";
  const bool text = a.type == ir::AttrType::kEnum || a.type == ir::AttrType::kDType || a.type == ir::AttrType::kString;
  return text ? Quote(a.default_text) : std::string(a.default_text);
}

const char* TypeName(ir::AttrType type) {
  switch (type) {
    case ir::AttrType::kInt: return "int";
    case ir::AttrType::kDouble: return "double";
    case ir::AttrType::kBool: return "bool";
    case ir::AttrType::kEnum: return "enum";
    case ir::AttrType::kDType: return "dtype";
    case ir::AttrType::kInts: return "ints";
    case ir::AttrType::kDoubles: return "doubles";
    case ir::AttrType::kString: return "string";
    case ir::AttrType::kLiteral: return "literal";
  }
  return "";
}

std::string Operands(const ir::OpDef& op) {
  std::string out;
  const std::vector<bool> flows = GradientFlows(op);
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ir::OperandDef& x = op.operands[i];
    out += std::string(out.empty() ? "" : ",") + "\n       {\"name\": " + Quote(x.name) +
           ", \"dtypes\": " + DTypes(x.types) + ", \"group\": " + Quote(std::string(x.group == 0 ? 0 : 1, x.group)) +
           ", \"optional\": " + Bool(x.optional) + ", \"variadic\": " + Bool(x.variadic) +
           ", \"gradient\": " + Bool(flows[i]) +
           // The engine's random state, which callers never pass.
           (x.supplied ? ", \"supplied\": true" : "") + ", \"doc\": " + Quote(x.doc) + "}";
  }
  return out;
}

std::string Attributes(const ir::OpDef& op) {
  std::string out;
  for (const ir::AttrDef& a : op.attrs) {
    out += std::string(out.empty() ? "" : ",") + "\n       {\"name\": " + Quote(a.name) + ", \"type\": \"" +
           TypeName(a.type) + "\", \"required\": " + Bool(a.required) + ", \"default\": " + Default(a) +
           ", \"enumerators\": [";
    for (size_t i = 0; i < a.enumerators.size(); ++i) out += (i > 0 ? ", " : "") + Quote(a.enumerators[i]);
    out += "], \"doc\": " + Quote(a.doc) + "}";
  }
  return out;
}

// Lists the errors that the operation's C function can answer with. Every function checks what it is given and where,
// allocates, and may have to wait for an automatic cut; options structs and dtypes may be of a later version; debug
// mode checks indices.
std::string Errors(const ir::OpDef& op) {
  std::string out = "\"INVALID_ARGUMENT\", \"FAILED_PRECONDITION\", \"RESOURCE_EXHAUSTED\", \"CANCELLED\"";
  if (op.indices != nullptr) out += ", \"OUT_OF_RANGE\"";
  bool options = false, dtype = false;
  for (const ir::AttrDef& a : op.attrs) {
    options = options || !a.required;
    dtype = dtype || a.type == ir::AttrType::kDType;
  }
  if (options || dtype) out += ", \"UNIMPLEMENTED\"";
  return out;
}

// Calls that succeed, for tests and bindings; sample.h says how they read. Floats of operands lie between low and high.
std::string Samples(const ir::OpDef& op) {
  std::string out;
  for (const ir::Sample& sample : op.samples) {
    const auto number = [](double x) { return weft::NumberText(x, std::chars_format::general, 6); };
    const std::string range = ", \"low\": " + number(sample.low) + ", \"high\": " + number(sample.high) + "}";
    out += (out.empty() ? "\n       {\"call\": " : ",\n       {\"call\": ") + Quote(sample.call) + range;
  }
  return out;
}

const char* KindName(ir::Kind kind) {
  return kind == ir::Kind::kPrimitive ? "primitive" : kind == ir::Kind::kComposite ? "composite" : "macro";
}

// How vmap runs it: all examples at once by a rule, or one after the other.
const char* Batching(const ir::OpDef& op) {
  const bool rule = op.batching != nullptr || op.scalar != nullptr || op.expand != nullptr;
  return rule ? "together" : "one by one";
}

// The error that tests allow between a result and the reference, relative to it.
std::string Allowed(const ir::Tolerance& t) {
  const auto number = [](double x) { return weft::NumberText(x, std::chars_format::general, 6); };
  return "{\"f32\": " + number(t.f32) + ", \"f64\": " + number(t.f64) + ", \"f16\": " + number(t.f16) +
         ", \"bf16\": " + number(t.bf16) + ", \"absolute\": " + number(t.absolute) + "}";
}

void Print(const ir::OpDef& op, bool last) {
  std::string out = "    {\"name\": " + Quote(op.name) + ", \"c_name\": " + Quote(op.c_name) + ", \"kind\": \"" +
                    KindName(op.kind) + "\", \"since\": \"1." + std::to_string(op.since) +
                    "\", \"exported\": " + Bool(op.exported) + ", \"random\": " + Bool(op.random) +
                    // A call of two tensors, one of which a binding may be given as a number.
                    (op.rule == ir::OperandRule::kBroadcast ? ", \"broadcast\": true" : "") +
                    ",\n     \"doc\": " + Quote(op.doc) + ",\n     \"example\": " + Quote(op.example) +
                    ",\n     \"operands\": [" + Operands(op) + "],\n     \"attrs\": [" + Attributes(op) +
                    "],\n     \"results\": [";
  const std::vector<std::string> types = ResultTypeRules(op);
  for (size_t i = 0; i < op.results.size(); ++i) {
    out += (i > 0 ? ", " : "") + ("{\"name\": " + Quote(op.results[i]) + ", \"dtype\": " + types[i] + "}");
  }
  out += std::string("],\n     \"batching\": \"") + Batching(op) + "\", \"tolerance\": " + Allowed(op.tolerance);
  out += ",\n     \"errors\": [" + Errors(op) + "],\n     \"samples\": [" + Samples(op);
  out += std::string("]}") + (last ? "\n" : ",\n");
  std::fputs(out.c_str(), stdout);
}

}  // namespace
}  // namespace weft

int main() {
  std::printf("{\"computable\": %s,\n \"ops\": [\n", weft::DTypes(weft::ir::kEveryType).c_str());
  const auto all = weft::ops::AllOps();
  for (size_t i = 0; i < all.size(); ++i) weft::Print(*all[i], i + 1 == all.size());
  std::fputs("]}\n", stdout);
  return 0;
}
