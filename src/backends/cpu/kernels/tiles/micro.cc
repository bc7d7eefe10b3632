// Emits register tiles as LLVM IR with explicit vectors. The loop over K holds MR*NV accumulators as phis; g++ would
// spill them, LLVM's allocator keeps them as long as MR*NV + NV + 1 fits the register file.
#include "src/backends/cpu/kernels/tiles/micro.h"

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/backends/cpu/kernels/tiles/amx_micro.h"
#include "src/backends/cpu/kernels/tiles/micro_ending.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using llvm::Value;

constexpr int64_t kSignsOfFour = -0x7F7F7F80;  // turns bytes with a sign into ones without, 128 more, and back

// The products of a step and their sums.
class ProductCode {
 public:
  explicit ProductCode(TileCode& code) : code_(code), b_(code.b) {}

  Value* Step(Value* acc, Value* a, Value* b) {
    if (code_.quads) return FoursOfBytes(acc, a, b);
    if (IsIntegers(code_.spec.type)) return b_.CreateAdd(acc, code_.pairs ? PairsOfI16(a, b) : b_.CreateMul(a, b));
    if (code_.pairs) {
      auto* pairs = llvm::FixedVectorType::get(b_.getBFloatTy(), code_.lanes * 2);
      return b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512, {},
                                {acc, b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)});
    }
    if (code_.target.has_fma) return b_.CreateIntrinsic(llvm::Intrinsic::fma, {code_.vector}, {a, b, acc});
    return b_.CreateFAdd(acc, b_.CreateFMul(a, b));
  }

 private:
  // Two products of i16 and their sum, in i32: (-2^15)^2 twice is the one that wraps. With VNNI the sum with `acc` is the same
  // instruction.
  Value* PairsOfI16(Value* a, Value* b) {
    auto* pairs = llvm::FixedVectorType::get(b_.getInt16Ty(), code_.lanes * 2);
    const auto multiply = code_.lanes == 4   ? llvm::Intrinsic::x86_sse2_pmadd_wd
                          : code_.lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                             : llvm::Intrinsic::x86_avx512_pmaddw_d_512;
    return b_.CreateIntrinsic(multiply, {}, {b_.CreateBitCast(a, pairs), b_.CreateBitCast(b, pairs)});
  }
  // Four products of a byte with a sign and one without, added.
  Value* FoursOfBytes(Value* acc, Value* a, Value* b) {
    const auto multiply =
        code_.lanes == 16 ? llvm::Intrinsic::x86_avx512_vpdpbusd_512 : llvm::Intrinsic::x86_avx512_vpdpbusd_256;
    if (code_.spec.type == MicroType::kU8Dot) std::swap(a, b);
    return b_.CreateIntrinsic(multiply, {}, {acc, a, b});
  }

  TileCode& code_;
  llvm::IRBuilder<>& b_;
};

// The fields of the argument block that are about K, the same for all taps.
struct StepFields {
  Value* k = nullptr;
  Value* a_stride = nullptr;  // null: an element
  Value* b_stride = nullptr;
  Value *ahead = nullptr, *ahead_step = nullptr, *ahead_tap = nullptr;
};

// The sums of a tile over K, tap by tap.
class TapCode {
 public:
  TapCode(TileCode& code, const StepFields& over) : code_(code), b_(code.b), products_(code), over_(over) {}

  // The sums with those of one tap; `rows`: its pointers into A.
  std::vector<Value*> Add(const std::vector<llvm::PHINode*>& sums, std::vector<Value*> rows, Value* b_start,
                          Value* tap) {
    rows_ = std::move(rows);
    std::vector<Value*> acc = BeginSums(sums, &b_start);
    Value* b_end = nullptr;
    acc = KLoop(acc, b_start, code_.Byte(over_.ahead, b_.CreateMul(tap, over_.ahead_tap)), &b_end);
    const bool odd = (code_.pairs || code_.quads) && code_.spec.form == MicroForm::kRows;
    return odd ? OddStep(acc, b_end) : acc;
  }

