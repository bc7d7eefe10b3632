// The loop IR: one kernel as an index space, affine loads and stores, and a scalar expression per element, with
// reductions over some of the dimensions. Fused graphs are lowered to it, codegen.cc turns it into machine code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/ir/scalar.h"
#include "src/ops/build.h"

namespace weft::cpu {

inline constexpr uint32_t kNoExpr = ~0u;

// Where element (i0, i1, …) of the index space lives: offset + sum of i[d] * strides[d], in elements of `dtype`.
struct Access {
  uint32_t buffer = 0;  // position among the kernel's buffers
  DType dtype = DType::kInvalid;
  int64_t offset = 0;
  std::vector<int64_t> strides;
  friend bool operator==(const Access&, const Access&) = default;
};

enum class ExprKind : uint8_t {
  kLoad,      // loads[index]
  kIndex,     // offset + sum of i[d] * strides[d] of indices[index], as i64
  kConstant,  // floats: `number`; integers and bool: `integer`
  kUnary,
  kBinary,
  kSelect,
  kFma,
  kConvert,
  kBitcast,
  kRound,    // f32 rounded to the values of `storage` (bf16, f16)
  kReduced,  // the finished reduction `index`
  kCarried,  // carries[index] as it is before this step of the reduced dimensions
  kFolded,   // carries[index] after all of them
};

// One scalar of the kernel. Computed types: bool, integers, f32, f64; bf16 and f16 exist in memory only. `storage` says of
// kRound what it rounds to; of functions of f64 that f32 or less becomes of them; of kConvert to f32 that a 16-bit type does,
// so that it must round to odd (the low bit says "inexact") lest the second rounding see a tie that there is not; of kBitcast
// which 16-bit float's bits are meant, where one is.
struct Expr {
  ExprKind kind = ExprKind::kConstant;
  ir::ScalarOp op = ir::ScalarOp::kAdd;
  DType dtype = DType::kInvalid;
  DType storage = DType::kInvalid;
  uint32_t index = 0;
  uint32_t args[3] = {kNoExpr, kNoExpr, kNoExpr};
  double number = 0;
  int64_t integer = 0;
};

struct Dim {
  int64_t size = 1;
  bool reduce = false;
  // A chunk of a longer dimension: `chunk_dim` counts chunks of `size`, and the last chunk ends at `total`.
  int32_t chunk_dim = -1;
  int64_t total = 0;
  // Set for a reduced dimension that others separated from the one before it: the two stay two whatever a layout makes
  // of them, so that sums keep their order.
  bool apart = false;
};

struct Reduction {
  ops::Reducer op = ops::Reducer::kSum;
  uint32_t expr = kNoExpr;
  DType dtype = DType::kInvalid;  // computed type
  int stage = 0;                  // set by Finish
};

// A value carried through the reduced dimensions in their order, one step after the other: a reduction by any function.
// `start` does not depend on them; `next` may depend on all carries.
struct Carry {
  uint32_t start = kNoExpr, next = kNoExpr;
  DType dtype = DType::kInvalid;  // computed type
};

// Stores to a full position once an element, or, if the access ignores the reduced dimensions, once a row.
struct Store {
  Access access;
  uint32_t expr = kNoExpr;
  bool row = false;
  int stage = 0;  // set by Finish
};

// Parallel dimensions come first, reduced ones after them; both in memory order of the widest operand. The last dimension
// of one of the two kinds is the vector dimension.
struct LoopKernel {
  std::vector<Dim> dims;
  std::vector<Access> loads;
  std::vector<Access> indices;  // of kIndex; dtype and buffer unused
  std::vector<Expr> exprs;      // topological
  std::vector<Reduction> reductions;
  std::vector<Carry> carries;  // then no reductions, and vectors never run along a reduced dimension
  std::vector<Store> stores;
  uint32_t buffers = 0;
  bool vector_reduces = false;  // the vector dimension is the last reduced one
  // Set by Finish: it was, but memory runs along the last parallel dimension. Vectors hold that many rows, each of which is summed in
  // the parts that vectors along it would have had.
  bool turned = false;
  int32_t product = -1;  // set by ToBlockLoop: the buffer whose block has just been made, and is near
  int vector_dim = -1;   // set by Finish
  int stages = 1;        // set by Finish: passes over the reduced dimensions

