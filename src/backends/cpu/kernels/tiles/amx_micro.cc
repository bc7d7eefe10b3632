// Emits the blocks of tiles. LLVM's intrinsics that name a tile register (those under clang's _tile_loadd, _tile_dpbf16ps and _tile_dpbssd)
// stand for one instruction each: no allocation of tile registers, none of the passes that place configurations, and the
// operands of memory are LLVM's to choose. Inline assembly would say the same with clobbers that nobody checks. For the model
// the same calls go to functions of its.
#include "src/backends/cpu/kernels/tiles/amx_micro.h"

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "src/backends/cpu/jit/amx_model.h"
#include "src/backends/cpu/jit/jit_llvm.h"
#include "src/runtime/status.h"

namespace weft::cpu {
namespace {

using llvm::Value;

// Tile registers: four sums, two of A, two of B.
constexpr int Sum(int row, int column) { return row * 2 + column; }
constexpr int OfA(int row) { return 4 + row; }
constexpr int OfB(int column) { return 6 + column; }

constexpr int kBeginRows = 3, kEndRows = 4;  // MicroSpec::mr beyond a block's
constexpr MicroForm kStreams = MicroForm::kRowsStrided;
constexpr int kRowsAStep = 4;  // of earlier sums: as many as hide behind four products

class Emitter {
 public:
  Emitter(const CpuTarget& target, const MicroSpec& spec, JitModule* module)
      : spec_(spec),
        module_(*module->module),
        b_(*module->context),
        real_(target.tiles == TileUnit::kAmx),
        converts_(real_ && target.has_bf16_dot) {
    pointer_ = llvm::PointerType::getUnqual(b_.getContext());
    const bool block = spec.mr <= 2;
    auto* type = block ? llvm::FunctionType::get(b_.getVoidTy(), {pointer_}, false)
                       : llvm::FunctionType::get(b_.getVoidTy(), false);
    function_ = llvm::Function::Create(type, llvm::Function::ExternalLinkage, spec.Symbol(), module_);
    b_.SetInsertPoint(Block("entry"));
  }

  void EmitBegin() {
    WeftTileConfig config;
    config.palette = 1;
    for (int t = 0; t < 8; ++t) {
      config.rows[t] = kTileSide;
      config.row_bytes[t] = kTileRowBytes;
    }
    const std::vector<uint8_t> bytes(reinterpret_cast<const uint8_t*>(&config),
                                     reinterpret_cast<const uint8_t*>(&config + 1));
    auto* values = llvm::ConstantDataArray::get(b_.getContext(), bytes);
    auto* global =
        new llvm::GlobalVariable(module_, values->getType(), true, llvm::GlobalValue::PrivateLinkage, values, "config");
    global->setAlignment(llvm::Align(64));
    Do(llvm::Intrinsic::x86_ldtilecfg, "weft_amx_model_loadconfig", {}, {global});
    b_.CreateRetVoid();
  }

  void EmitEnd() {
    Do(llvm::Intrinsic::x86_tilerelease, "weft_amx_model_release", {}, {});
    b_.CreateRetVoid();
  }

  void EmitBlock() {
    Value* args = function_->getArg(0);
    a_stride_ = Field(args, offsetof(TileArgs, a_stride));
    a_below_ = Field(args, offsetof(TileArgs, a_below));
    b_beside_ = Field(args, offsetof(TileArgs, b_beside));
    rows_offset_ = Field(args, offsetof(TileArgs, rows_offset));
    a_ = PointerField(args, offsetof(TileArgs, a));
    sums_ = PointerField(args, offsetof(TileArgs, sums));
    Value* steps = Field(args, offsetof(TileArgs, steps));
    Value* before = PointerField(args, offsetof(TileArgs, before));
    Value* before_stride = Field(args, offsetof(TileArgs, before_stride));
    auto *add = Block("add"), *set = Block("set"), *begun = Block("begun");
    b_.CreateCondBr(b_.CreateIsNotNull(before), add, set);
    b_.SetInsertPoint(add);
    EachSum(before, before_stride, [&](int tile, Value* at) { Load(tile, at, before_stride, false); });
    b_.CreateBr(begun);
    b_.SetInsertPoint(set);
    EachSum(before, before_stride,
            [&](int tile, Value*) { Do(llvm::Intrinsic::x86_tilezero, "weft_amx_model_zero", {tile}, {}); });
    b_.CreateBr(begun);
    b_.SetInsertPoint(begun);
    Places at = {PointerField(args, offsetof(TileArgs, a_steps)), PointerField(args, offsetof(TileArgs, b)),
                 PointerField(args, offsetof(TileArgs, rows))};
    if (!IsIntegers(spec_.type)) {
      Value* rounds = b_.CreateIsNotNull(sums_);
      Value* most = b_.getInt64(kTileBlockSide / kRowsAStep);
      Value* first =
          b_.CreateSelect(rounds, b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, steps, most), b_.getInt64(0));
      Repeat(first, at, [&](Places& p) {
        Step(p);
        for (int i = 0; i < kRowsAStep; ++i) RoundRow(p);
      });
      Value* rows = b_.CreateMul(b_.CreateSub(most, first), b_.getInt64(kRowsAStep));
      Repeat(b_.CreateSelect(rounds, rows, b_.getInt64(0)), at, [&](Places& p) { RoundRow(p); });
      steps = b_.CreateSub(steps, first);
    }
    Repeat(steps, at, [&](Places& p) { Step(p); });
    Value* c_stride = Field(args, offsetof(TileArgs, c_stride));
    EachSum(PointerField(args, offsetof(TileArgs, c)), c_stride, [&](int tile, Value* place) {
      Do(llvm::Intrinsic::x86_tilestored64, "weft_amx_model_store", {tile}, {place, c_stride});
    });
    b_.CreateRetVoid();
  }

