// The operations whose pretty form is their own: each becomes what its generic form would have been. Everything else reads
// `op %a, %b, key = value {attributes} : types` (ParsePlain), with the names of the table below.
#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {
namespace {

using Kind = ir::ShloAttr::Kind;

// The name that a pretty form gives an attribute.
struct Named {
  std::string_view operation, pretty, attribute;
};
constexpr Named kNamed[] = {
    {"stablehlo.broadcast", "sizes", "broadcast_sizes"},
    {"stablehlo.broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"stablehlo.concatenate", "dim", "dimension"},
    {"stablehlo.dynamic_broadcast_in_dim", "dims", "broadcast_dimensions"},
    {"stablehlo.dynamic_iota", "dim", "iota_dimension"},
    {"stablehlo.dynamic_slice", "sizes", "slice_sizes"},
    {"stablehlo.einsum", "config", "einsum_config"},
    {"stablehlo.unary_einsum", "config", "einsum_config"},
    {"stablehlo.fft", "type", "fft_type"},
    {"stablehlo.fft", "length", "fft_length"},
    {"stablehlo.get_dimension_size", "dim", "dimension"},
    {"stablehlo.set_dimension_size", "dim", "dimension"},
    {"stablehlo.iota", "dim", "iota_dimension"},
    {"stablehlo.pad", "low", "edge_padding_low"},
    {"stablehlo.pad", "high", "edge_padding_high"},
    {"stablehlo.pad", "interior", "interior_padding"},
    {"stablehlo.reverse", "dims", "dimensions"},
    {"stablehlo.rng", "distribution", "rng_distribution"},
    {"stablehlo.rng_bit_generator", "algorithm", "rng_algorithm"},
    {"stablehlo.transpose", "dims", "permutation"},
    {"stablehlo.dot", "precision", "precision_config"},
    {"stablehlo.dot_general", "precision", "precision_config"},
};
// Words that stand alone, in their order.
constexpr std::string_view kCompareWords[] = {"comparison_direction", "compare_type"};

// The names within `window = {stride = …}`.
constexpr Named kWindow[] = {
    {"", "stride", "window_strides"},   {"", "pad", "padding"},
    {"", "lhs_dilate", "lhs_dilation"}, {"", "rhs_dilate", "rhs_dilation"},
    {"", "reverse", "window_reversal"},
};

std::string_view AttributeNamed(std::string_view operation, std::string_view pretty) {
  for (const Named& named : kNamed) {
    if (named.operation == operation && named.pretty == pretty) return named.attribute;
  }
  return pretty;
}

// [[0, 1], [true, false]] as one list of integers.
ir::ShloAttr Flattened(ir::ShloAttr attr) {
  if (attr.kind != Kind::kList) return attr;
  std::vector<int64_t> values;
  for (const ir::ShloAttr& element : attr.list) {
    if (element.kind == Kind::kInt) values.push_back(element.integer);
    values.insert(values.end(), element.ints.begin(), element.ints.end());
  }
  return ir::ShloAttr::Ints(std::move(values));
}

}  // namespace

constinit const Parser::Form Parser::kForms[] = {
    {"module", &Parser::ParseModule},
    {"builtin.module", &Parser::ParseModule},
    {"func.func", &Parser::ParseFunction},
    {"sdy.mesh", &Parser::ParseMesh},
    {"sdy.sharding_constraint", &Parser::ParseSharded},
    {"sdy.manual_computation", &Parser::ParseManual},
    {"return", &Parser::ParseReturn},
    {"func.return", &Parser::ParseReturn},
    {"stablehlo.return", &Parser::ParseReturn},
    {"sdy.return", &Parser::ParseReturn},
    {"call", &Parser::ParseCall},
    {"func.call", &Parser::ParseCall},
    {"stablehlo.constant", &Parser::ParseConstant},
    {"stablehlo.slice", &Parser::ParseSlice},
    {"stablehlo.dot_general", &Parser::ParseDotGeneral},
    {"stablehlo.convolution", &Parser::ParseConvolution},
    {"stablehlo.reduce", &Parser::ParseReduce},
    {"stablehlo.while", &Parser::ParseWhile},
    {"chlo.scan", &Parser::ParseScan},
    {"stablehlo.complex", &Parser::ParseComplex},
    {"stablehlo.custom_call", &Parser::ParseCustomCall},
    {"stablehlo.composite", &Parser::ParseComposite},
    {"stablehlo.get_tuple_element", &Parser::ParseElementOfTuple},
    {"stablehlo.reduce_precision", &Parser::ParseReducePrecision},
};

const Parser::Form* Parser::FindForm(std::string_view name) {
  const Form* found = std::ranges::find(kForms, name, &Form::name);
  return found == std::end(kForms) ? nullptr : found;
}

// dims = [0], LT, batching_dims = [0] x [1]
absl::Status Parser::ParseNamedItem(Operation& op, std::string_view key) {
  if (!Take("=")) {
    const size_t before = op.attributes.size();
    const bool compares = op.name == "stablehlo.compare" && before < std::size(kCompareWords);
    op.attributes.emplace_back(compares ? kCompareWords[before] : key, Attr::Word(std::string(key)));
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(Attr value, ParseAttr(/*untyped=*/true));
  if (TakeWord("x")) {
    Attr pair;
    pair.kind = Kind::kList;
    WEFT_ASSIGN_OR_RETURN(Attr second, ParseAttr(/*untyped=*/true));
    pair.list = {std::move(value), std::move(second)};
    value = std::move(pair);
  }
  op.attributes.emplace_back(AttributeNamed(op.name, key), std::move(value));
  return absl::OkStatus();
}

absl::Status Parser::ParseReturn(Operation& op) {
  op.name = "return";
  if (Peek() == '%') {
    do {
      WEFT_RETURN_IF_ERROR(ParseUse(op));
    } while (Take(","));
  }
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  return Take(":") ? ParsePrettyTypes(op) : absl::OkStatus();
}

// call @f(%a) : (T) -> U
absl::Status Parser::ParseCall(Operation& op) {
  WEFT_ASSIGN_OR_RETURN(Attr callee, ParseSymbol());
  op.attributes.emplace_back("callee", std::move(callee));
  return ParsePlain(op);
}

// constant {…} dense<…> : T, or the generic form's rest where the literal has another type: constant() <{value = …}> : () -> T
absl::Status Parser::ParseConstant(Operation& op) {
  if (Peek() == '(') return ParseGenericRest(op);
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  if (!TakeWord("dense")) return Expected("dense<…>");
  const size_t start = position();
  WEFT_ASSIGN_OR_RETURN(Attr value, ParseDense());
  value.text = Between(start, position());
  op.result_types.push_back(literal_type_);
  op.attributes.emplace_back("value", std::move(value));
  return absl::OkStatus();
}

// slice %x [0:4, 1:9:2] : types
absl::Status Parser::ParseSlice(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUse(op));
  WEFT_RETURN_IF_ERROR(Need("["));
  std::vector<int64_t> starts, limits, strides;
  for (bool first = true; !Take("]"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(starts.emplace_back(), Number<int64_t>("the first index"));
    WEFT_RETURN_IF_ERROR(Need(":"));
    WEFT_ASSIGN_OR_RETURN(limits.emplace_back(), Number<int64_t>("the index behind the last"));
    strides.push_back(1);
    if (Take(":")) {
      WEFT_ASSIGN_OR_RETURN(strides.back(), Number<int64_t>("a stride"));
    }
  }
  op.attributes.emplace_back("start_indices", Attr::Ints(std::move(starts)));
  op.attributes.emplace_back("limit_indices", Attr::Ints(std::move(limits)));
  op.attributes.emplace_back("strides", Attr::Ints(std::move(strides)));
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  WEFT_RETURN_IF_ERROR(Need(":"));
  return ParsePrettyTypes(op);
}

// dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [0], precision = […], algorithm = <…> : types
absl::Status Parser::ParseDotGeneral(Operation& op) {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(ParsePlain(op));
  Attr dims;
  dims.kind = Kind::kFields;
  dims.attribute_struct = true;
  constexpr std::string_view kSides[][3] = {
      {"batching_dims", "lhs_batching_dimensions", "rhs_batching_dimensions"},
      {"contracting_dims", "lhs_contracting_dimensions", "rhs_contracting_dimensions"}};
  for (const auto& [pretty, lhs, rhs] : kSides) {
    auto found = std::ranges::find(op.attributes, pretty, [](const auto& a) { return a.first; });
    if (found == op.attributes.end()) continue;
    if (found->second.kind != Kind::kList || found->second.list.size() != 2) {
      return ExpectedAt(start, absl::StrCat(pretty, " = […] x […]"));
    }
    dims.fields.emplace_back(lhs, std::move(found->second.list[0]));
    dims.fields.emplace_back(rhs, std::move(found->second.list[1]));
    op.attributes.erase(found);
  }
  op.attributes.emplace_back("dot_dimension_numbers", std::move(dims));
  return absl::OkStatus();
}

// convolution(%a, %k) dim_numbers = […]x[…]->[…], window = {stride = […], …} {attributes} : types
absl::Status Parser::ParseConvolution(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUses(op));
  if (!TakeWord("dim_numbers")) return Expected("dim_numbers");
  WEFT_RETURN_IF_ERROR(Need("="));
  WEFT_ASSIGN_OR_RETURN(Attr dims, ParseConvDims());
  op.attributes.emplace_back("dimension_numbers", std::move(dims));
  if (Take(",")) {
    if (!TakeWord("window")) return Expected("window");
    WEFT_RETURN_IF_ERROR(Need("="));
    Attr::Fields window;
    WEFT_RETURN_IF_ERROR(ParseDictionary(window));
    for (auto& [key, value] : window) {
      const Named* named = std::ranges::find(kWindow, key, &Named::pretty);
      if (named == std::end(kWindow))
        return Expected("a window of stride, pad, lhs_dilate, rhs_dilate and reverse before this");
      op.attributes.emplace_back(named->attribute, Flattened(std::move(value)));
    }
  }
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  WEFT_RETURN_IF_ERROR(Need(":"));
  return ParsePrettyTypes(op);
}

// reduce(%x init: %v), (%y init: %w) [applies stablehlo.add] across dimensions = [0] : types [reducer…]
absl::Status Parser::ParseReduce(Operation& op) {
  Operation inits;
  do {
    WEFT_RETURN_IF_ERROR(Need("("));
    WEFT_RETURN_IF_ERROR(ParseUse(op));
    if (!TakeWord("init")) return Expected("init");
    WEFT_RETURN_IF_ERROR(Need(":"));
    WEFT_RETURN_IF_ERROR(ParseUse(inits));
    WEFT_RETURN_IF_ERROR(Need(")"));
  } while (Take(","));
  op.operands.insert(op.operands.end(), inits.operands.begin(), inits.operands.end());
  std::string_view applies;
  if (TakeWord("applies")) {
    applies = Word();
    if (applies.empty()) return Expected("the operation to reduce by");
  }
  if (!TakeWord("across") || !TakeWord("dimensions")) return Expected("across dimensions = […]");
  WEFT_RETURN_IF_ERROR(Need("="));
  WEFT_ASSIGN_OR_RETURN(Attr dimensions, ParseList());
  op.attributes.emplace_back("dimensions", std::move(dimensions));
  if (Peek() == '{') WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  WEFT_RETURN_IF_ERROR(Need(":"));
  WEFT_RETURN_IF_ERROR(ParsePrettyTypes(op));
  WEFT_RETURN_IF_ERROR(ParseLocation(op.location));
  if (applies.empty()) return ParseReducer(op);
  // The short form stands for one operation of two scalars.
  if (op.operands.size() != 2 || op.operand_types.size() != 2)
    return Expected("one operand with `applies` before this");
  const TypeText& scalar = op.operand_types[1];
  Region& body = op.regions.emplace_back();
  body.arguments = {{"%lhs", scalar, {}}, {"%rhs", scalar, {}}};
  Operation& apply = body.operations.emplace_back();
  apply.name = applies;
  apply.position = op.position;
  apply.bounds = {{"%result", 1, op.position}};
  apply.operands = {{"%lhs", 0, op.position}, {"%rhs", 0, op.position}};
  apply.result_types = {scalar};
  Operation& end = body.operations.emplace_back();
  end.name = "return";
  end.position = op.position;
  end.operands = {{"%result", 0, op.position}};
  return absl::OkStatus();
}

// reducer(%a: T, %b: T) (%c: U, %d: U) { … }: a pair for each operand, where the block has all first ones before the others.
absl::Status Parser::ParseReducer(Operation& op) {
  if (!TakeWord("reducer")) return Expected("reducer");
  std::vector<Argument> first, second;
  while (Take("(")) {
    WEFT_RETURN_IF_ERROR(ParseArgument(first.emplace_back()));
    WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_RETURN_IF_ERROR(ParseArgument(second.emplace_back()));
    WEFT_RETURN_IF_ERROR(Need(")"));
  }
  Region& body = op.regions.emplace_back();
  WEFT_RETURN_IF_ERROR(ParseRegion(body));
  std::ranges::move(second, std::back_inserter(first));
  body.arguments = std::move(first);
  return absl::OkStatus();
}

// while(%iterArg = %a, %iterArg_0 = %b) : T, U [attributes {…}] cond { … } do { … }
absl::Status Parser::ParseWhile(Operation& op) {
  std::vector<Argument> arguments;
  WEFT_RETURN_IF_ERROR(Need("("));
  for (bool first = true; !Take(")"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(arguments.emplace_back().name, ParseValueName());
    WEFT_RETURN_IF_ERROR(Need("="));
    WEFT_RETURN_IF_ERROR(ParseUse(op));
  }
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(Need(":"));
  WEFT_RETURN_IF_ERROR(ParsePrettyTypes(op));
  if (op.operand_types.size() != arguments.size()) {
    return ExpectedAt(start, absl::StrCat("the types of ", arguments.size(), " values"));
  }
  op.result_types = op.operand_types;
  for (size_t i = 0; i < arguments.size(); ++i) arguments[i].type = op.operand_types[i];
  WEFT_RETURN_IF_ERROR(ParseLocation(op.location));
  if (TakeWord("attributes")) WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  for (std::string_view word : {"cond", "do"}) {
    if (!TakeWord(word)) return Expected(word);
    Region region;
    WEFT_RETURN_IF_ERROR(ParseRegion(region));
    region.arguments = arguments;
    op.regions.push_back(std::move(region));
  }
  return absl::OkStatus();
}

// scan(%a, %b) inits(%c) dimension=0 [attributes {…}] { … } : (T, U, V) -> (…)
absl::Status Parser::ParseScan(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUses(op));
  const auto inputs = static_cast<int64_t>(op.operands.size());
  if (!TakeWord("inits")) return Expected("inits(…)");
  WEFT_RETURN_IF_ERROR(ParseUses(op));
  if (!TakeWord("dimension")) return Expected("dimension = …");
  WEFT_RETURN_IF_ERROR(Need("="));
  WEFT_ASSIGN_OR_RETURN(Attr dimension, ParseNumber(/*untyped=*/true));
  op.attributes.emplace_back("dimension", std::move(dimension));
  op.attributes.emplace_back("operandSegmentSizes",
                             Attr::Ints({inputs, static_cast<int64_t>(op.operands.size()) - inputs}));
  if (TakeWord("attributes")) WEFT_RETURN_IF_ERROR(ParseDictionary(op.attributes));
  WEFT_RETURN_IF_ERROR(ParseRegion(op.regions.emplace_back()));
  WEFT_RETURN_IF_ERROR(Need(":"));
  return ParsePrettyTypes(op);
}

// complex %a, %b : T, the type of the result; its parts' types follow from it.
absl::Status Parser::ParseComplex(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParsePlain(op));
  const bool short_form = std::ranges::all_of(
      op.operand_types, [](const TypeText& type) { return type.type.is_tensor() && IsComplex(type.type.dtype); });
  if (short_form) op.operand_types.clear();
  return absl::OkStatus();
}