 private:
  Value* LoadB(Value* pointer, int v) {
    Value* address = code_.Byte(pointer, static_cast<int64_t>(v) * code_.lanes * code_.element_bytes);
    return code_.LoadVector(address, code_.vector, code_.spec.masked_b && v == code_.spec.nv - 1);
  }

  // Returns the sums that a tap adds to. For fours of bytes they begin with its first row of B; its steps are behind that row.
  std::vector<Value*> BeginSums(const std::vector<llvm::PHINode*>& sums, Value** b_start) {
    std::vector<Value*> acc(sums.begin(), sums.end());
    for (int v = 0; code_.quads && v < code_.spec.nv; ++v) {
      Value* first = LoadB(*b_start, v);
      for (int r = 0; r < code_.spec.mr; ++r) {
        Value*& sum = acc[r * code_.spec.nv + v];
        sum = b_.CreateAdd(sum, first);
      }
    }
    if (code_.quads) *b_start = code_.Byte(*b_start, over_.b_stride);
    return acc;
  }

  // The tile's work for one k: `offset` is the byte offset into A's rows.
  std::vector<Value*> OneK(const std::vector<Value*>& acc, Value* offset, Value* b_pointer, bool half) {
    std::vector<Value*> b_vectors;
    for (int v = 0; v < code_.spec.nv; ++v) b_vectors.push_back(LoadB(b_pointer, v));
    std::vector<Value*> next;
    for (int r = 0; r < code_.spec.mr; ++r) {
      const bool one_pointer = code_.spec.form == MicroForm::kColumns;
      Value* address = code_.Byte(one_pointer ? rows_[0] : rows_[r], offset);
      if (one_pointer && r > 0) address = code_.Byte(address, static_cast<int64_t>(r) * code_.element_bytes);
      Value* scalar = nullptr;
      if (code_.quads) {
        scalar = b_.CreateAlignedLoad(code_.element, address, llvm::Align(1));
        if (half) scalar = b_.CreateLShr(scalar, b_.CreateTrunc(b_.CreateMul(lacks_, b_.getInt64(8)), code_.element));
      } else if (half) {  // a lone bf16: the pair's other half is zero, whatever follows in memory
        scalar = b_.CreateZExt(b_.CreateAlignedLoad(b_.getInt16Ty(), address, llvm::Align(2)), b_.getInt32Ty());
      } else if (code_.pairs) {
        scalar = b_.CreateAlignedLoad(b_.getInt32Ty(), address, llvm::Align(2));
      } else {
        scalar = b_.CreateAlignedLoad(code_.element, address, llvm::Align(code_.element_bytes));
      }
      Value* a = b_.CreateVectorSplat(code_.lanes, scalar);
      if (code_.quads) a = b_.CreateXor(a, code_.Words(kSignsOfFour));
      for (int v = 0; v < code_.spec.nv; ++v)
        next.push_back(products_.Step(acc[r * code_.spec.nv + v], a, b_vectors[v]));
    }
    return next;
  }

  // Runs k steps; a tap has at least one (pairs and fours may have none, when all of its elements are odd ones).
  std::vector<Value*> KLoop(const std::vector<Value*>& start, Value* b_start, Value* ahead_start, Value** b_end) {
    auto* before = b_.GetInsertBlock();
    auto* loop = code_.Block("k");
    auto* after = code_.Block("after");
    const bool may_skip = code_.pairs || code_.quads;
    if (may_skip) {
      b_.CreateCondBr(b_.CreateICmpEQ(over_.k, b_.getInt64(0)), after, loop);
    } else {
      b_.CreateBr(loop);
    }
    b_.SetInsertPoint(loop);
    auto* left = b_.CreatePHI(b_.getInt64Ty(), 2);
    auto* offset = b_.CreatePHI(b_.getInt64Ty(), 2);
    auto* b_pointer = b_.CreatePHI(code_.pointer, 2);
    left->addIncoming(over_.k, before);
    offset->addIncoming(b_.getInt64(0), before);
    b_pointer->addIncoming(b_start, before);
    auto* ahead = b_.CreatePHI(code_.pointer, 2);
    ahead->addIncoming(ahead_start, before);
    std::vector<llvm::PHINode*> phis = code_.Phis(start, before);
    std::vector<Value*> acc = OneK({phis.begin(), phis.end()}, offset, b_pointer, false);
    code_.Prefetch(ahead);
    ahead->addIncoming(code_.Byte(ahead, over_.ahead_step), loop);
    Value* left_next = b_.CreateSub(left, b_.getInt64(1));
    Value* offset_next = b_.CreateAdd(
        offset, over_.a_stride != nullptr ? over_.a_stride : static_cast<Value*>(b_.getInt64(code_.element_bytes)));
    Value* b_next = code_.Byte(b_pointer, over_.b_stride);
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
    std::vector<Value*> merged = code_.Merged(start, before, acc, loop);
    auto* end = b_.CreatePHI(code_.pointer, 2);
    end->addIncoming(b_start, before);
    end->addIncoming(b_next, loop);
    *b_end = end;
    return merged;
  }