  bool reduces() const { return !reductions.empty() || !carries.empty(); }
  size_t parallel_dims() const;
  int64_t ParallelCount() const;
  int64_t ReducedCount() const;
};

// Bytes of distinct elements that its loads read, and operations on floats that it does, about; the largest stands for what is larger.
int64_t BytesRead(const LoopKernel& kernel);
int64_t FlopsOf(const LoopKernel& kernel);

// Per expression: what it depends on.
struct Dependence {
  bool vector = false;   // changes along the vector dimension
  bool reduced = false;  // changes along a reduced dimension
  int stage = 0;         // first stage in which it can be computed
};
std::vector<Dependence> Analyze(const LoopKernel& kernel);

// Results of a pass over the reduced dimensions are needed only where `condition`, one value a row, is `when`. kNoExpr: everywhere.
struct Guard {
  uint32_t condition = kNoExpr;
  bool when = true;
  friend bool operator==(const Guard&, const Guard&) = default;
};
// Per stage. A stage has a guard where all that it reduces goes into the same arm of selects by the same condition, which is known
// before: what norms compute again where squares have left their type's range. The code leaves the pass out then.
std::vector<Guard> GuardsOf(const LoopKernel& kernel);
// Tells whether every pass has a guard.
bool IsGuarded(const LoopKernel& kernel);

// Drops dimensions of size 1, merges neighbours that all accesses walk as one, sets stages and vector_dim.
void Finish(LoopKernel& kernel);

// Splits the outermost reduced dimension into `chunks` pieces whose partial results `second` combines: what lets few
// long reductions use all threads with a fixed order of additions. Only for one-stage kernels. The partial results are
// buffers first->buffers - n … of the first kernel and the first n of the second; `second_buffers` maps the others of the
// second to the original kernel's. chunk partials hold chunks * ParallelCount() elements of the computed type.
struct SplitKernel {
  LoopKernel first, second;
  std::vector<uint32_t> first_buffers, second_buffers;  // original buffer, or ~0 - k for partial k
  std::vector<DType> partial_types;
  int64_t partial_count = 0;
};
SplitKernel SplitReduction(const LoopKernel& kernel, int64_t chunks);

// Text for tests and dumps, e.g. "for [64 | 10]\n %0 = load b0[10, 1]\n…". With sizes=false, only what the machine code depends on:
// equal texts may share code, with sizes and strides as run-time arguments.
std::string ToString(const LoopKernel& kernel, bool sizes = true);

// Appends expressions to a kernel; equal ones are shared.
class LoopBuilder final : public ir::ScalarBuilder {
 public:
  explicit LoopBuilder(LoopKernel& kernel) : kernel_(kernel) {}

  // While set, functions of f64 need no more digits than a 16-bit type can hold.
  void set_for_16_bits(bool on) { for_16_bits_ = on; }

  ir::ScalarValue Load(Access access);
  ir::ScalarValue Index(Access access);
  ir::ScalarValue Reduce(ops::Reducer op, ir::ScalarValue x);
  // The first value of a new carry; its `next` is to be set.
  ir::ScalarValue Carried(ir::ScalarValue start);
  ir::ScalarValue Folded(uint32_t carry);
  // The bits of a 16-bit float, which is computed as f32.
  ir::ScalarValue BitsOfHalf(ir::ScalarValue x, DType half, DType to);
  // Rounds to what a tensor of `storage` can hold; nothing for computed types.
  ir::ScalarValue Round(ir::ScalarValue x, DType storage);

  ir::ScalarValue Unary(ir::ScalarOp op, ir::ScalarValue x) override;
  ir::ScalarValue Binary(ir::ScalarOp op, ir::ScalarValue x, ir::ScalarValue y) override;
  ir::ScalarValue Select(ir::ScalarValue condition, ir::ScalarValue x, ir::ScalarValue y) override;
  ir::ScalarValue Fma(ir::ScalarValue x, ir::ScalarValue y, ir::ScalarValue z) override;
  ir::ScalarValue Constant(DType dtype, double value) override;
  ir::ScalarValue IntConstant(DType dtype, int64_t value) override;
  ir::ScalarValue Convert(ir::ScalarValue x, DType to) override;
  ir::ScalarValue Bitcast(ir::ScalarValue x, DType to) override;

 private:
  ir::ScalarValue Add(const Expr& expr);

  LoopKernel& kernel_;
  std::map<std::string, uint32_t> known_;
  bool for_16_bits_ = false;
};

// Tells whether f32 arithmetic could round a 16-bit result of these expressions wrongly: a function, or more than one
// rounding. One addition, product, quotient or root in f32 of 16-bit operands rounds as if it had been exact.
bool NeedsF64For16Bits(const std::vector<Expr>& exprs);

}  // namespace weft::cpu
