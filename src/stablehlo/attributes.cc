// Attributes. Those that StableHLO defines become values; other dialects' are kept as text.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/ir/stablehlo.h"
#include "src/stablehlo/parser.h"

namespace weft::stablehlo {
namespace {

// A short text must not stand for a long one many times over.
constexpr size_t kMaxSubstituted = size_t{1} << 20;

using Kind = ir::ShloAttr::Kind;

}  // namespace

absl::StatusOr<ir::ShloAttr> Parser::ParseAttr(bool untyped) {
  const size_t start = Here();
  if (++nesting_ > kMaxNesting) return ExpectedAt(start, "an attribute that is less deeply nested");
  WEFT_ASSIGN_OR_RETURN(Attr attr, ParseAttrKind(untyped));
  --nesting_;
  attr.text = Between(start, position());
  return attr;
}

absl::StatusOr<ir::ShloAttr> Parser::ParseAttrKind(bool untyped) {
  Attr attr;
  switch (Peek()) {
    case '"': {
      WEFT_ASSIGN_OR_RETURN(attr.string, String("a string"));
      attr.kind = Kind::kString;
      if (!untyped && Take(":")) WEFT_RETURN_IF_ERROR(ParseType().status());
      return attr;
    }
    case '[': return ParseList();
    case '{':
      attr.kind = Kind::kFields;
      WEFT_RETURN_IF_ERROR(ParseDictionary(attr.fields));
      return attr;
    case '<': return ParseStruct("");
    case '@': return ParseSymbol();
    case '#': return ParseHash();
    case '!':
    case '(': {
      attr.kind = Kind::kType;
      if (Peek() == '!') {
        WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
        attr.type = std::make_shared<const ir::Type>(std::move(type.type));
        return attr;
      }
      attr.kind = Kind::kText;
      Operation function_type;
      WEFT_RETURN_IF_ERROR(ParseFunctionType(function_type));
      return attr;
    }
    default: break;
  }
  const char c = Peek();
  if (c == '-' || absl::ascii_isdigit(static_cast<unsigned char>(c))) return ParseNumber(untyped);
  return ParseNamed();
}

// 3, -1 : i64, 0x7FC00000 : f32, 9.5e-01 : f32
absl::StatusOr<ir::ShloAttr> Parser::ParseNumber(bool untyped) {
  const size_t start = Here();
  const bool negative = Take("-");
  const std::string_view rest = text().substr(position());
  Attr attr;
  uint64_t whole = 0;
  const bool hexadecimal = rest.starts_with("0x");
  const char* begin = rest.data() + (hexadecimal ? 2 : 0);
  auto [end, error] = std::from_chars(begin, rest.data() + rest.size(), whole, hexadecimal ? 16 : 10);
  const size_t length = end - rest.data();
  const bool real =
      !hexadecimal && (error != std::errc() ||
                       (length < rest.size() && std::string_view(".eE").find(rest[length]) != std::string_view::npos));
  if (real) {
    auto [stop, wrong] = std::from_chars(rest.data(), rest.data() + rest.size(), attr.number);
    if (wrong != std::errc()) return ExpectedAt(start, "a number");
    attr.kind = Kind::kFloat;
    attr.number = negative ? -attr.number : attr.number;
    set_position(position() + (stop - rest.data()));
  } else {
    const bool fits = !negative || hexadecimal || whole <= uint64_t{1} << 63;
    if (error != std::errc() || !fits) return ExpectedAt(start, "a number of at most 64 bits");
    attr.kind = Kind::kInt;
    attr.integer = static_cast<int64_t>(negative ? 0 - whole : whole);
    set_position(position() + length);
  }
  if (!untyped && Take(":")) WEFT_RETURN_IF_ERROR(ParseType().status());
  return attr;
}

absl::StatusOr<ir::ShloAttr> Parser::ParseList() {
  WEFT_RETURN_IF_ERROR(Need("["));
  Attr attr;
  attr.kind = Kind::kInts;
  while (!Take("]")) {
    if (!attr.ints.empty() || !attr.list.empty()) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(Attr element, ParseAttr());
    if (element.kind == Kind::kInt && attr.kind == Kind::kInts) {
      attr.ints.push_back(element.integer);
      continue;
    }
    if (attr.kind == Kind::kInts) {  // the first that is no integer: all become attributes
      for (int64_t value : attr.ints) attr.list.push_back(Attr::Int(value));
      attr.ints.clear();
      attr.kind = Kind::kList;
    }
    attr.list.push_back(std::move(element));
  }
  return attr;
}

// Behind "array": <i64: 1, 2>, <i1: true>, <i64>
absl::StatusOr<ir::ShloAttr> Parser::ParseIntArray() {
  WEFT_RETURN_IF_ERROR(Need("<"));
  WEFT_ASSIGN_OR_RETURN(const DType dtype, ElementType());
  Attr attr;
  attr.kind = Kind::kInts;
  if (Take(":")) {
    do {
      const size_t start = Here();
      if (TakeWord("true") || TakeWord("false")) {
        attr.ints.push_back(Between(start, position()) == "true" ? 1 : 0);
      } else if (IsInteger(dtype)) {
        WEFT_ASSIGN_OR_RETURN(int64_t value, Number<int64_t>("an integer"));
        attr.ints.push_back(value);
      } else {
        WEFT_ASSIGN_OR_RETURN(Attr value, ParseNumber(true));
        attr.kind = Kind::kList;
        attr.list.push_back(std::move(value));
      }
    } while (Take(","));
  }
  WEFT_RETURN_IF_ERROR(Need(">"));
  return attr;
}

// @f, @"any name", @outer::@inner: as many parts as the text has.
absl::StatusOr<ir::ShloAttr> Parser::ParseSymbol() {
  Attr attr;
  attr.kind = Kind::kSymbol;
  while (true) {
    WEFT_RETURN_IF_ERROR(Need("@"));
    if (LooksAt("\"")) {
      WEFT_ASSIGN_OR_RETURN(const std::string name, String("a name"));
      attr.string += name;
    } else {
      const std::string_view name = Suffix();
      if (name.empty()) return Expected("a name");
      attr.string += name;
    }
    if (!LooksAt("::@")) return attr;
    set_position(position() + 2);
    attr.string += "::";
  }
}

std::string NameAsText(std::string_view name) {
  const auto in_word = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '.';
  };
  const bool begins = !name.empty() && (absl::ascii_isalpha(static_cast<unsigned char>(name[0])) || name[0] == '_');
  return begins && std::ranges::all_of(name, in_word) ? std::string(name) : absl::StrCat("\"", name, "\"");
}

