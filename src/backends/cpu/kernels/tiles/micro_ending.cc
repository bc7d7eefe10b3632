// See micro_ending.h.
#include "src/backends/cpu/kernels/tiles/micro_ending.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

namespace weft::cpu {
namespace {

using llvm::Value;

// The values of a register epilogue (Ending), loaded where it is made.
class PostOp {
 public:
  explicit PostOp(TileCode& code) : code_(code), b_(code.b) {
    least_ = b_.CreateLoad(code_.element, code_.Byte(code_.args(), offsetof(MicroArgs, least)));
    most_ = b_.CreateLoad(code_.element, code_.Byte(code_.args(), offsetof(MicroArgs, most)));
    // Above 0 there is no -0: what this is added to is none, and else as it was.
    positive_ = code_.Splat(b_.CreateSelect(b_.CreateFCmpOEQ(least_, llvm::ConstantFP::get(code_.element, 0)),
                                            llvm::ConstantFP::get(code_.element, 0),
                                            llvm::ConstantFP::getNegativeZero(code_.element)));
    factors_ = code_.PointerField(offsetof(MicroArgs, factor));
    summands_ = code_.PointerField(offsetof(MicroArgs, summand));
    to_ = code_.Field(offsetof(MicroArgs, to_offset));
    if (code_.spec.ending == EndingKind::kAffineAdd) added_ = code_.Field(offsetof(MicroArgs, added_offset));
  }
  // A NaN stays: one instruction each.
  Value* Bounded(Value* x) {
    Value *least = code_.Splat(least_), *most = code_.Splat(most_);
    x = b_.CreateSelect(b_.CreateFCmpOGT(least, x), least, x);
    return b_.CreateSelect(b_.CreateFCmpOLT(most, x), most, x);
  }
  // A vector of numbers that columns have.
  Value* ColumnVector(Value* numbers, int v, bool masked) {
    return code_.LoadVector(code_.Byte(numbers, static_cast<int64_t>(v) * code_.lanes * 4), code_.vector,
                            masked && v == code_.spec.nv - 1);
  }

  Value* positive() const { return positive_; }
  Value* factors() const { return factors_; }
  Value* summands() const { return summands_; }
  Value* to() const { return to_; }
  // Null: nothing is added.
  Value* added() const { return added_; }

 private:
  TileCode& code_;
  llvm::IRBuilder<>& b_;
  Value *least_ = nullptr, *most_ = nullptr, *positive_ = nullptr;
  Value *factors_ = nullptr, *summands_ = nullptr, *to_ = nullptr, *added_ = nullptr;
};

using Two = std::array<Value*, 2>;

// Conversions of sums to bf16 and back. The machine converts two vectors into one, which two interleavings with zeros widen
// again, as they lie then: 4 columns of each 8, of both vectors, in one and the others in the other.
class HalvesCode {
 public:
  explicit HalvesCode(TileCode& code) : code_(code), b_(code.b) {}

