// One operation of StableHLO text on its way into the IR: what the reader (src/stablehlo) hands to an operation that reads
// its own spelling (OpDef::read, beside OpDef::stablehlo, which writes it).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/ir/builder.h"

namespace weft::ir {

struct ShloField;

// An attribute as it was written. Views are into the text, which outlives the reading.
struct ShloAttr {
  enum class Kind : uint8_t {
    kUnit,    // a name alone
    kInt,     // an integer or a truth value, in `integer`
    kFloat,   // in `number`
    kString,  // in `string`, without quotes
    kWord,    // in `string`: DEFAULT, or what #stablehlo<precision DEFAULT> says
    kSymbol,  // in `string`, without @
    kInts,    // array<i64: …>, [1, 2], array<i1: true>
    kList,    // any other list
    kFields,  // a dictionary, or the fields of a #stablehlo.gather<…>
    kTensor,  // dense<…>, in `tensor`; one element that stands for all where `splat`
    kType,    // in `type`
    kText,    // anything else: `text` is all that is known
  };
  using Fields = std::vector<ShloField>;

  Kind kind = Kind::kUnit;
  bool splat = false;
  bool attribute_struct = false;  // kFields of #stablehlo.x<…>, whose lists may be left out
  int64_t integer = 0;
  double number = 0;
  std::string string;
  std::vector<int64_t> ints;
  std::vector<ShloAttr> list;
  Fields fields;
  std::shared_ptr<const Type> type;  // kType, kTensor
  Ref<const Literal> tensor;
  std::string_view text;

  static ShloAttr Word(std::string word);
  static ShloAttr Int(int64_t value);
  static ShloAttr Ints(std::vector<int64_t> values);
  const ShloAttr* Find(std::string_view name) const;  // of kFields
};

struct ShloField {
  std::string_view first;  // its name
  ShloAttr second;
};

// A region of the operation: a function of its block's arguments, then of what it captures.
struct ShloRegion {
  Ref<const Function> function;
  Values captures;
  bool draws = false;  // a stream of random numbers follows them (ops/control/draws.h)
};

// The operation being read. An attribute that is asked for counts as understood; the others are kept as text on the
// node. Mistakes stick in the builder, and the reader adds line and column. Thread rule: one thread.
class StableHloOp {
 public:
  StableHloOp(Builder& b, const OpDef* op, std::string_view name, ShloAttr::Fields attributes)
      : b(b), op(op), name(name), attributes_(std::move(attributes)), understood_(attributes_.size()) {}

  Builder& b;
  const OpDef* const op;        // of the StableHLO name; null where there is none of it
  const std::string_view name;  // "stablehlo.reduce"
  Values operands;
  std::vector<Type> results;  // as the text says
  std::vector<ShloRegion> regions;

  // The attribute, or the field of the same name in a #stablehlo.x<…>; null if absent.
  const ShloAttr* Find(std::string_view attribute);
  ir::Ints Ints(std::string_view attribute, const ir::Ints& absent = {});
  int64_t Int(std::string_view attribute, int64_t absent);
  std::string Word(std::string_view attribute, std::string_view absent = {});
  void Understand(std::initializer_list<std::string_view> attributes);

  // The schema's attributes under their own names, in their places: integers, lists (empty where a #stablehlo.x<…> leaves one
  // out), words as enumerators in any case, literals; a shape and dtypes from the first result.
  Attrs SchemaAttrs() { return SchemaAttrs(*op); }
  Attrs SchemaAttrs(const OpDef& of);
  // Operands, then what the regions capture, function after function.
  Values OperandsAndCaptures() const;
  std::vector<Ref<const Function>> Functions() const;

  // Fails with UNIMPLEMENTED and gives as many empty values as the text wants results.
  template <typename... Args>
  Values Refuse(const Args&... why) {
    b.Fail(UserErrorOf(absl::StatusCode::kUnimplemented, why...));
    return Values(results.size());
  }
  const ShloAttr::Fields& attributes() const { return attributes_; }
  bool understood(size_t i) const { return understood_[i]; }

 private:
  AttrValue SchemaValue(const AttrDef& def);

  ShloAttr::Fields attributes_;
  std::vector<bool> understood_;
};

}  // namespace weft::ir
