// Pairwise summation of floats. One sum takes at most kSumSteps additions (a row's last piece aside), then it is
// closed: neighbours are added, and neighbours' sums, as a binary counter carries. So n additions are about kSumSteps +
// log2(n / kSumSteps) deep, and a sum of similar numbers does not drift. Blocks are cut by sizes alone.
#pragma once

#include <functional>
#include <vector>

#include "src/backends/cpu/loop/looking_code.h"

namespace weft::cpu {

class CascadeCode : public LookingCode {
 public:
  using LookingCode::LookingCode;

  // The partial sums as a binary counter: memory[level] holds the sum of 2^level blocks if that bit of the block count is set.
  struct Cascade {
    std::vector<llvm::Type*> types;
    std::vector<V> memory;
  };
  // Positions behind the sums among what loops carry: additions since a block was closed, and blocks.
  static constexpr size_t kCounts = 2;

  // Makes the cascade for sums of these types.
  Cascade NewCascade(const Values& sums) {
    Cascade cascade;
    for (V sum : sums) {
      cascade.types.push_back(sum->getType());
      cascade.memory.push_back(entry_.CreateAlloca(llvm::ArrayType::get(sum->getType(), kLevels)));
    }
    return cascade;
  }

  Values WithCounts(Values carried) {
    carried.insert(carried.end(), kCounts, I64(0));
    return carried;
  }

  void PutAway(const Cascade& cascade, V blocks, const Values& sums) {
    V level = LowestBit(b_.CreateNot(blocks));
    const Values carried = Loop(I64(0), level, 1, sums, [&](V at, Values x) {
                             AddLevel(cascade, at, x);
                             return x;
                           }).carried;
    for (size_t i = 0; i < carried.size(); ++i) b_.CreateStore(carried[i], Slot(cascade, i, level));
  }

  // Returns the total of all blocks and of `sums`, which came after them.
  Values TotalOf(const Cascade& cascade, V blocks, Values sums) {
    sums.push_back(blocks);
    V count = b_.CreateUnaryIntrinsic(llvm::Intrinsic::ctpop, blocks);
    Values total = Loop(I64(0), count, 1, std::move(sums), [&](V, Values x) {
                     V left = x.back();
                     x.pop_back();
                     AddLevel(cascade, LowestBit(left), x);
                     x.push_back(b_.CreateAnd(left, b_.CreateSub(left, I64(1))));
                     return x;
                   }).carried;
    total.pop_back();
    return total;
  }

  // `body` along [0, size) of dimension d, pieces of `piece` elements at a time; `steps` says how many additions to one sum so many
  // elements are. The launch may end between pieces, so that `body` need not look. `put_away` gets the number of blocks and what `body` carries, and gives back what the next block begins with.
  using Body = std::function<Values(V from, V to, Values carried)>;
  using Next = std::function<Values(V blocks, Values carried)>;
  Values InBlocks(size_t d, V size, int64_t piece, Values carried, const Body& body, const std::function<V(V)>& steps,
                  const Next& put_away) {
    const auto one = [&](V from, Values now) {
      V blocks = now.back(), before = now[now.size() - kCounts];
      now.resize(now.size() - kCounts);
      V to = MinOf(b_.CreateAdd(from, I64(piece)), size);
      now = body(from, to, std::move(now));
      V done = b_.CreateAdd(before, steps(b_.CreateSub(to, from)));
      V full = b_.CreateZExt(b_.CreateICmpSGE(done, I64(kSumSteps)), b_.getInt64Ty());
      now.push_back(done);
      const auto next = [&](V, Values block) {
        block.pop_back();
        block = put_away(blocks, std::move(block));
        block.push_back(I64(0));
        return block;
      };
      now = Loop(I64(0), full, 1, std::move(now), next).carried;
      now.push_back(b_.CreateAdd(blocks, full));
      return now;
    };
    return LoopAlong(d, I64(0), size, piece, std::move(carried), one).carried;
  }

 private:
  static constexpr uint64_t kLevels = 48;  // more blocks than a launch could add up

  V LowestBit(V bits) { return b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, bits, b_.getFalse()); }
  V Slot(const Cascade& cascade, size_t i, V level) {
    return b_.CreateInBoundsGEP(cascade.types[i], cascade.memory[i], level);
  }
  void AddLevel(const Cascade& cascade, V level, Values& sums) {
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = b_.CreateFAdd(b_.CreateLoad(cascade.types[i], Slot(cascade, i, level)), sums[i]);
    }
  }
};

}  // namespace weft::cpu
