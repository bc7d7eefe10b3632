// Text to tree, both forms of it. The parts that every operation has are in operations.cc, the frame of modules and
// functions in frame.cc, the operations with syntax of their own in forms.cc, types and attributes in the files of
// these names.
#pragma once

#include "src/runtime/hash_map.h"
#include "src/stablehlo/scanner.h"
#include "src/stablehlo/syntax.h"

namespace weft::stablehlo {

// Thread rule: one thread, one text. Recursion is bounded by ir::kMaxRegionDepth and kMaxNesting.
class Parser : private Scanner {
 public:
  explicit Parser(std::string_view text) : Scanner(text) {}
  // An attribute as a text that is read again without what stands around it here: what aliases stand for is in their place, and
  // what a pretty form says by a word of its own is spelled out.
  std::string TextOf(const ir::ShloAttr& attr) const;

  // The operations at the top: a module, or what would be in one.
  absl::StatusOr<Region> ParseText();
  // Returns the text that `#loc3` in a location stands for; empty if there is none.
  std::string_view LocationAlias(std::string_view name) const;

 private:
  using Attr = ir::ShloAttr;
  static constexpr int kMaxNesting = 64;  // of attributes and types

  // types.cc
  absl::StatusOr<TypeText> ParseType();
  absl::Status ParseTensorType(TypeText& out);
  absl::StatusOr<DType> ElementType();
  absl::Status ParseUniform(TypeText& out);
  absl::Status ParseScale(Quantization& into);
  absl::Status ParseTypeList(std::vector<TypeText>& out);  // in parentheses
  absl::Status ParseFunctionType(Operation& op);
  absl::Status ParsePrettyTypes(Operation& op);

  // attributes.cc
  // `untyped`: no ": i64" may follow, because what follows is the operation's type.
  absl::StatusOr<Attr> ParseAttr(bool untyped = false);
  absl::StatusOr<Attr> ParseAttrKind(bool untyped);
  absl::StatusOr<Attr> ParseNumber(bool untyped);
  absl::StatusOr<Attr> ParseList();
  absl::StatusOr<Attr> ParseIntArray();
  absl::StatusOr<Attr> ParseHash();
  absl::StatusOr<Attr> ParseStruct(std::string_view name);
  absl::StatusOr<Attr> ParseNamed();
  absl::StatusOr<Attr> ParseSymbol();
  absl::StatusOr<Attr> ParseConvDims();
  absl::Status ConvSide(char first, char second, std::vector<int64_t>& dims);
  absl::StatusOr<Attr> RawConvDims();
  // name = value, … up to the closer; the opener has been taken.
  absl::StatusOr<Attr::Fields> ParseFields(std::string_view closer);
  absl::Status ParseDictionary(Attr::Fields& into);  // {…}
  absl::StatusOr<size_t> EnterAlias(std::string_view name, size_t use);

  // literals.cc
  absl::StatusOr<Attr> ParseDense();
  absl::Status ParseListed(HostTensor& value);
  absl::Status ParseElement(HostTensor& value, int64_t i);
  absl::Status ParseReal(HostTensor& value, int64_t i);
  absl::Status ParseHexBytes(size_t at, std::string_view digits, const ir::Type& type, Attr& out);

  // operations.cc
  absl::Status ParseBlock(Region& into, std::string_view closer);  // "": the end of the text
  absl::Status ParseRegion(Region& region);
  absl::Status ParseOperation(Operation& op);
  absl::Status ParseGeneric(Operation& op);
  absl::Status ParseGenericRest(Operation& op);  // behind the name
  absl::Status ParsePretty(Operation& op);
  absl::Status ParsePlain(Operation& op);
  absl::Status ParseItems(Operation& op);
  // In forms.cc, with the names that pretty forms give attributes.
  absl::Status ParseNamedItem(Operation& op, std::string_view key);
  absl::Status ParseUse(Operation& op);
  absl::Status ParseUses(Operation& op);  // in parentheses
  absl::Status ParseBounds(Operation& op);
  absl::Status ParseArgument(Argument& argument);
  absl::Status ParseArguments(std::vector<Argument>& arguments);  // in parentheses
  absl::Status ParseLocation(std::string_view& location);
  absl::StatusOr<std::string_view> ParseValueName();

  // frame.cc
  absl::Status ParseModule(Operation& op);
  absl::Status ParseFunction(Operation& op);
  absl::Status ParseResults(Operation& op);
  absl::Status ParseAlias();
  absl::Status ParseMesh(Operation& op);

  // forms.cc
  struct Form {
    std::string_view name;
    absl::Status (Parser::*parse)(Operation& op);
  };
  static const Form kForms[];
  static const Form* FindForm(std::string_view name);
  absl::Status ParseReturn(Operation& op);
  absl::Status ParseCall(Operation& op);
  absl::Status ParseConstant(Operation& op);
  absl::Status ParseSlice(Operation& op);
  absl::Status ParseDotGeneral(Operation& op);
  absl::Status ParseConvolution(Operation& op);
  absl::Status ParseReduce(Operation& op);
  absl::Status ParseReducer(Operation& op);
  absl::Status ParseWhile(Operation& op);
  absl::Status ParseScan(Operation& op);
  absl::Status ParseComplex(Operation& op);
  absl::Status ParseCustomCall(Operation& op);
  absl::Status ParseComposite(Operation& op);
  absl::Status ParseElementOfTuple(Operation& op);
  absl::Status ParseReducePrecision(Operation& op);
  absl::Status SkipAsText(Operation& op, std::string_view name);  // what stands in brackets, as an attribute
  absl::Status ParseSharded(Operation& op);
  absl::Status ParseManual(Operation& op);

  std::string WithoutAliases(std::string_view text, size_t* room, int depth = 0) const;

  int depth_ = 0;                                                 // of regions
  TypeText literal_type_;                                         // of the dense<…> read last
  int nesting_ = 0;                                               // of attributes and types
  HashMap<std::string_view, std::pair<size_t, size_t>> aliases_;  // "#map" to where its value stands
  size_t substituted_ = 0;                                        // characters that aliases have stood for
};

// The name of an attribute where it is written: in quotes, unless it is a word.
std::string NameAsText(std::string_view name);

}  // namespace weft::stablehlo
