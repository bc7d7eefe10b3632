// The canonical bytes of nodes and functions: equal exactly if what they compute is spelled the same. In: operation names,
// attributes, types, literals' contents, carried functions, extras. Out: names, ids, positions.
#pragma once

#include <string>
#include <string_view>

#include "src/ir/function.h"
#include "src/runtime/hash_map.h"

namespace weft::ir {

// Numbers are little-endian base-128; strings and lists carry their length, so no two programs share a spelling. Runs on every
// cut, about 50 ns a node: plain appends, no text. Thread rule: one thread; nothing is marked.
class CodeWriter {
 public:
  // How carried functions are spelled: by their contents, each once for all nodes of this writer, or by where they lie, which
  // says the same of functions of which there is one object (see Intern).
  enum class Functions : uint8_t { kByContents, kByAddress };
  explicit CodeWriter(std::string* out, Functions functions = Functions::kByContents)
      : out_(*out), functions_(functions) {}

  // Seven bits a byte, the lowest first.
  void Number(uint64_t x);
  void Signed(int64_t x);
  void Type(const ir::Type& type);
  // Everything of a node but its operands.
  void Node(const ir::Node& node);
  // Returns the written function that a call node does nothing but call, or null. The node is then that function's
  // number, and Node writes no more.
  const Function* Again(const ir::Node& node) const;
  void Participants(const ir::Participants& participants);
  // A function's own nodes.
  void Body(const Function& function);

 private:
  void Fixed64(uint64_t x);
  void Text(std::string_view text);
  void Dims(std::span<const int64_t> dims);
  void Attr(const AttrValue& value);
  void Region(const Function& function);
  void Shardings(const std::vector<Sharding>& shardings);

  std::string& out_;
  const Functions functions_;
  HashMap<const Function*, uint64_t> numbers_;  // of functions that have been written
};

}  // namespace weft::ir
