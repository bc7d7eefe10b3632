// Emits register tiles as LLVM IR with explicit vectors. The loop over K holds MR*NV accumulators as phis; g++ would
// spill them, LLVM's allocator keeps them as long as MR*NV + NV + 1 fits the register file.
#include "src/backends/cpu/kernels/tiles/micro.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using llvm::Value;

constexpr int64_t kSignsOfFour = -0x7F7F7F80;  // turns bytes with a sign into ones without, 128 more, and back

class Emitter {
 public:
  Emitter(const CpuTarget& target, const MicroSpec& spec, JitModule* module)
      : target_(target),
        spec_(spec),
        pairs_(TakesPairs(spec.type)),
        quads_(TakesFours(spec.type)),
        integers_(IsIntegers(spec.type)),
        module_(*module->module),
        b_(*module->context) {
    lanes_ = MicroLanes(target, spec.type);
    const bool wide = spec.type == MicroType::kF64 || spec.type == MicroType::kI64;
    element_bytes_ = wide ? 8 : 4;  // also of a pair or four
    if (integers_) {
      element_ = b_.getIntNTy(static_cast<unsigned>(8 * element_bytes_));
    } else {
      element_ = wide ? b_.getDoubleTy() : b_.getFloatTy();
    }
    vector_ = llvm::FixedVectorType::get(element_, lanes_);
    pointer_ = llvm::PointerType::getUnqual(b_.getContext());
  }

  void Emit() {
    auto* type = llvm::FunctionType::get(b_.getVoidTy(), {pointer_}, false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, spec_.Symbol(), module_);
    llvm::Value* args = function_->getArg(0);
    auto* entry = Block("entry");
    auto* tile_loop = Block("tile");
    auto* tap_loop = Block("tap");
    b_.SetInsertPoint(entry);
    Value* taps = Field(args, offsetof(MicroArgs, taps));
    k_ = Field(args, offsetof(MicroArgs, k));
    Value* a_table = PointerField(args, offsetof(MicroArgs, a));
    if (spec_.form != MicroForm::kRows) a_stride_ = Field(args, offsetof(MicroArgs, a_stride));
    Value* b_base = PointerField(args, offsetof(MicroArgs, b));
    Value* b_offsets = PointerField(args, offsetof(MicroArgs, b_offsets));
    b_stride_ = Field(args, offsetof(MicroArgs, b_stride));
    Value* last = Field(args, offsetof(MicroArgs, last_lanes));
    mask_ = LaneMask(last);
    Value* ahead = PointerField(args, offsetof(MicroArgs, ahead));
    ahead = b_.CreateSelect(b_.CreateIsNull(ahead), b_base, ahead);
    ahead_step_ = Field(args, offsetof(MicroArgs, ahead_step));
    Value* ahead_tap = b_.CreateMul(k_, ahead_step_);
    const int count = spec_.mr * spec_.nv;
    const std::vector<Value*> zeros(count, llvm::ConstantAggregateZero::get(vector_));
    Value* tiles = Field(args, offsetof(MicroArgs, tiles));
    Value* a_step = Field(args, offsetof(MicroArgs, a_step));
    Value* c_step = Field(args, offsetof(MicroArgs, c_step));
    Value* c_offset = Field(args, offsetof(MicroArgs, c_offset));
    Value* asks = b_.CreateICmpNE(Field(args, offsetof(MicroArgs, asks_c)), b_.getInt64(0));
    b_.CreateBr(tile_loop);

    b_.SetInsertPoint(tile_loop);
    auto* tile = b_.CreatePHI(b_.getInt64Ty(), 2);
    tile->addIncoming(b_.getInt64(0), entry);
    Value* a_offset = b_.CreateMul(tile, a_step);
    c_offset_ = b_.CreateAdd(c_offset, b_.CreateMul(tile, c_step));
    auto* ask = Block("ask");
    auto* asked = Block("asked");
    b_.CreateCondBr(asks, ask, asked);
    b_.SetInsertPoint(ask);
    AskForNext(args, b_.CreateAdd(c_offset_, c_step));
    b_.CreateBr(asked);
    b_.SetInsertPoint(asked);
    b_.CreateBr(tap_loop);

    b_.SetInsertPoint(tap_loop);
    auto* tap = b_.CreatePHI(b_.getInt64Ty(), 2);
    tap->addIncoming(b_.getInt64(0), asked);
    std::vector<llvm::PHINode*> tap_acc = Phis(zeros, asked);
    const bool one_pointer = spec_.form == MicroForm::kColumns;
    const int pointers = one_pointer ? 1 : spec_.mr;
    rows_.clear();
    Value* first = b_.CreateMul(tap, b_.getInt64(pointers));
    for (int r = 0; r < pointers; ++r) {
      Value* slot = b_.CreateGEP(pointer_, a_table, b_.CreateAdd(first, b_.getInt64(r)));
      rows_.push_back(Byte(b_.CreateLoad(pointer_, slot), a_offset));
    }
    Value* b_start = Byte(b_base, b_.CreateLoad(b_.getInt64Ty(), b_.CreateGEP(b_.getInt64Ty(), b_offsets, tap)));
    std::vector<Value*> acc = BeginSums(tap_acc, &b_start);
    Value* b_end = nullptr;
    acc = KLoop(acc, b_start, Byte(ahead, b_.CreateMul(tap, ahead_tap)), &b_end);
    if ((pairs_ || quads_) && spec_.form == MicroForm::kRows) acc = OddStep(acc, args, b_end);
    auto* tap_next = b_.CreateAdd(tap, b_.getInt64(1));
    auto* latch = b_.GetInsertBlock();
    tap->addIncoming(tap_next, latch);
    for (int i = 0; i < count; ++i) tap_acc[i]->addIncoming(acc[i], latch);
    auto* done = Block("done");
    b_.CreateCondBr(b_.CreateICmpULT(tap_next, taps), tap_loop, done);

    b_.SetInsertPoint(done);
    stored_ = Block("stored");
    Store(args, acc);

    b_.SetInsertPoint(stored_);
    auto* leave = Block("leave");
    Value* next = b_.CreateAdd(tile, b_.getInt64(1));
    tile->addIncoming(next, stored_);
    b_.CreateCondBr(b_.CreateICmpULT(next, tiles), tile_loop, leave);
    b_.SetInsertPoint(leave);
    b_.CreateRetVoid();
  }

