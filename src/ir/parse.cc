// Text to module: one pass over the characters, no tokens kept. Every mistake gives line, column and what was expected.
#include <charconv>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "src/ir/builder.h"
#include "src/ir/location.h"
#include "src/ir/op_def.h"
#include "src/ir/text.h"
#include "src/runtime/hash_map.h"

namespace weft::ir {
namespace {

// A few characters of text may ask for a large literal ("splat"); beyond this it is refused rather than allocated.
constexpr int64_t kMaxLiteralBytes = int64_t{1} << 31;
constexpr int kMaxTupleDepth = 32;

class Parser {
 public:
  Parser(std::string_view text, OpLookup lookup) : text_(text), lookup_(lookup) {}

  absl::StatusOr<Module> ParseModule();

 private:
  absl::Status ParseModuleField(Module& module);
  // The nodes of one function by the number in their name (%7).
  using Names = HashMap<uint64_t, Ref<const Node>>;

  absl::Status Expected(std::string_view what) { return ExpectedAt(position_, what); }
  absl::Status ExpectedAt(size_t position, std::string_view what) const;
  void SkipSpace();
  bool AtEnd() { return SkipSpace(), position_ == text_.size(); }
  char Peek() { return SkipSpace(), position_ < text_.size() ? text_[position_] : '\0'; }
  bool Take(std::string_view token);
  absl::Status Need(std::string_view token) {
    return Take(token) ? absl::OkStatus() : Expected(absl::StrCat("'", token, "'"));
  }
  bool TakeWord(std::string_view word);
  std::string_view Word();
  template <typename T>
  absl::StatusOr<T> Number(std::string_view what);
  absl::StatusOr<std::string> String(std::string_view what);
  absl::StatusOr<DType> ElementType();
  absl::StatusOr<Type> ParseType(int depth);
  absl::StatusOr<double> Double();
  absl::StatusOr<AttrValue> Literal_();
  absl::Status Element(HostTensor& value, int64_t i);
  absl::StatusOr<AttrValue> Attribute(const AttrDef& def);
  absl::Status ParseAttributes(const OpDef& op, Attrs& attrs);
  absl::Status ParseTail(Location& location, std::unique_ptr<const NodeExtras>& extras);
  absl::StatusOr<Value> ParseValue(const Names& names);
  absl::StatusOr<uint64_t> ParseName(const Names& names);
  absl::Status ParseParameter(Names& names, std::vector<Value>& parameters, std::vector<ParameterInfo>& infos);
  absl::Status ParseNode(Names& names, int depth);
  absl::StatusOr<Ref<const Function>> ParseFunction(int depth);