// custom_call @target(%a) {…} : types
absl::Status Parser::ParseCustomCall(Operation& op) {
  WEFT_ASSIGN_OR_RETURN(Attr target, ParseSymbol());
  op.attributes.emplace_back("call_target_name", std::move(target));
  return ParsePlain(op);
}

// composite "chlo.erf" %x {decomposition = @f, …} : types
absl::Status Parser::ParseComposite(Operation& op) {
  WEFT_ASSIGN_OR_RETURN(Attr name, ParseAttr(/*untyped=*/true));
  op.attributes.emplace_back("name", std::move(name));
  return ParsePlain(op);
}

// get_tuple_element %t[1] : types
absl::Status Parser::ParseElementOfTuple(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUse(op));
  WEFT_RETURN_IF_ERROR(Need("["));
  WEFT_ASSIGN_OR_RETURN(const int64_t index, Number<int64_t>("an element's number"));
  WEFT_RETURN_IF_ERROR(Need("]"));
  op.attributes.emplace_back("index", Attr::Int(index));
  return ParsePlain(op);
}

// reduce_precision %x, format = e5m10 : T
absl::Status Parser::ParseReducePrecision(Operation& op) {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(ParsePlain(op));
  auto format = std::ranges::find(op.attributes, "format", [](const auto& a) { return a.first; });
  const std::string_view text = format == op.attributes.end() ? std::string_view() : format->second.string;
  const size_t m = text.find('m');
  int64_t exponent = 0, mantissa = 0;
  if (!text.starts_with('e') || m == std::string_view::npos || !absl::SimpleAtoi(text.substr(1, m - 1), &exponent) ||
      !absl::SimpleAtoi(text.substr(m + 1), &mantissa)) {
    return ExpectedAt(start, "a format such as e5m10");
  }
  op.attributes.erase(format);
  op.attributes.emplace_back("exponent_bits", Attr::Int(exponent));
  op.attributes.emplace_back("mantissa_bits", Attr::Int(mantissa));
  return absl::OkStatus();
}