std::string Parser::TextOf(const ir::ShloAttr& attr) const {
  if (!attr.text.empty()) {
    size_t room = kMaxSubstituted;
    return WithoutAliases(attr.text, &room);
  }
  const auto text_of = [this](const ir::ShloAttr& element) { return TextOf(element); };
  switch (attr.kind) {
    case Kind::kInt: return ir::ShloI64(attr.integer);
    case Kind::kInts: return ir::ShloArray(attr.ints);
    case Kind::kString:
    case Kind::kWord: return ir::ShloText(attr.string);
    case Kind::kSymbol: return absl::StrCat("@", ir::ShloText(attr.string));
    case Kind::kList: {
      std::vector<std::string> elements;
      std::ranges::transform(attr.list, std::back_inserter(elements), text_of);
      return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
    }
    case Kind::kFields: {
      std::vector<std::string> fields;
      for (const auto& [name, value] : attr.fields)
        fields.push_back(absl::StrCat(NameAsText(name), " = ", TextOf(value)));
      return absl::StrCat("{", absl::StrJoin(fields, ", "), "}");
    }
    default: return "unit";
  }
}

// Each alias's text within `room`, so that a short text cannot stand for a long one.
std::string Parser::WithoutAliases(std::string_view text, size_t* room, int depth) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') {  // a string, in which nothing stands for anything
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
    } else if (text[at] == '#' || text[at] == '!') {
      while (end < text.size() && (absl::ascii_isalnum(static_cast<unsigned char>(text[end])) ||
                                   std::string_view("_$.").find(text[end]) != std::string_view::npos)) {
        ++end;
      }
      const auto found = aliases_.find(text.substr(at, end - at));
      const std::string_view stands_for =
          found == aliases_.end()
              ? ""
              : this->text().substr(found->second.first, found->second.second - found->second.first);
      if (!stands_for.empty() && stands_for.size() <= *room && depth < kMaxNesting) {
        *room -= stands_for.size();
        out += WithoutAliases(stands_for, room, depth + 1);
        at = end;
        continue;
      }
    }
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

// Where the text of an alias stands becomes the position; the position to come back to is the result.
absl::StatusOr<size_t> Parser::EnterAlias(std::string_view name, size_t use) {
  auto found = aliases_.find(name);
  if (found == aliases_.end()) return ExpectedAt(use, "an alias that is defined above");
  const auto [begin, end] = found->second;
  substituted_ += end - begin;
  if (substituted_ > kMaxSubstituted) return ExpectedAt(use, "aliases that stand for less than a MiB in all");
  const size_t back = position();
  set_position(begin);
  return back;
}