  Value* TwoConverted(const Two& two) {
    return b_.CreateBitCast(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {two[1], two[0]}),
                            code_.Halves(2));
  }
  Two TwoWidened(Value* both) {
    Two two;
    for (int i = 0; i < 2; ++i) {
      std::vector<int> from;
      for (int n = 0; n < 2 * code_.lanes; ++n) {
        const int at = n / 8 * 8 + i * 4 + n % 8 / 2;
        from.push_back(n % 2 == 0 ? at : 2 * code_.lanes + at);
      }
      Value* words = b_.CreateShuffleVector(llvm::Constant::getNullValue(code_.Halves(2)), both, from);
      two[i] = b_.CreateBitCast(words, code_.vector);
    }
    return two;
  }
  // Two of columns' numbers, as TwoWidened has them.
  Two TwoColumns(Value* first, Value* second) {
    Two two;
    for (int i = 0; i < 2; ++i) {
      std::vector<int> from;
      for (int n = 0; n < code_.lanes; ++n) from.push_back(n / 4 * 8 + i * 4 + n % 4);
      two[i] = b_.CreateShuffleVector(first, second, from);
    }
    return two;
  }
  // Puts what TwoWidened has made, converted, into the order of before.
  Value* InOrder(Value* both) {
    auto* fours = llvm::FixedVectorType::get(b_.getInt64Ty(), code_.lanes / 2);
    Value* ordered = b_.CreateShuffleVector(b_.CreateBitCast(both, fours), std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
    return b_.CreateBitCast(ordered, code_.Halves(2));
  }
  Value* HalfOf(Value* both, int i) {
    std::vector<int> from(code_.lanes);
    std::iota(from.begin(), from.end(), i * code_.lanes);
    return b_.CreateShuffleVector(both, from);
  }
  Value* Widened(Value* halves) {
    auto* words = llvm::FixedVectorType::get(b_.getInt32Ty(), code_.lanes);
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(halves, words), code_.Words(16)), code_.vector);
  }
  // To the nearest even bf16, in the high half; of a NaN its own digits there, quiet. As loops round.
  Value* RoundedBits(Value* x) {
    auto* words = llvm::FixedVectorType::get(b_.getInt32Ty(), code_.lanes);
    Value* bits = b_.CreateBitCast(x, words);
    Value* minus =
        b_.CreateXor(b_.CreateAnd(b_.CreateLShr(bits, code_.Words(16)), code_.Words(1)), code_.Words(-0x7FFF));
    return b_.CreateSelect(b_.CreateFCmpUNO(x, x), b_.CreateOr(bits, code_.Words(0x400000)), b_.CreateSub(bits, minus));
  }

 private:
  TileCode& code_;
  llvm::IRBuilder<>& b_;
};

// The register epilogue of kBF16Rounded. Conversions take denormals for zeros: where that is not the same, and where a denormal
// is added, tiles go another way (EndSlowly).
class RoundedEnding {
 public:
  RoundedEnding(TileCode& code, Value* c_offset, llvm::BasicBlock* stored)
      : code_(code), b_(code.b), halves_(code), post_op_(code), c_offset_(c_offset), stored_(stored) {}

  // The endings of whole and of masked vectors; `full` says which. The slow way reads the sums from memory, where keeping them
  // costs nothing.
  void End(const std::vector<Value*>& acc, Value* full) {
    Value* c_table = code_.PointerField(offsetof(MicroArgs, c));
    llvm::IRBuilder<> entry(&code_.function->getEntryBlock(), code_.function->getEntryBlock().begin());
    sums_ = entry.CreateAlloca(code_.vector, b_.getInt32(code_.spec.mr * code_.spec.nv));
    Value* vanish = b_.CreateICmpNE(code_.Field(offsetof(MicroArgs, denormals_vanish)), b_.getInt64(0));
    auto *usual = code_.Block("usual"), *whole = code_.Block("whole"), *part = code_.Block("part");
    auto *unusual = code_.Block("unusual"), *slow = code_.Block("slow");
    b_.CreateCondBr(vanish, usual, unusual, llvm::MDBuilder(b_.getContext()).createBranchWeights(1000, 1));
    b_.SetInsertPoint(usual);
    b_.CreateCondBr(full, whole, part);
    for (const bool masked : {false, true}) {
      b_.SetInsertPoint(masked ? part : whole);
      EndPairs(acc, c_table, masked, slow);
    }
    b_.SetInsertPoint(unusual);
    for (int i = 0; i < code_.spec.mr * code_.spec.nv; ++i) Save(acc, i);
    b_.CreateBr(slow);
    b_.SetInsertPoint(slow);
    EndSlowly(c_table);
  }

 private:
  struct Pair {
    int row[2], vector[2];
    bool whole;  // one store for both
    Value* result = nullptr;
  };
  // Neighbours in a row; and of the rows' last vectors, if those are odd in number, two rows' each. The last of all may be a
  // pair with itself.
  std::vector<Pair> Pairs() const {
    std::vector<Pair> pairs;
    const int last = code_.spec.nv - 1;
    for (int r = 0; r < code_.spec.mr; ++r) {
      for (int v = 0; v < last; v += 2) pairs.push_back({{r, r}, {v, v + 1}, true});
      if (code_.spec.nv % 2 == 0 || r % 2 != 0) continue;
      pairs.push_back({{r, std::min(r + 1, code_.spec.mr - 1)}, {last, last}, false});
    }
    return pairs;
  }
  void Save(const std::vector<Value*>& acc, int i) {
    b_.CreateAlignedStore(acc[i], code_.Byte(sums_, static_cast<int64_t>(i) * code_.lanes * 4), llvm::Align(64));
  }