 private:
  llvm::BasicBlock* Block(const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, function_); }
  Value* Byte(Value* pointer, Value* offset) { return b_.CreateGEP(b_.getInt8Ty(), pointer, offset); }
  Value* Byte(Value* pointer, int64_t offset) { return Byte(pointer, b_.getInt64(offset)); }
  Value* Field(Value* args, int64_t offset) { return b_.CreateLoad(b_.getInt64Ty(), Byte(args, offset)); }
  Value* PointerField(Value* args, int64_t offset) { return b_.CreateLoad(pointer_, Byte(args, offset)); }

  Value* LaneMask(Value* last) {
    std::vector<llvm::Constant*> index;
    for (int i = 0; i < lanes_; ++i) index.push_back(b_.getInt64(i));
    return b_.CreateICmpULT(llvm::ConstantVector::get(index), b_.CreateVectorSplat(lanes_, last));
  }

  std::vector<llvm::PHINode*> Phis(const std::vector<Value*>& values, llvm::BasicBlock* from) {
    std::vector<llvm::PHINode*> phis;
    for (Value* value : values) {
      auto* phi = b_.CreatePHI(vector_, 2);
      phi->addIncoming(value, from);
      phis.push_back(phi);
    }
    return phis;
  }

  Value* LoadB(Value* pointer, int v) {
    Value* address = Byte(pointer, static_cast<int64_t>(v) * lanes_ * element_bytes_);
    if (spec_.masked_b && v == spec_.nv - 1) {
      return b_.CreateMaskedLoad(vector_, address, llvm::Align(element_bytes_), mask_,
                                 llvm::ConstantAggregateZero::get(vector_));
    }
    return b_.CreateAlignedLoad(vector_, address, llvm::Align(element_bytes_));
  }

  // Two products of i16 and their sum, in i32: (-2^15)^2 twice is the one that wraps. With VNNI the sum with `acc` is the same
  // instruction.
  Value* PairsOfI16(Value* a, Value* b) {
    auto* pairs = llvm::FixedVectorType::get(b_.getInt16Ty(), lanes_ * 2);
    const auto multiply = lanes_ == 4   ? llvm::Intrinsic::x86_sse2_pmadd_wd
                          : lanes_ == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                        : llvm::Intrinsic::x86_avx512_pmaddw_d_512;
    return b_.CreateIntrinsic(multiply, {}, {b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)});
  }
  // Four products of a byte with a sign and one without, added.
  Value* FoursOfBytes(Value* acc, Value* a, Value* b) {
    const auto multiply =
        lanes_ == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256;
    if (spec_.type == MicroType::kU8Dot) std::swap(a, b);
    return b_.CreateIntrinsic(multiply, {}, {acc, a, b});
  }
  // Returns the sums that a tap adds to. For fours of bytes they begin with its first row of B; its steps are behind that row.
  std::vector<Value*> BeginSums(const std::vector<llvm::PHINode*>& sums, Value** b_start) {
    std::vector<Value*> acc(sums.begin(), sums.end());
    for (int v = 0; quads_ && v < spec_.nv; ++v) {
      Value* first = LoadB(*b_start, v);
      for (int r = 0; r < spec_.mr; ++r) acc[r * spec_.nv + v] = b_.CreateAdd(acc[r * spec_.nv + v], first);
    }
    if (quads_) *b_start = Byte(*b_start, b_stride_);
    return acc;
  }
  Value* Sum(Value* a, Value* b) { return integers_ ? b_.CreateAdd(a, b) : b_.CreateFAdd(a, b); }

  Value* Step(Value* acc, Value* a, Value* b) {
    if (quads_) return FoursOfBytes(acc, a, b);
    if (integers_) return b_.CreateAdd(acc, pairs_ ? PairsOfI16(a, b) : b_.CreateMul(a, b));
    if (pairs_) {
      auto* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), lanes_ * 2);
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                                {acc, b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)});
    }
    if (target_.has_fma) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {vector_}, {a, b, acc});
    return b_.CreateFAdd(acc, b_.CreateFMul(a, b));
  }

  // The tile's work for one k: `offset` is the byte offset into A's rows.
  std::vector<Value*> OneK(const std::vector<Value*>& acc, Value* offset, Value* b_pointer, bool half) {
    std::vector<Value*> b_vectors;
    for (int v = 0; v < spec_.nv; ++v) b_vectors.push_back(LoadB(b_pointer, v));
    std::vector<Value*> next;
    for (int r = 0; r < spec_.mr; ++r) {
      const bool one_pointer = spec_.form == MicroForm::kColumns;
      Value* address = Byte(one_pointer ? rows_[0] : rows_[r], offset);
      if (one_pointer && r > 0) address = Byte(address, static_cast<int64_t>(r) * element_bytes_);
      Value* scalar = nullptr;
      if (quads_) {
        scalar = b_.CreateAlignedLoad(element_, address, llvm::Align(1));
        if (half) scalar = b_.CreateLShr(scalar, b_.CreateTrunc(b_.CreateMul(lacks_, b_.getInt64(8)), element_));
      } else if (half) {  // a lone bf16: the pair's other half is zero, whatever follows in memory
        scalar = b_.CreateZExt(b_.CreateAlignedLoad(b_.getInt16Ty(), address, llvm::Align(2)), b_.getInt32Ty());
      } else if (pairs_) {
        scalar = b_.CreateAlignedLoad(b_.getInt32Ty(), address, llvm::Align(2));
      } else {
        scalar = b_.CreateAlignedLoad(element_, address, llvm::Align(element_bytes_));
      }
      Value* a = b_.CreateVectorSplat(lanes_, scalar);
      if (quads_) a = b_.CreateXor(a, Words(kSignsOfFour));
      for (int v = 0; v < spec_.nv; ++v) next.push_back(Step(acc[r * spec_.nv + v], a, b_vectors[v]));
    }
    return next;
  }

  void Prefetch(Value* address) {
    constexpr int kRead = 0, kKeep = 3, kData = 1;
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {pointer_},
                       {address, b_.getInt32(kRead), b_.getInt32(kKeep), b_.getInt32(kData)});
  }

  // Rows of C that the next tile adds to.
  void AskForNext(Value* args, Value* offset) {
    Value* c_table = PointerField(args, offsetof(MicroArgs, c));
    for (int r = 0; r < spec_.mr; ++r) {
      Value* row = Byte(b_.CreateLoad(pointer_, Byte(c_table, r * 8)), offset);
      for (int v = 0; v < spec_.nv; ++v) Prefetch(Byte(row, static_cast<int64_t>(v) * lanes_ * element_bytes_));
    }
  }

  // Runs k steps; a tap has at least one (pairs and fours may have none, when all of its elements are odd ones).
  std::vector<Value*> KLoop(const std::vector<Value*>& start, Value* b_start, Value* ahead_start, Value** b_end) {
    auto* before = b_.GetInsertBlock();
    auto* loop = Block("k");
    auto* after = Block("after");
    const bool may_skip = pairs_ || quads_;
    if (may_skip) {
      b_.CreateCondBr(b_.CreateICmpEQ(k_, b_.getInt64(0)), after, loop);
    } else {
      b_.CreateBr(loop);
    }
    b_.SetInsertPoint(loop);
    auto* left = b_.CreatePHI(b_.getInt64Ty(), 2);
    auto* offset = b_.CreatePHI(b_.getInt64Ty(), 2);
    auto* b_pointer = b_.CreatePHI(pointer_, 2);
    left->addIncoming(k_, before);
    offset->addIncoming(b_.getInt64(0), before);
    b_pointer->addIncoming(b_start, before);
    auto* ahead = b_.CreatePHI(pointer_, 2);
    ahead->addIncoming(ahead_start, before);
    std::vector<llvm::PHINode*> phis = Phis(start, before);
    std::vector<Value*> acc = OneK({phis.begin(), phis.end()}, offset, b_pointer, false);
    Prefetch(ahead);
    ahead->addIncoming(Byte(ahead, ahead_step_), loop);
    Value* left_next = b_.CreateSub(left, b_.getInt64(1));
    Value* offset_next =
        b_.CreateAdd(offset, a_stride_ != nullptr ? a_stride_ : static_cast<Value*>(b_.getInt64(element_bytes_)));
    Value* b_next = Byte(b_pointer, b_stride_);
    left->addIncoming(left_next, loop);
    offset->addIncoming(offset_next, loop);
    b_pointer->addIncoming(b_next, loop);
    for (size_t i = 0; i < acc.size(); ++i) phis[i]->addIncoming(acc[i], loop);
    b_.CreateCondBr(b_.CreateICmpNE(left_next, b_.getInt64(0)), loop, after);

    b_.SetInsertPoint(after);
    if (!may_skip) {
      *b_end = b_next;
      return acc;
    }
    std::vector<Value*> merged;
    for (size_t i = 0; i < acc.size(); ++i) {
      auto* phi = b_.CreatePHI(vector_, 2);
      phi->addIncoming(start[i], before);
      phi->addIncoming(acc[i], loop);
      merged.push_back(phi);
    }
    auto* end = b_.CreatePHI(pointer_, 2);
    end->addIncoming(b_start, before);
    end->addIncoming(b_next, loop);
    *b_end = end;
    return merged;
  }

  std::vector<Value*> OddStep(const std::vector<Value*>& start, Value* args, Value* b_pointer) {
    auto* before = b_.GetInsertBlock();
    auto* odd = Block("odd");
    auto* after = Block("even");
    Value* is_odd = b_.CreateICmpNE(Field(args, offsetof(MicroArgs, odd)), b_.getInt64(0));
    b_.CreateCondBr(is_odd, odd, after);
    b_.SetInsertPoint(odd);
    Value* offset = b_.CreateMul(k_, b_.getInt64(4));
    lacks_ = b_.CreateSub(b_.getInt64(4), Field(args, offsetof(MicroArgs, odd)));
    if (quads_) offset = b_.CreateSub(offset, lacks_);
    std::vector<Value*> acc = OneK(start, offset, b_pointer, true);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    std::vector<Value*> merged;
    for (size_t i = 0; i < acc.size(); ++i) {
      auto* phi = b_.CreatePHI(vector_, 2);
      phi->addIncoming(start[i], before);
      phi->addIncoming(acc[i], odd);
      merged.push_back(phi);
    }
    return merged;
  }

  void Store(Value* args, const std::vector<Value*>& acc) {
    Value* c_table = PointerField(args, offsetof(MicroArgs, c));
    Value* full = b_.CreateICmpEQ(Field(args, offsetof(MicroArgs, last_lanes)), b_.getInt64(lanes_));
    const bool rounds = spec_.type == MicroType::kBF16Rounded;
    if (rounds && spec_.ending != EndingKind::kNone) return EndRounded(args, acc, full);
    // Four endings, two where nothing accumulates: the masked ones are short on AVX-512 and branchy elsewhere, so whole tiles
    // avoid them.
    llvm::BasicBlock* add = rounds ? nullptr : Block("add");
    auto* set = Block("set");
    if (rounds) {
      b_.CreateBr(set);
    } else {
      Value* accumulate = b_.CreateICmpNE(Field(args, offsetof(MicroArgs, accumulate)), b_.getInt64(0));
      b_.CreateCondBr(accumulate, add, set);
    }
    for (llvm::BasicBlock* ending : {add, set}) {
      if (ending == nullptr) continue;
      b_.SetInsertPoint(ending);
      auto* whole = Block("whole");
      auto* part = Block("part");
      b_.CreateCondBr(full, whole, part);
      for (bool masked : {false, true}) {
        b_.SetInsertPoint(masked ? part : whole);
        if (spec_.ending != EndingKind::kNone) {
          End(args, acc, ending == add, masked);
          continue;
        }
        for (int r = 0; r < spec_.mr; ++r) {
          Value* row = Byte(b_.CreateLoad(pointer_, Byte(c_table, r * 8)), c_offset_);
          for (int v = 0; v < spec_.nv; ++v) {
            Value* value = acc[r * spec_.nv + v];
            Value* address = Byte(row, static_cast<int64_t>(v) * lanes_ * (rounds ? 2 : element_bytes_));
            StoreVector(address, rounds ? Rounded(value) : value, ending == add, masked && v == spec_.nv - 1);
          }
        }
        b_.CreateBr(stored_);
      }
    }
  }

  // An Ending's numbers.
  void LoadEnding(Value* args) {
    least_ = b_.CreateLoad(element_, Byte(args, offsetof(MicroArgs, least)));
    most_ = b_.CreateLoad(element_, Byte(args, offsetof(MicroArgs, most)));
    // Above 0 there is no -0: what this is added to is none, and else as it was.
    positive_ = Splat(b_.CreateSelect(b_.CreateFCmpOEQ(least_, llvm::ConstantFP::get(element_, 0)),
                                      llvm::ConstantFP::get(element_, 0), llvm::ConstantFP::getNegativeZero(element_)));
    factors_ = PointerField(args, offsetof(MicroArgs, factor));
    summands_ = PointerField(args, offsetof(MicroArgs, summand));
    to_ = Field(args, offsetof(MicroArgs, to_offset));
    if (spec_.ending == EndingKind::kAffineAdd) added_ = Field(args, offsetof(MicroArgs, added_offset));
  }
  Value* Splat(Value* scalar) { return b_.CreateVectorSplat(lanes_, scalar); }
  // A NaN stays: one instruction each.
  Value* Bounded(Value* x) {
    Value *least = Splat(least_), *most = Splat(most_);
    x = b_.CreateSelect(b_.CreateFCmpOGT(least, x), least, x);
    return b_.CreateSelect(b_.CreateFCmpOLT(most, x), most, x);
  }
  Value* ColumnVector(Value* numbers, int v, bool masked) {
    return LoadVector(Byte(numbers, static_cast<int64_t>(v) * lanes_ * 4), vector_, masked && v == spec_.nv - 1);
  }

  // Stores what an Ending makes of the sums.
  void End(Value* args, const std::vector<Value*>& acc, bool adding, bool masked) {
    LoadEnding(args);
    Value* c_table = PointerField(args, offsetof(MicroArgs, c));
    std::vector<Value*> factor, summand;
    for (int v = 0; v < spec_.nv; ++v) {
      factor.push_back(ColumnVector(factors_, v, masked));
      summand.push_back(b_.CreateFAdd(ColumnVector(summands_, v, masked), positive_));
    }
    for (int r = 0; r < spec_.mr; ++r) {
      Value* row = Byte(b_.CreateLoad(pointer_, Byte(c_table, r * 8)), c_offset_);
      for (int v = 0; v < spec_.nv; ++v) {
        const bool last = masked && v == spec_.nv - 1;
        const int64_t at = static_cast<int64_t>(v) * lanes_ * element_bytes_;
        Value* x = acc[r * spec_.nv + v];
        if (adding) x = b_.CreateFAdd(LoadVector(Byte(row, at), vector_, last), x);
        x = b_.CreateFAdd(b_.CreateFMul(x, factor[v]), summand[v]);
        if (added_ != nullptr) x = b_.CreateFAdd(x, LoadVector(Byte(Byte(row, added_), at), vector_, last));
        StoreVector(Byte(Byte(row, to_), at), Bounded(x), false, last);
      }
    }
    b_.CreateBr(stored_);
  }

  // --- Endings of kBF16Rounded: the machine converts two vectors into one, which two interleavings with zeros widen again, as
  // they lie then: 4 columns of each 8, of both vectors, in one and the others in the other. Conversions take denormals for
  // zeros: where that is not the same, and where a denormal is added, tiles go another way (EndSlowly).

  using Two = std::array<Value*, 2>;
  struct Pair {
    int row[2], vector[2];
    bool whole;  // one store for both
    Value* result = nullptr;
  };
  // Neighbours in a row; and of the rows' last vectors, if those are odd in number, two rows' each. The last of all may be a
  // pair with itself.
  std::vector<Pair> Pairs() const {
    std::vector<Pair> pairs;
    const int last = spec_.nv - 1;
    for (int r = 0; r < spec_.mr; ++r) {
      for (int v = 0; v < last; v += 2) pairs.push_back({{r, r}, {v, v + 1}, true});
      if (spec_.nv % 2 == 0 || r % 2 != 0) continue;
      pairs.push_back({{r, std::min(r + 1, spec_.mr - 1)}, {last, last}, false});
    }
    return pairs;
  }
  Value* TwoConverted(const Two& two) {
    return b_.CreateBitCast(b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {two[1], two[0]}),
                            Halves(2));
  }
  Two TwoWidened(Value* both) {
    Two two;
    for (int i = 0; i < 2; ++i) {
      std::vector<int> from;
      for (int n = 0; n < 2 * lanes_; ++n) {
        const int at = n / 8 * 8 + i * 4 + n % 8 / 2;
        from.push_back(n % 2 == 0 ? at : 2 * lanes_ + at);
      }
      Value* words = b_.CreateShuffleVector(llvm::Constant::getNullValue(Halves(2)), both, from);
      two[i] = b_.CreateBitCast(words, vector_);
    }
    return two;
  }
  // Two of columns' numbers, as TwoWidened has them.
  Two TwoColumns(Value* first, Value* second) {
    Two two;
    for (int i = 0; i < 2; ++i) {
      std::vector<int> from;
      for (int n = 0; n < lanes_; ++n) from.push_back(n / 4 * 8 + i * 4 + n % 4);
      two[i] = b_.CreateShuffleVector(first, second, from);
    }
    return two;
  }
  // Puts what TwoWidened has made, converted, into the order of before.
  Value* InOrder(Value* both) {
    auto* fours = llvm::FixedVectorType::get(b_.getInt64Ty(), lanes_ / 2);
    Value* ordered = b_.CreateShuffleVector(b_.CreateBitCast(both, fours), std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7});
    return b_.CreateBitCast(ordered, Halves(2));
  }
  Value* HalfOf(Value* both, int i) {
    std::vector<int> from(lanes_);
    std::iota(from.begin(), from.end(), i * lanes_);
    return b_.CreateShuffleVector(both, from);
  }

  // The endings of whole and of masked vectors; `full` says which. The slow way reads the sums from memory, where keeping them
  // costs nothing.
  void EndRounded(Value* args, const std::vector<Value*>& acc, Value* full) {
    LoadEnding(args);
    Value* c_table = PointerField(args, offsetof(MicroArgs, c));
    llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
    sums_ = entry.CreateAlloca(vector_, b_.getInt32(spec_.mr * spec_.nv));
    Value* vanish = b_.CreateICmpNE(Field(args, offsetof(MicroArgs, denormals_vanish)), b_.getInt64(0));
    auto *usual = Block("usual"), *whole = Block("whole"), *part = Block("part");
    auto *unusual = Block("unusual"), *slow = Block("slow");
    b_.CreateCondBr(vanish, usual, unusual, llvm::MDBuilder(b_.getContext()).createBranchWeights(1000, 1));
    b_.SetInsertPoint(usual);
    b_.CreateCondBr(full, whole, part);
    for (const bool masked : {false, true}) {
      b_.SetInsertPoint(masked ? part : whole);
      EndPairs(acc, c_table, masked, slow);
    }
    b_.SetInsertPoint(unusual);
    for (int i = 0; i < spec_.mr * spec_.nv; ++i) Save(acc, i);
    b_.CreateBr(slow);
    b_.SetInsertPoint(slow);
    EndSlowly(c_table);
  }
  void Save(const std::vector<Value*>& acc, int i) {
    b_.CreateAlignedStore(acc[i], Byte(sums_, static_cast<int64_t>(i) * lanes_ * 4), llvm::Align(64));
  }

  void EndPairs(const std::vector<Value*>& acc, Value* c_table, bool masked, llvm::BasicBlock* slow) {
    std::vector<Value*> factor, summand;
    for (int v = 0; v < spec_.nv; ++v) {
      factor.push_back(ColumnVector(factors_, v, masked));
      summand.push_back(b_.CreateFAdd(ColumnVector(summands_, v, masked), positive_));
    }
    std::map<int, std::pair<Two, Two>> numbers;  // by a pair's first vector
    std::vector<Pair> pairs = Pairs();
    for (const Pair& pair : pairs) {
      const int first = pair.vector[0], second = pair.vector[1];
      if (numbers.count(first) > 0) continue;
      numbers[first] = {TwoColumns(factor[first], factor[second]), TwoColumns(summand[first], summand[second])};
    }
    const auto last = [&](int v) { return masked && v == spec_.nv - 1; };
    const auto at = [&](const Pair& pair, int i, Value* offset) {
      Value* row = Byte(b_.CreateLoad(pointer_, Byte(c_table, pair.row[i] * 8)), c_offset_);
      return Byte(Byte(row, offset), static_cast<int64_t>(pair.vector[i]) * lanes_ * 2);
    };
    Value* least = nullptr;
    for (Pair& pair : pairs) {
      const auto& [factors, summands] = numbers[pair.vector[0]];
      Two x;
      for (int i = 0; i < 2; ++i) {
        const int number = pair.row[i] * spec_.nv + pair.vector[i];
        x[i] = acc[number];
        if (added_ != nullptr) Save(acc, number);
      }
      x = TwoWidened(TwoConverted(x));
      for (int i = 0; i < 2; ++i) x[i] = b_.CreateFAdd(b_.CreateFMul(x[i], factors[i]), summands[i]);
      if (added_ != nullptr) {
        Value* more = nullptr;
        if (pair.whole && !last(pair.vector[1])) {
          more = LoadVector(at(pair, 0, added_), Halves(2), false);
        } else {
          Two parts;
          for (int i = 0; i < 2; ++i) parts[i] = LoadVector(at(pair, i, added_), Halves(1), last(pair.vector[i]));
          std::vector<int> all(2 * lanes_);
          std::iota(all.begin(), all.end(), 0);
          more = b_.CreateShuffleVector(parts[0], parts[1], all);
        }
        // Twice a bf16 less 1: least of denormals.
        Value* twice = b_.CreateAdd(b_.CreateAdd(more, more), llvm::Constant::getAllOnesValue(Halves(2)));
        least = least == nullptr ? twice : b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, least, twice);
        const Two rounded = TwoWidened(InOrder(TwoConverted(x))), wide = TwoWidened(more);
        for (int i = 0; i < 2; ++i) x[i] = b_.CreateFAdd(rounded[i], wide[i]);
      }
      pair.result = InOrder(TwoConverted({Bounded(x[0]), Bounded(x[1])}));
    }
    if (added_ != nullptr) {
      auto* store = Block("store");
      Value* denormal = b_.CreateICmpULT(least, b_.CreateVectorSplat(2 * lanes_, b_.getInt16(0xFF)));
      Value* any = b_.CreateICmpNE(b_.CreateBitCast(denormal, b_.getIntNTy(2 * lanes_)), b_.getIntN(2 * lanes_, 0));
      b_.CreateCondBr(any, slow, store, llvm::MDBuilder(b_.getContext()).createBranchWeights(1, 1000));
      b_.SetInsertPoint(store);
    }
    for (const Pair& pair : pairs) {
      if (pair.whole && !last(pair.vector[1])) {
        StoreVector(at(pair, 0, to_), pair.result, false, false);
        continue;
      }
      const int stores = pair.whole || pair.row[0] != pair.row[1] ? 2 : 1;
      for (int i = 0; i < stores; ++i) {
        StoreVector(at(pair, i, to_), HalfOf(pair.result, i), false, last(pair.vector[i]));
      }
    }
    b_.CreateBr(stored_);
  }

  // From the sums as they were kept: the rounding of loops, step by step.
  void EndSlowly(Value* c_table) {
    auto *before = b_.GetInsertBlock(), *loop = Block("row"), *done = Block("ended");
    b_.CreateBr(loop);
    b_.SetInsertPoint(loop);
    auto* row = b_.CreatePHI(b_.getInt64Ty(), 2);
    row->addIncoming(b_.getInt64(0), before);
    const auto at = [&](Value* base, int64_t bytes) { return Byte(base, b_.CreateMul(row, b_.getInt64(bytes))); };
    Value* c = Byte(b_.CreateLoad(pointer_, at(c_table, 8)), c_offset_);
    Value* own = at(sums_, static_cast<int64_t>(spec_.nv) * lanes_ * 4);
    const auto rounded = [&](Value* x) { return b_.CreateTrunc(b_.CreateLShr(RoundedBits(x), Words(16)), Halves(1)); };
    for (int v = 0; v < spec_.nv; ++v) {
      const bool last = v == spec_.nv - 1;
      const int64_t offset = static_cast<int64_t>(v) * lanes_;
      Value* x = Widened(rounded(LoadVector(Byte(own, offset * 4), vector_, false)));
      x = b_.CreateFAdd(b_.CreateFMul(x, ColumnVector(factors_, v, true)),
                        b_.CreateFAdd(ColumnVector(summands_, v, true), positive_));
      if (added_ != nullptr) {
        x = b_.CreateFAdd(Widened(rounded(x)), Widened(LoadVector(Byte(Byte(c, added_), offset * 2), Halves(1), last)));
        x = b_.CreateFAdd(x, positive_);  // rounding makes -0 of what is tiny
      }
      // Bounds are values of bf16, so that rounding may come after them.
      StoreVector(Byte(Byte(c, to_), offset * 2), rounded(Bounded(x)), false, last);
    }
    Value* next = b_.CreateAdd(row, b_.getInt64(1));
    row->addIncoming(next, loop);
    b_.CreateCondBr(b_.CreateICmpULT(next, b_.getInt64(spec_.mr)), loop, done);
    b_.SetInsertPoint(done);
    b_.CreateBr(stored_);
  }

  Value* LoadVector(Value* address, llvm::Type* type, bool masked) {
    const llvm::Align align(type->getScalarSizeInBits() / 8);
    if (!masked) return b_.CreateAlignedLoad(type, address, align);
    return b_.CreateMaskedLoad(type, address, align, mask_, llvm::Constant::getNullValue(type));
  }
  llvm::Type* Halves(int vectors) { return llvm::FixedVectorType::get(b_.getInt16Ty(), vectors * lanes_); }
  Value* Words(int64_t value) {
    return llvm::ConstantInt::get(llvm::FixedVectorType::get(b_.getInt32Ty(), lanes_), static_cast<uint64_t>(value),
                                  true);
  }
  Value* Widened(Value* halves) {
    auto* words = llvm::FixedVectorType::get(b_.getInt32Ty(), lanes_);
    return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(halves, words), Words(16)), vector_);
  }
  // To the nearest even bf16, in the high half; of a NaN its own digits there, quiet. As loops round.
  Value* RoundedBits(Value* x) {
    auto* words = llvm::FixedVectorType::get(b_.getInt32Ty(), lanes_);
    Value* bits = b_.CreateBitCast(x, words);
    Value* minus = b_.CreateXor(b_.CreateAnd(b_.CreateLShr(bits, Words(16)), Words(1)), Words(-0x7FFF));
    return b_.CreateSelect(b_.CreateFCmpUNO(x, x), b_.CreateOr(bits, Words(0x400000)), b_.CreateSub(bits, minus));
  }

  // The machine's conversion takes denormals for zeros, but no sum of its products is one.
  Value* Rounded(Value* sum) { return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512, {}, {sum}); }

  void StoreVector(Value* address, Value* value, bool adding, bool masked) {
    const llvm::Align align(value->getType()->getScalarSizeInBits() / 8);
    if (!masked) {
      if (adding) value = Sum(b_.CreateAlignedLoad(vector_, address, align), value);
      b_.CreateAlignedStore(value, address, align);
      return;
    }
    if (adding) {
      Value* old = b_.CreateMaskedLoad(vector_, address, align, mask_, llvm::ConstantAggregateZero::get(vector_));
      value = Sum(old, value);
    }
    b_.CreateMaskedStore(value, address, align, mask_);
  }

  const CpuTarget& target_;
  const MicroSpec& spec_;
  const bool pairs_, quads_;
  const bool integers_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;
  llvm::Type* element_ = nullptr;
  llvm::FixedVectorType* vector_ = nullptr;
  llvm::PointerType* pointer_ = nullptr;
  int lanes_ = 0;
  int element_bytes_ = 4;
  Value* k_ = nullptr;
  Value* a_stride_ = nullptr;
  Value* b_stride_ = nullptr;
  Value* ahead_step_ = nullptr;
  Value* c_offset_ = nullptr;
  llvm::BasicBlock* stored_ = nullptr;        // behind every ending
  Value *mask_ = nullptr, *lacks_ = nullptr;  // elements of a last four, which is read with those before it
  std::vector<Value*> rows_;
  // The values of a register epilogue.
  Value *least_ = nullptr, *most_ = nullptr, *positive_ = nullptr;
  Value *factors_ = nullptr, *summands_ = nullptr, *to_ = nullptr, *added_ = nullptr;
  Value* sums_ = nullptr;  // where they are kept
};

}  // namespace

absl::StatusOr<std::string> CompileMicro(const Jit& jit, const MicroSpec& spec, Jit::Form form) {
  if (IsTiles(spec.type)) return CompileTiles(jit, spec, form);
  if (spec.mr < 1 || spec.mr > 15 || spec.nv < 1 || spec.nv > 4) {
    return InternalError("no register tile of ", spec.mr, " rows and ", spec.nv, " vectors");
  }
  auto module = std::make_unique<JitModule>("weft_micro");
  Emitter(jit.target(), spec, module.get()).Emit();
  return jit.Compile(std::move(module), form);
}

}  // namespace weft::cpu