  std::vector<Value*> OddStep(const std::vector<Value*>& start, Value* b_pointer) {
    auto* before = b_.GetInsertBlock();
    auto* odd = code_.Block("odd");
    auto* after = code_.Block("even");
    Value* is_odd = b_.CreateICmpNE(code_.Field(offsetof(MicroArgs, odd)), b_.getInt64(0));
    b_.CreateCondBr(is_odd, odd, after);
    b_.SetInsertPoint(odd);
    Value* offset = b_.CreateMul(over_.k, b_.getInt64(4));
    lacks_ = b_.CreateSub(b_.getInt64(4), code_.Field(offsetof(MicroArgs, odd)));
    if (code_.quads) offset = b_.CreateSub(offset, lacks_);
    std::vector<Value*> acc = OneK(start, offset, b_pointer, true);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
    return code_.Merged(start, before, acc, odd);
  }

  TileCode& code_;
  llvm::IRBuilder<>& b_;
  ProductCode products_;
  const StepFields over_;
  std::vector<Value*> rows_;  // of the tap
  Value* lacks_ = nullptr;    // elements of a last four, which is read with those before it
};

class Emitter {
 public:
  Emitter(const CpuTarget& target, const MicroSpec& spec, JitModule& module)
      : code_(target, spec, module), b_(code_.b) {}

