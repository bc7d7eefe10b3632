// See hlo_attributes.h.
#include "src/stablehlo/hlo_attributes.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace weft::stablehlo {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kMostElements = 1024;

std::string WordIn(const Operation& op, std::string_view attribute) {
  const ir::ShloAttr* attr = op.Find(attribute);
  return attr == nullptr ? "" : attr->string;
}
int64_t IntIn(const Operation& op, std::string_view attribute, int64_t absent) {
  const ir::ShloAttr* attr = op.Find(attribute);
  return attr == nullptr ? absent : attr->integer;
}
std::string Truth(const Operation& op, std::string_view attribute) {
  return IntIn(op, attribute, 0) != 0 ? "true" : "false";
}

// Pairs of low and high: dense<…> : tensor<nx2xi64>.
Ints PairsIn(const Operation& op, std::string_view attribute, size_t rank) {
  const ir::ShloAttr* attr = op.Find(attribute);
  Ints pairs(2 * rank, 0);
  if (attr == nullptr || !attr->tensor) return pairs;
  const HostTensor& value = attr->tensor->value;
  for (size_t i = 0; i < pairs.size() && (attr->splat || static_cast<int64_t>(i) < value.count()); ++i)
    pairs[i] = value.GetInt(attr->splat ? 0 : static_cast<int64_t>(i));
  return pairs;
}

// " stride=2x2": nothing where all are `usual`.
std::string Window(std::string_view name, const Ints& values, int64_t usual) {
  if (std::ranges::all_of(values, [&](int64_t value) { return value == usual; })) return "";
  return absl::StrCat(" ", name, "=", absl::StrJoin(values, "x"));
}

// window={size=2x2 stride=2x2 pad=0_1x0_1 lhs_dilate=1x2 rhs_dilate=2x1 rhs_reversal=1x0}
std::string WindowOf(const Operation& op, const Ints& sizes) {
  const auto either = [&](std::string_view one, std::string_view other) {
    Ints values = IntsIn(op, one);
    return values.empty() ? IntsIn(op, other) : values;
  };
  const Ints pairs = PairsIn(op, "padding", sizes.size());
  std::string pad;
  if (std::ranges::any_of(pairs, [](int64_t value) { return value != 0; })) {
    for (size_t i = 0; i < sizes.size(); ++i)
      absl::StrAppend(&pad, i == 0 ? " pad=" : "x", pairs[2 * i], "_", pairs[2 * i + 1]);
  }
  if (sizes.empty()) return "";
  return absl::StrCat(", window={size=", absl::StrJoin(sizes, "x"), Window("stride", IntsIn(op, "window_strides"), 1),
                      pad, Window("lhs_dilate", either("base_dilations", "lhs_dilation"), 1),
                      Window("rhs_dilate", either("window_dilations", "rhs_dilation"), 1),
                      Window("rhs_reversal", IntsIn(op, "window_reversal"), 0), "}");
}

// operand_precision={highest,highest}; nothing for the default.
std::string PrecisionOf(const Operation& op) {
  const ir::ShloAttr* config = op.Find("precision_config");
  std::vector<std::string> words;
  for (size_t i = 0; config != nullptr && i < config->list.size(); ++i)
    words.push_back(absl::AsciiStrToLower(config->list[i].string));
  if (std::ranges::all_of(words, [](const std::string& word) { return word == "default"; })) return "";
  return absl::StrCat(", operand_precision={", absl::StrJoin(words, ","), "}");
}

// "b01f" of where batch, feature and spatial dimensions are.
std::string Labels(const Ints& dims, char first, char second) {
  std::string labels(dims.size(), '?');
  for (size_t i = 0; i < dims.size(); ++i) {
    const auto at = static_cast<size_t>(dims[i]);
    if (at < labels.size()) labels[at] = i == 0 ? first : i == 1 ? second : static_cast<char>('0' + i - 2);
  }
  return labels;
}