  void EndPairs(const std::vector<Value*>& acc, Value* c_table, bool masked, llvm::BasicBlock* slow) {
    std::vector<Value*> factor, summand;
    for (int v = 0; v < code_.spec.nv; ++v) {
      factor.push_back(post_op_.ColumnVector(post_op_.factors(), v, masked));
      summand.push_back(b_.CreateFAdd(post_op_.ColumnVector(post_op_.summands(), v, masked), post_op_.positive()));
    }
    std::map<int, std::pair<Two, Two>> numbers;  // by a pair's first vector
    std::vector<Pair> pairs = Pairs();
    for (const Pair& pair : pairs) {
      const int first = pair.vector[0], second = pair.vector[1];
      if (numbers.count(first) > 0) continue;
      numbers[first] = {halves_.TwoColumns(factor[first], factor[second]),
                        halves_.TwoColumns(summand[first], summand[second])};
    }
    const auto last = [&](int v) { return masked && v == code_.spec.nv - 1; };
    const auto at = [&](const Pair& pair, int i, Value* offset) {
      Value* row = code_.Byte(b_.CreateLoad(code_.pointer, code_.Byte(c_table, pair.row[i] * 8)), c_offset_);
      return code_.Byte(code_.Byte(row, offset), static_cast<int64_t>(pair.vector[i]) * code_.lanes * 2);
    };
    Value* least = nullptr;
    for (Pair& pair : pairs) {
      const auto& [factors, summands] = numbers[pair.vector[0]];
      Two x;
      for (int i = 0; i < 2; ++i) {
        const int number = pair.row[i] * code_.spec.nv + pair.vector[i];
        x[i] = acc[number];
        if (post_op_.added() != nullptr) Save(acc, number);
      }
      x = halves_.TwoWidened(halves_.TwoConverted(x));
      for (int i = 0; i < 2; ++i) x[i] = b_.CreateFAdd(b_.CreateFMul(x[i], factors[i]), summands[i]);
      if (post_op_.added() != nullptr) {
        Value* more = nullptr;
        if (pair.whole && !last(pair.vector[1])) {
          more = code_.LoadVector(at(pair, 0, post_op_.added()), code_.Halves(2), false);
        } else {
          Two parts;
          for (int i = 0; i < 2; ++i) {
            parts[i] = code_.LoadVector(at(pair, i, post_op_.added()), code_.Halves(1), last(pair.vector[i]));
          }
          std::vector<int> all(2 * code_.lanes);
          std::iota(all.begin(), all.end(), 0);
          more = b_.CreateShuffleVector(parts[0], parts[1], all);
        }
        // Twice a bf16 less 1: least of denormals.
        Value* twice = b_.CreateAdd(b_.CreateAdd(more, more), llvm::Constant::getAllOnesValue(code_.Halves(2)));
        least = least == nullptr ? twice : b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, least, twice);
        const Two rounded = halves_.TwoWidened(halves_.InOrder(halves_.TwoConverted(x))),
                  wide = halves_.TwoWidened(more);
        for (int i = 0; i < 2; ++i) x[i] = b_.CreateFAdd(rounded[i], wide[i]);
      }
      pair.result = halves_.InOrder(halves_.TwoConverted({post_op_.Bounded(x[0]), post_op_.Bounded(x[1])}));
    }
    if (post_op_.added() != nullptr) {
      auto* store = code_.Block("store");
      Value* denormal = b_.CreateICmpULT(least, b_.CreateVectorSplat(2 * code_.lanes, b_.getInt16(0xFF)));
      Value* any =
          b_.CreateICmpNE(b_.CreateBitCast(denormal, b_.getIntNTy(2 * code_.lanes)), b_.getIntN(2 * code_.lanes, 0));
      b_.CreateCondBr(any, slow, store, llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1000));
      b_.SetInsertPoint(store);
    }
    for (const Pair& pair : pairs) {
      if (pair.whole && !last(pair.vector[1])) {
        code_.StoreVector(at(pair, 0, post_op_.to()), pair.result, false, false);
        continue;
      }
      const int stores = pair.whole || pair.row[0] != pair.row[1] ? 2 : 1;
      for (int i = 0; i < stores; ++i) {
        code_.StoreVector(at(pair, i, post_op_.to()), halves_.HalfOf(pair.result, i), false, last(pair.vector[i]));
      }
    }
    b_.CreateBr(stored_);
  }

  // From the sums as they were kept: the rounding of loops, step by step.
  void EndSlowly(Value* c_table) {
    auto *before = b_.GetInsertBlock(), *loop = code_.Block("row"), *done = code_.Block("ended");
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    auto* row = b_.CreatePHI(b_.getInt64Ty(), 2);
    row->addIncoming(b_.getInt64(0), before);
    const auto at = [&](Value* base, int64_t bytes) { return code_.Byte(base, b_.CreateMul(row, b_.getInt64(bytes))); };
    Value* c = code_.Byte(b_.CreateLoad(code_.pointer, at(c_table, 8)), c_offset_);
    Value* own = at(sums_, static_cast<int64_t>(code_.spec.nv) * code_.lanes * 4);
    const auto rounded = [&](Value* x) {
      return b_.CreateTrunc(b_.CreateLShr(halves_.RoundedBits(x), code_.Words(16)), code_.Halves(1));
    };
    for (int v = 0; v < code_.spec.nv; ++v) {
      const bool last = v == code_.spec.nv - 1;
      const int64_t offset = static_cast<int64_t>(v) * code_.lanes;
      Value* x = halves_.Widened(rounded(code_.LoadVector(code_.Byte(own, offset * 4), code_.vector, false)));
      x = b_.CreateFAdd(b_.CreateFMul(x, post_op_.ColumnVector(post_op_.factors(), v, true)),
                        b_.CreateFAdd(post_op_.ColumnVector(post_op_.summands(), v, true), post_op_.positive()));
      if (post_op_.added() != nullptr) {
        x = b_.CreateFAdd(halves_.Widened(rounded(x)),
                          halves_.Widened(code_.LoadVector(code_.Byte(code_.Byte(c, post_op_.added()), offset * 2),
                                                           code_.Halves(1), last)));
        x = b_.CreateFAdd(x, post_op_.positive());  // rounding makes -0 of what is tiny
      }
      // Bounds are values of bf16, so that rounding may come after them.
      code_.StoreVector(code_.Byte(code_.Byte(c, post_op_.to()), offset * 2), rounded(post_op_.Bounded(x)), false,
                        last);
    }
    Value* next = b_.CreateAdd(row, b_.getInt64(1));
    row->addIncoming(next, loop);
    b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt64(code_.spec.mr)), loop, done);
    b_.SetInsertPoint(done);
    b_.CreateBr(stored_);
  }

  TileCode& code_;
  llvm::IRBuilder<>& b_;
  HalvesCode halves_;
  PostOp post_op_;
  Value* const c_offset_;
  llvm::BasicBlock* const stored_;
  Value* sums_ = nullptr;  // where they are kept
};

