// The way back from canonical bytes (code.h): nodes and functions that compute the same, without names and positions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/ir/function.h"
#include "src/ir/text.h"
#include "src/runtime/status.h"

namespace weft::ir {

// Reads what a CodeWriter has written by contents. Every read is checked: after the first that does not fit, all give nothing
// and ok() is false. Thread rule: one thread.
class CodeReader {
 public:
  CodeReader(std::string_view code, OpLookup lookup) : code_(code), lookup_(lookup) {}

  bool ok() const { return ok_; }
  // Everything has been read.
  bool done() const { return ok_ && code_.empty(); }
  void Fail() { ok_ = false; }

  uint64_t Number();
  int64_t Signed();
  // A number that is at most `most`.
  size_t Count(uint64_t most);
  ir::Type Type();

  // Everything of a node but its operands.
  struct Header {
    const OpDef* op = nullptr;
    Attrs attrs;
    Types results;
    std::vector<Ref<const Function>> regions;
    std::unique_ptr<const NodeExtras> extras;
    bool again = false;  // a call of a function that has been read, by its number
  };
  Header Node();
  Ref<const ir::Node> Make(Header header, Values operands);
  Ref<const Function> Body();
  ir::Participants Participants();

 private:
  // A tuple in a tuple, or a region in a region: as deep as the IR lets regions be.
  class Deeper {
   public:
    explicit Deeper(CodeReader& reader) : reader_(reader) {
      if (++reader_.depth_ > kMaxRegionDepth) reader_.Fail();
    }
    ~Deeper() { --reader_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    CodeReader& reader_;
  };
  uint64_t Fixed64();
  std::string_view Text();
  Dims ReadDims();
  AttrValue Attr();
  Ref<const Function> Region();
  std::vector<Sharding> Shardings();
  // Bytes that are left are as many things at most.
  size_t Length() { return Count(code_.size()); }

  std::string_view code_;
  const OpLookup lookup_;
  bool ok_ = true;
  int depth_ = 0;
  std::vector<Ref<const Function>> functions_;  // by number
};

}  // namespace weft::ir