std::string ConvolutionOf(const Operation& op) {
  const ir::ShloAttr* dims = op.Find("dimension_numbers");
  const Ints input = IntsIn(dims, "input_dimensions"), kernel = IntsIn(dims, "kernel_dimensions");
  Ints sizes;
  for (size_t i = 2; i < kernel.size() && op.operand_types.size() == 2; ++i)
    sizes.push_back(op.operand_types[1].type.dims[static_cast<size_t>(kernel[i])]);
  return absl::StrCat(WindowOf(op, sizes), ", dim_labels=", Labels(input, 'b', 'f'), "_", Labels(kernel, 'i', 'o'),
                      "->", Labels(IntsIn(dims, "output_dimensions"), 'b', 'f'),
                      ", feature_group_count=", IntIn(op, "feature_group_count", 1),
                      ", batch_group_count=", IntIn(op, "batch_group_count", 1), PrecisionOf(op));
}

std::string DotOf(const Operation& op) {
  const ir::ShloAttr* dims = op.Find("dot_dimension_numbers");
  std::string text;
  for (const auto& [field, name] : {std::pair("lhs_batching_dimensions", "lhs_batch_dims"),
                                    std::pair("lhs_contracting_dimensions", "lhs_contracting_dims"),
                                    std::pair("rhs_batching_dimensions", "rhs_batch_dims"),
                                    std::pair("rhs_contracting_dimensions", "rhs_contracting_dims")}) {
    if (const Ints values = IntsIn(dims, field); !values.empty() || text.empty())
      absl::StrAppend(&text, ", ", name, "=", HloList(values));
  }
  return text + PrecisionOf(op);
}

// The fields of a #stablehlo.gather or scatter, which HLO has by the same names.
std::string FieldsOf(const Operation& op, std::string_view attribute, std::initializer_list<const char*> names) {
  const ir::ShloAttr* dims = op.Find(attribute);
  std::string text;
  for (const char* name : names) absl::StrAppend(&text, ", ", name, "=", HloList(IntsIn(dims, name)));
  const ir::ShloAttr* vector = dims == nullptr ? nullptr : dims->Find("index_vector_dim");
  return absl::StrCat(text, ", index_vector_dim=", vector == nullptr ? 0 : vector->integer);
}

std::string SliceOf(const Operation& op) {
  const Ints start = IntsIn(op, "start_indices"), limit = IntsIn(op, "limit_indices"), step = IntsIn(op, "strides");
  std::string text;
  for (size_t i = 0; i < start.size() && i < limit.size(); ++i)
    absl::StrAppend(&text, i == 0 ? "" : ", ", "[", start[i], ":", limit[i], ":", i < step.size() ? step[i] : 1, "]");
  return absl::StrCat(", slice={", text, "}");
}

std::string PadOf(const Operation& op) {
  const Ints low = IntsIn(op, "edge_padding_low"), high = IntsIn(op, "edge_padding_high"),
             inside = IntsIn(op, "interior_padding");
  std::string text;
  for (size_t i = 0; i < low.size() && i < high.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "x", low[i], "_", high[i]);
    if (i < inside.size() && inside[i] != 0) absl::StrAppend(&text, "_", inside[i]);
  }
  return text.empty() ? "" : absl::StrCat(", padding=", text);
}

std::string AxisOf(const Operation& op) { return absl::StrCat(", dimensions={", IntIn(op, "dimension", 0), "}"); }