 private:
  // Pointers that move on: to the next offset of A, to the tiles of B, and to the next row of sums.
  enum { kSteps, kB, kRows };
  using Places = std::array<Value*, 3>;

  void Step(Places& at) {
    for (int j = 0; j < spec_.nv; ++j)
      Load(OfB(j), j == 0 ? at[kB] : Byte(at[kB], b_beside_), b_.getInt64(kTileRowBytes), true);
    Value* a = Byte(a_, Field(at[kSteps], 0));
    for (int i = 0; i < spec_.mr; ++i) {
      Load(OfA(i), i == 0 ? a : Byte(a, a_below_), a_stride_, spec_.form == kStreams);
      for (int j = 0; j < spec_.nv; ++j) Multiply({Sum(i, j), OfA(i), OfB(j)});
    }
    at[kSteps] = Byte(at[kSteps], b_.getInt64(sizeof(int64_t)));
    at[kB] = Byte(at[kB], b_.getInt64(kTileBytes));
  }

  // To the nearest even, as Narrow rounds. The machine's conversion takes denormals for zeros: sums of tiles are none.
  void RoundRow(Places& at) {
    auto* bits = llvm::FixedVectorType::get(b_.getInt32Ty(), kTileBlockSide);
    auto* floats = llvm::FixedVectorType::get(b_.getFloatTy(), kTileSide);
    Value* from = Byte(sums_, Field(at[kRows], offsetof(TileRow, from)));
    Value* to = nullptr;
    if (converts_) {
      Value* low = b_.CreateAlignedLoad(floats, from, llvm::Align(64));
      Value* high = b_.CreateAlignedLoad(floats, Byte(from, b_.getInt64(kTileRowBytes)), llvm::Align(64));
      to = b_.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {}, {high, low});
    } else {
      const auto all = [&](uint32_t word) { return llvm::ConstantInt::get(bits, word); };
      Value* sums = b_.CreateAlignedLoad(bits, from, llvm::Align(64));
      Value* high = b_.CreateLShr(sums, all(16));
      Value* up = b_.CreateLShr(b_.CreateAdd(b_.CreateAdd(sums, all(0x7FFF)), b_.CreateAnd(high, all(1))), all(16));
      Value* nan = b_.CreateICmpUGT(b_.CreateAnd(sums, all(0x7FFFFFFF)), all(0x7F800000));
      to = b_.CreateTrunc(b_.CreateSelect(nan, b_.CreateOr(high, all(0x40)), up),
                          llvm::FixedVectorType::get(b_.getInt16Ty(), kTileBlockSide));
    }
    Value* place = Byte(PointerField(at[kRows], offsetof(TileRow, to)), rows_offset_);
    b_.CreateAlignedStore(to, place, llvm::Align(2));
    at[kRows] = Byte(at[kRows], b_.getInt64(sizeof(TileRow)));
  }

  // `each` so many times, maybe none; it moves the places on.
  void Repeat(Value* times, Places& at, absl::FunctionRef<void(Places&)> each) {
    auto *from = b_.GetInsertBlock(), *loop = Block("loop"), *done = Block("done");
    b_.CreateCondBr(b_.CreateICmpNE(times, b_.getInt64(0)), loop, done);
    b_.SetInsertPoint(loop);
    auto* left = b_.CreatePHI(b_.getInt64Ty(), 2);
    left->addIncoming(times, from);
    std::array<llvm::PHINode*, 3> phis;
    Places next;
    for (size_t i = 0; i < at.size(); ++i) {
      next[i] = phis[i] = b_.CreatePHI(pointer_, 2);
      phis[i]->addIncoming(at[i], from);
    }
    each(next);
    Value* left_next = b_.CreateSub(left, b_.getInt64(1));
    auto* end = b_.GetInsertBlock();
    left->addIncoming(left_next, end);
    for (size_t i = 0; i < at.size(); ++i) phis[i]->addIncoming(next[i], end);
    b_.CreateCondBr(b_.CreateICmpNE(left_next, b_.getInt64(0)), loop, done);
    b_.SetInsertPoint(done);
    for (size_t i = 0; i < at.size(); ++i) {
      auto* phi = b_.CreatePHI(pointer_, 2);
      phi->addIncoming(at[i], from);
      phi->addIncoming(next[i], end);
      at[i] = phi;
    }
  }