// The end of a tile: its sums to C, as they are, rounded, or through a register epilogue.
class TileEnd {
 public:
  TileEnd(TileCode& code, Value* c_offset, llvm::BasicBlock* stored)
      : code_(code), b_(code.b), c_offset_(c_offset), stored_(stored) {}

  void Store(const std::vector<Value*>& acc) {
    Value* c_table = code_.PointerField(offsetof(MicroArgs, c));
    Value* full = b_.CreateICmpEQ(code_.Field(offsetof(MicroArgs, last_lanes)), b_.getInt64(code_.lanes));
    const bool rounds = code_.spec.type == MicroType::kBF16Rounded;
    if (rounds && code_.spec.ending != EndingKind::kNone) {
      return RoundedEnding(code_, c_offset_, stored_).End(acc, full);
    }
    // Four endings, two where nothing accumulates: the masked ones are short on AVX-512 and branchy elsewhere, so whole tiles
    // avoid them.
    llvm::BasicBlock* add = rounds ? nullptr : code_.Block("add");
    auto* set = code_.Block("set");
    if (rounds) {
      b_.CreateBr(set);
    } else {
      Value* accumulate = b_.CreateICmpNE(code_.Field(offsetof(MicroArgs, accumulate)), b_.getInt64(0));
      b_.CreateCondBr(accumulate, add, set);
    }
    for (llvm::BasicBlock* ending : {add, set}) {
      if (ending == nullptr) continue;
      b_.SetInsertPoint(ending);
      auto* whole = code_.Block("whole");
      auto* part = code_.Block("part");
      b_.CreateCondBr(full, whole, part);
      for (bool masked : {false, true}) {
        b_.SetInsertPoint(masked ? part : whole);
        if (code_.spec.ending != EndingKind::kNone) {
          End(acc, ending == add, masked);
          continue;
        }
        for (int r = 0; r < code_.spec.mr; ++r) {
          Value* row = code_.Byte(b_.CreateLoad(code_.pointer, code_.Byte(c_table, r * 8)), c_offset_);
          for (int v = 0; v < code_.spec.nv; ++v) {
            Value* value = acc[r * code_.spec.nv + v];
            Value* address =
                code_.Byte(row, static_cast<int64_t>(v) * code_.lanes * (rounds ? 2 : code_.element_bytes));
            code_.StoreVector(address, rounds ? Rounded(value) : value, ending == add,
                              masked && v == code_.spec.nv - 1);
          }
        }
        b_.CreateBr(stored_);
      }
    }
  }