  const std::string_view text_;
  const OpLookup lookup_;
  size_t position_ = 0;
  HashMap<std::string, Ref<const Function>> callees_;
};

absl::Status Parser::ExpectedAt(size_t position, std::string_view what) const {
  size_t line = 1;
  size_t start = 0;
  for (size_t i = 0; i < position && i < text_.size(); ++i) {
    if (text_[i] == '\n') {
      ++line;
      start = i + 1;
    }
  }
  std::string_view rest = text_.substr(std::min(position, text_.size()));
  rest = rest.substr(0, std::min<size_t>(rest.find('\n'), 20));
  return UserError("line ", line, ", column ", position - start + 1, ": expected ", what, ", found ",
                   position >= text_.size() ? "the end of the text" : Quote(rest));
}

void Parser::SkipSpace() {
  while (position_ < text_.size()) {
    if (absl::ascii_isspace(static_cast<unsigned char>(text_[position_]))) {
      ++position_;
    } else if (text_.substr(position_).starts_with("//")) {
      position_ = std::min(text_.find('\n', position_), text_.size());
    } else {
      return;
    }
  }
}

bool Parser::Take(std::string_view token) {
  SkipSpace();
  if (!text_.substr(position_).starts_with(token)) return false;
  position_ += token.size();
  return true;
}

// Identifiers: letters, digits, '_' and '.', not starting with a digit. Empty if there is none.
std::string_view Parser::Word() {
  SkipSpace();
  size_t end = position_;
  auto fits = [&](unsigned char c) {
    return absl::ascii_isalpha(c) || c == '_' || (end > position_ && (absl::ascii_isdigit(c) || c == '.'));
  };
  while (end < text_.size() && fits(text_[end])) ++end;
  const std::string_view word = text_.substr(position_, end - position_);
  position_ = end;
  return word;
}

bool Parser::TakeWord(std::string_view word) {
  SkipSpace();
  const size_t start = position_;
  if (Word() == word) return true;
  position_ = start;
  return false;
}

template <typename T>
absl::StatusOr<T> Parser::Number(std::string_view what) {
  SkipSpace();
  T value{};
  const char* begin = text_.data() + position_;
  auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) return Expected(what);
  position_ += end - begin;
  return value;
}

absl::StatusOr<std::string> Parser::String(std::string_view what) {
  if (Peek() != '"') return Expected(what);
  std::string value;
  for (size_t i = position_ + 1; i < text_.size(); ++i) {
    if (text_[i] == '"') {
      position_ = i + 1;
      return value;
    }
    if (text_[i] != '\\') {
      value += text_[i];
      continue;
    }
    unsigned byte = 0;
    if (i + 1 < text_.size() && (text_[i + 1] == '"' || text_[i + 1] == '\\')) {
      value += text_[++i];
    } else if (i + 3 < text_.size() && text_[i + 1] == 'x' &&
               std::from_chars(text_.data() + i + 2, text_.data() + i + 4, byte, 16).ptr == text_.data() + i + 4) {
      value += static_cast<char>(byte);
      i += 3;
    } else {
      return ExpectedAt(i, "\\\", \\\\ or \\xHH");
    }
  }
  return ExpectedAt(text_.size(), "a closing '\"'");
}

absl::StatusOr<DType> Parser::ElementType() {
  const size_t start = (SkipSpace(), position_);
  std::string name(Word());
  if (name == "complex" && Take("<")) {
    absl::StrAppend(&name, "<", Word());
    if (Take(">")) name += '>';
  }
  if (auto dtype = ParseDType(name); dtype && StableHloNameOf(*dtype) == name) return *dtype;
  if (name == "invalid") return DType::kInvalid;
  return ExpectedAt(start, "an element type such as f32");
}

absl::StatusOr<Type> Parser::ParseType(int depth) {
  if (Take("!stablehlo.token")) return Type::Token();
  if (depth > kMaxTupleDepth) return Expected("a shallower tuple");
  if (Take("tuple<")) {
    std::vector<Type> elements;
    while (!Take(">")) {
      if (!elements.empty()) WEFT_RETURN_IF_ERROR(Need(","));
      WEFT_ASSIGN_OR_RETURN(Type element, ParseType(depth + 1));
      elements.push_back(std::move(element));
    }
    return Type::Tuple(std::move(elements));
  }
  const size_t start = (SkipSpace(), position_);
  if (!Take("tensor<")) return Expected("a type");
  Dims dims;
  while (absl::ascii_isdigit(static_cast<unsigned char>(Peek()))) {
    WEFT_ASSIGN_OR_RETURN(int64_t dim, Number<int64_t>("a dimension"));
    dims.push_back(dim);
    WEFT_RETURN_IF_ERROR(Need("x"));
  }
  WEFT_ASSIGN_OR_RETURN(DType dtype, ElementType());
  WEFT_RETURN_IF_ERROR(Need(">"));
  if (dims.size() > kMaxRank || !CheckedCount(dims) || *CheckedCount(dims) > (int64_t{1} << 59)) {
    return ExpectedAt(start, absl::StrCat("a type of rank at most ", kMaxRank, " that memory could hold"));
  }
  return Type::Tensor(dtype, std::move(dims));
}

absl::StatusOr<double> Parser::Double() {
  if (Take("nan:0x")) {
    uint64_t bits = 0;
    const char* begin = text_.data() + position_;
    auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), bits, 16);
    if (error != std::errc()) return Expected("the bits of a NaN");
    position_ += end - begin;
    return __builtin_bit_cast(double, bits);
  }
  return Number<double>("a number");
}