// #alias, #stablehlo<precision DEFAULT>, #stablehlo.gather<…>, #other.dialect<…>
absl::StatusOr<ir::ShloAttr> Parser::ParseHash() {
  const size_t start = Here();
  WEFT_RETURN_IF_ERROR(Need("#"));
  const std::string_view name = Suffix();
  if (name.empty()) return ExpectedAt(start, "the name of an attribute");
  Attr attr;
  attr.kind = Kind::kText;
  if (name == "stablehlo" || name == "chlo") {
    WEFT_RETURN_IF_ERROR(Need("<"));
    const std::string_view kind = Word();
    if (Peek() == '<') {  // #stablehlo<dot<…>>: the long way round
      WEFT_ASSIGN_OR_RETURN(attr, ParseStruct(kind));
    } else {
      attr = Attr::Word(std::string(Suffix()));
      if (attr.string.empty()) return Expected("an enumerator");
    }
    WEFT_RETURN_IF_ERROR(Need(">"));
    return attr;
  }
  for (const std::string_view dialect : {"stablehlo.", "chlo."}) {
    if (name.starts_with(dialect) && LooksAt("<")) return ParseStruct(name.substr(dialect.size()));
  }
  if (name.find('.') != std::string_view::npos || (name == "sdy" && LooksAt("<"))) {
    if (LooksAt("<")) WEFT_RETURN_IF_ERROR(SkipBalanced());
    return attr;
  }
  WEFT_ASSIGN_OR_RETURN(const size_t back, EnterAlias(Between(start, position()), start));
  WEFT_ASSIGN_OR_RETURN(attr, ParseAttr());
  set_position(back);
  return attr;
}

// Behind the name of a #stablehlo.x: what it has in <…>.
absl::StatusOr<ir::ShloAttr> Parser::ParseStruct(std::string_view name) {
  Attr attr;
  if (name == "conv") {
    WEFT_RETURN_IF_ERROR(Need("<"));
    WEFT_ASSIGN_OR_RETURN(attr, TakeWord("raw") ? RawConvDims() : ParseConvDims());
    WEFT_RETURN_IF_ERROR(Need(">"));
    return attr;
  }
  if (name == "bounds") {
    attr.kind = Kind::kText;
    WEFT_RETURN_IF_ERROR(SkipBalanced());
    return attr;
  }
  WEFT_RETURN_IF_ERROR(Need("<"));
  attr.kind = Kind::kFields;
  attr.attribute_struct = true;
  WEFT_ASSIGN_OR_RETURN(attr.fields, ParseFields(">"));
  return attr;
}

absl::StatusOr<ir::ShloAttr> Parser::ParseNamed() {
  const size_t start = Here();
  Attr attr;
  if (TakeWord("true") || TakeWord("false")) return Attr::Int(text()[start] == 't' ? 1 : 0);
  if (TakeWord("unit")) return attr;
  if (TakeWord("dense")) return ParseDense();
  if (TakeWord("array")) return ParseIntArray();
  if (TakeWord("dense_resource")) {
    return RefusedAt(
        start,
        "dense_resource: literals in a {-# … #-} behind the module are not read; print the module with its "
        "constants written out");
  }
  attr.kind = Kind::kType;
  if (LooksAt("tensor<") || LooksAt("tuple<")) {
    WEFT_ASSIGN_OR_RETURN(TypeText type, ParseType());
    attr.type = std::make_shared<const ir::Type>(std::move(type.type));
    return attr;
  }
  const std::string_view word = Word();
  if (word.empty()) return ExpectedAt(start, "an attribute");
  if (const auto dtype = ParseDType(word); dtype && StableHloNameOf(*dtype) == word) {
    attr.type = std::make_shared<const ir::Type>(ir::Type::Scalar(*dtype));
    return attr;
  }
  if (LooksAt("<") || LooksAt("(")) {  // affine_map<…>, loc(…): builtin ones that nothing here asks for
    WEFT_RETURN_IF_ERROR(SkipBalanced());
    attr.kind = Kind::kText;
    return attr;
  }
  return Attr::Word(std::string(word));
}

