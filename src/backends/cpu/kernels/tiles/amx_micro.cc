// Emits the blocks of tiles. LLVM's intrinsics that name a tile register (those under clang's _tile_loadd, _tile_dpbf16ps and _tile_dpbssd)
// stand for one instruction each: no allocation of tile registers, none of the passes that place configurations, and the
// operands of memory are LLVM's to choose. Inline assembly would say the same with clobbers that nobody checks. For the model
// the same calls go to functions of its.
#include "src/backends/cpu/kernels/tiles/amx_micro.h"

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <vector>

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

class Emitter {
 public:
  Emitter(const CpuTarget& target, const MicroSpec& spec, JitModule* module)
      : spec_(spec), module_(*module->module), b_(*module->context), real_(target.tiles == TileUnit::kAmx) {
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
    Value* steps = Field(args, offsetof(TileArgs, steps));
    Value* a_stride = Field(args, offsetof(TileArgs, a_stride));
    Value* a_step = Field(args, offsetof(TileArgs, a_step));
    Value* a_below = Field(args, offsetof(TileArgs, a_below));
    Value* b_beside = Field(args, offsetof(TileArgs, b_beside));
    Value* c_stride = Field(args, offsetof(TileArgs, c_stride));
    Value* c_start = PointerField(args, offsetof(TileArgs, c));
    Value* a_start = PointerField(args, offsetof(TileArgs, a));
    Value* b_start = PointerField(args, offsetof(TileArgs, b));
    Value* accumulate = b_.CreateICmpNE(Field(args, offsetof(TileArgs, accumulate)), b_.getInt64(0));
    auto *add = Block("add"), *set = Block("set"), *loop = Block("k"), *done = Block("done");
    b_.CreateCondBr(accumulate, add, set);
    b_.SetInsertPoint(add);
    EachSum(c_start, c_stride, [&](int tile, Value* at) { Load(tile, at, c_stride); });
    b_.CreateBr(loop);
    b_.SetInsertPoint(set);
    EachSum(c_start, c_stride,
            [&](int tile, Value*) { Do(llvm::Intrinsic::x86_tilezero, "weft_amx_model_zero", {tile}, {}); });
    b_.CreateBr(loop);

    b_.SetInsertPoint(loop);
    auto* left = b_.CreatePHI(b_.getInt64Ty(), 3);
    auto* a = b_.CreatePHI(pointer_, 3);
    auto* b = b_.CreatePHI(pointer_, 3);
    for (llvm::BasicBlock* from : {add, set}) {
      left->addIncoming(steps, from);
      a->addIncoming(a_start, from);
      b->addIncoming(b_start, from);
    }
    for (int j = 0; j < spec_.nv; ++j) Load(OfB(j), j == 0 ? b : Byte(b, b_beside), b_.getInt64(kTileRowBytes));
    for (int i = 0; i < spec_.mr; ++i) {
      Load(OfA(i), i == 0 ? a : Byte(a, a_below), a_stride);
      for (int j = 0; j < spec_.nv; ++j) {
        Multiply({Sum(i, j), OfA(i), OfB(j)});
      }
    }
    Value* left_next = b_.CreateSub(left, b_.getInt64(1));
    left->addIncoming(left_next, loop);
    a->addIncoming(Byte(a, a_step), loop);
    b->addIncoming(Byte(b, b_.getInt64(kTileBytes)), loop);
    b_.CreateCondBr(b_.CreateICmpNE(left_next, b_.getInt64(0)), loop, done);

    b_.SetInsertPoint(done);
    EachSum(c_start, c_stride, [&](int tile, Value* at) {
      Do(llvm::Intrinsic::x86_tilestored64, "weft_amx_model_store", {tile}, {at, c_stride});
    });
    b_.CreateRetVoid();
  }

 private:
  llvm::BasicBlock* Block(const char* name) { return llvm::BasicBlock::Create(b_.getContext(), name, function_); }
  Value* Byte(Value* pointer, Value* offset) { return b_.CreateGEP(b_.getInt8Ty(), pointer, offset); }
  Value* Field(Value* args, int64_t offset) { return b_.CreateLoad(b_.getInt64Ty(), Byte(args, b_.getInt64(offset))); }
  Value* PointerField(Value* args, int64_t offset) { return b_.CreateLoad(pointer_, Byte(args, b_.getInt64(offset))); }

  template <typename Each>
  void EachSum(Value* c, Value* c_stride, Each each) {
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

  void Load(int tile, Value* from, Value* stride) {
    Do(llvm::Intrinsic::x86_tileloadd64, "weft_amx_model_load", {tile}, {from, stride});
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
  llvm::Function* function_ = nullptr;
  llvm::PointerType* pointer_ = nullptr;
};

}  // namespace

MicroSpec TileBlock(MicroType type, int rows, int columns) { return {type, MicroForm::kRows, rows, columns, false}; }
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