// The attribute `from` as HLO's list `name`.
std::string ListOf(const Operation& op, std::string_view from, std::string_view name) {
  return absl::StrCat(", ", name, "=", HloList(IntsIn(op, from)));
}
std::string DimensionsOf(const Operation& op) { return ListOf(op, "dimensions", "dimensions"); }
std::string TransposeOf(const Operation& op) { return ListOf(op, "permutation", "dimensions"); }
std::string DynamicSliceOf(const Operation& op) { return ListOf(op, "slice_sizes", "dynamic_slice_sizes"); }
std::string IotaOf(const Operation& op) { return absl::StrCat(", iota_dimension=", IntIn(op, "iota_dimension", 0)); }
std::string CompareOf(const Operation& op) { return absl::StrCat(", direction=", WordIn(op, "comparison_direction")); }
std::string GatherOf(const Operation& op) {
  return FieldsOf(op, "dimension_numbers",
                  {"offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims",
                   "start_index_map"}) +
         ListOf(op, "slice_sizes", "slice_sizes");
}
std::string ScatterOf(const Operation& op) {
  return FieldsOf(op, "scatter_dimension_numbers",
                  {"update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
                   "scatter_dims_to_operand_dims"});
}
std::string SortOf(const Operation& op) { return absl::StrCat(AxisOf(op), ", is_stable=", Truth(op, "is_stable")); }
std::string WindowedOf(const Operation& op) { return WindowOf(op, IntsIn(op, "window_dimensions")); }
std::string RandomOf(const Operation& op) {
  const std::string word = WordIn(op, "rng_algorithm");
  return absl::StrCat(", algorithm=rng_", word == "THREE_FRY" ? "three_fry" : absl::AsciiStrToLower(word));
}
std::string FftOf(const Operation& op) {
  return absl::StrCat(", fft_type=", WordIn(op, "fft_type"), ListOf(op, "fft_length", "fft_length"));
}
std::string SolveOf(const Operation& op) {
  return absl::StrCat(", left_side=", Truth(op, "left_side"), ", lower=", Truth(op, "lower"),
                      ", unit_diagonal=", Truth(op, "unit_diagonal"), ", transpose_a=", WordIn(op, "transpose_a"));
}
std::string CholeskyOf(const Operation& op) { return absl::StrCat(", lower=", Truth(op, "lower")); }
std::string RoundingOf(const Operation& op) {
  return absl::StrCat(", exponent_bits=", IntIn(op, "exponent_bits", 8),
                      ", mantissa_bits=", IntIn(op, "mantissa_bits", 23));
}
std::string CustomOf(const Operation& op) {
  return absl::StrCat(", custom_call_target=\"", absl::CEscape(WordIn(op, "call_target_name")), "\"");
}

struct Rule {
  std::string_view name, hlo;
  std::string (*attributes)(const Operation& op);
  std::string_view roles[2] = {};
};
constexpr Rule kRules[] = {
    {"transpose", "transpose", TransposeOf},
    {"reverse", "reverse", DimensionsOf},
    {"iota", "iota", IotaOf},
    {"concatenate", "concatenate", AxisOf},
    {"compare", "compare", CompareOf},
    {"slice", "slice", SliceOf},
    {"dynamic_slice", "dynamic-slice", DynamicSliceOf},
    {"pad", "pad", PadOf},
    {"dot_general", "dot", DotOf},
    {"convolution", "convolution", ConvolutionOf},
    {"gather", "gather", GatherOf},
    {"scatter", "scatter", ScatterOf, {"to_apply"}},
    {"sort", "sort", SortOf, {"to_apply"}},
    {"reduce", "reduce", DimensionsOf, {"to_apply"}},
    {"map", "map", DimensionsOf, {"to_apply"}},
    {"reduce_window", "reduce-window", WindowedOf, {"to_apply"}},
    {"select_and_scatter", "select-and-scatter", WindowedOf, {"select", "scatter"}},
    {"rng_bit_generator", "rng-bit-generator", RandomOf},
    {"fft", "fft", FftOf},
    {"triangular_solve", "triangular-solve", SolveOf},
    {"cholesky", "cholesky", CholeskyOf},
    {"reduce_precision", "reduce-precision", RoundingOf},
    {"get_dimension_size", "get-dimension-size", AxisOf},
    {"custom_call", "custom-call", CustomOf},
};