absl::Status Parser::Element(HostTensor& value, int64_t i) {
  const DType dtype = value.dtype();
  if (IsComplex(dtype)) {
    HostTensor parts(PartOf(dtype), {2});
    WEFT_RETURN_IF_ERROR(Need("("));
    WEFT_RETURN_IF_ERROR(Element(parts, 0));
    WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_RETURN_IF_ERROR(Element(parts, 1));
    std::memcpy(value.mutable_bytes().data() + i * BytesOf(dtype), parts.bytes().data(), BytesOf(dtype));
    return Need(")");
  }
  if (IsBool(dtype)) {
    const bool yes = TakeWord("true");
    if (!yes && !TakeWord("false")) return Expected("true or false");
    value.SetInt(i, yes);
  } else if (dtype == DType::kF32) {
    // Not through double: that would round twice.
    WEFT_ASSIGN_OR_RETURN(float number, Number<float>("a number"));
    value.SetDouble(i, number);
  } else if (IsFloat(dtype)) {
    WEFT_ASSIGN_OR_RETURN(double number, Number<double>("a number"));
    value.SetDouble(i, number);
  } else if (dtype == DType::kU64) {
    WEFT_ASSIGN_OR_RETURN(uint64_t number, Number<uint64_t>("an unsigned integer"));
    value.SetInt(i, static_cast<int64_t>(number));
  } else {
    const size_t start = (SkipSpace(), position_);
    WEFT_ASSIGN_OR_RETURN(int64_t number, Number<int64_t>("an integer"));
    value.SetInt(i, number);
    if (value.GetInt(i) != number) return ExpectedAt(start, absl::StrCat("a value of ", NameOf(dtype)));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttrValue> Parser::Literal_() {
  if (TakeWord("null")) return AttrValue(Ref<const Literal>());
  if (!TakeWord("dense")) return Expected("dense");
  const size_t start = (SkipSpace(), position_);
  WEFT_ASSIGN_OR_RETURN(Type type, ParseType(0));
  if (!type.is_tensor() || type.dtype == DType::kInvalid) return ExpectedAt(start, "a tensor type");
  const bool splat = TakeWord("splat");
  const int64_t count = type.count();
  const int64_t width = BytesOf(type.dtype);
  // Written-out elements take at least one character each, which bounds what a short text can allocate.
  const int64_t limit = splat ? kMaxLiteralBytes : static_cast<int64_t>(text_.size() - position_) * width;
  if (count > limit / width) return ExpectedAt(start, "a literal as large as its text");
  if (splat && count == 0) return ExpectedAt(start, "a type with elements");
  HostTensor value(type.dtype, type.dims);
  const int64_t written = splat ? 1 : count;
  if (Take("0x")) {
    const size_t digits = static_cast<size_t>(written * width) * 2;
    const auto bytes = value.mutable_bytes();
    for (size_t i = 0; i < digits / 2; ++i) {
      unsigned byte = 0;
      const char* begin = text_.data() + std::min(position_ + 2 * i, text_.size());
      const char* end = text_.data() + std::min(position_ + 2 * i + 2, text_.size());
      if (end - begin != 2 || std::from_chars(begin, end, byte, 16).ptr != end) {
        return Expected(absl::StrCat(digits, " hexadecimal digits"));
      }
      bytes[i] = static_cast<std::byte>(byte);
    }
    position_ += digits;
  } else {
    WEFT_RETURN_IF_ERROR(Need("["));
    for (int64_t i = 0; i < written; ++i) {
      if (i > 0) WEFT_RETURN_IF_ERROR(Need(","));
      WEFT_RETURN_IF_ERROR(Element(value, i));
    }
    WEFT_RETURN_IF_ERROR(Need("]"));
  }
  if (splat) {
    const auto bytes = value.mutable_bytes();
    for (size_t i = width; i < bytes.size(); ++i) bytes[i] = bytes[i - width];
  }
  return AttrValue(Ref<const Literal>(MakeRef<const Literal>(std::move(value))));
}

absl::StatusOr<AttrValue> Parser::Attribute(const AttrDef& def) {
  switch (def.type) {
    case AttrType::kBool:
      if (TakeWord("true")) return AttrValue(int64_t{1});
      if (TakeWord("false")) return AttrValue(int64_t{0});
      break;
    case AttrType::kEnum: {
      const size_t start = (SkipSpace(), position_);
      const std::string_view word = Word();
      for (size_t i = 0; i < def.enumerators.size(); ++i) {
        if (!word.empty() && def.enumerators[i] == word) return AttrValue(static_cast<int64_t>(i));
      }
      if (!word.empty()) return ExpectedAt(start, absl::StrCat("an enumerator of ", def.name));
      break;
    }
    case AttrType::kInt: break;
    case AttrType::kDouble: {
      WEFT_ASSIGN_OR_RETURN(double value, Double());
      return AttrValue(value);
    }
    case AttrType::kDType: {
      WEFT_ASSIGN_OR_RETURN(DType value, ElementType());
      return AttrValue(value);
    }
    case AttrType::kInts: {
      WEFT_RETURN_IF_ERROR(Need("["));
      Ints values;
      while (!Take("]")) {
        if (!values.empty()) WEFT_RETURN_IF_ERROR(Need(","));
        WEFT_ASSIGN_OR_RETURN(int64_t value, Number<int64_t>("an integer"));
        values.push_back(value);
      }
      return AttrValue(std::move(values));
    }
    case AttrType::kDoubles: {
      WEFT_RETURN_IF_ERROR(Need("["));
      std::vector<double> values;
      while (!Take("]")) {
        if (!values.empty()) WEFT_RETURN_IF_ERROR(Need(","));
        WEFT_ASSIGN_OR_RETURN(double value, Double());
        values.push_back(value);
      }
      return AttrValue(std::move(values));
    }
    case AttrType::kString: {
      WEFT_ASSIGN_OR_RETURN(std::string value, String("a string"));
      return AttrValue(std::move(value));
    }
    case AttrType::kLiteral: return Literal_();
  }
  WEFT_ASSIGN_OR_RETURN(int64_t value, Number<int64_t>("an integer"));
  return AttrValue(value);
}

absl::Status Parser::ParseAttributes(const OpDef& op, Attrs& attrs) {
  for (bool first = true; !Take("}"); first = false) {
    if (!first) WEFT_RETURN_IF_ERROR(Need(","));
    const size_t start = (SkipSpace(), position_);
    const std::string_view name = Word();
    size_t at = 0;
    while (at < op.attrs.size() && op.attrs[at].name != name) ++at;
    if (at == op.attrs.size()) return ExpectedAt(start, absl::StrCat("an attribute of ", op.name));
    if (attrs.has(at)) return ExpectedAt(start, "each attribute once");
    WEFT_RETURN_IF_ERROR(Need("="));
    WEFT_ASSIGN_OR_RETURN(AttrValue value, Attribute(op.attrs[at]));
    attrs.set(at, std::move(value));
  }
  return absl::OkStatus();
}

// device(1) sharding("…") unknown("name" = "text") loc("file:line"), each at most once, in this order.
absl::Status Parser::ParseTail(Location& location, std::unique_ptr<const NodeExtras>& extras) {
  NodeExtras found;
  if (TakeWord("device")) {
    WEFT_RETURN_IF_ERROR(Need("("));
    WEFT_ASSIGN_OR_RETURN(found.device, Number<uint16_t>("a device number"));
    WEFT_RETURN_IF_ERROR(Need(")"));
  }
  if (TakeWord("sharding")) {
    WEFT_RETURN_IF_ERROR(Need("("));
    WEFT_ASSIGN_OR_RETURN(found.sharding, String("a sharding"));
    WEFT_RETURN_IF_ERROR(Need(")"));
  }
  if (TakeWord("unknown")) {
    WEFT_RETURN_IF_ERROR(Need("("));
    while (!Take(")")) {
      if (!found.unknown_attributes.empty()) WEFT_RETURN_IF_ERROR(Need(","));
      WEFT_ASSIGN_OR_RETURN(std::string name, String("an attribute's name in quotes"));
      WEFT_RETURN_IF_ERROR(Need("="));
      WEFT_ASSIGN_OR_RETURN(std::string text, String("an attribute's text in quotes"));
      found.unknown_attributes.emplace_back(std::move(name), std::move(text));
    }
  }
  if (!(found == NodeExtras())) extras = std::make_unique<const NodeExtras>(std::move(found));
  if (TakeWord("loc")) {
    WEFT_RETURN_IF_ERROR(Need("("));
    const size_t start = (SkipSpace(), position_);
    WEFT_ASSIGN_OR_RETURN(std::string text, String("a position in quotes"));
    const size_t colon = text.rfind(':'), plus = text.rfind("+0x");
    // An address in a module has no line.
    if (plus != std::string::npos && plus > 0 && text.size() > plus + 3 &&
        text.find_first_not_of("0123456789abcdef", plus + 3) == std::string::npos) {
      const StackFrame frame = {.function = "", .file = text, .line = 0};
      location = InternStack({&frame, 1});
      WEFT_RETURN_IF_ERROR(Need(")"));
      return absl::OkStatus();
    }
    if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(text.substr(colon + 1), &location.line)) {
      return ExpectedAt(start, "\"file:line\"");
    }
    location.file = InternFile(std::string_view(text).substr(0, colon));
    WEFT_RETURN_IF_ERROR(Need(")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Parser::ParseName(const Names& names) {
  WEFT_RETURN_IF_ERROR(Need("%"));
  const size_t start = position_;
  WEFT_ASSIGN_OR_RETURN(uint64_t name, Number<uint64_t>("a value's number"));
  if (names.contains(name)) return ExpectedAt(start, "a number that is not taken yet");
  return name;
}

absl::StatusOr<Value> Parser::ParseValue(const Names& names) {
  if (TakeWord("none")) return Value();
  WEFT_RETURN_IF_ERROR(Need("%"));
  const size_t start = position_;
  WEFT_ASSIGN_OR_RETURN(uint64_t name, Number<uint64_t>("a value's number"));
  auto found = names.find(name);
  if (found == names.end()) return ExpectedAt(start, "a value defined above");
  const size_t count = found->second->results().size();
  uint32_t result = 0;
  if (count != 1) {
    WEFT_RETURN_IF_ERROR(Need("#"));
    WEFT_ASSIGN_OR_RETURN(result, Number<uint32_t>("a result's number"));
    if (result >= count) return ExpectedAt(start, absl::StrCat("a result below ", count));
  }
  return Value{found->second, result};
}

absl::Status Parser::ParseParameter(Names& names, std::vector<Value>& parameters, std::vector<ParameterInfo>& infos) {
  const OpDef* op = lookup_("parameter");
  if (op == nullptr) return InternalError("no operation \"parameter\"");
  WEFT_ASSIGN_OR_RETURN(uint64_t name, ParseName(names));
  WEFT_RETURN_IF_ERROR(Need(":"));
  WEFT_ASSIGN_OR_RETURN(Type type, ParseType(0));
  ParameterInfo info;
  if (Take("{")) {
    for (bool first = true; !Take("}"); first = false) {
      if (!first) WEFT_RETURN_IF_ERROR(Need(","));
      const bool word = TakeWord("word");
      const bool donated = !word && TakeWord("donated_to");
      if (!word && !donated && !TakeWord("device")) return Expected("word, donated_to or device");
      WEFT_RETURN_IF_ERROR(Need("="));
      if (word) {
        info.role = ParameterInfo::Role::kWords;
        WEFT_ASSIGN_OR_RETURN(info.word, Number<uint32_t>("a word's number"));
      } else if (donated) {
        WEFT_ASSIGN_OR_RETURN(info.donated_to, Number<int32_t>("a result's number"));
      } else {
        WEFT_ASSIGN_OR_RETURN(info.device, Number<uint16_t>("a device number"));
      }
    }
  }
  Location location;
  std::unique_ptr<const NodeExtras> extras;
  WEFT_RETURN_IF_ERROR(ParseTail(location, extras));
  Ref<const Node> node = Node::Create(*op, {}, {}, {std::move(type)}, nullptr, location, std::move(extras));
  names.try_emplace(name, node);
  parameters.push_back(Value{std::move(node), 0});
  infos.push_back(info);
  return absl::OkStatus();
}

absl::Status Parser::ParseNode(Names& names, int depth) {
  WEFT_ASSIGN_OR_RETURN(uint64_t name, ParseName(names));
  uint32_t count = 1;
  if (Take(":")) {
    WEFT_ASSIGN_OR_RETURN(count, Number<uint32_t>("a number of results"));
  }
  WEFT_RETURN_IF_ERROR(Need("="));
  const size_t op_start = (SkipSpace(), position_);
  const OpDef* op = lookup_(Word());
  if (op == nullptr || op->parameter) return ExpectedAt(op_start, "the name of an operation");
  WEFT_RETURN_IF_ERROR(Need("("));
  Values operands;
  while (!Take(")")) {
    if (!operands.empty()) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(Value operand, ParseValue(names));
    operands.push_back(std::move(operand));
  }
  Attrs attrs;
  if (Take("{")) WEFT_RETURN_IF_ERROR(ParseAttributes(*op, attrs));
  // A text that was written before the operation had an attribute says nothing of it.
  WEFT_RETURN_IF_ERROR(FillDefaults(*op, attrs));
  std::unique_ptr<Regions> regions;
  if (op->calls) {
    WEFT_RETURN_IF_ERROR(Need("@"));
    const size_t callee_start = position_;
    const auto callee = callees_.find(std::string(Word()));
    if (callee == callees_.end()) return ExpectedAt(callee_start, "the name of a private function above");
    regions = std::make_unique<Regions>(Regions{{callee->second}});
  } else if (TakeWord("regions")) {
    if (depth >= kMaxRegionDepth) return Expected("fewer nested regions");
    WEFT_RETURN_IF_ERROR(Need("{"));
    regions = std::make_unique<Regions>();
    while (!Take("}")) {
      WEFT_ASSIGN_OR_RETURN(Ref<const Function> region, ParseFunction(depth + 1));
      regions->functions.push_back(std::move(region));
    }
  }
  WEFT_RETURN_IF_ERROR(Need(":"));
  Types types;
  const size_t types_start = (SkipSpace(), position_);
  if (!Take("()")) {
    do {
      WEFT_ASSIGN_OR_RETURN(Type type, ParseType(0));
      types.push_back(std::move(type));
    } while (Take(","));
  }
  if (types.size() != count) return ExpectedAt(types_start, absl::StrCat(count, count == 1 ? " type" : " types"));
  Location location;
  std::unique_ptr<const NodeExtras> extras;
  WEFT_RETURN_IF_ERROR(ParseTail(location, extras));
  names.try_emplace(name, Node::Create(*op, std::move(operands), std::move(attrs), std::move(types), std::move(regions),
                                       location, std::move(extras)));
  return absl::OkStatus();
}

absl::StatusOr<Ref<const Function>> Parser::ParseFunction(int depth) {
  if (!TakeWord("func")) return Expected("func");
  WEFT_RETURN_IF_ERROR(Need("@"));
  std::string name;
  if (Peek() == '"') {
    WEFT_ASSIGN_OR_RETURN(name, String("a name"));
  } else {
    name = Word();
    if (name.empty()) return Expected("a function's name");
  }
  Names names;
  std::vector<Value> parameters;
  std::vector<ParameterInfo> infos;
  WEFT_RETURN_IF_ERROR(Need("("));
  while (!Take(")")) {
    if (!parameters.empty()) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_RETURN_IF_ERROR(ParseParameter(names, parameters, infos));
  }
  WEFT_RETURN_IF_ERROR(Need("->"));
  WEFT_RETURN_IF_ERROR(Need("("));
  const size_t types_start = position_;
  std::vector<Type> types;
  while (!Take(")")) {
    if (!types.empty()) WEFT_RETURN_IF_ERROR(Need(","));
    WEFT_ASSIGN_OR_RETURN(Type type, ParseType(0));
    types.push_back(std::move(type));
  }
  WEFT_RETURN_IF_ERROR(Need("{"));
  while (Peek() == '%') WEFT_RETURN_IF_ERROR(ParseNode(names, depth));
  if (!TakeWord("return")) return Expected("'%' or return");
  std::vector<Value> results;
  if (Peek() != '}') {
    do {
      WEFT_ASSIGN_OR_RETURN(Value result, ParseValue(names));
      if (!result) return Expected("a value");
      results.push_back(std::move(result));
    } while (Take(","));
  }
  bool same = types.size() == results.size();
  for (size_t i = 0; same && i < types.size(); ++i) same = results[i].type() == types[i];
  if (!same) return ExpectedAt(types_start, "the types of the returned values");
  WEFT_RETURN_IF_ERROR(Need("}"));
  return Function::Create(std::move(name), std::move(parameters), std::move(results), std::move(infos));
}

absl::Status Parser::ParseModuleField(Module& module) {
  Participants& who = module.participants;
  uint32_t* const field = TakeWord("words")        ? &module.argument_words
                          : TakeWord("replicas")   ? &who.replicas
                          : TakeWord("partitions") ? &who.partitions
                                                   : nullptr;
  if (field != nullptr) {
    WEFT_RETURN_IF_ERROR(Need("="));
    WEFT_ASSIGN_OR_RETURN(*field, Number<uint32_t>("a number"));
    return absl::OkStatus();
  }
  const bool mesh = TakeWord("mesh");
  std::vector<Sharding>* const shardings = mesh                     ? nullptr
                                           : TakeWord("parameters") ? &who.parameters
                                           : TakeWord("results")    ? &who.results
                                                                    : nullptr;
  if (!mesh && shardings == nullptr) return Expected("words, replicas, partitions, mesh, parameters or results");
  WEFT_RETURN_IF_ERROR(Need("="));
  const size_t start = (SkipSpace(), position_);
  WEFT_ASSIGN_OR_RETURN(const std::string text, String(mesh ? "a mesh" : "shardings"));
  const auto named = [&](const absl::Status& status) { return ExpectedAt(start, status.message()); };
  if (mesh) {
    absl::StatusOr<Mesh> parsed = ParseMesh(text);
    if (!parsed.ok()) return named(parsed.status());
    who.mesh = *std::move(parsed);
    return absl::OkStatus();
  }
  for (const std::string_view one : absl::StrSplit(text, ';')) {
    absl::StatusOr<Sharding> parsed = ParseSharding(absl::StripAsciiWhitespace(one), who.mesh);
    if (!parsed.ok()) return named(parsed.status());
    shardings->push_back(*std::move(parsed));
  }
  return absl::OkStatus();
}

absl::StatusOr<Module> Parser::ParseModule() {
  Module module;
  if (TakeWord("module")) {
    WEFT_RETURN_IF_ERROR(Need("{"));
    for (bool first = true; !Take("}"); first = false) {
      if (!first) WEFT_RETURN_IF_ERROR(Need(","));
      WEFT_RETURN_IF_ERROR(ParseModuleField(module));
    }
  }
  do {
    const bool callee = TakeWord("private");
    const size_t start = (SkipSpace(), position_);
    WEFT_ASSIGN_OR_RETURN(Ref<const Function> function, ParseFunction(0));
    if (!callee) {
      module.functions.push_back(std::move(function));
    } else if (std::string name = function->name(); !callees_.emplace(std::move(name), std::move(function)).second) {
      return ExpectedAt(start, "a name that no function above has");
    }
  } while (!AtEnd());
  if (module.functions.empty()) return Expected("func");
  return module;
}

}  // namespace

absl::StatusOr<Module> Parse(std::string_view text, OpLookup lookup) { return Parser(text, lookup).ParseModule(); }

}  // namespace weft::ir