absl::Status Parser::SkipAsText(Operation& op, std::string_view name) {
  Attr attr;
  attr.kind = Attr::Kind::kText;
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(SkipBalanced());
  attr.text = Between(start, position());
  op.attributes.emplace_back(name, std::move(attr));
  return absl::OkStatus();
}

// sdy.sharding_constraint %x <@mesh, [{}]> : T
absl::Status Parser::ParseSharded(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUse(op));
  WEFT_RETURN_IF_ERROR(SkipAsText(op, "sharding"));
  return ParsePlain(op);
}

// sdy.manual_computation(%a) in_shardings=[…] out_shardings=[…] manual_axes={…} (%x: T) { … } : types
absl::Status Parser::ParseManual(Operation& op) {
  WEFT_RETURN_IF_ERROR(ParseUses(op));
  for (std::string_view name = Word(); !name.empty(); name = Word()) {
    WEFT_RETURN_IF_ERROR(Need("="));
    const bool known = name == "in_shardings" || name == "out_shardings" || name == "manual_axes";
    WEFT_RETURN_IF_ERROR(known ? SkipAsText(op, name) : SkipBalanced());
  }
  std::vector<Argument> arguments;
  WEFT_RETURN_IF_ERROR(ParseArguments(arguments));
  Region& body = op.regions.emplace_back();
  WEFT_RETURN_IF_ERROR(ParseRegion(body));
  body.arguments = std::move(arguments);
  WEFT_RETURN_IF_ERROR(Need(":"));
  return ParsePrettyTypes(op);
}

}  // namespace weft::stablehlo