// Those that HLO has by the same name, with hyphens, and without attributes.
constexpr std::string_view kPlain =
    " abs add and atan2 bitcast_convert cbrt ceil clamp complex convert cosine count_leading_zeros divide "
    "dynamic_update_slice exponential exponential_minus_one floor imag is_finite log log_plus_one logistic "
    "maximum minimum multiply negate not or popcnt power real remainder reshape round_nearest_afz "
    "round_nearest_even rsqrt select shift_left shift_right_arithmetic shift_right_logical sign sine sqrt "
    "subtract tan tanh xor ";

std::string Element(const HostTensor& value, int64_t i) {
  const DType dtype = value.dtype();
  if (IsBool(dtype)) return value.GetInt(i) != 0 ? "true" : "false";
  if (dtype == DType::kU64) return absl::StrCat(static_cast<uint64_t>(value.GetInt(i)));
  if (IsInteger(dtype)) return absl::StrCat(value.GetInt(i));
  const auto real = [](double number, bool wide) -> std::string {
    if (std::isnan(number)) return "nan";
    if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
    char text[64];
    const auto end = wide ? std::to_chars(text, text + sizeof text, number)
                          : std::to_chars(text, text + sizeof text, static_cast<float>(number));
    return {text, end.ptr};
  };
  if (!IsComplex(dtype)) return real(value.GetDouble(i), dtype == DType::kF64);
  const auto width = static_cast<size_t>(BytesOf(dtype));
  const HostTensor parts(PartOf(dtype), {2}, value.bytes().subspan(static_cast<size_t>(i) * width, width));
  const bool wide = dtype == DType::kC128;
  return absl::StrCat("(", real(parts.GetDouble(0), wide), ", ", real(parts.GetDouble(1), wide), ")");
}

}  // namespace

std::string HloList(const std::vector<int64_t>& values) { return absl::StrCat("{", absl::StrJoin(values, ","), "}"); }

std::vector<int64_t> IntsIn(const ir::ShloAttr* fields, std::string_view field) {
  const ir::ShloAttr* attr = fields == nullptr ? nullptr : fields->Find(field);
  return attr == nullptr ? Ints() : attr->ints;
}

std::vector<int64_t> IntsIn(const Operation& op, std::string_view attribute) {
  const ir::ShloAttr* attr = op.Find(attribute);
  return attr == nullptr ? Ints() : attr->ints;
}

std::string HloLiteral(const ir::ShloAttr& dense) {
  if (!dense.tensor) return "{...}";
  const HostTensor& value = dense.tensor->value;
  const Dims& dims = value.dims();
  if (value.count() > kMostElements) return "{...}";
  if (dims.empty()) return Element(value, 0);
  int64_t next = 0;
  const std::function<std::string(size_t)> nested = [&](size_t d) {
    std::string text = "{";
    for (int64_t i = 0; i < dims[d]; ++i) {
      absl::StrAppend(&text, i == 0 ? " " : ", ", d + 1 < dims.size() ? nested(d + 1) : Element(value, next));
      if (d + 1 == dims.size()) ++next;
    }
    return text + " }";
  };
  return nested(0);
}

HloSpelling HloSpellingOf(const Operation& op) {
  std::string_view name = op.name;
  constexpr std::string_view kDialect = "stablehlo.";
  if (!name.starts_with(kDialect)) return {};
  name.remove_prefix(kDialect.size());
  if (const Rule* rule = std::ranges::find(kRules, name, &Rule::name); rule != std::end(kRules)) {
    HloSpelling spelling = {std::string(rule->hlo), rule->attributes(op), {}};
    for (const std::string_view role : rule->roles) {
      if (!role.empty()) spelling.roles.emplace_back(role);
    }
    return spelling;
  }
  if (!absl::StrContains(kPlain, absl::StrCat(" ", name, " "))) return {};
  return {absl::StrReplaceAll(name, {{"_", "-"}}), "", {}};
}

}  // namespace weft::stablehlo