  void Emit() {
    auto* entry = code_.Block("entry");
    auto* tile_loop = code_.Block("tile");
    auto* tap_loop = code_.Block("tap");
    b_.SetInsertPoint(entry);
    Value* taps = code_.Field(offsetof(MicroArgs, taps));
    StepFields over;
    over.k = code_.Field(offsetof(MicroArgs, k));
    Value* a_table = code_.PointerField(offsetof(MicroArgs, a));
    if (code_.spec.form != MicroForm::kRows) over.a_stride = code_.Field(offsetof(MicroArgs, a_stride));
    Value* b_base = code_.PointerField(offsetof(MicroArgs, b));
    Value* b_offsets = code_.PointerField(offsetof(MicroArgs, b_offsets));
    over.b_stride = code_.Field(offsetof(MicroArgs, b_stride));
    code_.SetMask(code_.Field(offsetof(MicroArgs, last_lanes)));
    Value* ahead = code_.PointerField(offsetof(MicroArgs, ahead));
    over.ahead = b_.CreateSelect(b_.CreateIsNull(ahead), b_base, ahead);
    over.ahead_step = code_.Field(offsetof(MicroArgs, ahead_step));
    over.ahead_tap = b_.CreateMul(over.k, over.ahead_step);
    Value* tiles = code_.Field(offsetof(MicroArgs, tiles));
    Value* a_step = code_.Field(offsetof(MicroArgs, a_step));
    Value* c_step = code_.Field(offsetof(MicroArgs, c_step));
    Value* c_offset = code_.Field(offsetof(MicroArgs, c_offset));
    Value* asks = b_.CreateICmpNE(code_.Field(offsetof(MicroArgs, asks_c)), b_.getInt64(0));
    b_.CreateBr(tile_loop);

    b_.SetInsertPoint(tile_loop);
    auto* tile = b_.CreatePHI(b_.getInt64Ty(), 2);
    tile->addIncoming(b_.getInt64(0), entry);
    Value* a_offset = b_.CreateMul(tile, a_step);
    c_offset = b_.CreateAdd(c_offset, b_.CreateMul(tile, c_step));
    auto* ask = code_.Block("ask");
    auto* asked = code_.Block("asked");
    b_.CreateCondBr(asks, ask, asked);
    b_.SetInsertPoint(ask);
    AskForNext(b_.CreateAdd(c_offset, c_step));
    b_.CreateBr(asked);
    b_.SetInsertPoint(asked);
    b_.CreateBr(tap_loop);

    b_.SetInsertPoint(tap_loop);
    auto* tap = b_.CreatePHI(b_.getInt64Ty(), 2);
    tap->addIncoming(b_.getInt64(0), asked);
    const std::vector<Value*> zeros(code_.spec.mr * code_.spec.nv, llvm::ConstantAggregateZero::get(code_.vector));
    const std::vector<llvm::PHINode*> sums = code_.Phis(zeros, asked);
    std::vector<Value*> rows = Rows(a_table, tap, a_offset);
    Value* b_offset = b_.CreateLoad(b_.getInt64Ty(), b_.CreateGEP(b_.getInt64Ty(), b_offsets, tap));
    const std::vector<Value*> acc = TapCode(code_, over).Add(sums, std::move(rows), code_.Byte(b_base, b_offset), tap);
    auto* tap_next = b_.CreateAdd(tap, b_.getInt64(1));
    auto* latch = b_.GetInsertBlock();
    tap->addIncoming(tap_next, latch);
    for (size_t i = 0; i < acc.size(); ++i) sums[i]->addIncoming(acc[i], latch);
    auto* done = code_.Block("done");
    b_.CreateCondBr(b_.CreateICmpULT(tap_next, taps), tap_loop, done);

    b_.SetInsertPoint(done);
    auto* stored = code_.Block("stored");
    EndTile(code_, acc, c_offset, stored);

    b_.SetInsertPoint(stored);
    auto* leave = code_.Block("leave");
    Value* next = b_.CreateAdd(tile, b_.getInt64(1));
    tile->addIncoming(next, stored);
    b_.CreateCondBr(b_.CreateICmpULT(next, tiles), tile_loop, leave);
    b_.SetInsertPoint(leave);
    b_.CreateRetVoid();
  }

 private:
  // A tap's pointers into A.
  std::vector<Value*> Rows(Value* a_table, Value* tap, Value* a_offset) {
    const int pointers = code_.spec.form == MicroForm::kColumns ? 1 : code_.spec.mr;
    std::vector<Value*> rows;
    Value* first = b_.CreateMul(tap, b_.getInt64(pointers));
    for (int r = 0; r < pointers; ++r) {
      Value* slot = b_.CreateGEP(code_.pointer, a_table, b_.CreateAdd(first, b_.getInt64(r)));
      rows.push_back(code_.Byte(b_.CreateLoad(code_.pointer, slot), a_offset));
    }
    return rows;
  }

  // Rows of C that the next tile adds to.
  void AskForNext(Value* offset) {
    Value* c_table = code_.PointerField(offsetof(MicroArgs, c));
    for (int r = 0; r < code_.spec.mr; ++r) {
      Value* row = code_.Byte(b_.CreateLoad(code_.pointer, code_.Byte(c_table, r * 8)), offset);
      for (int v = 0; v < code_.spec.nv; ++v)
        code_.Prefetch(code_.Byte(row, static_cast<int64_t>(v) * code_.lanes * code_.element_bytes));
    }
  }

  TileCode code_;
  llvm::IRBuilder<>& b_;
};

}  // namespace

absl::StatusOr<std::string> CompileMicro(const Jit& jit, const MicroSpec& spec, Jit::Form form) {
  if (IsTiles(spec.type)) return CompileTiles(jit, spec, form);
  if (spec.mr < 1 || spec.mr > 15 || spec.nv < 1 || spec.nv > 4) {
    return InternalError("no register tile of ", spec.mr, " rows and ", spec.nv, " vectors");
  }
  auto module = std::make_unique<JitModule>("weft_micro");
  Emitter(jit.target(), spec, *module).Emit();
  return jit.Compile(std::move(module), form);
}

}  // namespace weft::cpu