  // Not inline: LLVM's builder is long wherever it stands.
  [[gnu::noinline]] llvm::BasicBlock* Block(const char* name) {
    return llvm::BasicBlock::Create(b_.getContext(), name, function_);
  }
  [[gnu::noinline]] Value* Byte(Value* pointer, Value* offset) { return b_.CreateGEP(b_.getInt8Ty(), pointer, offset); }
  [[gnu::noinline]] Value* LoadOf(llvm::Type* type, Value* args, int64_t offset) {
    return b_.CreateLoad(type, Byte(args, b_.getInt64(offset)));
  }
  Value* Field(Value* args, int64_t offset) { return LoadOf(b_.getInt64Ty(), args, offset); }
  Value* PointerField(Value* args, int64_t offset) { return LoadOf(pointer_, args, offset); }

  void EachSum(Value* c, Value* c_stride, absl::FunctionRef<void(int tile, Value* at)> each) {
    for (int i = 0; i < spec_.mr; ++i) {
      Value* row = i == 0 ? c : Byte(c, b_.CreateMul(c_stride, b_.getInt64(kTileSide)));
      for (int j = 0; j < spec_.nv; ++j) each(Sum(i, j), Byte(row, b_.getInt64(j * 4 * kTileSide)));
    }
  }

  void Multiply(std::initializer_list<int> tiles) {
    switch (spec_.type) {
      case MicroType::kI8Tiles: return Do(llvm::Intrinsic::x86_tdpbssd, "weft_amx_model_dpbssd", tiles, {});
      case MicroType::kU8Tiles: return Do(llvm::Intrinsic::x86_tdpbuud, "weft_amx_model_dpbuud", tiles, {});
      default: return Do(llvm::Intrinsic::x86_tdpbf16ps, "weft_amx_model_dp", tiles, {});
    }
  }

  // A tile that streams leaves the lines of L1 to others.
  void Load(int tile, Value* from, Value* stride, bool streams) {
    Do(streams ? llvm::Intrinsic::x86_tileloaddt164 : llvm::Intrinsic::x86_tileloadd64, "weft_amx_model_load", {tile},
       {from, stride});
  }

  // One instruction, or one call of the model with the same operands: tiles by number, then the rest.
  void Do(llvm::Intrinsic::ID instruction, const char* model, std::initializer_list<int> tiles,
          std::vector<Value*> rest) {
    std::vector<Value*> operands;
    for (const int tile : tiles) operands.push_back(real_ ? b_.getInt8(tile) : b_.getInt32(tile));
    operands.insert(operands.end(), rest.begin(), rest.end());
    if (real_) {
      b_.CreateIntrinsic(instruction, {}, operands);
      return;
    }
    std::vector<llvm::Type*> types;
    for (const Value* operand : operands) types.push_back(operand->getType());
    b_.CreateCall(module_.getOrInsertFunction(model, llvm::FunctionType::get(b_.getVoidTy(), types, false)), operands);
  }

  const MicroSpec& spec_;
  llvm::Module& module_;
  llvm::IRBuilder<> b_;
  const bool real_;
  const bool converts_;  // has the machine's conversion to bf16
  llvm::Function* function_ = nullptr;
  llvm::PointerType* pointer_ = nullptr;
  // Fields of a block's arguments.
  Value *a_ = nullptr, *a_stride_ = nullptr, *a_below_ = nullptr, *b_beside_ = nullptr;
  Value *sums_ = nullptr, *rows_offset_ = nullptr;
};

}  // namespace

MicroSpec TileBlock(MicroType type, int rows, int columns, bool a_streams) {
  return {type, a_streams ? kStreams : MicroForm::kRows, rows, columns, false};
}
MicroSpec TileBegin() { return TileBlock(MicroType::kBF16Tiles, kBeginRows, 1); }
MicroSpec TileEnd() { return TileBlock(MicroType::kBF16Tiles, kEndRows, 1); }

absl::StatusOr<std::string> CompileTiles(const Jit& jit, const MicroSpec& spec, Jit::Form form) {
  if (jit.target().tiles == TileUnit::kNone || spec.mr < 1 || spec.mr > kEndRows || spec.nv > (spec.mr > 2 ? 1 : 2)) {
    return InternalError("no block of ", spec.mr, " by ", spec.nv, " tiles for ", jit.target().name());
  }
  auto module = std::make_unique<JitModule>("weft_tiles");
  Emitter emitter(jit.target(), spec, module.get());
  if (spec.mr == kBeginRows) {
    emitter.EmitBegin();
  } else if (spec.mr == kEndRows) {
    emitter.EmitEnd();
  } else {
    emitter.EmitBlock();
  }
  return jit.Compile(std::move(module), form);
}

}  // namespace weft::cpu