 private:
  // The machine's conversion takes denormals for zeros, but no sum of its products is one.
  Value* Rounded(Value* sum) { return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {sum}); }

  // Stores what an Ending makes of the sums.
  void End(const std::vector<Value*>& acc, bool adding, bool masked) {
    PostOp post_op(code_);
    Value* c_table = code_.PointerField(offsetof(MicroArgs, c));
    std::vector<Value*> factor, summand;
    for (int v = 0; v < code_.spec.nv; ++v) {
      factor.push_back(post_op.ColumnVector(post_op.factors(), v, masked));
      summand.push_back(b_.CreateFAdd(post_op.ColumnVector(post_op.summands(), v, masked), post_op.positive()));
    }
    for (int r = 0; r < code_.spec.mr; ++r) {
      Value* row = code_.Byte(b_.CreateLoad(code_.pointer, code_.Byte(c_table, r * 8)), c_offset_);
      for (int v = 0; v < code_.spec.nv; ++v) {
        const bool last = masked && v == code_.spec.nv - 1;
        const int64_t at = static_cast<int64_t>(v) * code_.lanes * code_.element_bytes;
        Value* x = acc[r * code_.spec.nv + v];
        if (adding) x = b_.CreateFAdd(code_.LoadVector(code_.Byte(row, at), code_.vector, last), x);
        x = b_.CreateFAdd(b_.CreateFMul(x, factor[v]), summand[v]);
        if (post_op.added() != nullptr) {
          x = b_.CreateFAdd(x, code_.LoadVector(code_.Byte(code_.Byte(row, post_op.added()), at), code_.vector, last));
        }
        code_.StoreVector(code_.Byte(code_.Byte(row, post_op.to()), at), post_op.Bounded(x), false, last);
      }
    }
    b_.CreateBr(stored_);
  }

  TileCode& code_;
  llvm::IRBuilder<>& b_;
  Value* const c_offset_;
  llvm::BasicBlock* const stored_;
};

}  // namespace

void EndTile(TileCode& code, const std::vector<Value*>& sums, Value* c_offset, llvm::BasicBlock* stored) {
  TileEnd(code, c_offset, stored).Store(sums);
}

}  // namespace weft::cpu