absl::StatusOr<ir::ShloAttr::Fields> Parser::ParseFields(std::string_view closer) {
  Attr::Fields fields;
  while (!Take(closer)) {
    if (!fields.empty()) WEFT_RETURN_IF_ERROR(Need(","));
    const size_t start = Here();
    std::string_view name;
    if (Peek() == '"') {
      WEFT_RETURN_IF_ERROR(String("a name").status());
      name = Between(start + 1, position() - 1);
    } else {
      name = Word();
    }
    if (name.empty()) return ExpectedAt(start, "the name of an attribute");
    Attr value;
    if (Take("=")) {
      WEFT_ASSIGN_OR_RETURN(value, ParseAttr());
    }
    fields.emplace_back(name, std::move(value));
  }
  return fields;
}

absl::Status Parser::ParseDictionary(Attr::Fields& into) {
  WEFT_RETURN_IF_ERROR(Need("{"));
  WEFT_ASSIGN_OR_RETURN(Attr::Fields fields, ParseFields("}"));
  std::move(fields.begin(), fields.end(), std::back_inserter(into));
  return absl::OkStatus();
}

// [b, 0, 1, f]: as the schema of our convolution has it, the two named ones first.
absl::Status Parser::ConvSide(char first, char second, std::vector<int64_t>& dims) {
  const size_t start = Here();
  std::vector<int64_t> spatial;
  int64_t named[2] = {-1, -1};
  WEFT_RETURN_IF_ERROR(Need("["));
  for (int64_t at = 0; !Take("]"); ++at) {
    if (at > 0) WEFT_RETURN_IF_ERROR(Need(","));
    if (at >= static_cast<int64_t>(kMaxRank))
      return ExpectedAt(start, "at most as many dimensions as a tensor may have");
    if (Take(std::string_view(&first, 1))) {
      named[0] = at;
    } else if (Take(std::string_view(&second, 1))) {
      named[1] = at;
    } else {
      WEFT_ASSIGN_OR_RETURN(const int64_t which, Number<int64_t>("a dimension"));
      if (which < 0 || which >= static_cast<int64_t>(kMaxRank))
        return ExpectedAt(start, "spatial dimensions from 0 on");
      if (which >= static_cast<int64_t>(spatial.size())) spatial.resize(which + 1, -1);
      spatial[which] = at;
    }
  }
  dims.assign(named, named + 2);
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  for (int64_t dim : dims) {
    if (dim < 0)
      return ExpectedAt(start,
                        absl::StrCat("each of ", std::string(1, first), ", ", std::string(1, second), ", 0, 1, …"));
  }
  return absl::OkStatus();
}

// [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
absl::StatusOr<ir::ShloAttr> Parser::ParseConvDims() {
  std::vector<int64_t> input, kernel, output;
  WEFT_RETURN_IF_ERROR(ConvSide('b', 'f', input));
  WEFT_RETURN_IF_ERROR(Need("x"));
  WEFT_RETURN_IF_ERROR(ConvSide('i', 'o', kernel));
  WEFT_RETURN_IF_ERROR(Need("->"));
  WEFT_RETURN_IF_ERROR(ConvSide('b', 'f', output));
  Attr attr;
  attr.kind = Kind::kFields;
  attr.attribute_struct = true;
  attr.fields = {{"input_dimensions", Attr::Ints(std::move(input))},
                 {"kernel_dimensions", Attr::Ints(std::move(kernel))},
                 {"output_dimensions", Attr::Ints(std::move(output))}};
  return attr;
}

// Behind "raw": every number under its own name, absent ones 0.
absl::StatusOr<ir::ShloAttr> Parser::RawConvDims() {
  WEFT_ASSIGN_OR_RETURN(Attr::Fields given, ParseFields(">"));
  set_position(position() - 1);
  const auto side = [&](std::string_view first, std::string_view second, std::string_view spatial) {
    std::vector<int64_t> dims = {0, 0};
    for (const auto& [name, value] : given) {
      if (name == first) dims[0] = value.integer;
      if (name == second) dims[1] = value.integer;
      if (name == spatial) dims.insert(dims.end(), value.ints.begin(), value.ints.end());
    }
    return Attr::Ints(std::move(dims));
  };
  Attr attr;
  attr.kind = Kind::kFields;
  attr.attribute_struct = true;
  attr.fields = {
      {"input_dimensions", side("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions")},
      {"kernel_dimensions",
       side("kernel_input_feature_dimension", "kernel_output_feature_dimension", "kernel_spatial_dimensions")},
      {"output_dimensions", side("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions")}};
  return attr;
}

}  // namespace weft::stablehlo
